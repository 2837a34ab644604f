"""Reads from a task's record what a child did before its process was lost, or before it ended, so that another goes on.

The conversation itself can't be rebuilt: what a provider needs to go on with its own messages, such as signed
reasoning, isn't on record. So the child gets its record as text, together with its task.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any, TypeVar

from delegate._util.fencing import clean
from delegate.budget import costs
from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts
from delegate.child.goal_tools import GOAL_TOOLS
from delegate.child.job import ASK, Heard
from delegate.records.history import Ending, task_of
from delegate.records.mailbox import continuation_of
from delegate.records.recorder import ends
from delegate.types import Claim, JsonObject, Receipt, Task, TaskResult, Usage
from delegate.types.base import Value
from delegate.types.errors import CallError

V = TypeVar("V", bound=Value)

TRANSCRIPT_CHARS = 60_000
_PART_CHARS, _SAID_CHARS = 3_000, 20_000
"""What is kept of a result, and of what the child said itself, such as its report."""
_OWN_TOOLS = (*GOAL_TOOLS, ASK, "read_earlier_result")
"""Tools whose calls have no receipts."""
_LOST: JsonObject = {
    "kind": "child.tool",
    "status": "unknown",
    "output": "The process was lost before this call ended. It may have been made, in whole or in part, and may still "
    "go on. It isn't repeated for you: look at what came of it before you call it again.",
}
_NEXT_PROCESS: JsonObject = {"kind": "child.started", "handle": ""}
FRESH: JsonObject = {
    "owned": True, "files": {}, "bytes": 0, "worktree": None, "before": None, "knows_start": True,
}  # fmt: skip
"""What a fresh workspace was before its child started."""


@dataclass(slots=True)
class Resumed:
    """A task whose process was lost, or one that has ended and continues, and what its child did."""

    handle: str
    task: Task
    workspace: str
    transcript: str
    receipts: tuple[Receipt, ...]
    claims: tuple[Claim, ...] = ()
    charge: Charge = field(default_factory=Charge)
    """The cost of the child's own model calls."""
    steps: int = 0
    report: str = ""
    seconds: float = 0
    start: JsonObject | None = None
    """What its workspace was before it started; None if it gets a new one."""
    heard: tuple[Heard, ...] = ()
    asked: tuple[tuple[str, Sequence[str]], ...] = ()
    message: str = ""
    """The message by which it continues, if its child hasn't read it."""
    continues: bool = False
    """Whether it is a task that has ended, which continues under a handle and within limits of its own."""
    process: str = ""
    """The process that it was lost with, and from which it is taken over."""
    has_reported: bool = False
    """Whether its child had ended with a report, so that only the verdict was lost."""
    diff: Path | None = None
    """What it had changed in a worktree, from which it gets the files of its new one."""

    @property
    def spent(self) -> Amounts:
        """What it had used up of its limits, with the judges of its claims."""
        whole = self.charge + costs.of_judging(None, self.claims)
        usage = whole.usage
        return {"model_calls": usage.model_calls, "tokens": usage.total_tokens, "cost_usd": whole.known_usd}


