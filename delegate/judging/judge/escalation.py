"""Selects the criteria for a second judge of another model family, and merges its results. Disabled by default.

A second judge is asked at most once per verdict, and only if it could still turn a FAIL into a PASS. It is asked about
criteria that the first judge couldn't decide or prove. What the first judge decided stays: a "not met", doubt about a
question with high confidence, a rubric's score. So does what code decided, such as that a text was seen only in part.
If the second judge gives no usable answer, the first answers are kept.
"""

from collections.abc import Sequence

from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.order import could_become_pass
from delegate.judging.submission import Submission
from delegate.types import AnyCriterion, CriterionResult, JudgeAnswer

_UNDECIDED = ("cannot_tell", "evidence_not_found")


def undecided_criteria(
    submission: Submission, first: Sequence[CriterionResult], so_far: Sequence[CriterionResult]
) -> list[AnyCriterion]:
    """The criteria to ask a second judge about; empty if that couldn't make the verdict a PASS.

    `first` are the first judge's results, and `so_far` the results that were decided before.
    """
    ids = {one.id for one in first if one.code in _UNDECIDED}
    if not ids or not could_become_pass(submission.task.criteria, [*so_far, *first], ids):
        return []
    return [criterion for criterion in submission.task.criteria if criterion.id in ids]


def merge(
    recorder: JudgeRecorder, first: Sequence[CriterionResult], second: Sequence[CriterionResult]
) -> list[CriterionResult]:
    """The `first` results, replaced by those of the second judge if its answers are usable."""
    unusable = [one for one in second if one.decided_by == "nobody"]
    if unusable:
        recorder.second_judge_ignored(unusable[0].reason)
        return list(first)
    by_id = {one.id: one for one in second}
    recorder.second_judge_used([_answer(one) for one in first if one.id in by_id])
    return [by_id.get(one.id, one) for one in first]


def _answer(result: CriterionResult) -> JudgeAnswer:
    return JudgeAnswer(
        id=result.id, outcome=result.outcome, code=result.code, reason=result.reason, evidence=result.evidence
    )
