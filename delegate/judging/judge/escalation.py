"""Selects the criteria for a second judge of another model family, and merges its results. Disabled by default.

A second judge is asked at most once per verdict, and only if it could still turn a FAIL into a PASS. It is asked about
criteria that the first judge couldn't decide or prove. What the first judge decided stays: a "not met", doubt about a
question with high confidence, a rubric's score. So does what code decided, such as that a text was seen only in part.
If the second judge gives no usable answer, the first answers are kept.

With the setting `max_false_pass`, a judge whose error rate isn't known to be low enough doesn't decide alone: what it
finds met counts only if a judge of another family finds it met too, or one that may decide alone.
"""

from collections.abc import Collection, Sequence

from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.order import could_become_pass
from delegate.judging.submission import Submission
from delegate.types import AnyCriterion, CriterionResult, JudgeAnswer

_UNDECIDED = ("cannot_tell", "evidence_not_found")


def undecided_criteria(
    submission: Submission,
    first: Sequence[CriterionResult],
    so_far: Sequence[CriterionResult],
    doubted: Collection[str] = (),
    *,
    undecided_too: bool = True,
) -> list[AnyCriterion]:
    """The criteria to ask a second judge about; empty if that couldn't make the verdict a PASS.

    `first` are the first judge's results, and `so_far` the results that were decided before. `doubted` are the ids of
    criteria that the first judge found met, and that are asked about again all the same; without `undecided_too`,
    only those.
    """
    ids = {result.id for result in first if undecided_too and result.code in _UNDECIDED} | set(doubted)
    withheld = [not_confident(result, "") if result.id in doubted else result for result in first]
    if not ids or not could_become_pass(submission.task.criteria, [*so_far, *withheld], ids):
        return []
    return [criterion for criterion in submission.task.criteria if criterion.id in ids]


def merge(
    recorder: JudgeRecorder, first: Sequence[CriterionResult], second: Sequence[CriterionResult]
) -> list[CriterionResult] | None:
    """The `first` results, replaced by those of the second judge; None if its answers aren't usable."""
    unusable = [result for result in second if result.decided_by == "nobody"]
    if unusable:
        recorder.second_judge_ignored(unusable[0].reason)
        return None
    by_id = {result.id: result for result in second}
    recorder.second_judge_used(
        [
            JudgeAnswer(id=own.id, outcome=own.outcome, code=own.code, reason=own.reason, evidence=own.evidence)
            for own in first
            if own.id in by_id
        ]
    )
    return [by_id.get(result.id, result) for result in first]


def met_ids(results: Sequence[CriterionResult]) -> set[str]:
    """The ids of the criteria that are met."""
    return {result.id for result in results if result.outcome == "met"}


def withheld(results: Sequence[CriterionResult], reason: str, confirmed: Collection[str]) -> list[CriterionResult]:
    """The results of a judge that may not decide alone: what it found met counts only if it is `confirmed`."""
    return [
        not_confident(result, reason) if result.outcome == "met" and result.id not in confirmed else result
        for result in results
    ]


def not_confident(result: CriterionResult, reason: str) -> CriterionResult:
    """The result as undecided, because no judge that may decide alone found the criterion met."""
    return result.model_copy(update={"outcome": "cannot_tell", "code": "not_confident", "reason": reason})