def read_record(records: Sequence[JsonObject], start: JsonObject | None, process: str) -> Resumed:
    """What there is to resume of a task that was lost with a process.

    `records` are those of the tasks that it continues, oldest first, and its own; `start` is what was recorded before
    its child started, or of the task that it continues if that didn't. Raises CallError if there is nothing to resume.
    """
    record = records[-1]
    handle: str = record["handle"]
    try:
        task = task_of(record)
        message = next((one["text"] for one in record["messages"][:1] if one["state"] == "queued"), "")
        if record["workspace"] is None and len(records) > 1:
            return replace(continued(records[:-1], start or {}, message, None), task=task, process=process)
        if start is None or record["workspace"] is None:
            why = (
                "its child hadn't started" if record["workspace"] is None else "what its workspace was isn't on record"
            )
            hint = "look at what it did, and run the task anew"
            raise CallError("cannot_resume", f"{handle} can't be resumed: {why}", field="handle", hint=hint)
        events = list(_events_of(records, is_lost=True))
        own = [event for event in events if event["handle"] == handle]
        calls = [event for event in own if event["kind"] == "child.usage"]
        ends = [event for event in own if event["kind"] in ("child.started", "child.done")]
        ran = dropwhile(lambda event: event["kind"] != "child.started", record["events"])  # in all processes
        refused = [event for event in own if event["kind"] == "claim.judged" and event["verdict"] == "FAIL"]
        return Resumed(
            handle=handle,
            task=task,
            workspace=record["workspace"],
            # One that was verified has to be made again, since its result was lost.
            claims=tuple(_part_of(event, Claim) for event in refused),
            receipts=_receipts_of(events),
            charge=costs.total(map(_charge, calls)),
            steps=sum(call["seconds"] is not None for call in calls),  # without what a tool reports of calls of its own
            report=next((call["text"] for call in reversed(calls) if call["text"].strip()), ""),
            seconds=sum(
                after["at"] - event["at"] for event, after in pairwise(ran) if after["kind"] != "child.started"
            ),
            transcript=_transcript(events),
            start=start,
            heard=tuple(_heard(records)),
            asked=tuple((event["text"], event["options"]) for event in own if event["kind"] == "question.asked"),
            message=message,
            process=process,
            has_reported=bool(ends) and ends[-1].get("status") == "completed" and task.mode != "goal",
        )
    except (LookupError, TypeError, ValueError):
        message = f"{handle} can't be resumed: its record is damaged"
        raise CallError("cannot_resume", message, field="handle", hint="run the task anew") from None


def continued(records: Sequence[JsonObject], kept: JsonObject, message: str, criteria: Sequence[Any] | None) -> Resumed:
    """How a task that has ended goes on with a message, judged by its own criteria or by others.

    `records` are those of the tasks that it continues, oldest first, and its own; `kept` is what is left of its start.
    Raises CallError if it can't go on, with the reason.
    """
    record = records[-1]
    handle, task, run, worktree = record["handle"], task_of(record), record["run"], kept.get("worktree")
    workspace, diff, start = record["workspace"] or "", None, FRESH
    if task.needs:
        raise _not_continued(handle, "it was given what other tasks had left, which isn't kept for it")
    if task.workspace is not None and not worktree and task.workspace.mode != "copy":
        raise _not_continued(handle, "what its workspace was at its start is kept only of worktrees and copies")
    if worktree:
        diff, workspace, start = Path(f"{workspace}.diff"), "", None
        if not diff.exists() and any(one["path"][:3] != "../" for one in run["artifacts"]):
            raise _not_continued(handle, f"the diff of its worktree {diff} isn't there any more")
        assert task.workspace is not None
        at_base = task.workspace.model_copy(update={"path": Path(worktree[0]), "base": worktree[1]})
        task = task.model_copy(update={"workspace": at_base})
    elif workspace and not os.path.isdir(workspace):
        raise _not_continued(handle, f"its workspace {workspace} isn't there any more")
    elif task.workspace is not None:  # a copy; if nothing was changed there, it is made anew
        start = kept if workspace else None
    if criteria is not None:
        fields: dict[str, Any] = {**task.model_dump(exclude_defaults=True), "acceptance_criteria": criteria}
        task = Task(**fields)
    events = list(_events_of(records, is_lost=False))
    return Resumed(
        handle=continuation_of(handle),
        task=task,
        workspace=workspace,
        receipts=_receipts_of(events),
        transcript=_transcript(events),
        start=start,
        heard=tuple(_heard(records)),
        message=message,
        continues=True,
        diff=diff,
    )


def spent(endings: Collection[Ending]) -> Amounts:
    """What tasks have used up of the limits of their run."""
    lost = [one for one in endings if one.result is None]
    results = (TaskResult.model_validate_json(one.result) for one in endings if one.result is not None)
    totals = costs.combined(list(map(costs.of_result, results)), 0)
    usage = totals.child_usage + totals.judge_usage
    return {
        "cost_usd": totals.cost_known_usd + sum(one.spent_usd for one in lost),
        "tokens": usage.total_tokens + sum(one.tokens for one in lost),
        "model_calls": usage.model_calls + sum(one.model_calls for one in lost),
    }


