"""Confines a child's files (`workspace`) and commands (`commands`)."""
