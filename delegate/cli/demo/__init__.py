"""The tasks of `delegate demo`, and its models."""
