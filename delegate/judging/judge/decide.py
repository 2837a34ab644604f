"""Decides text criteria and questions: asks one model one question, and verifies the quotes in its reply.

The model answers per part of a criterion, and code searches for every quote. A `met` counts only if its quote stands in
a source that can prove the part, or code finds the call that does (`proof/`). A reply that can't be parsed decides
nothing. Absences that the records decide are not asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delegate._util.redaction import redactor
from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.reply import CriterionAnswer, UnparseableReply, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.looks.looks import Looks
from delegate.judging.proof import absences
from delegate.judging.proof.calls import Calls
from delegate.judging.proof.files import is_check_of, is_named
from delegate.judging.proof.proof import Proof, Refused, Shown
from delegate.judging.reading.statements import TaskReading, statement_of
from delegate.judging.submission import Submission, result
from delegate.types import (
    LOWERED,
    AnyCriterion,
    CriterionOutcome,
    CriterionReading,
    CriterionResult,
    DecidedBy,
    PartResult,
    QuestionCriterion,
    StatementPart,
)
from delegate.types.codes import VerdictCode

CONFIDENCE_SUFFIX = ".sure"
"""A question with high confidence has one more statement, whose id has this suffix. Ids of criteria contain no dot."""
RECORD = "record"
"""The source of an absence for which nothing can be quoted: all calls and changes, of which the judge saw every one."""
_FAILURES = ("not_met", "error", "cannot_tell")
"""Outcomes of parts that decide a criterion, the most certain one first."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part of a criterion, and its result if the records decide it."""

    id: str
    statement: str
    part: StatementPart
    settled: PartResult | None = None
    is_by_commands: bool = False
    """Whether it is a deed that commands bring about, so that running one again shows more than what is on record."""


@dataclass(frozen=True, slots=True)
class OpenCriterion:
    """A criterion in words with its reading, while it is being decided."""

    criterion: AnyCriterion
    reading: CriterionReading
    parts: Sequence[OpenPart]

    @property
    def settled(self) -> CriterionResult | None:
        """The result, if the records alone decide the criterion."""
        results = [part.settled for part in self.parts if part.settled is not None]
        if len(results) == len(self.parts) or any(part.outcome == "not_met" for part in results):
            return _combined(self, results, "check")
        return None


def opened(
    submission: Submission, criteria: Sequence[AnyCriterion], reading: TaskReading, calls: Calls
) -> list[OpenCriterion]:
    """The criteria with their parts, and what the records decide of them."""
    return [_opened(submission, calls, criterion, reading) for criterion in criteria]


def build_question(
    submission: Submission, open: Sequence[OpenCriterion], evidence: Evidence, looks: Looks | None = None
) -> JudgeQuestion:
    """The question whether the open parts of these criteria hold."""
    lines: list[str] = []
    ids: list[str] = []
    for entry in open:
        parts = [part for part in entry.parts if part.settled is None]
        if len(entry.parts) > 1:
            lines.append(f"{entry.criterion.id}, of which these are the parts: {statement_of(entry.criterion)}")
        lines += [f"{part.id}: {part.statement} [{_where(part, submission, looks)}]" for part in parts]
        ids += [part.id for part in parts]
        if _needs_confidence(entry.criterion):
            ids.append(f"{entry.criterion.id}{CONFIDENCE_SUFFIX}")
            lines.append(
                f"{ids[-1]}: The evidence leaves no reasonable doubt about the answer to {entry.criterion.id}."
            )
    return prompt.build_question(submission.asked, lines, ids, evidence, looks)


