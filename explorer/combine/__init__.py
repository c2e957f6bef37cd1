"""Schedules made of schedules: reversal and composition."""
