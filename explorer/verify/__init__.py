"""Independent proof that a schedule, a program or a file is right."""
