"""Measurements of the planner and of the running controller: ``python -m benchmarks``."""
