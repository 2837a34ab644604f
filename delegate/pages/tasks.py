"""Turns the record of one task into what a page shows of it."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel

from delegate._util.fencing import one_line
from delegate.batch.item import ItemOutcome
from delegate.contract.amounts import counted, paid
from delegate.pages.amounts import duration, task_bill, when
from delegate.pages.files import LeftFiles
from delegate.pages.quotes import find_quote
from delegate.pages.room import Room
from delegate.pages.transcript import transcript_event
from delegate.pages.values import (
    CallView,
    CandidateView,
    CitationView,
    ClaimView,
    CriterionView,
    Excerpt,
    FileView,
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
from delegate.types.money import usd

T = TypeVar("T")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)
GOAL_CHARS = 300
WHY_CHARS = 260
_TEXT_CHARS = 4_000
_REPORT_CHARS = 100_000
_CALLS = 200
_CANDIDATES = 60
_STEPS = 400
_COLUMNS = 20
_BLOCK_CHARS = 700
"""About how much markup a task, its bill or its facts take."""
_ROW_CHARS = 300
"""The same of a criterion, a call, and anything else of which there are many."""
_RATIONALE_CHARS = 2_000
_WORDS_CHARS = 600
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


def task_view(
    record: JsonObject | None,
    room: Room,
    *,
    anchor: str,
    number: str,
    depth: int = 0,
    outcome: ItemOutcome | None = None,
    result: TaskResult | None = None,
    rulings: Sequence[Ruling] = (),
    filters: str = "",
) -> TaskView:
    """What a page shows of a task: of its record and the rulings on it, of its outcome in a batch, or of both.

    `result` is that of the record, if it can be read.
    """
    if record is not None and record["result"]:
        result = result or TaskResult.model_validate(record["result"])
    else:
        result = outcome.result if outcome else None
    verdict = result.verdict if result else None
    state = record["state"] if record else "outcome_unknown"
    word, tone = word_of(state, outcome, result)
    goal = _goal(record, outcome)
    room.has(_BLOCK_CHARS)
    details = _Details(record or {}, result, rulings, room)
    latest = {ruling.criterion: ruling for ruling in rulings}  # they come oldest first, and the latest one counts
    disputed = [
        f"{latest[criterion.id].ruled_by} ruled {criterion.id} {latest[criterion.id].ruling.replace('_', ' ')}"
        for criterion in (verdict.criteria if verdict else ())
        if criterion.id in latest and not _agrees(latest[criterion.id], criterion)
    ]
    why, is_of_criterion = _why(state, outcome, result)
    return TaskView(
        anchor=anchor,
        number=number,
        depth=depth,
        goal=room.take(goal, GOAL_CHARS).replace("\n", " "),
        word=word,
        tone=tone,
        decided_by=verdict.decided_by if verdict else "",
        code=code_of(outcome, result),
        why=one_line(why, WHY_CHARS) + (f"; but {one_line(', '.join(disputed), 120)}" if disputed else ""),
        is_said_below=is_of_criterion and not disputed,
        figures=[paid(result), duration(result.seconds)] if result else [],
        is_open=bool(disputed) or (tone not in ("pass", "none") and word != "PASS"),
        criteria=details.criteria(),
        claims=details.claims(),
        findings=[
            (finding.severity, f"{finding.code}: {room.take(finding.message, _WORDS_CHARS)}")
            for finding in (verdict.findings if verdict else ())
        ],
        report=details.report(),
        judging=list(_judging(verdict)),
        bill=task_bill(result) if result and room.has(_BLOCK_CHARS) else (),
        facts=list(_facts(record, result, outcome)) if room.has(_BLOCK_CHARS) else (),
        calls=details.calls(details.receipts),
        looks=details.calls(details.looks),
        files=details.files(),
        candidates=details.candidates(),
        steps=details.steps(),
        more=f"delegate page {details.handle} -o task.html" if room.is_short and details.handle else "",
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


def _why(state: str, outcome: ItemOutcome | None, result: TaskResult | None) -> tuple[str, bool]:
    """Why a task passed or failed, and whether the reason is a criterion's."""
    if outcome is not None and outcome.why:
        return outcome.why, False
    if result is None:
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
    if result is not None and (verdict := result.verdict) is not None:
        yield "basis", f"{verdict.code}, decided by {verdict.decided_by}; {verdict.worth}"
        if verdict.gate and verdict.decided_by != "gate":
            yield "gate", f"is off; it would have refused: {verdict.gate}"
        if verdict.receipts != "recorded":
            yield "tool calls", UNRECORDED[verdict.receipts]
    for name, value in list(outcome.input.items())[:_COLUMNS] if outcome else ():
        if name != "goal":
            yield one_line(name, 60), one_line(value, 300)
    if result is not None:
        yield from _facts_of_child(result)
    if record is not None:
        yield "started", when(record["began_at"])
        yield "folder", record["workspace"] or "none"
        yield "handle", record["handle"]


