r"""Translates the regular expressions of JavaScript for the `regex` engine, which has a time limit.

The two dialects agree less than it seems (`$`, `\d`, `\s`, `.`, fuzzy counts, set operations …), so every part is
translated by name, and one that isn't known is refused. Counted repeats are unrolled by the engine: their product is
limited, or a pattern of twenty characters takes gigabytes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from delegate.judging.checks.predicate.problems import PredicateError
from delegate.judging.checks.predicate.text import SPACE

MAX_GROUP_DEPTH = 20
MAX_UNROLLED = 20_000
"""Single-character matchers in a pattern once its counted repeats are written out."""

_CODE = r"\\(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)"
_PART = re.compile(
    rf"""(?P<escape>{_CODE})
    |(?P<open>\((?:\?(?::|<?[=!]|<[A-Za-z_][A-Za-z0-9_]*>))?)
    |(?P<close>\))
    |(?P<quantifier>(?:[*+?]|\{{[0-9]{{1,9}}(?:,[0-9]{{0,9}})?\}})\??)
    |(?P<set>\[)
    |(?P<bar>\|)
    |(?P<anchor>[\^$])
    |(?P<char>[^\\()\[\]{{}}*+?|^$])""",
    re.VERBOSE | re.DOTALL,
)
_SET_ITEM = re.compile(rf"{_CODE}|[^\\\]]", re.DOTALL)
_LINE_END = r"\n\r\u2028\u2029"
_WORD = "A-Za-z0-9_"
_SETS = {
    "d": "0-9",
    "w": _WORD,
    "s": SPACE,
    "D": r"\x00-/:-\U0010ffff",
    "W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    "S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    r"\u3001-\ufefe\uff00-\U0010ffff",
}
_EDGES = {
    "b": f"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))",
    "B": f"(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}]))",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


def has_odd_case(char: str) -> bool:
    """Whether engines differ over what `char` equals when case is ignored: ſ, ı, ẞ and the like."""
    if char.isascii():
        return False
    lower, upper = char.lower(), char.upper()
    return len(lower + upper) != 2 or lower.isascii() or upper.isascii() or lower.upper() != upper


@dataclass(slots=True)
class _Level:
    """One open group: how it began, and what is known of its parts before the last one and of that one.

    `empty`: everything since the group or the alternative began can match the empty text.
    """

    opening: str
    size: int = 0
    last_size: int = 0
    captures: bool = False
    last_captures: bool = False
    empty: bool = True
    last_empty: bool = True
    empty_alternative: bool = False

    def add(self, size: int, *, captures: bool = False, empty: bool = True) -> None:
        """One more part; of size 0 when it can't be repeated."""
        self.size, self.last_size = self.size + self.last_size, size
        self.captures, self.last_captures = self.captures or self.last_captures, captures
        self.empty, self.last_empty = self.empty and self.last_empty, empty

    def end_alternative(self) -> None:
        """What comes next is another alternative, or the end."""
        self.add(0)
        self.empty_alternative |= self.empty
        self.empty = True


@dataclass(slots=True)
class Translator:
    """Translates one pattern. `loses_captures` is set where what a group captured last would differ."""

    source: str
    flags: str
    loses_captures: bool = False
    _at: int = 0
    _names: set[str] = field(default_factory=set[str])
    _levels: list[_Level] = field(default_factory=lambda: [_Level("")])

    def translate(self) -> str:
        """The pattern for the `regex` engine. Raises PredicateError naming the part that isn't supported."""
        rules: dict[str, Callable[[str], str]] = {
            "escape": self._escape,
            "open": self._open,
            "close": self._close,
            "quantifier": self._quantifier,
            "set": self._set,
            "bar": self._bar,
            "anchor": self._anchor,
            "char": self._char,
        }
        out: list[str] = []
        while self._at < len(self.source):
            match = _PART.match(self.source, self._at)
            if match is None or match.lastgroup is None:
                raise self._refused(self.source[self._at])
            self._at = match.end()
            out.append(rules[match.lastgroup](match[0]))
        if len(self._levels) > 1:
            raise self._refused("(")
        return "".join(out)

    # ------------------------------------------------------------------------------------------ groups and repeats

    def _open(self, part: str) -> str:
        captures = part == "(" or (part.startswith("(?<") and part[3] not in "=!")
        self._levels.append(_Level(part, captures=captures))
        if len(self._levels) > MAX_GROUP_DEPTH:
            raise PredicateError(f"a regular expression nests more than {MAX_GROUP_DEPTH} groups")
        if not (captures and len(part) > 1):
            return part
        if part in self._names:
            raise self._refused(part)
        self._names.add(part)
        return "("  # nothing here can read a group by its name

    def _close(self, part: str) -> str:
        if len(self._levels) == 1:
            raise self._refused(part)
        inner = self._levels.pop()
        inner.end_alternative()
        looks_around = inner.opening[-1] in "=!"
        self._add(inner.size, captures=inner.captures, empty=looks_around or inner.empty_alternative)
        if looks_around:
            self.loses_captures |= inner.captures and inner.opening.startswith("(?<")
            self._add(0)
        return part

    def _quantifier(self, part: str) -> str:
        level = self._levels[-1]
        counts = [int(count) for count in re.findall("[0-9]+", part)]
        if level.last_size == 0 or counts != sorted(counts):
            raise self._refused(part)
        if level.last_empty:
            raise self._refused(part, "after what can be empty")  # engines differ in when they stop
        self.loses_captures |= level.last_captures
        level.last_size *= max(1, *counts) if counts else 1
        level.last_empty |= part[0] in "*?" or counts[:1] == [0]
        self._add(0)
        return part

    def _bar(self, part: str) -> str:
        self._levels[-1].end_alternative()
        return part

    def _add(self, size: int, *, captures: bool = False, empty: bool = True) -> None:
        self._levels[-1].add(size, captures=captures, empty=empty)
        if sum(level.size + level.last_size for level in self._levels) > MAX_UNROLLED:
            raise PredicateError(f"a regular expression repeats itself more than {MAX_UNROLLED:,} times")

    # ------------------------------------------------------------------------------------------------- characters

    def _char(self, part: str) -> str:
        self._add(1, empty=False)
        if part == ".":
            return r"[\x00-\U0010ffff]" if "s" in self.flags else f"[^{_LINE_END}]"
        return self._literal(part)

    def _anchor(self, part: str) -> str:
        self._add(0)
        if part == "^":
            return rf"(?:\A|(?<=[{_LINE_END}]))" if "m" in self.flags else r"\A"
        return rf"(?:\Z|(?=[{_LINE_END}]))" if "m" in self.flags else r"\Z"

    def _escape(self, part: str) -> str:
        name = part[1:]
        if name in _EDGES:
            self._add(0)
            return _EDGES[name]
        self._add(1, empty=False)
        if name in _SETS:
            # A complement, not a range up to the last character: that would match `s` as ſ when case is ignored.
            return f"[{_SETS[name]}]" if name.islower() else f"[^{_SETS[name.lower()]}]"
        return self._literal(self._escaped_char(part))

    def _escaped_char(self, part: str) -> str:
        name = part[1:]
        if len(name) > 1:
            return self._coded_char(part)
        if name == "0" and self.source[self._at : self._at + 1].isdigit():
            raise self._refused(part)
        if name in _CONTROLS:
            return _CONTROLS[name]
        if name.isalnum() or not name.isascii() or name == "_":
            raise self._refused(part)
        return name

    def _coded_char(self, part: str) -> str:
        code = int(part[2:].strip("{}"), 16)
        unicode = "u" in self.flags
        if ("{" in part and not unicode) or (unicode and 0xD800 <= code < 0xE000) or code > 0x10FFFF:
            raise self._refused(part)
        return chr(code)

    def _literal(self, char: str) -> str:
        if "i" in self.flags and has_odd_case(char):
            raise self._refused(char)
        return char if char.isalnum() or not char.isascii() else f"\\x{ord(char):02x}"

    # ------------------------------------------------------------------------------------------------------- sets

    def _set(self, part: str) -> str:
        self._add(1, empty=False)
        negated = self.source.startswith("^", self._at)
        self._at += negated
        items = "".join(self._set_items())
        if items:
            return f"[{'^' if negated else ''}{items}]"
        return r"[\x00-\U0010ffff]" if negated else "(?!)"

    def _set_items(self) -> Iterator[str]:
        while not self.source.startswith("]", self._at):
            first, low = self._set_item()
            if self.source[self._at : self._at + 1] != "-" or self.source[self._at + 1 : self._at + 2] in ("]", ""):
                yield first
                continue
            self._at += 1
            second, high = self._set_item()
            if low is None or high is None or low > high or ("i" in self.flags and high > 127):
                raise self._refused("[…-…]")
            yield f"{first}-{second}"
        self._at += 1

    def _set_item(self) -> tuple[str, int | None]:
        """The next item of a set, and its code when it is one character."""
        match = _SET_ITEM.match(self.source, self._at)
        if match is None:
            raise self._refused("[")
        self._at = match.end()
        part, name = match[0], match[0][1:]
        if part[0] != "\\":
            return self._literal(part), ord(part)
        if name in _SETS:
            if name == "W" and "i" in self.flags:  # its range would hold ſ, and with it `s`
                raise self._refused(part)
            return _SETS[name], None
        char = "\b" if name == "b" else self._escaped_char(part)
        return self._literal(char), ord(char)

    def _refused(self, part: str, why: str = "") -> PredicateError:
        where = f"{why} at character {self._at} of the regular expression /{self.source}/"
        return PredicateError(f"`{part}` {where.strip()} is not supported")