def read_reply(
    submission: Submission, open: Sequence[OpenCriterion], calls: Calls, reply: JudgeReply, evidence: Evidence
) -> list[CriterionResult]:
    """The results of the criteria, in their order: the judge's answers, as far as code confirms them."""

    def unusable(code: VerdictCode, reason: str) -> list[CriterionResult]:
        return [result(entry.criterion, "error", "nobody", code, reason, reading=entry.reading) for entry in open]

    if reply.reply is None:
        return unusable(reply.code, reply.reason)
    ids = [part.id for entry in open for part in entry.parts if part.settled is None]
    ids += [f"{entry.criterion.id}{CONFIDENCE_SUFFIX}" for entry in open if _needs_confidence(entry.criterion)]
    try:
        answers = parse_reply(reply.reply.text, ids)
    except UnparseableReply as error:
        return unusable("judge_unparseable", str(error))
    if evidence.has_prewritten(answers.values()):
        return unusable("judge_unparseable", "the judge's answer is a copy of one that the worker wrote")
    return [_verified(submission, entry, calls, answers, evidence) for entry in open]


def _opened(submission: Submission, calls: Calls, criterion: AnyCriterion, reading: TaskReading) -> OpenCriterion:
    id, statement = criterion.id or "", statement_of(criterion)
    own_reading = reading.of(id, statement)
    parts: list[OpenPart] = []
    for n, part in enumerate(own_reading.parts, start=1):
        is_single = len(own_reading.parts) == 1
        if own_reading.by == "nobody":  # it may be about files that it names
            files = tuple(one.path for one in submission.run.artifacts if is_named(one.path, statement))
            part = part.model_copy(update={"files": files})
        text = criterion.describe() if is_single else part.text
        if is_single and isinstance(criterion, QuestionCriterion):
            text = f"The answer to this question is yes: {criterion.question}"
        settled = absences.check(part, own_reading.by, submission, calls)
        by_commands = part.about == "deed" and any(calls.effects.get(tool) == "commands" for tool in part.tools)
        parts.append(OpenPart(id if is_single else f"{id}.{n}", text, part, settled, by_commands))
    return OpenCriterion(criterion, own_reading, parts)


def _needs_confidence(criterion: AnyCriterion) -> bool:
    return isinstance(criterion, QuestionCriterion) and criterion.threshold == "high_confidence"


def _where(open: OpenPart, submission: Submission, looks: Looks | None) -> str:
    """What the judge is told about where its quote has to come from."""
    part, or_look = open.part, ", or a look that shows it" if looks else ""
    files = ", ".join(f"`{path}`" for path in part.files)
    match part.about:
        case "report":
            places = ["`report`", *(["`said`"] if submission.said else []), *([f"the file {files}"] if files else [])]
            return f"about the report: quote {' or '.join(places)}"
        case "file":
            checks = [f"`check:{one.id}`" for one in submission.task.criteria if is_check_of(one, part.files)]
            places = ", ".join(["an `artifact:`", "a `file:`", *checks])
            return f"about {files or 'a file'}: quote {places} or `artifacts`{or_look}"
        case "deed":
            by = " or ".join(f"`{tool}`" for tool in part.tools)
            if open.is_by_commands and looks and looks.may_run:
                own = f"the `receipt:` of the worker's own {by}, which is weaker"
                return f"a deed: show what came of it by `run`, or a `check:`; where that can't be shown, quote {own}"
            call = f"quote the `receipt:` of the call{f' of {by}' if by else ''} that did it, or a `check:`"
            return f"a deed: {call}{f', or the file {files}' if files else ''}{or_look}"
        case "absence":
            return "that something was not done: quote what speaks for it; if nothing speaks against it, quote nothing"


# ------------------------------------------------------------------------------------------------------- verifying


def _verified(
    submission: Submission,
    entry: OpenCriterion,
    calls: Calls,
    answers: Mapping[str, CriterionAnswer],
    evidence: Evidence,
) -> CriterionResult:
    """The result of one criterion from the answers on its parts."""
    results = [
        part.settled
        or _verified_part(Proof(part.part, entry.reading.by, submission, evidence, calls), answers[part.id], evidence)
        for part in entry.parts
    ]
    confidence = answers.get(f"{entry.criterion.id}{CONFIDENCE_SUFFIX}")
    if confidence is not None and all(part.outcome == "met" for part in results):
        is_sure = confidence.verdict == "met" and evidence.find(confidence.evidence, confidence.source) is not None
        if not is_sure:
            doubt = {"outcome": "not_met", "code": "not_confident", "reason": confidence.reason}
            results[0] = results[0].model_copy(update=doubt)
    return _combined(entry, results, "judge")


