"""Lays out a task's screen: a headline, then labeled rows in columns.

No line is wider than the console, also where characters take two columns; text wraps at words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

WIDEST = 120
"""Lines don't get longer than this, as long lines are hard to read."""
SIDE_BY_SIDE = 72
"""Minimum number of columns to put details next to the text; below that, they are put below it."""
_INDENT = 2
_GAP = 2
_TEXT_SHARE = 0.48
"""Maximum share of a line that the text takes where there are details."""


class Row(NamedTuple):
    """A labeled text, and details that are put next to it or below it."""

    label: Text
    text: Text
    details: Text | None = None
    aside: bool = False
    """Whether the details only fill a rest of the line: they don't narrow the text, and follow below it if need be."""


def row(label: str, text: str, aside: str = "", *, style: str = "dim") -> Row:
    """A row whose label has this style. The texts are safe for a terminal."""
    return Row(Text(label, style), Text(text), Text(aside, "dim") if aside else None, aside=True)


@dataclass(frozen=True)
class Screen:
    """A headline with figures at its right end, and rows below it. Prints itself at the width of the console."""

    head: Text
    figures: str
    rows: Sequence[Row] = field(default_factory=tuple[Row, ...])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        yield from self._headline(width)
        indent = _INDENT + max((cell_len(row.label.plain) for row in self.rows), default=0) + _GAP
        # As wide as the widest text that has details, unless that leaves too little for these.
        widest = max((cell_len(row.text.plain) for row in self.rows if row.details and not row.aside), default=0)
        beside = min(widest, int((width - indent) * _TEXT_SHARE)) if width >= SIDE_BY_SIDE else 0
        for row in self.rows:
            label = Text(" " * _INDENT).append_text(row.label)
            for line in _lines(console, row, width - indent, beside):
                whole = _padded(label, indent).append_text(line)
                whole.rstrip()
                yield whole
                label = Text()

    def _headline(self, width: int) -> Iterator[Text]:
        """The headline in one line, cut with `…` to leave room for the figures."""
        figures = Text(self.figures, "dim")
        head, room = self.head.copy(), width - cell_len(self.figures) - _GAP
        if room < _TEXT_SHARE * width:  # the figures get a line of their own
            head.truncate(width, overflow="ellipsis")
            yield head
            yield figures
            return
        head.truncate(room, overflow="ellipsis")
        yield (_padded(head, room + _GAP).append_text(figures) if self.figures else head)


def _lines(console: Console, row: Row, room: int, beside: int) -> Iterator[Text]:
    """The lines of a row without its label. Details are put next to a text of `beside` columns or, if 0, below it."""
    if row.aside and row.details:
        beside = max(beside, cell_len(row.text.plain))
        beside = beside if beside + _GAP + cell_len(row.details.plain) <= room else 0
    if row.details and beside:
        texts, details = wrapped(console, row.text, beside), wrapped(console, row.details, room - beside - _GAP)
        for n in range(max(len(texts), len(details))):
            text = texts[n] if n < len(texts) else Text()
            yield _padded(text, beside + _GAP).append_text(details[n]) if n < len(details) else text
        return
    yield from wrapped(console, row.text, room)
    for text in wrapped(console, row.details, room - _GAP) if row.details else ():
        yield Text(" " * _GAP).append_text(text)


@dataclass(frozen=True)
class Trimmed:
    """A table without the spaces that fill its lines."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.table, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            yield Segments([*line[:-1], *(Segment(last.text.rstrip(), last.style) for last in line[-1:])])
            yield Segment.line()


@dataclass(frozen=True)
class Prose:
    """Lines that wrap at words, without spaces at their ends. What is wrapped is indented by `hang` more columns."""

    text: Text
    hang: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        for line in self.text.split("\n", allow_blank=True):
            plain = line.plain
            indent = len(plain) - len(plain.lstrip()) + self.hang
            first, *_ = wrapped(console, line, width)
            yield first
            rest = plain[len(first.plain) :].lstrip()
            for part in wrapped(console, line[len(plain) - len(rest) :], width - indent) if rest else ():
                yield Text(" " * indent).append_text(part)


def wrapped(console: Console, text: Text, width: int) -> list[Text]:
    """The text in lines of at most `width` columns, broken at words; a longer word is broken too."""
    lines = list(text.wrap(console, max(width, 2), overflow="fold", no_wrap=False))
    for line in lines:
        line.rstrip()
    return lines or [Text()]


def _padded(text: Text, width: int) -> Text:
    padded = text.copy()
    padded.pad_right(max(0, width - cell_len(text.plain)))
    return padded
