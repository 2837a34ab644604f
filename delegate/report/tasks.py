"""Turns the record of one task into what a report shows of it."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from delegate._util.fencing import one_line
from delegate.batch.item import ItemOutcome
from delegate.contract.amounts import counted, paid
from delegate.money import usd
from delegate.report.amounts import duration, task_bill, when
from delegate.report.files import LeftFiles
from delegate.report.quotes import find_quote
from delegate.report.room import Room
from delegate.report.values import (
    CallView,
    CandidateView,
    CitationView,
    ClaimView,
    CriterionView,
    RulingView,
    TaskView,
    Tone,
    TranscriptEvent,
)
from delegate.types import (
    HOLDING,
    UNRECORDED,
    Candidate,
    ChildRun,
    Citation,
    CitationState,
    Claim,
    CriterionResult,
    JsonObject,
    Receipt,
    Ruling,
    TaskResult,
    Verdict,
)

GOAL_CHARS = 300
WHY_CHARS = 260
_TEXT_CHARS = 4_000
_REPORT_CHARS = 100_000
_CALLS = 200
_CANDIDATES = 60
_STEPS = 400
_COLUMNS = 20
_ROW_CHARS = 200
"""About how much markup a candidate or a step takes."""
_CALL_CHARS = 400
_CRITERION_CHARS = 420
_COMMANDS_CHARS = 320
_RULING_CHARS = 160
_CLAIM_CHARS = 320
_RATIONALE_CHARS = 2_000
_REFUSED_CHARS = 600
_BILL_CHARS = 850
_FACTS_CHARS = 650
_TASK_CHARS = 700
_CITATION_CHARS = 420
_SOURCE_CHARS = 300
_WORST_FIRST: tuple[CitationState, ...] = ("not_found_there", "not_opened", "opened", "supported", "quoted")
_WEB = re.compile(r"https?://[^\s\"'<>]{1,2000}\Z", re.IGNORECASE)
_HELD = "it held before the child began"
_ALWAYS_SHOWN = 3
"""So many failing criteria are shown even where there is no room."""
_MARKS: dict[str, tuple[str, Tone]] = {
    "met": ("✓", "pass"),
    "not_met": ("✗", "fail"),
    "cannot_tell": ("?", "warn"),
    "error": ("!", "fail"),
    "trusted": ("~", "warn"),
    "skipped": ("–", "none"),
}
_STATES: dict[str, tuple[str, Tone]] = {
    "running": ("RUNNING", "run"),
    "outcome_unknown": ("OUTCOME UNKNOWN", "warn"),
    "unreadable": ("UNREADABLE", "warn"),
    "not_started": ("NOT STARTED", "none"),
    "blocked": ("BLOCKED", "none"),
    "bad_row": ("BAD ROW", "warn"),
}
_WITHOUT_RESULT = {
    "running": "it has no result yet",
    "outcome_unknown": "its process was lost; it may have done anything",
    "unreadable": "its record was written by another version of delegate, or is damaged",
}
_TOLD = (
    "id", "goal", "text", "model", "instead_of", "status", "outcome", "verdict", "fault", "reason", "tool", "by",
    "note", "expected",
)  # fmt: skip
"""The fields of an event that the transcript shows."""
_STEP_WORDS = {
    "task.queued": "queued",
    "child.started": "child starts",
    "child.waiting": "begins to wait",
    "approval.asked": "asks for an approval",
    "approval.answered": "approval",
    "step.declared": "begins a step",
    "step.verified": "ends a step",
    "question.asked": "asks its parent",
    "question.answered": "question",
    "message.delivered": "reads a message",
    "child.done": "child ended",
    "check.started": "check starts",
    "check.done": "check",
    "judge.asked": "asking a judge",
    "judge.waiting": "judge has to wait",
    "judge.done": "judge answered",
    "task.done": "recorded",
}


def task_view(
    record: JsonObject | None,
    room: Room,
    *,
    anchor: str,
    number: str,
    depth: int = 0,
    outcome: ItemOutcome | None = None,
    rulings: Sequence[Ruling] = (),
    filters: str = "",
) -> TaskView:
    """What a report shows of a task: of its record and the rulings on it, of its outcome in a batch, or of both."""
    result = _result_of(record, outcome)
    verdict = result.verdict if result else None
    word, tone = word_of(record["state"] if record else "outcome_unknown", outcome, result)
    goal = _goal(record, outcome)
    room.has(_TASK_CHARS)
    details = _Details(record or {}, result, rulings, room)
    disputed = _disputed(rulings, verdict)
    why, is_of_criterion = _why(record, outcome, result)
    return TaskView(
        anchor=anchor,
        number=number,
        depth=depth,
        goal=room.take(goal, GOAL_CHARS).replace("\n", " "),
        word=word,
        tone=tone,
        decided_by=verdict.decided_by if verdict else "",
        code=code_of(outcome, result),
        why=one_line(why, WHY_CHARS) + _dispute(disputed),
        is_said_below=is_of_criterion and not disputed,
        figures=[paid(result), duration(result.seconds)] if result else [],
        is_open=bool(disputed) or (tone not in ("pass", "none") and word != "PASS"),
        criteria=details.criteria(),
        claims=details.claims(),
        findings=[
            (finding.severity, f"{finding.code}: {room.take(finding.message, 600)}") for finding in _findings(verdict)
        ],
        report=details.report(goal),
        judging=list(_judging(verdict)),
        bill=task_bill(result) if result and room.has(_BILL_CHARS) else (),
        facts=list(_facts(record, result, outcome)) if room.has(_FACTS_CHARS) else (),
        calls=details.calls(),
        looks=details.looks(),
        files=details.files(),
        candidates=details.candidates(),
        steps=details.steps(),
        more=_more(room, record, result),
        filters=filters,
    )


def unreadable(record: JsonObject) -> JsonObject:
    """What is left of a record that another version of delegate wrote in a form that this one doesn't know."""
    header = {name: record[name] for name in ("handle", "run_id", "began_at", "ended_at", "workspace")}
    goal = str(record["task"].get("goal", ""))
    return {**header, "state": "unreadable", "task": {"goal": goal}, "run": None, "result": None, "events": []}


