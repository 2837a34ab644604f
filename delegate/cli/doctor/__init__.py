"""The examinations of `delegate doctor`."""
