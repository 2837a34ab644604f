"""Combines the results of all criteria into one verdict. Code computes it; no model ever says the last word.

PASS only when every criterion is met, or met on trust. Among several reasons for a FAIL, the surest is named: what a
check saw, then what a judge saw, then what could not be looked at.
"""

from collections.abc import Sequence

from delegate.types import CriterionResult, DecidedBy, VerdictWord

_GOOD = ("met", "trusted")
_RANK = {"not_met": 0, "error": 2, "cannot_tell": 3, "skipped": 4}


def combine(results: Sequence[CriterionResult]) -> tuple[VerdictWord, bool, DecidedBy, str, str]:
    """Verdict, verified, decided_by, code and reasoning for the results of all criteria (at least one)."""
    bad = [result for result in results if result.outcome not in _GOOD]
    if bad:
        first = min(bad, key=_badness)
        more = sum(result.outcome != "skipped" for result in bad) - 1
        others = f" (and {more} more)" if more > 0 else ""
        reasoning = f"{first.id} {first.text}: {first.reason or first.code}{others}"
        return "FAIL", _is_verified(results), first.decided_by, first.code, reasoning
    trusted = [result for result in results if result.outcome == "trusted"]
    by = "judge" if any(r.decided_by == "judge" for r in results) else "check"
    if len(trusted) == len(results):
        by = "trust"
    code = "trusted" if trusted else "met"
    how = f"; {len(trusted)} on trust" if trusted else ""
    return "PASS", _is_verified(results), by, code, f"all {len(results)} criteria are met{how}"


def _badness(result: CriterionResult) -> tuple[int, int]:
    by_judge = 1 if result.decided_by == "judge" else 0
    return (_RANK[result.outcome], by_judge)


def _is_verified(results: Sequence[CriterionResult]) -> bool:
    decided = [result for result in results if result.outcome != "skipped"]
    return bool(decided) and all(_rests_on_evidence(result) for result in decided)


def _rests_on_evidence(result: CriterionResult) -> bool:
    if result.outcome not in ("met", "not_met"):
        return False
    return result.decided_by == "check" or (result.decided_by == "judge" and result.source is not None)
