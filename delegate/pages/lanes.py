"""Computes the timeline of a run: for each task when it waited, its child worked, checks ran and a judge was asked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegate._util.fencing import one_line
from delegate.pages.amounts import duration
from delegate.pages.values import Lane, LaneKind, Segment, Timeline

WIDTH = 1_000
LEAST_WIDTH = 2.0
"""Width of what takes next to no time, so that it can be seen."""
MOST_LABELED = 40
"""With more tasks, all lanes are drawn as one picture."""
_LABEL_CHARS = 80
_KINDS: dict[str, LaneKind] = {
    "child.started": "child", "child.done": "check", "check.started": "check", "judge.asked": "judge",
    "judge.done": "check", "claim.made": "check", "claim.judged": "child",
}  # fmt: skip
"""What a task does from an event on."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of the times of one task, in seconds since the epoch."""

    number: str
    anchor: str
    label: str
    began_at: float
    ended_at: float
    """Now, for a task that is running."""
    events: Sequence[Mapping[str, Any]]


def timeline(courses: Sequence[Course]) -> Timeline | None:
    """The lanes of all tasks on one axis; None if there are no tasks."""
    if not courses:
        return None
    start, end = min(course.began_at for course in courses), max(course.ended_at for course in courses)
    span = max(end - start, 0.001)
    lanes = [_lane(course, start, span) for course in courses]
    ticks = [f"{1_000 * span * part / 4:.0f} ms" if span < 1 else duration(span * part / 4) for part in range(5)]
    parts: dict[LaneKind, list[str]] = {}
    for n, lane in enumerate(lanes if len(lanes) > MOST_LABELED else ()):
        for segment in lane.segments:
            parts.setdefault(segment.kind, []).append(f"M{segment.x:g} {4 * n + 2}h{segment.width:g}")
    return Timeline(lanes, ticks, {kind: "".join(path) for kind, path in parts.items()})


def _lane(course: Course, start: float, span: float) -> Lane:
    parts = [part for part in _parts(course) if part[2] > part[1]]
    segments = _segments(parts, start, span)
    sums: dict[LaneKind, float] = {}
    for kind, begin, end in parts:
        sums[kind] = sums.get(kind, 0) + end - begin
    summary = ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in sums.items() if seconds >= 0.05)
    return Lane(course.number, course.anchor, one_line(course.label, _LABEL_CHARS), segments, summary or "no time")


def _segments(parts: Sequence[tuple[LaneKind, float, float]], start: float, span: float) -> list[Segment]:
    """The parts as they are drawn. Those of one kind that can't be told apart are one, since there may be thousands."""
    blocks: list[tuple[LaneKind, float, float, float]] = []
    for kind, begin, end in parts:
        left, seconds = (begin - start) / span * WIDTH, end - begin
        right = left + max(LEAST_WIDTH, seconds / span * WIDTH)
        if blocks and blocks[-1][0] == kind and blocks[-1][1] <= left <= blocks[-1][2]:
            _, left, last_right, more = blocks.pop()
            right, seconds = max(last_right, right), seconds + more
        blocks.append((kind, left, right, seconds))
    return [
        Segment(kind, round(left, 1), round(right - left, 1), f"{kind} {duration(seconds)}")
        for kind, left, right, seconds in blocks
    ]


def _parts(course: Course) -> Iterator[tuple[LaneKind, float, float]]:
    """What the task did, from when until when. Waits within the work of the child or a judge are drawn on top of it."""
    if not course.events:
        yield "child", course.began_at, course.ended_at
        return
    doing: LaneKind = "wait"
    since = course.began_at
    waits: list[tuple[LaneKind, float, float]] = []
    for event in course.events:
        at, kind = min(max(float(event["at"]), since), course.ended_at), str(event["kind"])
        if kind in ("child.waiting", "judge.waiting") and (seconds := event.get("seconds")):
            waits.append(("wait", max(course.began_at, at - float(seconds)), at))
        if kind == "verdict":
            yield doing, since, at
            since = course.ended_at
            break
        following = _KINDS.get(kind, doing)
        if following != doing:
            yield doing, since, at
            doing, since = following, at
    yield doing, since, course.ended_at
    yield from waits
