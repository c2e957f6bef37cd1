"""Synthesis with HiGHS: routing, ordering, scheduling."""
