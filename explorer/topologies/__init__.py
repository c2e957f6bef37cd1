"""Builders of machines, and one reader per topology file format."""
