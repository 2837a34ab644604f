"""Prices in whole cents."""


def discounted(cents: int, percent: int) -> int:
    """The price after a discount of `percent`, rounded half up to whole cents."""
    return cents * (100 - percent) // 100
