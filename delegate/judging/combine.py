"""Combines the results of all criteria into one verdict. Code computes it; no model ever says the last word.

PASS only when every criterion is met, or met on trust. Among several reasons for a FAIL, the surest is named: what a
check saw, then what a judge saw, then what could not be looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

from delegate.types import CriterionResult, DecidedBy, Finding, VerdictWord

_GOOD = ("met", "trusted")
_RANK = {"not_met": 0, "error": 2, "cannot_tell": 3, "skipped": 4}


class Combined(NamedTuple):
    """What the criteria come to."""

    verdict: VerdictWord
    verified: bool
    decided_by: DecidedBy
    code: str
    reasoning: str


def combine(results: Sequence[CriterionResult]) -> Combined:
    """The verdict that the results of all criteria come to. Those that are `findings_only` have no say."""
    counted = [result for result in results if not result.findings_only]
    bad = [result for result in counted if result.outcome not in _GOOD]
    if not counted:
        return Combined("FAIL", False, "nobody", "no_deciding_criterion", "every criterion is for findings only")
    return _fail(counted, bad) if bad else _pass(counted)


def _fail(counted: Sequence[CriterionResult], bad: Sequence[CriterionResult]) -> Combined:
    first = min(bad, key=_badness)
    more = sum(result.outcome != "skipped" for result in bad) - 1
    others = f" (and {more} more)" if more > 0 else ""
    reasoning = f"{first.id} {first.text}: {first.reason or first.code}{others}"
    return Combined("FAIL", _is_verified(counted), first.decided_by, first.code, reasoning)


def _pass(counted: Sequence[CriterionResult]) -> Combined:
    trusted = sum(result.outcome == "trusted" for result in counted)
    by: DecidedBy = "judge" if any(result.decided_by == "judge" for result in counted) else "check"
    how = f"; {trusted} on trust" if trusted else ""
    return Combined(
        "PASS",
        _is_verified(counted),
        "trust" if trusted == len(counted) else by,
        "trusted" if trusted else "met",
        f"all {len(counted)} criteria are met{how}",
    )


def blended(results: Sequence[CriterionResult]) -> tuple[float | None, float]:
    """The score, and its coverage: how much of the criteria's weight was decided at all."""
    total = sum(result.weight for result in results)
    decided = [result for result in results if result.outcome in ("met", "not_met") and result.weight]
    weight = sum(result.weight for result in decided)
    if not total or not weight:
        return None, 0
    got = sum(result.weight * _score(result) for result in decided)
    return round(got / weight, 6), round(weight / total, 6)


def findings_of(results: Sequence[CriterionResult]) -> list[Finding]:
    """What criteria that have no say in the verdict found."""
    return [
        Finding(severity="minor", code=result.code, message=f"{result.id} {result.text}: {result.reason}")
        for result in results
        if result.findings_only and result.outcome not in _GOOD
    ]


def _score(result: CriterionResult) -> float:
    if result.score is not None:
        return result.score
    return 1 if result.outcome == "met" else 0


def _badness(result: CriterionResult) -> tuple[int, int]:
    return _RANK[result.outcome], 1 if result.decided_by == "judge" else 0


def _is_verified(counted: Sequence[CriterionResult]) -> bool:
    decided = [result for result in counted if result.outcome != "skipped"]
    return bool(decided) and all(_rests_on_evidence(result) for result in decided)


def _rests_on_evidence(result: CriterionResult) -> bool:
    if result.outcome not in ("met", "not_met"):
        return False
    return result.decided_by == "check" or (result.decided_by == "judge" and result.source is not None)