def code_of(outcome: ItemOutcome | None, result: TaskResult | None) -> str:
    """The reason code of a task: that of its verdict, of its child's error, or its state."""
    if result is None:
        return outcome.state if outcome else ""
    if result.verdict is not None:
        return result.verdict.code
    return result.error.code if result.error else result.status


def _result_of(record: JsonObject | None, outcome: ItemOutcome | None) -> TaskResult | None:
    if record is not None and record["result"]:
        return TaskResult.model_validate(record["result"])
    return outcome.result if outcome else None


def word_of(state: str, outcome: ItemOutcome | None, result: TaskResult | None) -> tuple[str, Tone]:
    """PASS or FAIL, or why there is no verdict, with its tone. A FAIL that says nothing about the work is a warning."""
    if outcome is not None and outcome.state != "done":
        return _STATES[outcome.state]
    if result is None:
        return _STATES.get(state, _STATES["outcome_unknown"])
    if result.verdict is None:
        return ("NO VERDICT", "none") if result.status == "completed" else (result.status.upper(), "fail")
    if result.verdict.verdict == "PASS" and result.status == "completed":
        return "PASS", "pass" if result.verdict.verified else "warn"
    return result.verdict.verdict, "fail" if result.examined else "warn"


def _goal(record: JsonObject | None, outcome: ItemOutcome | None) -> str:
    if record is not None:
        return str(record["task"].get("goal", ""))
    values = dict(outcome.input) if outcome else {}
    return values.get("goal") or " · ".join(values.values()) or "no goal is on record"


