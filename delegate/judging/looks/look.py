"""Defines `Look`: what a judge looked at, as the runtime recorded it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from delegate.types import JudgeLook
from delegate.types.ports import Attachment

LookKind = Literal["work", "command", "state"]
"""At the texts of the finished work, at what a command prints in a copy of it, or at how things are now."""


class Piece(NamedTuple):
    """A part of what a look at the work showed, and the source that it is from."""

    source: str
    text: str


class Span(NamedTuple):
    """Characters of a source that were shown. `stop` is one past the last."""

    source: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LookLimits:
    """How much a judge may look. With 0 looks, or in 0 turns, it can't."""

    looks: int = 8
    """For all questions of a verdict together, and again for a second judge."""
    turns: int = 4
    """For each question."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look shows, before it is numbered."""

    text: str
    header: str = ""
    """Of a command: the command itself, which stands before the text. What it says proves nothing."""
    pieces: tuple[Piece, ...] = ()
    spans: tuple[Span, ...] = ()
    status: Literal["ok", "error", "denied", "timeout"] = "ok"
    sandbox: str | None = None
    own_checks: bool = False
    """Whether a command ran with tests, configuration or scripts that the child made."""
    own_programs: tuple[str, ...] = ()
    """What the child made, that the command ran and that the task doesn't name."""
    attachments: tuple[Attachment, ...] = ()
    is_cut: bool = False
    """Whether it is only a part of what was looked at."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look. `receipt` is its record, and `text` what the judge saw: cleaned, without secrets, bounded."""

    receipt: JudgeLook
    kind: LookKind
    text: str
    found: Found = field(repr=False)
    header: str = ""
    """How the text begins, where that is no evidence."""
    is_cut: bool = False
    """Whether the judge saw only a part of what it looked at."""
    without_work: tuple[str, ...] = ()
    """What a command prints in an empty folder, and on the files of before; empty if that wasn't tried."""

    @property
    def name(self) -> str:
        """Its name as a source, such as `look:3`."""
        return f"look:{self.receipt.n}"


def is_covered(source: str, length: int, spans: Iterable[Span]) -> bool:
    """Whether spans leave nothing out of a source of this length."""
    reached = 0
    for span in sorted(span for span in spans if span.source == source):
        if span.start > reached:
            return False
        reached = max(reached, span.stop)
    return reached >= length


NO_LOOKS: Mapping[str, Look] = {}
