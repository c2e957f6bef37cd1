"""A program run for real on CPU processes."""