def _why(record: JsonObject | None, outcome: ItemOutcome | None, result: TaskResult | None) -> tuple[str, bool]:
    """Why a task passed or failed, and whether the reason is a criterion's."""
    if outcome is not None and outcome.why:
        return outcome.why, False
    if result is None:
        state = record["state"] if record else "outcome_unknown"
        return _WITHOUT_RESULT.get(state, _WITHOUT_RESULT["outcome_unknown"]), False
    if result.error is not None:
        return f"{result.status}: {result.error.message}", False
    verdict = result.verdict
    if verdict is None:
        return "no criteria were given, so nothing was checked", False
    failing = next((criterion for criterion in verdict.criteria if criterion.fails), None)
    if failing is None or verdict.decided_by == "gate":
        rests = f" ({verdict.worth})" if verdict.verdict == "PASS" else ""
        return f"{verdict.reasoning or verdict.code}{rests}", False
    unseen = "" if result.examined else "nobody could look: "
    return f"{unseen}{failing.text} — {failing.reason or failing.code.replace('_', ' ')}", not unseen


def _facts(
    record: JsonObject | None, result: TaskResult | None, outcome: ItemOutcome | None
) -> Iterator[tuple[str, str]]:
    if result is not None:
        yield from _basis(result.verdict)
    for name, value in list(outcome.input.items())[:_COLUMNS] if outcome else ():
        if name != "goal":
            yield one_line(name, 60), one_line(value, 300)
    if result is not None:
        yield "child", f"{result.status}; {result.model or result.requested_model or 'a model of its own'}"
        yield from _models(result)
        if result.goal_end:
            yield "goal", f"ended as {result.goal_end.replace('_', ' ')}, {counted(len(result.claims), 'claim')}"
        if result.take_over:
            yield "take over", result.take_over
        if result.no_take_over:
            yield "no take-over", result.no_take_over
    if record is not None:
        yield "started", when(record["began_at"])
        yield "folder", record["workspace"] or "none"
        yield "handle", record["handle"]


def _models(result: TaskResult) -> Iterator[tuple[str, str]]:
    if result.substituted:
        yield "model", f"requested {result.requested_model}, served {result.model}"
    for failed in result.failed_models:
        yield "failed model", f"{failed.model}, before anything was done: {one_line(failed.error.message, 300)}"


def _basis(verdict: Verdict | None) -> Iterator[tuple[str, str]]:
    if verdict is None:
        return
    yield "basis", f"{verdict.code}, decided by {verdict.decided_by}; {verdict.worth}"
    if verdict.gate and verdict.decided_by != "gate":
        yield "gate", f"is off; it would have refused: {verdict.gate}"
    if verdict.receipts != "recorded":
        yield "tool calls", UNRECORDED[verdict.receipts]


def _findings(verdict: Verdict | None) -> Sequence[Any]:
    return verdict.findings if verdict else ()


def _judging(verdict: Verdict | None) -> Iterator[str]:
    """The judge, the attempts that gave no answer, and whether a second judge was asked."""
    record = verdict.judge if verdict else None
    if record is None:
        return
    if record.model is not None:
        same = "; it is also the child's model" if record.same_model_as_worker else ""
        yield f"{record.model} judged ({paid(record)}, {duration(record.seconds)}){same}"
    if record.substituted:
        yield f"{record.model_served} answered instead"
    for attempt in record.attempts:
        if attempt.fault is not None:
            yield f"{attempt.model} gave no answer: {attempt.fault}: {one_line(attempt.message, 200)}"
        elif attempt.message:
            yield f"{attempt.model} gave no usable answer: {one_line(attempt.message, 200)}"
        for answer in attempt.answers:
            yield f"{attempt.model} on {answer.id}, before a second judge was asked: {answer.outcome}, {answer.code}"


def _more(room: Room, record: JsonObject | None, result: TaskResult | None) -> str:
    """The command that shows what there was no room for."""
    handle = (record or {}).get("handle") or (result.handle if result else None)
    return f"delegate report {handle} -o task.html" if room.is_short and handle else ""


