"""Decides the criteria in words: one question to one model, believed only where its evidence is found.

The model answers per criterion; code looks for every quote. A `met` without a quote that is there is not met, and a
reply that can't be read decides nothing.
"""

import re
from collections.abc import Sequence

from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence, echoes
from delegate.judging.judge.reply import CriterionAnswer, UnparseableReply, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.submission import Submission, result
from delegate.types import AnyCriterion, CriterionResult, QuestionCriterion

SURE = ".sure"
"""Ends the id of the second statement that a question with high confidence is asked as. Ids of criteria have no dot."""

_ABOUT_THE_TEXT = re.compile(
    r"\b(?:reports?|output|answers?|repl(?:y|ies)|responses?|summary|text|essay|says?|states?|mentions?|names?|lists?"
    r"|explains?|describes?)\b",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"(?<![\w/@.])[\w./-]*\w\.(?:[a-z][a-z0-9]{0,4})\b(?!\.?\w*@)")
_DONE = re.compile(
    r"\b(?:is|are|was|were|been|gets?)\s+(?:\w+\s+)?(?:created|written|saved|stored|deleted|removed|updated|changed|sent"
    r"|committed|pushed|deployed|installed|executed|run|fixed|renamed|moved|uploaded|booked|cancelled|refunded|merged)\b(?!\s+(?:in|as|with)\b)"
    r"|\b(?:tests?|suite|build|linter)\b.*\b(?:pass(?:es|ed)?|succeeds?|green|clean)\b",
    re.IGNORECASE,
)
_DONE_TO_FILES = re.compile(
    r"\b(?:created|written|saved|stored|deleted|removed|updated|changed|fixed|renamed|moved)\b", re.IGNORECASE
)
"""Deeds that the files themselves show."""
_ABOUT_ALL = re.compile(
    r"\b(?:all|every|each|only|no|none|never|nothing|not|without|at most|fewer than|less than|no more than|exactly)\b"
    r"|n't\b",
    re.IGNORECASE,
)
"""Statements that one passage can't show, since another could contradict it."""
_THINKING = ("think",)
_LOOKING = ("think", "read_file", "list_files", "search_files", "fetch_url")
"""Tools of the toolbox that change nothing: their calls are no trace of a deed."""


def question(goal: str, criteria: Sequence[AnyCriterion], evidence: Evidence) -> JudgeQuestion:
    """The question whether `criteria` hold."""
    return prompt.question(goal, _statements(criteria), evidence)


def read(
    submission: Submission, criteria: Sequence[AnyCriterion], reply: JudgeReply, evidence: Evidence
) -> list[CriterionResult]:
    """The results of `criteria`, in their order, as the judge sees them and code confirms them."""
    if reply.reply is None:
        return [result(criterion, "error", "nobody", reply.code, reply.reason) for criterion in criteria]
    try:
        answers = parse_reply(reply.reply.text, [id for id, _ in _statements(criteria)])
    except UnparseableReply as error:
        return [result(criterion, "error", "nobody", "judge_unparseable", str(error)) for criterion in criteria]
    ready = evidence.ready_answers()
    if any(one.verdict == "met" and echoes(one.evidence, one.reason, ready) for one in answers.values()):
        reason = "the judge's answer is a copy of one that the worker wrote"
        return [result(criterion, "error", "nobody", "judge_unparseable", reason) for criterion in criteria]
    return [_verified(submission, criterion, answers, evidence) for criterion in criteria]


def _statements(criteria: Sequence[AnyCriterion]) -> list[tuple[str, str]]:
    """What the judge is asked to decide, with ids. A question with high confidence is two statements."""
    statements: list[tuple[str, str]] = []
    for criterion in criteria:
        id = criterion.id or ""
        if not isinstance(criterion, QuestionCriterion):
            statements.append((id, criterion.describe()))
            continue
        statements.append((id, f"The answer to this question is yes: {criterion.question}"))
        if criterion.threshold == "high_confidence":
            statements.append((id + SURE, f"The evidence leaves no reasonable doubt about the answer to {id}."))
    return statements


def _verified(
    submission: Submission, criterion: AnyCriterion, answers: dict[str, CriterionAnswer], evidence: Evidence
) -> CriterionResult:
    """The answer, with its quote looked for, and with what else a `met` needs."""
    answer = answers[criterion.id or ""]
    source = evidence.find(answer.evidence, answer.source)
    quote = answer.evidence or None
    if answer.verdict != "met":
        return result(criterion, answer.verdict, "judge", answer.verdict, answer.reason, evidence=quote, source=source)
    if source is None:
        reason = f"the judge says met, but its quote is not in the evidence: {answer.evidence[:200]!r}"
        return result(criterion, "not_met", "judge", "evidence_not_found", reason, evidence=quote)
    sure = answers.get((criterion.id or "") + SURE)
    if sure and (sure.verdict != "met" or evidence.find(sure.evidence, sure.source) is None):
        return result(criterion, "not_met", "judge", "not_confident", sure.reason, evidence=quote, source=source)
    if source in evidence.cut and _ABOUT_ALL.search(criterion.describe()):
        why = f"{source} was too long to be judged whole, and what was left out could decide this otherwise"
        return result(criterion, "cannot_tell", "judge", "truncated_for_judge", why, evidence=quote, source=source)
    if _is_own_word(submission, source) and (why := _only_claimed(submission, criterion.describe(), evidence)):
        return result(criterion, "not_met", "judge", "self_report_only", why, evidence=quote, source=source)
    return result(criterion, "met", "judge", "met", answer.reason, evidence=quote, source=source)


def _is_own_word(submission: Submission, source: str) -> bool:
    """Whether a source is only what the worker says: its report, or what it told the tool for thinking."""
    return source == "output" or any(
        source == f"receipt:{one.n}" for one in submission.run.receipts if one.tool in _THINKING
    )


def _only_claimed(submission: Submission, statement: str, evidence: Evidence) -> str | None:
    """Why the report's own words are not enough: the criterion is about a deed or a file that left no trace.

    Only where deeds were recorded, and only for statements that are plainly not about the text itself.
    """
    was_watched = submission.folder is not None or bool(submission.run.receipts)
    if not was_watched or _ABOUT_THE_TEXT.search(statement):
        return None
    receipts = submission.run.receipts
    traces = evidence.traces(receipts, not_by=_THINKING)
    names = _FILE_NAME.findall(statement)
    for name in names:
        if not any(name in source or name in text for source, text in traces.items()):
            return f"only the report speaks of {name}: no artifact, tool call or check shows it"
    if not _DONE.search(statement):
        return None
    if not evidence.traces(receipts, not_by=_LOOKING):
        return "only the report says that it was done: no artifact, tool call or check shows it"
    seen = any(source.startswith("check:") for source in traces) or (names and _DONE_TO_FILES.search(statement))
    if not submission.has_receipts and not seen:
        return "only the report says that it was done: tool calls weren't recorded, and no check shows it"
    return None
