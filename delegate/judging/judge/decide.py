"""Decides text criteria and questions: asks one model one question, and verifies the quotes in its reply.

The model answers per criterion, and code searches for every quote. A `met` counts only if its quote stands in a source
that can prove the criterion (`proof.py`), and a reply that can't be parsed decides nothing.
"""

import re
from collections.abc import Sequence
from functools import lru_cache, partial

from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence, is_prewritten
from delegate.judging.judge.reply import CriterionAnswer, UnparseableReply, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.judge.subject import Subject, SubjectKind, statement_of
from delegate.judging.submission import Submission, result
from delegate.types import AnyCriterion, CriterionOutcome, CriterionResult, QuestionCriterion

CONFIDENCE_SUFFIX = ".sure"
"""A question with high confidence is asked as two statements; the second one's id has this suffix. Ids of criteria
contain no dot."""

_QUOTE_FROM: dict[SubjectKind, str] = {
    "report": "about the report: quote `output`",
    "file": "about a file: quote an `artifact:`, `artifacts` or a `check:`",
    "deed": "a deed: quote the `receipt:` of the call that did it, or a `check:`",
    "absence": "that something was not done: no quote shows it",
}
_UNIVERSAL = re.compile(
    r"\b(?:all|every|each|only|no|none|never|nothing|not|without|at most|fewer than|less than|no more than|exactly)\b"
    r"|n't\b",
    re.IGNORECASE,
)
"""Statements that one passage can't prove, since another passage could contradict it."""


@lru_cache(1024)
def _is_universal(statement: str) -> bool:
    return _UNIVERSAL.search(statement) is not None


def build_question(submission: Submission, criteria: Sequence[AnyCriterion], evidence: Evidence) -> JudgeQuestion:
    """The question whether `criteria` hold."""
    statements: list[tuple[str, str]] = []
    for criterion, subject in zip(criteria, _subjects(submission, criteria), strict=True):
        where = _QUOTE_FROM[subject.kind]
        statements += [(id, f"{statement} [{where}]") for id, statement in _statements(criterion)]
    return prompt.build_question(submission.task.goal, statements, evidence)


def read_reply(
    submission: Submission, criteria: Sequence[AnyCriterion], reply: JudgeReply, evidence: Evidence
) -> list[CriterionResult]:
    """The results of `criteria`, in their order: the judge's answers, as far as code confirms them."""
    if reply.reply is None:
        return [result(criterion, "error", "nobody", reply.code, reply.reason) for criterion in criteria]
    try:
        answers = parse_reply(reply.reply.text, [id for criterion in criteria for id, _ in _statements(criterion)])
    except UnparseableReply as error:
        return [result(criterion, "error", "nobody", "judge_unparseable", str(error)) for criterion in criteria]
    prewritten = evidence.prewritten_answers()
    if any(one.verdict == "met" and is_prewritten(one.evidence, one.reason, prewritten) for one in answers.values()):
        reason = "the judge's answer is a copy of one that the worker wrote"
        return [result(criterion, "error", "nobody", "judge_unparseable", reason) for criterion in criteria]
    return [
        _verified(submission, criterion, subject, answers, evidence)
        for criterion, subject in zip(criteria, _subjects(submission, criteria), strict=True)
    ]


def _subjects(submission: Submission, criteria: Sequence[AnyCriterion]) -> list[Subject]:
    """What each criterion is about, given the child's files and tools."""
    from delegate.judging.judge.statements import subject_of  # with many patterns: loaded on first use

    files, can_act = frozenset(artifact.path for artifact in submission.run.artifacts), submission.can_act
    return [subject_of(criterion, files, can_act=can_act) for criterion in criteria]


def _statements(criterion: AnyCriterion) -> list[tuple[str, str]]:
    """What the judge is asked to decide, with ids. A question with high confidence is two statements."""
    id = criterion.id or ""
    if not isinstance(criterion, QuestionCriterion):
        return [(id, criterion.describe())]
    asked = [(id, f"The answer to this question is yes: {criterion.question}")]
    if criterion.threshold == "high_confidence":
        asked.append((id + CONFIDENCE_SUFFIX, f"The evidence leaves no reasonable doubt about the answer to {id}."))
    return asked


def _verified(
    submission: Submission,
    criterion: AnyCriterion,
    subject: Subject,
    answers: dict[str, CriterionAnswer],
    evidence: Evidence,
) -> CriterionResult:
    """The result of one answer: a `met` stays only if its quote stands in a source that can prove the criterion."""
    from delegate.judging.judge.proof import HINT, Proof  # with many patterns: loaded on first use

    answer, confidence = answers[criterion.id or ""], answers.get((criterion.id or "") + CONFIDENCE_SUFFIX)
    quote, statement = answer.evidence or None, statement_of(criterion)
    decided = partial(_result, criterion, quote, str(subject))
    if answer.verdict != "met":
        return decided(answer.verdict, answer.verdict, answer.reason, evidence.find(answer.evidence, answer.source))
    proof = Proof(statement, subject, submission, evidence)
    source, fault = proof.find(answer.evidence, answer.source)
    if source is None:
        reason = f"the judge says met, but its quote is not in the evidence: {answer.evidence[:200]!r}"
        return decided("not_met", "evidence_not_found", reason)
    if confidence and (confidence.verdict != "met" or evidence.find(confidence.evidence, confidence.source) is None):
        return decided("not_met", "not_confident", confidence.reason, source)
    if fault is not None:
        return decided("not_met", "self_report_only", f"{fault}; {HINT}", source)
    if _is_universal(statement) and (unseen := proof.unseen(source)):
        reason = f"the judge did not see all of {unseen[0]}, and the omitted part could contradict this"
        return decided("cannot_tell", "truncated_for_judge", reason, source)
    return decided("met", "met", answer.reason, source)


def _result(
    criterion: AnyCriterion,
    quote: str | None,
    about: str,
    outcome: CriterionOutcome,
    code: str,
    reason: str,
    source: str | None = None,
) -> CriterionResult:
    return result(criterion, outcome, "judge", code, reason, evidence=quote, source=source, about=about)