class _Details:
    """What is shown when a task is opened, taken from its room in the order of the calls."""

    def __init__(
        self,
        record: JsonObject,
        result: TaskResult | None,
        rulings: Sequence[Ruling],
        room: Room,
    ) -> None:
        self._record = record
        self._result = result
        self._rulings = rulings
        self._room = room
        self._run = ChildRun.model_validate(record["run"]) if record.get("run") else None
        self._receipts = recorded_calls(record)
        self._left = LeftFiles(record.get("workspace"), record.get("task", {}).get("workspace"))

    def criteria(self) -> list[CriterionView]:
        """The criteria, with the quote of a judge in its source."""
        verdict = self._result.verdict if self._result else None
        if verdict is None:
            return list(self._open_criteria())
        failing = [criterion.id for criterion in verdict.criteria if criterion.fails][:_ALWAYS_SHOWN]
        criteria = [
            criterion for criterion in verdict.criteria if self._room.has(_CRITERION_CHARS) or criterion.id in failing
        ]
        return [self._criterion(criterion) for criterion in criteria]

    def claims(self) -> list[ClaimView]:
        """In goal mode, what the child claimed when, and what came of it. The last one may still be judged."""
        began, events = float(self._record.get("began_at") or 0), self._record.get("events") or ()
        claims_made = {event["n"]: event for event in events if event["kind"] == "claim.made"}
        claims = self._result.claims if self._result else _recorded_claims(events)
        views: list[ClaimView] = []
        for claim in claims:
            if not self._room.has(_CLAIM_CHARS):
                return views
            at = f"after {duration(claims_made[claim.n]['at'] - began)}" if claim.n in claims_made else ""
            views.append(self._claim(claim, at))
        open_claims = sorted(claims_made.keys() - {claim.n for claim in claims})
        for n in open_claims if self._result is None else ():
            at, text = f"after {duration(claims_made[n]['at'] - began)}", str(claims_made[n]["rationale"])
            rationale = self._room.take(text.strip(), _RATIONALE_CHARS)
            views.append(ClaimView(str(n), at, "not judged yet", "none", "", "", rationale))
        return views

    def report(self, goal: str) -> str:
        """The child's report; of a task without a result, the last that it said."""
        text = self._run.output if self._run else self._result.summary if self._result else latest_text(self._record)
        return self._room.take(text.strip(), _REPORT_CHARS)

    def calls(self) -> list[CallView]:
        """The tool calls with their results."""
        return self._shown(self._receipts)

    def looks(self) -> list[CallView]:
        """What the judges looked at besides their pages."""
        return self._shown(self._looks)

    @property
    def _looks(self) -> Sequence[Receipt]:
        judge = self._result.verdict.judge if self._result and self._result.verdict else None
        return judge.looks if judge else ()

    def _shown(self, receipts: Sequence[Receipt]) -> list[CallView]:
        views: list[CallView] = []
        for receipt in receipts[:_CALLS]:
            if not self._room.has(_CALL_CHARS):
                break
            args = self._room.take(_arguments(receipt.args), _TEXT_CHARS)
            output = self._room.take(receipt.output, _TEXT_CHARS)
            figures = f"{counted(receipt.output_bytes, 'byte')}, {receipt.seconds:.2f} s"
            figures += f", {receipt.sandbox}" if receipt.sandbox else ""
            tool = one_line(receipt.tool, 60)
            views.append(CallView(receipt.n, tool, receipt.status, receipt.status == "ok", args, output, figures))
        self._room.is_short |= len(views) < len(receipts)
        return views

    def files(self) -> list[Any]:
        """The files that the child left."""
        artifacts = self._run.artifacts if self._run else self._result.artifacts if self._result else ()
        return list(self._left.views(artifacts, self._room))

    def candidates(self) -> list[CandidateView]:
        """The models that could have judged, in the order in which they would be asked, then all others."""
        record = self._result.verdict.judge if self._result and self._result.verdict else None
        candidates = record.candidates if record else ()
        in_order = sorted(candidates, key=lambda candidate: (candidate.rank is None, candidate.rank or 0))[:_CANDIDATES]
        judge = record.model if record else None
        return [_candidate(candidate, judge) for candidate in in_order if self._room.has(_ROW_CHARS)]

    def steps(self) -> list[TranscriptEvent]:
        """The transcript."""
        began = float(self._record.get("began_at") or 0)
        steps: list[TranscriptEvent] = []
        events = self._record.get("events") or ()
        for event in events[:_STEPS]:
            if not self._room.has(_ROW_CHARS):
                break
            steps.append(_step(event, float(event["at"]) - began, self._room))
        self._room.is_short |= len(steps) < len(events)
        return steps

    def _criterion(self, criterion: CriterionResult) -> CriterionView:
        mark, tone = _MARKS[criterion.outcome]
        tone = "warn" if criterion.outcome == "met" and criterion.level not in (None, "proven", "seen") else tone
        evidence = self._room.take((criterion.evidence or "").strip(), _TEXT_CHARS)
        place = one_line(criterion.place, 120) if criterion.source and criterion.decided_by == "judge" else ""
        excerpt = None
        if evidence and place and self._room.has(300 + len(evidence)):
            source = self._source(criterion)
            excerpt = find_quote(criterion.evidence or "", source, place) if source else None
            if excerpt and not self._room.has(len(excerpt.before) + len(excerpt.after)):
                excerpt = find_quote(criterion.evidence or "", source or "", place, context=60)
        return CriterionView(
            id=criterion.id,
            text=self._room.take(criterion.text, _TEXT_CHARS),
            mark=mark,
            outcome=criterion.outcome.replace("_", " "),
            tone="warn" if criterion.findings_only and tone == "fail" else tone,
            decided_by=criterion.decided_by,
            code=criterion.code,
            reason=self._room.take(criterion.reason, _TEXT_CHARS),
            evidence="" if criterion.decided_by != "judge" and _repeats(criterion.reason, evidence) else evidence,
            excerpt=excerpt,
            place=place,
            level=criterion.level.replace("_", " ") if criterion.level else "",
            note="; ".join(
                [
                    *(["counts as a finding only"] if criterion.findings_only else []),
                    *([_HELD] if criterion.held_before and _HELD not in criterion.reason else []),
                    *([self._room.take(str(criterion.reading), _REFUSED_CHARS)] if criterion.reading else []),
                ]
            ),
            ruled=[self._ruling(ruling, criterion) for ruling in self._rulings if ruling.criterion == criterion.id],
            commands=self._commands(criterion),
            citations=self._citations(criterion),
        )

    def _citations(self, criterion: CriterionResult) -> list[CitationView]:
        """The citations, first those that don't hold."""
        in_order = sorted(criterion.citations, key=lambda citation: _WORST_FIRST.index(citation.state))
        views: list[CitationView] = []
        for citation in in_order:
            if not self._room.has(_CITATION_CHARS):
                break
            views.append(self._citation(citation))
        self._room.is_short |= len(views) < len(in_order)
        return views

    def _citation(self, citation: Citation) -> CitationView:
        is_link = citation.state != "not_opened" and _WEB.match(citation.source)
        source, href = one_line(citation.source, _SOURCE_CHARS), citation.source if is_link else ""
        if citation.answered_by:
            source = f"{source} (answered by {one_line(citation.answered_by, 100)})"
        holds = citation.state in HOLDING
        return CitationView(
            statement=self._room.take(citation.statement, _REFUSED_CHARS),
            source=self._room.take(source, _SOURCE_CHARS + 120),
            href=self._room.take(href, len(href)) if self._room.has(len(href)) else "",
            state=citation.state.replace("_", " "),
            tone="pass" if holds else "warn" if citation.state == "opened" else "fail",
            why=self._room.take((citation.evidence or "") if holds else citation.reason, _REFUSED_CHARS),
            field=one_line(citation.field, 60),
        )

    def _claim(self, claim: Claim, at: str) -> ClaimView:
        is_pass, step = claim.verdict == "PASS", f"model call {claim.step}"
        cost = [paid(claim)] if claim.usage.model_calls or claim.cost_usd is None else []
        if claim.code == "no_progress":
            why = "nothing had changed since the claim before, so it was not judged again"
        elif claim.refused and claim.code != "not_verified":
            why = ""  # the criteria say it
        else:
            why = claim.reasoning or claim.code.replace("_", " ")
        return ClaimView(
            number=str(claim.n),
            at=f"{at}, with {step}" if at else f"with {step}",
            outcome="verified" if is_pass else "refused",
            tone="pass" if is_pass else "fail",
            why=self._room.take(why, _REFUSED_CHARS),
            figures=", ".join([f"decided by {claim.decided_by}", claim.code, *cost, duration(claim.seconds)]),
            rationale=self._room.take(claim.rationale.strip(), _RATIONALE_CHARS),
            refused=[
                (
                    self._room.take(criterion.text, _REFUSED_CHARS),
                    self._room.take(criterion.reason or criterion.code, _REFUSED_CHARS),
                )
                for criterion in (claim.refused if claim.code != "no_progress" else ())
                if self._room.has(_ROW_CHARS)
            ],
        )

    def _ruling(self, ruling: Ruling, criterion: CriterionResult) -> RulingView:
        self._room.has(_RULING_CHARS)
        sampling = ", drawn at random" if ruling.sampling == "random" else ""
        about = f", about {ruling.judge}" if ruling.judge else ""
        text = f"{ruling.ruled_by} ruled: {ruling.ruling.replace('_', ' ')} ({when(ruling.at)}{about}{sampling})"
        tone: Tone = "none" if _agrees(ruling, criterion) else "warn"
        return RulingView(one_line(text, 300), self._room.take(ruling.because.strip(), _REFUSED_CHARS), tone)

    def _commands(self, criterion: CriterionResult) -> list[str]:
        handle = self._record.get("handle") or (self._result.handle if self._result else None)
        if criterion.decided_by != "judge" or not handle or not self._room.has(_COMMANDS_CHARS):
            return []
        return [f"delegate rule {handle} {criterion.id} {word}" for word in ("met", "not_met")]

    def _open_criteria(self) -> Iterator[CriterionView]:
        """The criteria of a task that has no verdict, as they were given."""
        if self._result is not None:
            return
        criteria = self._record.get("task", {}).get("acceptance_criteria") or ()
        for criterion in criteria:
            text = criterion.get("text") or criterion.get("question") or json.dumps(criterion, ensure_ascii=False)
            yield CriterionView(
                str(criterion.get("id", "")), self._room.take(str(text), 600), "·", "open", "none", "nobody", "", ""
            )

    def _source(self, criterion: CriterionResult) -> str | None:
        """The text of the source in which a judge's quote was found, from the record or the workspace."""
        kind, _, name = (criterion.source or "").partition(":")
        if kind == "output":
            return self._run.output if self._run else self._result.summary if self._result else None
        if kind in ("receipt", "look"):
            calls = self._receipts if kind == "receipt" else self._looks
            receipt = next((call for call in calls if str(call.n) == name), None)
            return receipt and f"{receipt.tool} {json.dumps(receipt.args, ensure_ascii=False)}\n{receipt.output}"
        if kind == "artifact":
            return self._left.text(name)
        if kind == "artifacts" and self._run:
            return "\n".join(f"{item.change} {item.path} ({item.bytes} bytes)" for item in self._run.artifacts)
        verdict = self._result.verdict if self._result else None
        check = next((each for each in verdict.criteria if each.id == name), None) if verdict else None
        return check and f"{check.text}: {check.outcome}. {check.reason}"


