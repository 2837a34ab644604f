"""Combines the results of all criteria into one verdict, in code and without a model.

PASS only if every criterion is met, or met on trust. A FAIL names the most reliable of its reasons: one that a check
found, then one that a judge found, then a criterion that could not be decided.
"""

from collections.abc import Sequence
from typing import NamedTuple

from delegate.judging.levels import VERIFIED, is_at_least, is_too_low, weakest
from delegate.types import LOWERED, PASSING, CriterionResult, DecidedBy, Finding, Level, VerdictWord
from delegate.types.codes import VerdictCode

_RANK = {"not_met": 0, "error": 2, "cannot_tell": 3, "skipped": 4}


class Combined(NamedTuple):
    """The verdict and the reason for it."""

    verdict: VerdictWord
    level: Level | None
    verified: bool
    decided_by: DecidedBy
    code: VerdictCode
    reasoning: str

    def lowered(self, level: Level, why: str) -> "Combined":
        """The same verdict at this level at most."""
        lower = weakest([level, *([self.level] if self.level is not None else [])])
        return self._replace(level=lower, verified=lower in VERIFIED, reasoning=f"{self.reasoning}; {why}")


def combine(results: Sequence[CriterionResult], least: Level | None = None) -> Combined:
    """The verdict that follows from the results of all criteria, except those that are `findings_only`.

    A PASS at a level below `least` is a FAIL: all that holds may have held before the child began.
    """
    counted = [result for result in results if not result.findings_only]
    bad = [result for result in counted if result.outcome not in PASSING]
    if not counted:
        return Combined(
            "FAIL", None, False, "nobody", "no_deciding_criterion", "every criterion has `findings_only` set"
        )
    if bad:
        first = min(bad, key=lambda result: (_RANK[result.outcome], result.decided_by == "judge"))
        more = sum(result.outcome != "skipped" for result in bad) - 1
        rest = f" (and {more} more)" if more > 0 else ""
        reasoning = f"{first.id} {first.text}: {first.reason or first.code}{rest}"
        decided = [result for result in counted if result.outcome != "skipped"]
        verified = bool(decided) and all(map(_rests_on_evidence, decided))
        return Combined("FAIL", _level(counted), verified, first.decided_by, first.code, reasoning)
    verdict = _pass(counted)
    if least is None or verdict.level is None or is_at_least(verdict.level, least):
        return verdict
    reasoning = f"{verdict.reasoning}; {is_too_low(verdict.level, least)}"
    return Combined("FAIL", verdict.level, verdict.verified, verdict.decided_by, "below_min_level", reasoning)


def _pass(counted: Sequence[CriterionResult]) -> Combined:
    trusted = sum(result.outcome == "trusted" for result in counted)
    by: DecidedBy = "judge" if any(result.decided_by == "judge" for result in counted) else "check"
    lowered = next((result for result in counted if result.outcome == "met" and result.code in LOWERED), None)
    level = _level(counted)
    how = f"; {trusted} on trust" if trusted else ""
    how += f"; {lowered.id}: {LOWERED[lowered.code][1]}" if lowered else ""
    how += "; all of it held before the child began" if _held_before(counted) else ""
    return Combined(
        "PASS",
        level,
        level in VERIFIED,
        "trust" if trusted == len(counted) else by,
        "trusted" if trusted else lowered.code if lowered else "met",
        f"{'the criterion is' if len(counted) == 1 else f'all {len(counted)} criteria are'} met{how}",
    )


def _level(counted: Sequence[CriterionResult]) -> Level | None:
    """The weakest level of the criteria; None if one has none. What held before shows nothing that the child did."""
    levels: list[Level] = [result.level for result in counted if result.level is not None]
    if len(levels) < len(counted):
        return None
    if _held_before(counted):
        levels.append("said")
    return weakest(levels)


def _held_before(counted: Sequence[CriterionResult]) -> bool:
    return all(result.held_before for result in counted)


def weighted_score(results: Sequence[CriterionResult]) -> tuple[float | None, float]:
    """The weighted mean of the decided criteria, and its coverage: the share of all weight that was decided."""
    total = sum(result.weight for result in results)
    decided = [result for result in results if result.outcome in ("met", "not_met") and result.weight]
    weight = sum(result.weight for result in decided)
    if not total or not weight:
        return None, 0
    scores = [float(result.outcome == "met") if result.score is None else result.score for result in decided]
    points = sum(result.weight * score for result, score in zip(decided, scores, strict=True))
    return round(points / weight, 6), round(weight / total, 6)


def findings_of(results: Sequence[CriterionResult]) -> list[Finding]:
    """The findings of `findings_only` criteria that aren't met."""
    return [
        Finding(severity="minor", code=result.code, message=f"{result.id} {result.text}: {result.reason}")
        for result in results
        if result.findings_only and result.outcome not in PASSING
    ]


def _rests_on_evidence(result: CriterionResult) -> bool:
    if result.outcome == "met":
        return result.code not in LOWERED or LOWERED[result.code][0] in VERIFIED
    if result.outcome != "not_met":
        return False
    return result.decided_by == "check" or (result.decided_by == "judge" and result.source is not None)
