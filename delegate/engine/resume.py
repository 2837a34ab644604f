"""Reads from a task's record what a child did before its process was lost, or before it ended, so that another goes on.

The conversation itself can't be rebuilt: what a provider needs to go on with its own messages, such as signed
reasoning, isn't on record. So the child gets its record as text, together with its task.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from delegate._util.fencing import clean
from delegate.budget import costs
from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts
from delegate.child.goal_tools import GOAL_TOOLS
from delegate.engine.questions import ASK, Heard
from delegate.errors import CallError
from delegate.types import Claim, JsonObject, Receipt, Task, Usage

TRANSCRIPT_CHARS = 60_000
"""Length of the record that a child reads; older parts are left out first."""
_PART_CHARS = 3_000
_WITHOUT_RECEIPTS = {*GOAL_TOOLS, ASK}


@dataclass(slots=True)
class Resumed:
    """A task in goal mode whose process was lost, or one that has ended and continues, and what its child did."""

    handle: str
    run_id: str
    index: int
    task: Task
    workspace: str
    claims: tuple[Claim, ...]
    receipts: tuple[Receipt, ...]
    charge: Charge
    """The cost of the child's own model calls."""
    steps: int
    output: str
    seconds: float
    """How long it had run."""
    transcript: str
    start: JsonObject = field(default_factory=dict[str, Any])
    """What its workspace was before it started."""
    heard: tuple[Heard, ...] = ()
    """The messages of the parent that its child has read."""
    asked: tuple[tuple[str, Sequence[str]], ...] = ()
    """The texts and options of the questions that it has asked."""
    message: str = ""
    """The message by which a task that has ended continues, under a handle and within limits of its own."""

    @property
    def spent(self) -> Amounts:
        """What it had used up of its limits, with the judges of its claims."""
        whole = self.charge + costs.of_judging(None, self.claims)
        usage = whole.usage
        return {"model_calls": usage.model_calls, "tokens": usage.total_tokens, "cost_usd": whole.known_usd}


def read_record(record: JsonObject | None, index: int = 0) -> Resumed:
    """What there is to resume in a record, for the task at position `index` of its call.

    Raises:
        CallError: There is nothing to resume; the message says why.
    """
    if record is None:
        raise CallError("unknown_handle", "there is no such record", field="handle", hint="`delegate runs` lists them")
    handle, state, task = record["handle"], record["state"], _task(record["task"])
    if state != "outcome_unknown":
        why = "it is running" if state == "running" else "it has ended"
        raise CallError("cannot_resume", f"{handle} can't be resumed: {why}", field="handle")
    if task.mode != "goal":
        message = f"{handle} can't be resumed: it isn't in goal mode, and other tasks are never run again by themselves"
        raise CallError("cannot_resume", message, field="handle", hint="look at what it did, and run it anew")
    if record["workspace"] is None:
        message = f"{handle} can't be resumed: its child hadn't started"
        raise CallError("cannot_resume", message, field="handle", hint="run the task anew")
    events = record["events"]
    calls = [event for event in events if event["kind"] == "child.usage"]
    return Resumed(
        handle=handle,
        run_id=record["run_id"],
        index=index,
        task=task,
        workspace=record["workspace"],
        claims=_claims(events),
        receipts=tuple(_receipts(events)),
        charge=costs.total(map(_charge, calls)),
        steps=sum(call["seconds"] is not None for call in calls),  # without what a tool reports of calls of its own
        output=next((call["text"] for call in reversed(calls) if call["text"].strip()), ""),
        seconds=_seconds(events),
        transcript=_transcript(events),
        heard=_heard(events),
        asked=tuple((event["text"], event["options"]) for event in events if event["kind"] == "question.asked"),
    )


def continued(record: JsonObject, message: str, criteria: Sequence[Any] | None, *, index: int = 0) -> Resumed:
    """How a task that has ended goes on with a message, judged by its own criteria or by others.

    Raises:
        CallError: It can't; the message says why.
    """
    handle, task, run = record["handle"], _task(record["task"]), record["run"]
    if task.workspace is not None or task.needs:
        raise _not_continued(handle, "what its workspace was at its start isn't on record")
    if record["workspace"] and not os.path.isdir(record["workspace"]):
        raise _not_continued(handle, f"its workspace {record['workspace']} isn't there any more")
    if criteria is not None:
        try:
            task = Task.model_validate({**record["task"], "acceptance_criteria": criteria})
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise CallError("invalid_criterion", problem, field="acceptance_criteria") from None
    run_id, _, number = handle.rpartition("-")
    return Resumed(
        handle=f"{run_id}-0{number}",
        run_id=run_id,
        index=index,
        task=task,
        workspace=record["workspace"] or "",
        claims=(),
        receipts=tuple(map(Receipt.model_validate, run["receipts"])),
        charge=Charge(),
        steps=0,
        output="",
        seconds=0,
        transcript=_transcript(record["events"]),
        start={"owned": True, "files": {}, "bytes": 0, "worktree": None, "knows_start": True},
        heard=_heard(record["events"]),
        message=message,
    )


