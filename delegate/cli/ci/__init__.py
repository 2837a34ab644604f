"""Formats in which systems for continuous integration read a verdict."""
