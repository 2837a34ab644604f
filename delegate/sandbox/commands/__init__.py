"""Runs command lines in bubblewrap or under Landlock."""
