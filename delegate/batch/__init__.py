"""Runs any number of tasks from a file or a program: each is journaled, run at most once, and has one outcome."""
