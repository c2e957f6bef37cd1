"""Scenario YAML to design points."""
