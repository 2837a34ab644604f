"""Tells what a criterion that is met rests on, from its result alone, and whether that is enough."""

from collections.abc import Iterable, Sequence

from delegate.types import LEVELS, LOWERED, CriterionResult, Level, PartResult, StatementPart
from delegate.types.codes import VerdictCode

VERIFIED: tuple[Level, ...] = ("proven", "seen")
"""The levels at which a verdict rests on evidence."""


_ON_REPORT = ("regex", "json_predicate", "json_schema")
"""Checks of what the report contains."""


def weakest(levels: Iterable[Level]) -> Level | None:
    """The weakest of these levels; None if there are none."""
    return max(levels, key=LEVELS.index, default=None)


def is_at_least(level: Level, least: Level) -> bool:
    """Whether a level is this one or a stronger one."""
    return LEVELS.index(level) <= LEVELS.index(least)


def is_too_low(level: Level, least: Level) -> str:
    """Why a level isn't enough."""
    return f"the level is {level.replace('_', ' ')}, and at least {least.replace('_', ' ')} is asked for"


def held_to(result: CriterionResult, least: Level | None) -> CriterionResult:
    """The result with its level, and not met if that is weaker than `least`.

    Without `least`, a level is enough if the criterion asks for no more: a claim may be only said, and a command that
    had nothing to run before may run the child's own tests. Only what needs other changes of the child isn't met.
    """
    if result.outcome not in ("met", "trusted"):
        return result
    level: Level = "trusted"
    if result.outcome == "met":
        parts: Sequence[CriterionResult | PartResult] = result.parts or (result,)
        readings: Sequence[StatementPart | None] = result.reading.parts if result.reading else ()
        if len(readings) != len(parts):
            readings = [None] * len(parts)
        levels: list[Level] = [_level_of_part(result, *pair) for pair in zip(parts, readings, strict=True)]
        level = max(levels, key=LEVELS.index)
    is_enough = result.code != "check_tampered" if least is None else is_at_least(level, least)
    if is_enough:
        return result.model_copy(update={"level": level})
    code: VerdictCode = result.code if result.code == "check_tampered" else "below_min_level"
    why = is_too_low(level, least or "seen")
    reason = f"{result.reason}; {why}" if result.reason else why
    return result.model_copy(update={"outcome": "not_met", "code": code, "reason": reason, "level": level})


def _level_of_part(result: CriterionResult, part: CriterionResult | PartResult, reading: StatementPart | None) -> Level:
    if part.code in LOWERED:
        return LOWERED[part.code][0]
    if result.decided_by == "check":  # the report has the child's own words
        return "seen" if result.kind in _ON_REPORT else "proven"
    if reading is not None and reading.claim:
        return "said"
    if part.source is None:  # the complete record decides an absence, without a judge
        return "proven" if reading is not None and reading.about == "absence" else "trusted"
    # Code found the call by what it contains; the judge's word wasn't needed.
    return (
        "proven" if reading is not None and reading.about == "deed" and part.source.startswith("receipt:") else "seen"
    )
