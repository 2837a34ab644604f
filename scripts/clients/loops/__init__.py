"""Agents that aren't programs of their own: each script runs in the client's venv, without the rest of this package."""
