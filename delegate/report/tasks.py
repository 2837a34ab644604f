"""Turns the record of one task into what a report shows of it."""

import json
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
    ClaimView,
    CriterionView,
    RulingView,
    Step,
    TaskView,
    Tone,
)
from delegate.types import (
    Candidate,
    ChildRun,
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
    "id", "goal", "text", "model", "status", "outcome", "verdict", "fault", "reason", "tool", "by", "note", "expected",
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
    return TaskView(
        anchor=anchor,
        number=number,
        depth=depth,
        goal=room.take(goal, GOAL_CHARS).replace("\n", " "),
        word=word,
        tone=tone,
        decided_by=verdict.decided_by if verdict else "",
        code=code_of(outcome, result),
        why=one_line(_why(record, outcome, result), WHY_CHARS) + _dispute(disputed),
        figures=[paid(result), duration(result.seconds)] if result else [],
        is_open=bool(disputed) or (tone not in ("pass", "none") and word != "PASS"),
        criteria=details.criteria(),
        claims=details.claims(),
        findings=[(one.severity, f"{one.code}: {room.take(one.message, 600)}") for one in _findings(verdict)],
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


def _why(record: JsonObject | None, outcome: ItemOutcome | None, result: TaskResult | None) -> str:
    if outcome is not None and outcome.why:
        return outcome.why
    if result is None:
        state = record["state"] if record else "outcome_unknown"
        return _WITHOUT_RESULT.get(state, _WITHOUT_RESULT["outcome_unknown"])
    if result.error is not None:
        return f"{result.status}: {result.error.message}"
    verdict = result.verdict
    if verdict is None:
        return "no criteria were given, so nothing was checked"
    failing = next((one for one in verdict.criteria if one.fails), None)
    if failing is None or verdict.decided_by == "gate":
        rests = f" ({verdict.worth})" if verdict.verdict == "PASS" else ""
        return f"{verdict.reasoning or verdict.code}{rests}"
    unseen = "" if result.examined else "nobody could look: "
    return f"{unseen}{failing.text} — {failing.reason or failing.code.replace('_', ' ')}"


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
        if result.substituted:
            yield "model", f"requested {result.requested_model}, served {result.model}"
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


def _basis(verdict: Verdict | None) -> Iterator[tuple[str, str]]:
    if verdict is None:
        return
    yield "basis", f"{verdict.code}, decided by {verdict.decided_by}; {verdict.worth}"
    if verdict.gate and verdict.decided_by != "gate":
        yield "gate", f"is off; it would have refused: {verdict.gate}"
    if verdict.receipts == "unavailable":
        yield "tool calls", "were not recorded, so only checks prove what was done"


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
        self._receipts = self._run.receipts if self._run else tuple(_recorded_calls(record))
        self._left = LeftFiles(record.get("workspace"), record.get("task", {}).get("workspace"))

    def criteria(self) -> list[CriterionView]:
        """The criteria, with the quote of a judge in its source."""
        verdict = self._result.verdict if self._result else None
        if verdict is None:
            return list(self._open_criteria())
        failing = [one.id for one in verdict.criteria if one.fails][:_ALWAYS_SHOWN]
        shown = [one for one in verdict.criteria if self._room.has(_CRITERION_CHARS) or one.id in failing]
        return [self._criterion(one) for one in shown]

    def claims(self) -> list[ClaimView]:
        """In goal mode, what the child claimed when, and what came of it. The last one may still be judged."""
        began, events = float(self._record.get("began_at") or 0), self._record.get("events") or ()
        made = {event["n"]: event for event in events if event["kind"] == "claim.made"}
        judged = self._result.claims if self._result else _recorded_claims(events)
        shown: list[ClaimView] = []
        for one in judged:
            if not self._room.has(_CLAIM_CHARS):
                return shown
            at = f"after {duration(made[one.n]['at'] - began)}" if one.n in made else ""
            shown.append(self._claim(one, at))
        open_claims = sorted(made.keys() - {one.n for one in judged})
        for n in open_claims if self._result is None else ():
            at, text = f"after {duration(made[n]['at'] - began)}", str(made[n]["rationale"])
            rationale = self._room.take(text.strip(), _RATIONALE_CHARS)
            shown.append(ClaimView(str(n), at, "not judged yet", "none", "", "", rationale))
        return shown

    def report(self, goal: str) -> str:
        """The child's report; of a task without a result, the last that it said."""
        text = self._run.output if self._run else self._result.summary if self._result else _latest_text(self._record)
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
        shown: list[CallView] = []
        for one in receipts[:_CALLS]:
            if not self._room.has(_CALL_CHARS):
                break
            args = self._room.take(_arguments(one.args), _TEXT_CHARS)
            output = self._room.take(one.output, _TEXT_CHARS)
            figures = f"{counted(one.output_bytes, 'byte')}, {one.seconds:.2f} s"
            figures += f", {one.sandbox}" if one.sandbox else ""
            tool = one_line(one.tool, 60)
            shown.append(CallView(one.n, tool, one.status, one.status == "ok", args, output, figures))
        self._room.is_short |= len(shown) < len(receipts)
        return shown

    def files(self) -> list[Any]:
        """The files that the child left."""
        artifacts = self._run.artifacts if self._run else self._result.artifacts if self._result else ()
        return list(self._left.views(artifacts, self._room))

    def candidates(self) -> list[CandidateView]:
        """The models that could have judged, in the order in which they would be asked, then all others."""
        record = self._result.verdict.judge if self._result and self._result.verdict else None
        found = record.candidates if record else ()
        ranked = sorted(found, key=lambda one: (one.rank is None, one.rank or 0))[:_CANDIDATES]
        chosen = record.model if record else None
        return [_candidate(one, chosen) for one in ranked if self._room.has(_ROW_CHARS)]

    def steps(self) -> list[Step]:
        """The transcript."""
        began = float(self._record.get("began_at") or 0)
        shown: list[Step] = []
        events = self._record.get("events") or ()
        for event in events[:_STEPS]:
            if not self._room.has(_ROW_CHARS):
                break
            shown.append(_step(event, float(event["at"]) - began, self._room))
        self._room.is_short |= len(shown) < len(events)
        return shown

    def _criterion(self, one: CriterionResult) -> CriterionView:
        mark, tone = _MARKS[one.outcome]
        tone = "warn" if one.outcome == "met" and one.level not in (None, "proven", "seen") else tone
        evidence = self._room.take((one.evidence or "").strip(), _TEXT_CHARS)
        place = _place(one) if one.source and one.decided_by == "judge" else ""
        excerpt = None
        if evidence and place and self._room.has(300 + len(evidence)):
            source = self._source(one)
            excerpt = find_quote(one.evidence or "", source, place) if source else None
            if excerpt and not self._room.has(len(excerpt.before) + len(excerpt.after)):
                excerpt = find_quote(one.evidence or "", source or "", place, context=60)
        return CriterionView(
            id=one.id,
            text=self._room.take(one.text, _TEXT_CHARS),
            mark=mark,
            outcome=one.outcome.replace("_", " "),
            tone="warn" if one.findings_only and tone == "fail" else tone,
            decided_by=one.decided_by,
            code=one.code,
            reason=self._room.take(one.reason, _TEXT_CHARS),
            evidence="" if one.decided_by != "judge" and _repeats(one.reason, evidence) else evidence,
            excerpt=excerpt,
            place=place,
            level=one.level.replace("_", " ") if one.level else "",
            note="; ".join(
                [
                    *(["counts as a finding only"] if one.findings_only else []),
                    *([_HELD] if one.held_before and _HELD not in one.reason else []),
                    *([self._room.take(str(one.reading), _REFUSED_CHARS)] if one.reading is not None else []),
                ]
            ),
            ruled=[self._ruling(ruling, one) for ruling in self._rulings if ruling.criterion == one.id],
            commands=self._commands(one),
        )

    def _claim(self, claim: Claim, at: str) -> ClaimView:
        passed, step = claim.verdict == "PASS", f"model call {claim.step}"
        spent = [paid(claim)] if claim.usage.model_calls or claim.cost_usd is None else []
        if claim.code == "no_progress":
            why = "nothing had changed since the claim before, so it was not judged again"
        elif claim.refused and claim.code != "not_verified":
            why = ""  # the criteria say it
        else:
            why = claim.reasoning or claim.code.replace("_", " ")
        return ClaimView(
            number=str(claim.n),
            at=f"{at}, with {step}" if at else f"with {step}",
            outcome="verified" if passed else "refused",
            tone="pass" if passed else "fail",
            why=self._room.take(why, _REFUSED_CHARS),
            figures=", ".join([f"decided by {claim.decided_by}", claim.code, *spent, duration(claim.seconds)]),
            rationale=self._room.take(claim.rationale.strip(), _RATIONALE_CHARS),
            refused=[
                (self._room.take(one.text, _REFUSED_CHARS), self._room.take(one.reason or one.code, _REFUSED_CHARS))
                for one in (claim.refused if claim.code != "no_progress" else ())
                if self._room.has(_ROW_CHARS)
            ],
        )

    def _ruling(self, ruling: Ruling, one: CriterionResult) -> RulingView:
        self._room.has(_RULING_CHARS)
        drawn = ", drawn at random" if ruling.sampling == "random" else ""
        about = f", about {ruling.judge}" if ruling.judge else ""
        text = f"{ruling.ruled_by} ruled: {ruling.ruling.replace('_', ' ')} ({when(ruling.at)}{about}{drawn})"
        tone: Tone = "none" if _agrees(ruling, one) else "warn"
        return RulingView(one_line(text, 300), self._room.take(ruling.because.strip(), _REFUSED_CHARS), tone)

    def _commands(self, one: CriterionResult) -> list[str]:
        handle = self._record.get("handle") or (self._result.handle if self._result else None)
        if one.decided_by != "judge" or not handle or not self._room.has(_COMMANDS_CHARS):
            return []
        return [f"delegate rule {handle} {one.id} {word}" for word in ("met", "not_met")]

    def _open_criteria(self) -> Iterator[CriterionView]:
        """The criteria of a task that has no verdict, as they were given."""
        if self._result is not None:
            return
        given = self._record.get("task", {}).get("acceptance_criteria") or ()
        for one in given:
            text = one.get("text") or one.get("question") or json.dumps(one, ensure_ascii=False)
            yield CriterionView(
                str(one.get("id", "")), self._room.take(str(text), 600), "·", "open", "none", "nobody", "", ""
            )

    def _source(self, one: CriterionResult) -> str | None:
        """The text of the source in which a judge's quote was found, from the record or the workspace."""
        kind, _, name = (one.source or "").partition(":")
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
    judged = (event for event in events if event["kind"] == "claim.judged")
    return [Claim.model_validate({name: event[name] for name in fields & event.keys()}) for event in judged]


def _agrees(ruling: Ruling, one: CriterionResult) -> bool:
    """Whether a ruling says what was decided. One on what nobody could decide contradicts nothing."""
    return one.outcome not in ("met", "not_met") or ruling.ruling == one.outcome


def _disputed(rulings: Sequence[Ruling], verdict: Verdict | None) -> list[Ruling]:
    """The rulings in force that contradict a verdict. They come oldest first, and the latest one counts."""
    latest = {one.criterion: one for one in rulings}
    criteria = verdict.criteria if verdict else ()
    return [latest[one.id] for one in criteria if one.id in latest and not _agrees(latest[one.id], one)]


def _dispute(rulings: Sequence[Ruling]) -> str:
    """What a row says of rulings that contradict its verdict."""
    said = (f"{one.ruled_by} ruled {one.criterion} {one.ruling.replace('_', ' ')}" for one in rulings)
    return f"; but {one_line(', '.join(said), 120)}" if rulings else ""


def _arguments(args: JsonObject) -> str:
    """The arguments of a tool call, one below the other. Texts are shown as they are, everything else as JSON."""
    values = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in args.items())
    return (
        "\n".join(f"{name}:\n{value}" if "\n" in value else f"{name}: {value}" for name, value in values) or "nothing"
    )


def _repeats(reason: str, evidence: str) -> bool:
    """Whether the reason says all that the evidence of a check does."""
    lines = (" ".join(line.split()) for line in evidence.splitlines() if any(map(str.isalnum, line)))
    said = " ".join(reason.split())
    return all(line in said for line in lines)


def _candidate(one: Candidate, chosen: str | None) -> CandidateView:
    why = one.reason or ("chosen" if one.model == chosen else "")
    kind = f"{one.provider}, {one.tier}"
    price = usd(one.estimated_cost_usd) if one.estimated_cost_usd is not None else "no price"
    return CandidateView(one_line(one.model, 80), kind, price, one_line(why, 200), one.model == chosen)


def _place(one: CriterionResult) -> str:
    """Where the evidence was found, in words."""
    kind, _, name = (one.source or "").partition(":")
    places = {
        "output": "the report",
        "said": "the conversation",
        "artifacts": "the list of files",
        "artifact": name,
        "receipt": f"tool call {name}",
        "look": f"what the judge saw, look {name}",
        "record": "all calls and changes",
        "check": f"check {name}",
    }
    return one_line(places.get(kind, one.source or ""), 120)


def _recorded_calls(record: JsonObject) -> Iterator[Receipt]:
    """The receipts of a task without a result, from its events."""
    fields = Receipt.model_fields.keys()
    for event in record.get("events") or ():
        if event["kind"] == "child.tool":
            yield Receipt.model_validate({name: event[name] for name in fields & event.keys()})


def _latest_text(record: JsonObject) -> str:
    events = record.get("events") or ()
    texts = [str(event["text"]) for event in events if event["kind"] == "child.usage"]
    return next((text for text in reversed(texts) if text.strip()), "")


def _step(event: JsonObject, seconds: float, room: Room) -> Step:
    at, kind = f"{max(0, seconds):.2f}", str(event["kind"])
    if kind == "child.usage":
        calls = ", ".join(one_line(str(call["tool"]), 40) for call in event["calls"])
        detail = (
            f"{event['input_tokens']:,} tokens in, {event['output_tokens']:,} out{f'; calls {calls}' if calls else ''}"
        )
        return Step(at, "model", detail, room.take(str(event["text"]).strip(), _TEXT_CHARS))
    if kind == "child.tool":
        return Step(at, f"tool {event['n']}", one_line(f"{event['tool']}: {event['status']}", 120))
    if kind in ("child.waiting", "judge.waiting") and event["seconds"] is not None:
        return Step(at, "waited", f"{duration(event['seconds'])}, {event['reason'].replace('_', ' ')}")
    if kind == "claim.made":
        return Step(
            at, f"claim {event['n']}", "claims to be done", room.take(str(event["rationale"]).strip(), _TEXT_CHARS)
        )
    if kind == "claim.judged":
        came = "verified" if event["verdict"] == "PASS" else f"refused, {event['code']}"
        return Step(at, f"claim {event['n']}", one_line(came, 120))
    if kind == "verdict" and event["verdict"] == "PASS" and event.get("level"):
        return Step(at, "verdict", f"PASS ({event['level'].replace('_', ' ')})")
    told = (str(event[name]) for name in _TOLD if event.get(name))
    return Step(at, _STEP_WORDS.get(kind, kind.replace(".", " ")), one_line(" ".join(told), 300))
