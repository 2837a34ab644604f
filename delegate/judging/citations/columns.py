"""Tells by its name of which other column or field one is the source that only cites."""

import re

_WORDS = re.compile(r"[A-Z]?[^\W_A-Z]+|[A-Z]+")
"""Also of `staffSource`."""


def is_source_of(column: str, name: str) -> bool:
    """Whether a column is named after another one but for its last word: `ceo_source`, `ceo.source` after `ceo`."""
    return _words(column)[:-1] == _words(name)


def named_after(column: str, names: list[str]) -> list[int]:
    """The places of the names that begin with all words of a column but its last, or else but its first.

    So `staff_source` and `sourceStaff` are named after `staff` and `staff_count`.
    """
    words, others = _words(column), [_words(name) for name in names]
    for rest in (words[:-1], words[1:]):
        if rest and (found := [n for n, other in enumerate(others) if other[: len(rest)] == rest]):
            return found
    return []


def _words(name: str) -> list[str]:
    return list(map(str.casefold, _WORDS.findall(name)))
