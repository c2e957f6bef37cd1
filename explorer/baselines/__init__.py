"""Standard algorithms to compare with."""
