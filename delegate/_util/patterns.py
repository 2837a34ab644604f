"""Validate regular expressions written by models before they are compiled.

The `regex` library can limit the time of a search but not of a compilation, and it expands counted repeats:
`(?:(?:a{1000}){1000}){20}` takes gigabytes.
"""

import re

MAX_PATTERN_CHARS = 5_000
MAX_EXPANDED = 100_000
"""Maximum number of items in a pattern with its counted repeats expanded."""

_ITEM = re.compile(r"\\.|\[\^?+\]?+(?:\\.|[^\]\\])*(?:\]|\Z)|\{(\d{1,9}+)?+,?+(\d{1,9}+)?+\}|.", re.DOTALL)


def pattern_fault(pattern: str) -> str | None:
    """Return why `pattern` can't be used in a check, or None."""
    import regex

    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it has {len(pattern):,} characters, but at most {MAX_PATTERN_CHARS:,} are allowed"
    if _expanded_size(pattern) > MAX_EXPANDED:
        return f"its counted repeats expand to more than {MAX_EXPANDED:,} items; use smaller counts"
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        return str(error)
    return None


def _expanded_size(pattern: str) -> int:
    """Estimate the number of items with counted repeats expanded, from the pattern's groups, sets and repeats."""
    open_groups, last = [0], 0
    for item in _ITEM.finditer(pattern):
        text = item.group()
        if text == "(":
            open_groups.append(0)
            continue
        if text == ")" and len(open_groups) > 1:
            last = open_groups.pop()
        elif text[0] == "{" and (counts := [int(n) for n in item.groups() if n]):
            last *= max(0, max(counts) - 1)  # one repetition is counted already
        else:
            last = 1
        open_groups[-1] += last
    return sum(open_groups)
