"""Asks a second judge, of another family, what the first couldn't tell or prove. Off unless the settings say so.

At most once per verdict, and only where it could still turn a FAIL into a PASS. What the first judge did decide stays
decided: a "not met", a doubt about a question with high confidence, a score on a rubric. So does what code decided,
such as that a text was seen only in part. Where the second judge gives no answer that can be used, the first answers
stand.
"""

from collections.abc import Sequence

from delegate.judging.judge import decide
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.session import JudgeSession
from delegate.judging.order import could_turn
from delegate.judging.submission import Submission
from delegate.types import CriterionResult, JudgeAnswer

_UNDECIDED = ("cannot_tell", "evidence_not_found")


async def ask_again(
    session: JudgeSession,
    submission: Submission,
    first: list[CriterionResult],
    so_far: Sequence[CriterionResult],
    evidence: Evidence,
) -> list[CriterionResult]:
    """The `first` results with those of a second judge in their place, where one was asked and answered.

    `so_far` are the results of what was decided before them.
    """
    undecided = {one.id: one for one in first if one.code in _UNDECIDED}
    if not undecided or not could_turn(submission.task.criteria, [*so_far, *first], undecided):
        return first
    criteria = [criterion for criterion in submission.task.criteria if criterion.id in undecided]
    second = {one.id: one for one in await decide.decide(session.ask_another, submission, criteria, evidence)}
    useless = [one for one in second.values() if one.decided_by == "nobody"]
    if useless:
        session.recorder.unheard(useless[0].reason)
        return first
    session.recorder.overruled([_answer(one) for one in undecided.values()])
    return [second.get(one.id, one) for one in first]


def _answer(result: CriterionResult) -> JudgeAnswer:
    return JudgeAnswer(
        id=result.id, outcome=result.outcome, code=result.code, reason=result.reason, evidence=result.evidence
    )
