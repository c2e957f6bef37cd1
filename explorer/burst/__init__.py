"""Burst-parallel training: layer profiles, the planner, its baselines and Pareto front."""
