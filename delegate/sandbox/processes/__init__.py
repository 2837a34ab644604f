"""Runs one program: its environment, its limits, and its end."""
