"""Reads the word lists of `judges/subjects.toml`, and matches them."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

from delegate._util.resources import text


@cache
def word_lists() -> Mapping[str, Sequence[str]]:
    """All lists by name."""
    return tomllib.loads(text("judges", "subjects.toml"))


def any_of(*lists: str) -> str:
    """A regular expression for any entry of these lists. A space in an entry stands for any white space."""
    entries = (entry.replace(" ", r"\s+") for name in lists for entry in word_lists()[name])
    return f"(?:{'|'.join(entries)})"


class WordPattern:
    """A regular expression with word lists. It is long, so it is compiled on first use, which takes up to 4 ms."""

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = pattern
        self._flags = flags

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The first match at or after `start`."""
        return self._compiled.search(text, start)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """The match at `start`."""
        return self._compiled.match(text, start)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches, one after the other."""
        return self._compiled.finditer(text)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)
