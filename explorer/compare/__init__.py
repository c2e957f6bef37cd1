"""Ranking and winners."""