def _recorded_claims(events: Sequence[JsonObject]) -> list[Claim]:
    """The judged claims of a task without a result, from its events."""
    fields = Claim.model_fields.keys()
    judgments = (event for event in events if event["kind"] == "claim.judged")
    return [Claim.model_validate({name: event[name] for name in fields & event.keys()}) for event in judgments]


def _agrees(ruling: Ruling, criterion: CriterionResult) -> bool:
    """Whether a ruling says what was decided. One on what was left undecided contradicts nothing."""
    return criterion.outcome not in ("met", "not_met") or ruling.ruling == criterion.outcome


def _disputed(rulings: Sequence[Ruling], verdict: Verdict | None) -> list[Ruling]:
    """The rulings in force that contradict a verdict. They come oldest first, and the latest one counts."""
    latest = {ruling.criterion: ruling for ruling in rulings}
    criteria = verdict.criteria if verdict else ()
    return [
        latest[criterion.id]
        for criterion in criteria
        if criterion.id in latest and not _agrees(latest[criterion.id], criterion)
    ]


def _dispute(rulings: Sequence[Ruling]) -> str:
    """What a row says of rulings that contradict its verdict."""
    words = (f"{ruling.ruled_by} ruled {ruling.criterion} {ruling.ruling.replace('_', ' ')}" for ruling in rulings)
    return f"; but {one_line(', '.join(words), 120)}" if rulings else ""


