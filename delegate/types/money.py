"""Formats amounts of money."""

from typing import Literal


def rough_usd(amount: float | None, *, estimated: bool) -> str:
    """Format an amount where there is little room: `~$0.0123` if a part of it is estimated."""
    return f"~{usd(amount)}" if estimated and amount else usd(amount)


def usd(amount: float | None, style: Literal["usual", "short", "exact"] = "usual") -> str:
    """Format an amount as `$0.0123`, or `unknown` if it is None. An amount above zero is never shown as $0.00.

    `short` rounds to cents from ten cents on, `usual` from a dollar on. `exact` shows a billionth of a dollar, so that
    amounts which differ look different.
    """
    if amount is None:
        return "unknown"
    if style == "exact":
        return f"${amount:.9f}".rstrip("0").rstrip(".")
    if 0 < amount < 0.000001:
        return "under $0.000001"
    cents_from = 0.095 if style == "short" else 1
    digits = 2 if amount == 0 or amount >= cents_from else 4 if amount >= 0.0001 else 6
    return f"${amount:.{digits}f}"
