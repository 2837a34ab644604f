"""Converts the records of tasks into formats of other tools: trajectories and training data."""
