"""Reads the word lists of `judges/subjects.toml`."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache

from delegate._util.resources import text


@cache
def word_lists() -> Mapping[str, Sequence[str]]:
    """All lists by name."""
    return tomllib.loads(text("judges", "subjects.toml"))


def any_of(*lists: str) -> str:
    """A regular expression for any entry of these lists. A space in an entry stands for any white space."""
    entries = (entry.replace(" ", r"\s+") for name in lists for entry in word_lists()[name])
    return f"(?:{'|'.join(entries)})"
