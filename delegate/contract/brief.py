"""Reads the acceptance criteria that are written in a brief, as people and models write them in a text."""

import re
from collections.abc import Iterator

_SECTION = re.compile(r"^\W*acceptance[ _]criteria\b\W*$", re.IGNORECASE)
"""The line that begins the list of criteria."""
_ITEM = re.compile(r"^\s*(?:[-*•+]|\d+[.)])\s+(.*)$")


def criteria_in(brief: str) -> Iterator[str]:
    """The items below a line `Acceptance criteria`, up to the first line that is none."""
    lines = iter(brief.splitlines())
    if not any(_SECTION.match(line) for line in lines):
        return
    any_yet = False
    for line in lines:
        if item := _ITEM.match(line):
            any_yet = True
            yield item[1].strip()
        elif line.strip() and (not any_yet or not line.startswith((" ", "\t"))):
            return