def _not_continued(handle: str, why: str) -> CallError:
    hint = "delegate a new task"
    return CallError("cannot_message", f"{handle} has ended and can't continue: {why}", field="handle", hint=hint)


def _heard(events: Sequence[JsonObject]) -> tuple[Heard, ...]:
    delivered = (event for event in events if event["kind"] == "message.delivered")
    return tuple(Heard(event["text"], event.get("question", "")) for event in delivered)


def _task(fields: JsonObject) -> Task:
    """The task of a record, which leaves out what is by default so: the kind of a criterion in words."""
    criteria = [{"kind": "text", **criterion} for criterion in fields.get("acceptance_criteria", ())]
    return Task.model_validate({**fields, "acceptance_criteria": criteria})


def _claims(events: Sequence[JsonObject]) -> tuple[Claim, ...]:
    """The claims that were refused. One that was verified has to be made again, since its result was lost."""
    refusals = [event for event in events if event["kind"] == "claim.judged" and event["verdict"] == "FAIL"]
    fields = ({name: value for name, value in event.items() if name in Claim.model_fields} for event in refusals)
    return tuple(map(Claim.model_validate, fields))


def _receipts(events: Sequence[JsonObject]) -> Iterator[Receipt]:
    """The receipts on record, and one for each call that had none yet: whether it was made isn't known."""
    open_calls: list[JsonObject] = []
    receipts: list[Receipt] = []
    for event in events:
        if event["kind"] == "child.usage":
            open_calls += [call for call in event["calls"] if call["tool"] not in _WITHOUT_RECEIPTS]
        elif event["kind"] == "child.tool":
            fields = {name: value for name, value in event.items() if name in Receipt.model_fields}
            receipts.append(Receipt.model_validate(fields))
            first_call = next((call for call in open_calls if call["tool"] == event["tool"]), None)
            if first_call is not None:
                del open_calls[: open_calls.index(first_call) + 1]
    yield from receipts
    last = max((receipt.n for receipt in receipts), default=0)
    for n, call in enumerate(open_calls, last + 1):
        text = "the process was lost before this call ended"
        yield Receipt(n=n, tool=call["tool"], args=call["args"] or {}, status="timeout", output=text)


def _charge(call: JsonObject) -> Charge:
    cost, usage = call["cost_usd"], Usage(**{name: call[name] for name in Usage.model_fields})
    return Charge(usage, cost, cost or 0.0, "unknown" if cost is None else "estimated")


def _seconds(events: Sequence[JsonObject]) -> float:
    """How long the child ran, in all processes that it ran in."""
    total, began, latest = 0.0, None, 0.0
    for event in events:
        if event["kind"] == "child.started":
            total += 0 if began is None else latest - began
            began = event["at"]
        latest = event["at"]
    return total if began is None else total + latest - began


def _transcript(events: Sequence[JsonObject]) -> str:
    """What was said and done, oldest first; what is too long has lost its oldest parts."""
    parts: list[str] = []
    room = TRANSCRIPT_CHARS
    for event in reversed(events):
        text = "\n".join(_lines(event))
        if not text:
            continue
        if (room := room - len(text)) < 0:
            parts.append("[earlier parts are left out]")
            break
        parts.append(text)
    return "\n".join(reversed(parts))


def _lines(event: Mapping[str, Any]) -> Iterator[str]:
    match event["kind"]:
        case "child.usage":
            if event["text"].strip():
                yield f"You said: {_cut(event['text'])}"
            for call in event["calls"]:
                yield f"You called {call['tool']} {_cut(json.dumps(call['args'], ensure_ascii=False))}"
        case "child.tool":
            yield f"{event['tool']} ({event['status']}): {_cut(event['output'])}"
        case "question.asked":
            yield f"Your question {event['n']}: {event['text']}"
        case "question.answered":
            yield f"Your question {event['n']}: {event['outcome'].replace('_', ' ')}"
        case "claim.judged":
            yield f"Claim {event['n']}: {'verified' if event['verdict'] == 'PASS' else 'refused, ' + event['code']}"
            for criterion in event["refused"]:
                yield f"- {criterion['id']} {criterion['text']}: {_cut(criterion['reason'] or criterion['code'])}"
        case _:
            return


def _cut(text: str) -> str:
    text = clean(text).text
    return text if len(text) <= _PART_CHARS else f"{text[: _PART_CHARS - 500]}\n[…]\n{text[-400:]}"