def _arguments(args: JsonObject) -> str:
    """The arguments of a tool call, one below the other. Texts are shown as they are, everything else as JSON."""
    values = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in args.items())
    return (
        "\n".join(f"{name}:\n{value}" if "\n" in value else f"{name}: {value}" for name, value in values) or "nothing"
    )


def _repeats(reason: str, evidence: str) -> bool:
    """Whether the reason says all that the evidence of a check does."""
    lines = (" ".join(line.split()) for line in evidence.splitlines() if any(map(str.isalnum, line)))
    text = " ".join(reason.split())
    return all(line in text for line in lines)


def _candidate(candidate: Candidate, judge: str | None) -> CandidateView:
    why = candidate.reason or ("chosen" if candidate.model == judge else "")
    kind = f"{candidate.provider}, {candidate.tier}"
    price = usd(candidate.estimated_cost_usd) if candidate.estimated_cost_usd is not None else "no price"
    return CandidateView(one_line(candidate.model, 80), kind, price, one_line(why, 200), candidate.model == judge)


def recorded_calls(record: JsonObject) -> Sequence[Receipt]:
    """The tool calls of a task; if it has no result, those that are recorded so far."""
    if run := record.get("run"):
        return [Receipt.model_validate(call) for call in run["receipts"]]
    fields, events = Receipt.model_fields.keys(), record.get("events") or ()
    calls = (event for event in events if event["kind"] == "child.tool")
    return [Receipt.model_validate({name: event[name] for name in fields & event.keys()}) for event in calls]


