"""Regular expressions from models, looked at before an engine sees them.

The engine of the checks has a time limit for searching, but none for compiling, and it writes counted repeats out:
`(?:(?:a{1000}){1000}){20}` takes gigabytes.
"""

import re

MAX_PATTERN_CHARS = 5_000
MAX_EXPANDED = 100_000
"""Items of a pattern after its counted repeats are written out."""

_ITEM = re.compile(r"\\.|\[\^?+\]?+(?:\\.|[^\]\\])*(?:\]|\Z)|\{(\d{1,9}+)?+,?+(\d{1,9}+)?+\}|.", re.DOTALL)


def pattern_fault(pattern: str) -> str | None:
    """What keeps `pattern` from being used in a check, or None. The engine is imported here, on first use."""
    import regex

    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it has {len(pattern):,} characters, at most {MAX_PATTERN_CHARS:,} are taken"
    if _expanded(pattern) > MAX_EXPANDED:
        return "its repeats multiply to something huge"
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        return str(error)
    return None


def _expanded(pattern: str) -> int:
    """The items of a pattern, counted repeats written out. An estimate: it knows groups, sets and repeats."""
    open_groups, last = [0], 0
    for item in _ITEM.finditer(pattern):
        text = item.group()
        if text == "(":
            open_groups.append(0)
            continue
        if text == ")" and len(open_groups) > 1:
            last = open_groups.pop()
        elif text[0] == "{" and (counts := [int(n) for n in item.groups() if n]):
            last *= max(0, max(counts) - 1)  # beside the one that is counted already
        else:
            last = 1
        open_groups[-1] += last
    return sum(open_groups)
