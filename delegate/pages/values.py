"""The values that a page shows, as its templates read them: texts that are ready to print, and no objects to ask.

Texts may be hostile. They are cleaned and escaped only where they are written, by `page`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Tone = Literal["pass", "fail", "warn", "run", "none"]
"""How a word is colored. Its meaning never depends on the color."""
LaneKind = Literal["wait", "child", "check", "judge"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A quote within its source. `before` and `after` are the text around it."""

    before: str
    quote: str
    after: str
    cut_before: bool = False
    cut_after: bool = False


@dataclass(frozen=True, slots=True)
class CitationView:
    """One source that the work cites, with what was found there."""

    statement: str
    source: str
    href: str
    """Where a click leads. Empty for files, and for what the child didn't open."""
    state: str
    tone: Tone
    why: str
    """Why it doesn't hold, or else the passage of the source."""
    field: str = ""


@dataclass(frozen=True, slots=True)
class CriterionView:
    """One criterion with what was decided, and why."""

    id: str
    text: str
    mark: str
    outcome: str
    tone: Tone
    decided_by: str
    code: str
    reason: str
    evidence: str = ""
    """A judge's quote, or what a check saw."""
    excerpt: Excerpt | None = None
    """The quote in its source. None if its source isn't on record, or doesn't contain it (any longer)."""
    place: str = ""
    """Where a quote stands, in words: "the report", "haiku.txt", "tool call 3"."""
    level: str = ""
    """What it rests on, in words. Empty if it has no level."""
    note: str = ""
    ruled: Sequence[tuple[str, str, Tone]] = ()
    """What people said later about it, and why. The tone is a warning where they contradict what was decided."""
    commands: Sequence[str] = ()
    """With which a person rules on what a judge decided."""
    citations: Sequence[CitationView] = ()


@dataclass(frozen=True, slots=True)
class ClaimView:
    """One claim of a child in goal mode, and what came of it."""

    number: str
    at: str
    """When it was made, since the task began. Empty if that isn't on record."""
    outcome: str
    tone: Tone
    why: str
    """Why it was refused, or what its PASS rests on."""
    figures: str
    rationale: str
    refused: Sequence[tuple[str, str]] = ()
    """The criteria for which it was refused, each with the reason."""


@dataclass(frozen=True, slots=True)
class CallView:
    """A receipt: one tool call, paired with its result."""

    n: int
    tool: str
    status: str
    args: str
    output: str
    figures: str


@dataclass(frozen=True, slots=True)
class CandidateView:
    """A model that could have judged."""

    model: str
    kind: str
    """Its provider and tier."""
    price: str
    why: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class BillRow:
    """One line of a bill. An unknown cost reads "unknown"."""

    who: str
    model: str
    calls: str
    tokens: str
    cost: str
    is_total: bool = False


@dataclass(frozen=True, slots=True)
class FileView:
    """A file that the child left, with its text or its difference from what was there before."""

    path: str
    change: str
    text: str = ""
    note: str = ""
    lines: Sequence[tuple[str, str]] = ()
    """For a difference: its lines, each with its kind (`add`, `del`, `at` or nothing)."""


@dataclass(frozen=True, slots=True)
class TranscriptEvent:
    """One event of the transcript."""

    at: str
    """Seconds since the task began."""
    label: str
    detail: str = ""
    text: str = ""
    """What a model, a tool or a person said."""
    more: Sequence[str] = ()
    """What else is known of it, a line each."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane. Positions are thousandths of the whole timeline."""

    kind: LaneKind
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What one task did when."""

    number: str
    anchor: str
    label: str
    segments: Sequence[Segment]
    summary: str
    """The same in words: "child 12 s, judge 2 s"."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes. `ticks` are the labels of the axis, evenly spaced."""

    lanes: Sequence[Lane]
    ticks: Sequence[str]
    paths: Mapping[LaneKind, str]
    """For many lanes, everything of one kind as a single path, four units of height per lane. Else empty."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of the run, or one row of the batch."""

    anchor: str
    number: str
    """Its number among the tasks of the run, from 1, or the id of its row; empty for what a child delegated."""
    depth: int
    goal: str
    word: str
    """PASS or FAIL, or why there is no verdict."""
    tone: Tone
    decided_by: str
    code: str
    why: str
    """The first criterion that fails, in words, or what a PASS rests on."""
    is_said_below: bool
    """Whether the criteria say the same."""
    figures: Sequence[str]
    """Cost and time."""
    is_open: bool
    facts: Sequence[tuple[str, str]]
    """What else is known, as labels and texts."""
    criteria: Sequence[CriterionView] = ()
    claims: Sequence[ClaimView] = ()
    findings: Sequence[tuple[str, str]] = ()
    report: str = ""
    calls: Sequence[CallView] = ()
    looks: Sequence[CallView] = ()
    candidates: Sequence[CandidateView] = ()
    judging: Sequence[str] = ()
    """What was special about the judging: attempts that failed, a second judge."""
    bill: Sequence[BillRow] = ()
    files: Sequence[FileView] = ()
    steps: Sequence[TranscriptEvent] = ()
    more: str = ""
    """What was left out, with the command that shows it."""
    filters: str = ""
    """The classes by which the row is filtered."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for the rows: by verdict, by code, or by a column of the batch's file."""

    id: str
    label: str
    choices: Sequence[tuple[str, str, int]]
    """The values that it can select, each with the class of its rows and their number."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Which of the pages of a long run this is."""

    number: int = 1
    of: int = 1
    first: int = 1
    """The place of its first task among all, from 1."""
    last: int = 0
    tasks: int = 0
    """Those of all pages."""


@dataclass(frozen=True, slots=True)
class PageView:
    """All that the page of a run or batch shows."""

    kind: Literal["run", "batch", "task"]
    title: str
    run_id: str
    state: str
    """`running` as long as something is."""
    when: str
    tally: str
    """The first part of the headline: "2 of 3 PASS"."""
    tone: Tone
    figures: Sequence[str]
    """The rest of the headline: cost, share of verification, time."""
    counts: Sequence[tuple[int, str, Tone]]
    """How many tasks there are of each word."""
    tasks: Sequence[TaskView]
    timeline: Timeline | None
    bill: Sequence[BillRow]
    filters: Sequence[Filter]
    notes: Sequence[str] = ()
    pages: Pages = Pages()


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in the list of runs."""

    run_id: str
    kind: str
    started: str
    state: str
    tone: Tone
    tally: str
    figures: Sequence[str]
    goal: str
