"""Decides text criteria and questions: asks one model one question, and verifies the quotes in its reply.

The model answers per criterion, and code searches for every quote. A `met` whose quote isn't in the evidence is not
met, and a reply that can't be parsed decides nothing.
"""

import re
from collections.abc import Sequence

from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence, is_prewritten
from delegate.judging.judge.reply import CriterionAnswer, UnparseableReply, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.submission import Submission, result
from delegate.types import AnyCriterion, CriterionResult, QuestionCriterion

CONFIDENCE_SUFFIX = ".sure"
"""A question with high confidence is asked as two statements; the second one's id has this suffix. Ids of criteria
contain no dot."""

_ABOUT_THE_REPORT = re.compile(
    r"\b(?:reports?|output|answers?|repl(?:y|ies)|responses?|summary|text|essay|says?|states?|mentions?|names?|lists?"
    r"|explains?|describes?)\b",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"(?<![\w/@.])[\w./-]*\w\.(?:[a-z][a-z0-9]{0,4})\b(?!\.?\w*@)")
_ACTION = re.compile(
    r"\b(?:is|are|was|were|been|gets?)\s+(?:\w+\s+)?(?:created|written|saved|stored|deleted|removed|updated|changed|sent"
    r"|committed|pushed|deployed|installed|executed|run|fixed|renamed|moved|uploaded|booked|cancelled|refunded|merged)\b(?!\s+(?:in|as|with)\b)"
    r"|\b(?:tests?|suite|build|linter)\b.*\b(?:pass(?:es|ed)?|succeeds?|green|clean)\b",
    re.IGNORECASE,
)
_FILE_ACTION = re.compile(
    r"\b(?:created|written|saved|stored|deleted|removed|updated|changed|fixed|renamed|moved)\b", re.IGNORECASE
)
"""Actions that the files themselves show."""
_UNIVERSAL = re.compile(
    r"\b(?:all|every|each|only|no|none|never|nothing|not|without|at most|fewer than|less than|no more than|exactly)\b"
    r"|n't\b",
    re.IGNORECASE,
)
"""Statements that one passage can't prove, since another passage could contradict it."""
_THINKING_TOOLS = ("think",)
_READ_ONLY_TOOLS = ("think", "read_file", "list_files", "search_files", "fetch_url")
"""Tools of the toolbox that change nothing: their calls don't show that an action was done."""


def build_question(goal: str, criteria: Sequence[AnyCriterion], evidence: Evidence) -> JudgeQuestion:
    """The question whether `criteria` hold."""
    return prompt.build_question(goal, _statements(criteria), evidence)


def read_reply(
    submission: Submission, criteria: Sequence[AnyCriterion], reply: JudgeReply, evidence: Evidence
) -> list[CriterionResult]:
    """The results of `criteria`, in their order: the judge's answers, as far as code confirms them."""
    if reply.reply is None:
        return [result(criterion, "error", "nobody", reply.code, reply.reason) for criterion in criteria]
    try:
        answers = parse_reply(reply.reply.text, [id for id, _ in _statements(criteria)])
    except UnparseableReply as error:
        return [result(criterion, "error", "nobody", "judge_unparseable", str(error)) for criterion in criteria]
    prewritten = evidence.prewritten_answers()
    if any(one.verdict == "met" and is_prewritten(one.evidence, one.reason, prewritten) for one in answers.values()):
        reason = "the judge's answer is a copy of one that the worker wrote"
        return [result(criterion, "error", "nobody", "judge_unparseable", reason) for criterion in criteria]
    return [_verified(submission, criterion, answers, evidence) for criterion in criteria]


def _statements(criteria: Sequence[AnyCriterion]) -> list[tuple[str, str]]:
    """The statements that the judge is asked to decide, with ids. A question with high confidence is two statements."""
    statements: list[tuple[str, str]] = []
    for criterion in criteria:
        id = criterion.id or ""
        if not isinstance(criterion, QuestionCriterion):
            statements.append((id, criterion.describe()))
            continue
        statements.append((id, f"The answer to this question is yes: {criterion.question}"))
        if criterion.threshold == "high_confidence":
            statements.append(
                (id + CONFIDENCE_SUFFIX, f"The evidence leaves no reasonable doubt about the answer to {id}.")
            )
    return statements


def _verified(
    submission: Submission, criterion: AnyCriterion, answers: dict[str, CriterionAnswer], evidence: Evidence
) -> CriterionResult:
    """The result of one answer: a `met` stays only if its quote is found and it passes the other tests."""
    answer = answers[criterion.id or ""]
    source = evidence.find(answer.evidence, answer.source)
    quote = answer.evidence or None
    if answer.verdict != "met":
        return result(criterion, answer.verdict, "judge", answer.verdict, answer.reason, evidence=quote, source=source)
    if source is None:
        reason = f"the judge says met, but its quote is not in the evidence: {answer.evidence[:200]!r}"
        return result(criterion, "not_met", "judge", "evidence_not_found", reason, evidence=quote)
    confidence = answers.get((criterion.id or "") + CONFIDENCE_SUFFIX)
    if confidence and (confidence.verdict != "met" or evidence.find(confidence.evidence, confidence.source) is None):
        return result(criterion, "not_met", "judge", "not_confident", confidence.reason, evidence=quote, source=source)
    if source in evidence.cut and _UNIVERSAL.search(criterion.describe()):
        reason = f"{source} was too long for the judge to see whole, and the omitted part could contradict this"
        return result(criterion, "cannot_tell", "judge", "truncated_for_judge", reason, evidence=quote, source=source)
    if _is_self_report(submission, source) and (reason := _unsupported(submission, criterion.describe(), evidence)):
        return result(criterion, "not_met", "judge", "self_report_only", reason, evidence=quote, source=source)
    return result(criterion, "met", "judge", "met", answer.reason, evidence=quote, source=source)


def _is_self_report(submission: Submission, source: str) -> bool:
    """Whether a source is only the worker's own statement: its report, or its input to the thinking tool."""
    return source == "output" or any(
        source == f"receipt:{one.n}" for one in submission.run.receipts if one.tool in _THINKING_TOOLS
    )


def _unsupported(submission: Submission, statement: str, evidence: Evidence) -> str | None:
    """Why the self-report doesn't prove `statement`: it is about an action or a file that left no trace.

    Only if actions were recorded, and only for statements that are clearly not about the report itself.
    """
    was_recorded = submission.folder is not None or bool(submission.run.receipts)
    if not was_recorded or _ABOUT_THE_REPORT.search(statement):
        return None
    receipts = submission.run.receipts
    traces = evidence.traces(receipts, not_by=_THINKING_TOOLS)
    names = _FILE_NAME.findall(statement)
    for name in names:
        if not any(name in source or name in text for source, text in traces.items()):
            return f"only the report mentions {name}: no artifact, tool call or check shows it"
    if not _ACTION.search(statement):
        return None
    if not evidence.traces(receipts, not_by=_READ_ONLY_TOOLS):
        return "only the report says that it was done: no artifact, tool call or check shows it"
    shown = any(source.startswith("check:") for source in traces) or (names and _FILE_ACTION.search(statement))
    if not submission.has_receipts and not shown:
        return "only the report says that it was done: tool calls weren't recorded, and no check shows it"
    return None
