"""Decides the criteria in words: one question to one model, believed only where its evidence is found.

The model answers per criterion; code looks for every quote. A `met` without a quote that is there is not met, and a
reply that can't be read decides nothing.
"""

from collections.abc import Sequence

from delegate.judging import prompt
from delegate.judging.asking import Asked, Bench, ask
from delegate.judging.case import Case, result
from delegate.judging.evidence import Evidence
from delegate.judging.reply import Answer, UnparseableReply, parse_reply
from delegate.ledger import Ledger
from delegate.ports import Notify
from delegate.types import AnyCriterion, CriterionResult, JudgeRecord


async def decide(
    bench: Bench, case: Case, criteria: Sequence[AnyCriterion], evidence: Evidence, ledger: Ledger, notify: Notify
) -> tuple[list[CriterionResult], JudgeRecord]:
    """The results of `criteria` as a judge sees them and code confirms them, and the record of who was asked."""
    question = prompt.question(case.task.goal, criteria, evidence)
    asked = await ask(bench, case.worker, question, ledger, notify)
    return _results(criteria, asked, evidence), asked.record


def _results(criteria: Sequence[AnyCriterion], asked: Asked, evidence: Evidence) -> list[CriterionResult]:
    if asked.reply is None:
        return [result(criterion, "error", "nobody", asked.code, asked.reason) for criterion in criteria]
    try:
        answers = parse_reply(asked.reply.text, [criterion.id or "" for criterion in criteria])
    except UnparseableReply as error:
        return [result(criterion, "error", "nobody", "judge_unparseable", str(error)) for criterion in criteria]
    return [_verified(criterion, answers[criterion.id or ""], evidence) for criterion in criteria]


def _verified(criterion: AnyCriterion, answer: Answer, evidence: Evidence) -> CriterionResult:
    """The answer, with its quote looked for."""
    source = evidence.find(answer.evidence)
    if answer.verdict == "met" and source is None:
        reason = f"the judge says met, but its quote is not in the evidence: {answer.evidence[:200]!r}"
        return result(criterion, "not_met", "judge", "evidence_not_found", reason, evidence=answer.evidence)
    quote = answer.evidence or None
    return result(criterion, answer.verdict, "judge", answer.verdict, answer.reason, evidence=quote, source=source)
