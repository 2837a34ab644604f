"""The folder that a child works in: opened, watched, frozen, and taken over."""
