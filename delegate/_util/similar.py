"""Finds the name that somebody probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def most_similar(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is most like `name`, in whatever case it is written; None if none is."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    close = get_close_matches(name[:60].lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None