def _verified_part(proof: Proof, answer: CriterionAnswer, evidence: Evidence) -> PartResult:
    """The result of one part: a `met` stays only if something proves it."""
    if answer.verdict == "not_met":
        source = evidence.find(answer.evidence, answer.source)
        return _part(proof, answer, "not_met", "not_met", answer.reason, source)
    if answer.verdict == "cannot_tell":
        if (call := proof.despite_doubt(answer.evidence)) is not None:
            return _shown(proof, call, answer, evidence)
        reason = f"{answer.reason.rstrip('. ')}; what would show it: {proof.wanted}"
        source = evidence.find(answer.evidence, answer.source)
        return _part(proof, answer, "cannot_tell", "cannot_tell", reason, source)
    shown = proof.find(answer.evidence, answer.source)
    if shown is None and proof.part.about == "absence" and not answer.evidence.strip():
        worth = absences.worth(proof.part, proof.by, proof.submission, proof.calls)
        worth = "incomplete_record" if worth == "met" and evidence.cut else worth
        source = RECORD if worth == "met" else None
        return _part(proof, answer, "met", worth, answer.reason, source)
    if shown is None:
        shown = proof.seen_in_picture(answer.source)
    if shown is None:
        reason = (
            f"the judge says met, but its quote is not in the evidence: {redactor.beginning(answer.evidence, 200)!r}"
        )
        return _part(proof, answer, "not_met", "evidence_not_found", reason)
    if isinstance(shown, Refused):
        reason = f"{shown.reason}; what would show it: {proof.wanted}"
        return _part(proof, answer, "not_met", "self_report_only", reason, shown.source)
    if unseen := proof.unseen(shown.source):
        reason = f"the judge did not see all of {unseen}, and the omitted part could contradict this"
        return _part(proof, answer, "cannot_tell", "truncated_for_judge", reason, shown.source)
    return _shown(proof, shown, answer, evidence)


def _part(
    proof: Proof,
    answer: CriterionAnswer,
    outcome: CriterionOutcome,
    code: VerdictCode,
    reason: str,
    source: str | None = None,
    quote: str | None = None,
) -> PartResult:
    return PartResult(
        text=proof.part.text,
        outcome=outcome,
        code=code,
        reason=reason,
        evidence=quote or answer.evidence or None,
        source=source,
    )


def _shown(proof: Proof, shown: Shown, answer: CriterionAnswer, evidence: Evidence) -> PartResult:
    """A part that is met. Where code found what shows it, the quote is the beginning of that."""
    quote = answer.evidence
    if quote not in evidence.sources.get(shown.source, "") and evidence.find(quote, shown.source) != shown.source:
        quote = evidence.sources.get(shown.source, "").partition("\n")[0][:300]
    return _part(proof, answer, "met", shown.code, answer.reason, shown.source, quote)


def _combined(entry: OpenCriterion, parts: Sequence[PartResult], by: DecidedBy) -> CriterionResult:
    """The result that follows from those of the parts: met if all are, otherwise that of the worst one."""
    failing = [part for outcome in _FAILURES for part in parts if part.outcome == outcome]
    unverified = [part for part in parts if part.code in LOWERED]
    first = [*failing, *unverified, *(part for part in parts if part.source), *parts][0]
    return result(
        entry.criterion,
        first.outcome,
        by,
        first.code,
        first.reason,
        evidence=first.evidence,
        source=first.source,
        reading=entry.reading,
        parts=parts if len(parts) > 1 else (),
    )
