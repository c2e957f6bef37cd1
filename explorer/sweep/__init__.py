"""Running many design points."""
