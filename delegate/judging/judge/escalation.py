"""Asks a second judge, of another family, what the first couldn't tell or prove. Off unless the settings say so.

At most once per verdict, and only where it could still turn a FAIL into a PASS. What the first judge did decide stays
decided: a "not met", a doubt about a question with high confidence, a score on a rubric. So does what code decided,
such as that a text was seen only in part. Where the second judge gives no answer that can be used, the first answers
stand.
"""

from collections.abc import Sequence

from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.order import could_turn
from delegate.judging.submission import Submission
from delegate.types import AnyCriterion, CriterionResult, JudgeAnswer

_UNDECIDED = ("cannot_tell", "evidence_not_found")


def undecided(
    submission: Submission, first: Sequence[CriterionResult], so_far: Sequence[CriterionResult]
) -> list[AnyCriterion]:
    """The criteria to ask a second judge; none where that couldn't make the verdict a PASS.

    `first` are the first judge's results, and `so_far` those of what was decided before them.
    """
    ids = {one.id for one in first if one.code in _UNDECIDED}
    if not ids or not could_turn(submission.task.criteria, [*so_far, *first], ids):
        return []
    return [criterion for criterion in submission.task.criteria if criterion.id in ids]


def merged(
    recorder: JudgeRecorder, first: Sequence[CriterionResult], second: Sequence[CriterionResult]
) -> list[CriterionResult]:
    """The `first` results, with those of the second judge in their place where it gave usable answers."""
    useless = [one for one in second if one.decided_by == "nobody"]
    if useless:
        recorder.unheard(useless[0].reason)
        return list(first)
    by_id = {one.id: one for one in second}
    recorder.overruled([_answer(one) for one in first if one.id in by_id])
    return [by_id.get(one.id, one) for one in first]


def _answer(result: CriterionResult) -> JudgeAnswer:
    return JudgeAnswer(
        id=result.id, outcome=result.outcome, code=result.code, reason=result.reason, evidence=result.evidence
    )