def _facts_of_child(result: TaskResult) -> Iterator[tuple[str, str]]:
    yield "child", f"{result.status}; {result.model or result.requested_model or 'a model of its own'}"
    if result.substituted:
        yield "model", f"requested {result.requested_model}, served {result.model}"
    for failed in result.failed_models:
        yield "failed model", f"{failed.model}, before anything was done: {one_line(failed.error.message, 300)}"
    if result.goal_end:
        yield "goal", f"ended as {result.goal_end.replace('_', ' ')}, {counted(len(result.claims), 'claim')}"
    if result.take_over:
        yield "take over", result.take_over
    if result.no_take_over:
        yield "no take-over", result.no_take_over


def _judging(verdict: Verdict | None) -> Iterator[str]:
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


class _Details:
    """What is shown when a task is opened, taken from its room in the order of the calls."""

    def __init__(self, record: JsonObject, result: TaskResult | None, rulings: Sequence[Ruling], room: Room) -> None:
        self._result = result
        self._verdict = result.verdict if result else None
        self._rulings = rulings
        self._room = room
        self._run = ChildRun.model_validate(record["run"]) if record.get("run") else None
        self._task: JsonObject = record.get("task", {})
        self._events: Sequence[JsonObject] = record.get("events") or ()
        self._began = float(record.get("began_at") or 0)
        self.handle = record.get("handle") or (result.handle if result else None)
        self.receipts = recorded_calls(record)
        judge = self._verdict.judge if self._verdict else None
        self.looks: Sequence[Receipt] = judge.looks if judge else ()
        self._left = LeftFiles(record.get("workspace"), self._task.get("workspace"))

    def _rows(self, items: Sequence[T], show: Callable[[T], V], most: int = _STEPS) -> list[V]:
        """As many as there is room for."""
        self._room.is_short |= len(items) > most
        return [show(item) for item in itertools.takewhile(lambda _: self._room.has(_ROW_CHARS), items[:most])]

    def criteria(self) -> list[CriterionView]:
        """The criteria, with the quote of a judge in its source; of a task without a result, as they were given."""
        if self._verdict is not None:
            failing = [criterion.id for criterion in self._verdict.criteria if criterion.fails][:_ALWAYS_SHOWN]
            return [
                self._criterion(criterion)
                for criterion in self._verdict.criteria
                if self._room.has(_ROW_CHARS) or criterion.id in failing
            ]
        views: list[CriterionView] = []
        for criterion in (self._task.get("acceptance_criteria") or ()) if self._result is None else ():
            text = criterion.get("text") or criterion.get("question") or json.dumps(criterion, ensure_ascii=False)
            text = self._room.take(str(text), _WORDS_CHARS)
            views.append(CriterionView(str(criterion.get("id", "")), text, "·", "open", "none", "nobody", "", ""))
        return views

    def claims(self) -> list[ClaimView]:
        """In goal mode, what the child claimed when, and what came of it. The last one may still be judged."""
        made = {event["n"]: event for event in self._events if event["kind"] == "claim.made"}
        after = {n: f"after {duration(event['at'] - self._began)}" for n, event in made.items()}
        judged = [_read(Claim, event) for event in self._events if event["kind"] == "claim.judged"]
        claims = judged if self._result is None else self._result.claims
        views = self._rows(claims, lambda claim: self._claim(claim, after.get(claim.n, "")))
        for n in sorted(made.keys() - {claim.n for claim in claims}) if self._result is None else ():
            rationale = self._room.take(str(made[n]["rationale"]).strip(), _RATIONALE_CHARS)
            views.append(ClaimView(str(n), after[n], "not judged yet", "none", "", "", rationale))
        return views

    def report(self) -> str:
        """The child's report; of a task without a result, the last that it said."""
        text = self._run.report if self._run else self._result.report if self._result else latest_text(self._events)
        return self._room.take(text.strip(), _REPORT_CHARS)

    def calls(self, receipts: Sequence[Receipt]) -> list[CallView]:
        """Tool calls of the child, or of a judge that looked at more than its page, with their results."""
        return self._rows(receipts, self._call, _CALLS)

    def _call(self, receipt: Receipt) -> CallView:
        # Texts are shown as they are, everything else as JSON.
        values = [(name, v if isinstance(v, str) else json.dumps(v)) for name, v in receipt.args.items()]
        lines = [f"{name}:\n{value}" if "\n" in value else f"{name}: {value}" for name, value in values]
        figures = [counted(receipt.output_bytes, "byte"), f"{receipt.seconds:.2f} s"]
        return CallView(
            n=receipt.n,
            tool=one_line(receipt.tool, 60),
            status=receipt.status,
            args=self._room.take("\n".join(lines) or "nothing", _TEXT_CHARS),
            output=self._room.take(receipt.output, _TEXT_CHARS),
            figures=", ".join([*figures, *([receipt.sandbox] if receipt.sandbox else [])]),
        )

    def files(self) -> list[FileView]:
        """The files that the child left."""
        artifacts = self._run.artifacts if self._run else self._result.artifacts if self._result else ()
        return list(self._left.views(artifacts, self._room))

    def candidates(self) -> list[CandidateView]:
        """The models that could have judged, in the order in which they would be asked, then all others."""
        judge = self._verdict.judge if self._verdict else None
        if judge is None:
            return []

        def view(candidate: Candidate) -> CandidateView:
            chosen = candidate.model == judge.model
            price = usd(candidate.estimated_cost_usd) if candidate.estimated_cost_usd is not None else "no price"
            why = one_line(candidate.reason or ("chosen" if chosen else ""), 200)
            kind = f"{candidate.provider}, {candidate.tier}"
            return CandidateView(one_line(candidate.model, 80), kind, price, why, chosen)

        in_order = sorted(judge.candidates, key=lambda candidate: (candidate.rank is None, candidate.rank or 0))
        return self._rows(in_order[:_CANDIDATES], view)

    def steps(self) -> list[TranscriptEvent]:
        """The transcript."""
        return self._rows(self._events, self._step)

    def _step(self, event: JsonObject) -> TranscriptEvent:
        step = transcript_event(event, self._began)
        # What a tool said is among the calls.
        texts = [step.text.strip()] if step.text and event["kind"] != "child.tool" else []
        text = self._room.take("\n".join([*texts, *(one_line(line, 120) for line in step.more)]), _TEXT_CHARS)
        return replace(step, detail=one_line(step.detail, 300), text=text, more=())

    def _criterion(self, criterion: CriterionResult) -> CriterionView:
        mark, tone = _MARKS[criterion.outcome]
        if criterion.findings_only and tone == "fail":
            tone = "warn"
        if criterion.outcome == "met" and criterion.level not in (None, "proven", "seen"):
            tone = "warn"
        is_judged = criterion.decided_by == "judge"
        evidence = self._room.take((criterion.evidence or "").strip(), _TEXT_CHARS)
        place = one_line(criterion.place, 120) if criterion.source and is_judged else ""
        notes = ["counts as a finding only"] if criterion.findings_only else []
        notes += [_HELD] if criterion.held_before and _HELD not in criterion.reason else []
        notes += [self._room.take(str(criterion.reading), _WORDS_CHARS)] if criterion.reading else []
        commands = [f"delegate rule {self.handle} {criterion.id} {word}" for word in ("met", "not_met")]
        in_order = sorted(criterion.citations, key=lambda citation: _WORST_FIRST.index(citation.state))
        return CriterionView(
            id=criterion.id,
            text=self._room.take(criterion.text, _TEXT_CHARS),
            mark=mark,
            outcome=criterion.outcome.replace("_", " "),
            tone=tone,
            decided_by=criterion.decided_by,
            code=criterion.code,
            reason=self._room.take(criterion.reason, _TEXT_CHARS),
            evidence=evidence if is_judged or not _repeats(criterion.reason, evidence) else "",
            excerpt=self._excerpt(criterion) if evidence and place else None,
            place=place,
            level=criterion.level.replace("_", " ") if criterion.level else "",
            note="; ".join(notes),
            ruled=[self._ruling(ruling, criterion) for ruling in self._rulings if ruling.criterion == criterion.id],
            commands=commands if is_judged and self.handle and self._room.has(_ROW_CHARS) else [],
            citations=self._rows(in_order, self._citation),
        )

    def _excerpt(self, criterion: CriterionResult) -> Excerpt | None:
        quote = criterion.evidence or ""
        if not self._room.has(_ROW_CHARS + len(quote)) or not (source := self._source(criterion)):
            return None
        excerpt = find_quote(quote, source)
        if excerpt and not self._room.has(len(excerpt.before) + len(excerpt.after)):
            return find_quote(quote, source, context=60)
        return excerpt

    def _source(self, criterion: CriterionResult) -> str | None:
        """The text of the source in which a judge's quote was found, from the record or the workspace."""
        kind, _, name = (criterion.source or "").partition(":")
        if kind == "report":
            return self._run.report if self._run else self._result.report if self._result else None
        if kind in ("receipt", "look"):
            calls = self.receipts if kind == "receipt" else self.looks
            receipt = next((call for call in calls if str(call.n) == name), None)
            return receipt and f"{receipt.tool} {json.dumps(receipt.args, ensure_ascii=False)}\n{receipt.output}"
        if kind == "artifact":
            return self._left.text(name)
        if kind == "artifacts" and self._run:
            return "\n".join(f"{item.change} {item.path} ({item.bytes} bytes)" for item in self._run.artifacts)
        check = next((each for each in self._verdict.criteria if each.id == name), None) if self._verdict else None
        return check and f"{check.text}: {check.outcome}. {check.reason}"

    def _citation(self, citation: Citation) -> CitationView:
        is_link = citation.state != "not_opened" and _WEB.match(citation.source)
        source, href = one_line(citation.source, _SOURCE_CHARS), citation.source if is_link else ""
        if citation.answered_by:
            source = f"{source} (answered by {one_line(citation.answered_by, 100)})"
        holds = citation.state in HOLDING
        return CitationView(
            statement=self._room.take(citation.statement, _WORDS_CHARS),
            source=self._room.take(source, _SOURCE_CHARS + 120),
            href=self._room.take(href, len(href)) if self._room.has(len(href)) else "",
            state=citation.state.replace("_", " "),
            tone="pass" if holds else "warn" if citation.state == "opened" else "fail",
            why=self._room.take((citation.evidence or "") if holds else citation.reason, _WORDS_CHARS),
            field=one_line(citation.field, 60),
        )

    def _claim(self, claim: Claim, at: str) -> ClaimView:
        is_pass, step = claim.verdict == "PASS", f"model call {claim.step}"
        cost = [paid(claim)] if claim.usage.model_calls or claim.cost_usd is None else []
        refused = claim.refused
        if claim.code == "no_progress":
            why, refused = "nothing had changed since the claim before, so it was not judged again", ()
        elif claim.refused and claim.code != "not_verified":
            why = ""  # the criteria say it
        else:
            why = claim.reasoning or claim.code.replace("_", " ")
        return ClaimView(
            number=str(claim.n),
            at=f"{at}, with {step}" if at else f"with {step}",
            outcome="verified" if is_pass else "refused",
            tone="pass" if is_pass else "fail",
            why=self._room.take(why, _WORDS_CHARS),
            figures=", ".join([f"decided by {claim.decided_by}", claim.code, *cost, duration(claim.seconds)]),
            rationale=self._room.take(claim.rationale.strip(), _RATIONALE_CHARS),
            refused=[
                (self._room.take(each.text, _WORDS_CHARS), self._room.take(each.reason or each.code, _WORDS_CHARS))
                for each in refused
                if self._room.has(_ROW_CHARS)
            ],
        )

    def _ruling(self, ruling: Ruling, criterion: CriterionResult) -> tuple[str, str, Tone]:
        self._room.has(_ROW_CHARS)
        sampling = ", drawn at random" if ruling.sampling == "random" else ""
        about = f", about {ruling.judge}" if ruling.judge else ""
        text = f"{ruling.ruled_by} ruled: {ruling.ruling.replace('_', ' ')} ({when(ruling.at)}{about}{sampling})"
        because = self._room.take(ruling.because.strip(), _WORDS_CHARS)
        return one_line(text, 300), because, "none" if _agrees(ruling, criterion) else "warn"


def _agrees(ruling: Ruling, criterion: CriterionResult) -> bool:
    """Whether a ruling says what was decided. One on what was left undecided contradicts nothing."""
    return criterion.outcome not in ("met", "not_met") or ruling.ruling == criterion.outcome


def _repeats(reason: str, evidence: str) -> bool:
    lines = (" ".join(line.split()) for line in evidence.splitlines() if any(map(str.isalnum, line)))
    text = " ".join(reason.split())
    return all(line in text for line in lines)


def recorded_calls(record: JsonObject) -> Sequence[Receipt]:
    """The tool calls of a task; if it has no result, those that are recorded so far."""
    if run := record.get("run"):
        return [Receipt.model_validate(call) for call in run["receipts"]]
    return [_read(Receipt, event) for event in record.get("events") or () if event["kind"] == "child.tool"]


def _read(kind: type[M], event: JsonObject) -> M:
    """What an event says of a receipt or a claim."""
    return kind.model_validate({name: event[name] for name in kind.model_fields.keys() & event.keys()})


def latest_text(events: Sequence[JsonObject]) -> str:
    """The last text of the child."""
    texts = [str(event["text"]) for event in events if event["kind"] == "child.usage"]
    return next((text for text in reversed(texts) if text.strip()), "")
