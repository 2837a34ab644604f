"""Checks what a report cites: whether each source was opened, and whether it has the quotes and numbers."""
