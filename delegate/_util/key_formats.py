"""Finds keys of known formats in text. The formats are data: `secret_formats.toml`."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class _Format(NamedTuple):
    prefixes: tuple[str, ...]
    rest: str
    in_words: bool = False
    """Whether it also matches inside a word. Other formats match only at the start of a word or after a JSON escape."""

    @cache  # noqa: B019  # of which there are some dozens; compiled where a text may have such a key
    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the whole key.

        The literal prefix comes first, because `re` finds a literal quickly; a lookbehind then checks what precedes it.
        That way a long run of word characters is scanned only once.
        """
        prefixes = "|".join(f"{prefix}{self._boundary(prefix)}" for prefix in map(re.escape, self.prefixes))
        return re.compile(f"(?:{prefixes}){self.rest}")

    def pattern_after(self, prefix: str, rare: str) -> str:
        """The regular expression of the whole key, for use right after the last `rare` character of the prefix."""
        before, _, after = prefix.rpartition(rare)
        beginning = re.escape(before + rare)
        return f"(?<={beginning}){self._boundary(beginning)}{re.escape(after)}{self.rest}"

    def _boundary(self, beginning: str) -> str:
        if self.in_words:
            return ""
        return rf"(?:(?<![A-Za-z0-9-]{beginning})|(?<=\\[bfnrt]{beginning})|(?<=\\u00[01][0-9a-f]{beginning}))"


class _Shape(NamedTuple):
    """One kind of secret without a prefix. Texts without `needs` and `literal` don't contain it."""

    needs: str
    literal: str
    pattern: re.Pattern[str]


_SHORTEST_KEY = 12
"""Shorter texts contain no key of these formats."""
_RARE_CHARACTERS = "JK_-.AG~"
"""Characters of which each prefix has one. The search starts from the first of these."""
_RARE_IN_SHAPES = "@=_:-K/"
_RUN = "(?=[A-Za-z0-9_+/=.~@-]{10})"
"""What follows every prefix; this rules out most positions."""


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("secret_formats.toml").read_text(encoding="utf-8"))


@cache
def _formats() -> tuple[_Format, ...]:
    return tuple(
        _Format(tuple(entry["prefixes"]), entry["rest"], entry.get("in_words", False)) for entry in _data()["formats"]
    )


@cache
def _shapes() -> tuple[_Shape, ...]:
    return tuple(
        _Shape(
            entry.get("needs") or next(filter(entry["literal"].__contains__, _RARE_IN_SHAPES), entry["literal"][0]),
            entry["literal"],
            re.compile(entry["pattern"]),
        )
        for entry in _data()["shapes"]
    )


@cache
def _word() -> re.Pattern[str]:
    return re.compile("|".join(entry["pattern"] for entry in _data()["words"]))


@cache
def _prefixes() -> Mapping[str, Sequence[tuple[_Format, str]]]:
    """The prefixes of all formats, by the first rare character in each."""
    prefixes: defaultdict[str, list[tuple[_Format, str]]] = defaultdict(list)
    for key_format in _formats():
        for prefix in key_format.prefixes:
            prefixes[next(filter(prefix.__contains__, _RARE_CHARACTERS))].append((key_format, prefix))
    return dict(prefixes)


@cache
def _rare_search(rare: str) -> re.Pattern[str]:
    """A regular expression that matches exactly the texts that contain a key with this rare character.

    Searching for one rare character first is faster than searching for the prefixes. Each is compiled when needed.
    """
    prefixes = _prefixes()[rare]
    before = {prefix.rpartition(rare)[0][-1:] for _, prefix in prefixes}
    first = re.escape(rare)
    one_of = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{first})"
    every = (key_format.pattern_after(prefix, rare) for key_format, prefix in prefixes)
    return re.compile(f"{first}{_RUN}{one_of}(?:{'|'.join(every)})")


def contains_key(text: str) -> bool:
    if len(text) < _SHORTEST_KEY:
        return False
    for rare in _prefixes():
        if rare in text and _rare_search(rare).search(text):
            return True
    return any(shape.pattern.search(text) for shape in _shapes() if shape.needs in text and shape.literal in text)


def key_spans(text: str, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where the keys of known formats are in a text. They may overlap.

    `runs` are where at least 27 letters, digits, or of `+/_-` are in a row.
    """
    for start, end in runs:
        yield from map(_span, _word().finditer(text, start, end))
    if not contains_key(text):
        return
    for key_format in _formats():
        if any(prefix in text for prefix in key_format.prefixes):
            yield from map(_span, key_format.pattern().finditer(text))
    for shape in _shapes():
        if shape.needs in text and shape.literal in text:
            yield from map(_span, shape.pattern.finditer(text))


def _span(match: re.Match[str]) -> tuple[int, int]:
    return match.span(1 if match.re.groups else 0)