def latest_text(record: JsonObject) -> str:
    """The last text of the child."""
    events = record.get("events") or ()
    texts = [str(event["text"]) for event in events if event["kind"] == "child.usage"]
    return next((text for text in reversed(texts) if text.strip()), "")


def _step(event: JsonObject, seconds: float, room: Room) -> TranscriptEvent:
    at, kind = f"{max(0, seconds):.2f}", str(event["kind"])
    if kind == "child.usage":
        calls = ", ".join(one_line(str(call["tool"]), 40) for call in event["calls"])
        detail = (
            f"{event['input_tokens']:,} tokens in, {event['output_tokens']:,} out{f'; calls {calls}' if calls else ''}"
        )
        return TranscriptEvent(at, "model", detail, room.take(str(event["text"]).strip(), _TEXT_CHARS))
    if kind == "child.tool":
        return TranscriptEvent(at, f"tool {event['n']}", one_line(f"{event['tool']}: {event['status']}", 120))
    if kind in ("child.waiting", "judge.waiting") and event["seconds"] is not None:
        return TranscriptEvent(at, "waited", f"{duration(event['seconds'])}, {event['reason'].replace('_', ' ')}")
    if kind == "claim.made":
        return TranscriptEvent(
            at, f"claim {event['n']}", "claims to be done", room.take(str(event["rationale"]).strip(), _TEXT_CHARS)
        )
    if kind == "claim.judged":
        came = "verified" if event["verdict"] == "PASS" else f"refused, {event['code']}"
        return TranscriptEvent(at, f"claim {event['n']}", one_line(came, 120))
    if kind == "verdict" and event["verdict"] == "PASS" and event.get("level"):
        return TranscriptEvent(at, "verdict", f"PASS ({event['level'].replace('_', ' ')})")
    texts = (str(event[name]) for name in _TOLD if event.get(name))
    return TranscriptEvent(at, _STEP_WORDS.get(kind, kind.replace(".", " ")), one_line(" ".join(texts), 300))
