"""Measures judges with rulings: how often each is wrong, and what that means for who may judge."""