def _not_continued(handle: str, why: str) -> CallError:
    hint = "delegate a new task"
    return CallError("cannot_message", f"{handle} has ended and can't continue: {why}", field="handle", hint=hint)


def _heard(records: Sequence[JsonObject]) -> Iterator[Heard]:
    """The messages that the child has read. Each was marked as read before its event, which may have been lost."""
    for record in records:
        events = {event["id"]: event for event in record["events"] if event["kind"] == "message.delivered"}
        others = [one for one in record["messages"] if one["state"] == "delivered" and one["id"] not in events]
        yield from (Heard(one["text"], one.get("question", "")) for one in (*events.values(), *others))


def _events_of(records: Sequence[JsonObject], *, is_lost: bool) -> Iterator[JsonObject]:
    """The events of tasks, and one for each call that had no receipt yet when its process was lost: an earlier process
    of the task, or the latest one of the last task, if that `is_lost`.
    """
    number = 0
    for record in records:
        open_calls: list[JsonObject] = []
        for event in (*record["events"], *([_NEXT_PROCESS] if is_lost and record is records[-1] else [])):
            kind = event["kind"]
            if kind == "child.started":
                for call in open_calls:
                    number += 1
                    yield {**_LOST, "handle": record["handle"], "n": number, **call, "args": call["args"] or {}}
                open_calls = []
            elif kind == "child.usage" and event["seconds"] is not None:  # a turn begins when all calls have ended
                open_calls = [call for call in event["calls"] if call["tool"] not in _OWN_TOOLS]
            elif kind == "child.tool":
                number = max(number, event["n"])
                # Models know some tools by other names.
                alike = [
                    2 * (one["tool"] == event["tool"]) + ((one["args"] or {}) == event["args"]) for one in open_calls
                ]
                if any(alike):
                    del open_calls[alike.index(max(alike))]
            yield event


def _receipts_of(events: Sequence[JsonObject]) -> tuple[Receipt, ...]:
    return tuple(_part_of(event, Receipt) for event in events if event["kind"] == "child.tool")


def _charge(call: JsonObject) -> Charge:
    cost = call["cost_usd"]
    return Charge(_part_of(call, Usage), cost, cost or 0.0, "unknown" if cost is None else "estimated")


def _part_of(event: JsonObject, model: type[V]) -> V:
    return model.model_validate({name: event[name] for name in model.model_fields if name in event})


def _transcript(events: Sequence[JsonObject]) -> str:
    """What was said and done, oldest first; what is too long has lost its oldest parts."""
    parts, room = list[str](), TRANSCRIPT_CHARS
    for text in filter(None, ("\n".join(_lines(event)) for event in reversed(events))):
        room -= len(text)
        parts.append(text if room >= 0 else "[earlier parts are left out]")
        if room < 0:
            break
    return "\n".join(reversed(parts))


def _lines(event: Mapping[str, Any]) -> Iterator[str]:
    match event["kind"]:
        case "child.usage":
            if event["text"].strip():
                yield f"You said: {_cut(event['text'], _SAID_CHARS)}"
            yield from (_call_line(call) for call in event["calls"] if call["tool"] in _OWN_TOOLS)
        case "child.tool":
            status = "outcome unknown" if event["status"] == "unknown" else event["status"]
            yield f"{_call_line(event)}\n{event['tool']} ({status}): {_cut(event['output'])}"
        case "question.asked":
            yield f"Your question {event['n']}: {event['text']}"
        case "question.answered":
            yield f"Your question {event['n']}: {event['outcome'].replace('_', ' ')}"
        case "claim.judged":
            yield f"Claim {event['n']}: {'verified' if event['verdict'] == 'PASS' else 'refused, ' + event['code']}"
            for criterion in event["refused"]:
                yield f"- {criterion['id']} {criterion['text']}: {_cut(criterion['reason'] or criterion['code'])}"
        case _:
            pass


def _call_line(call: Mapping[str, Any]) -> str:
    return f"You called {call['tool']} {_cut(json.dumps(call['args'], ensure_ascii=False))}"


def _cut(text: str, most: int = _PART_CHARS) -> str:
    return ends(clean(text).text, most, kept=most)
