"""Writes recorded tasks as trajectories in ATIF 1.8, the Agent Trajectory Interchange Format of Harbor.

A step of the agent is one model call with the tool calls that follow from it. What ATIF has no field for (the task, its
criteria, the verdict, rulings) is in `extra.delegate`. A grandchild is embedded in its parent's `subagent_trajectories`
and referred to by the result of the call that delegated to it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from delegate.child.prompt import assignment
from delegate.records.history import task_of
from delegate.types import JsonObject
from delegate.types.errors import DelegateError

SCHEMA_VERSION = "ATIF-v1.8"
_NOTES = "The system prompt is not on record. Long tool outputs are cut in the middle; output_sha256 is of the whole."
_NOTHING: JsonObject = {}


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """One task with all that is known of it."""

    record: JsonObject
    """As `Records.read` returns it."""
    depth: int = 0
    """0 for tasks that the root delegated, 1 for tasks that its children delegated."""
    rulings: tuple[JsonObject, ...] = ()

    @property
    def handle(self) -> str:
        return str(self.record["handle"])

    @property
    def run(self) -> JsonObject:
        """What the child did; empty until it has ended."""
        return self.record["run"] or _NOTHING

    @property
    def result(self) -> JsonObject:
        return self.record["result"] or _NOTHING


def trajectories(tasks: Sequence[RecordedTask]) -> list[JsonObject]:
    """The trajectory of each task that the root delegated, with those below it embedded. In the order of the tasks."""
    children: dict[str, list[RecordedTask]] = {}
    top: list[RecordedTask] = []
    for task in tasks:
        if parent := _parent(task, tasks):
            children.setdefault(parent.handle, []).append(task)
        else:
            top.append(task)
    return [_trajectory(task, children) for task in top]


def run_trajectory(run_id: str, tasks: Sequence[RecordedTask]) -> JsonObject:
    """One trajectory of a whole run: that of its only task, or a root that hands over several tasks.

    The root's one step isn't a model's: what the parent thought isn't on record.
    """
    below = trajectories(tasks)
    if len(below) == 1:
        return below[0]
    calls, results = list[JsonObject](), list[JsonObject]()
    for n, child in enumerate(below, start=1):
        id, args = f"task_{n}", child["extra"]["delegate"]["task"]
        refs = [{"trajectory_id": child["trajectory_id"], "session_id": run_id}]
        calls.append({"tool_call_id": id, "function_name": "delegate_task", "arguments": args})
        results.append(
            {"source_call_id": id, "content": child["steps"][-1]["message"], "subagent_trajectory_ref": refs}
        )
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": calls, "llm_call_count": 0}
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": run_id,
        "trajectory_id": run_id,
        "agent": _agent(None),
        "steps": [{**step, "observation": {"results": results}}],
        "notes": "The parent's own conversation is not on record.",
        "subagent_trajectories": below,
    }


def _parent(task: RecordedTask, tasks: Sequence[RecordedTask]) -> RecordedTask | None:
    """The task whose child delegated this one: the one whose tool calls name its handle, or else that ran then."""
    above = [other for other in tasks if other.depth == task.depth - 1]
    for other in above:
        if any(task.handle in _handles_in(event) for event in other.record["events"]):
            return other
    began = task.record["began_at"]
    times = ((other, other.record["began_at"], other.record["ended_at"] or began) for other in above)
    return next((other for other, start, end in times if start <= began <= end), None)


def _handles_in(event: JsonObject) -> list[str]:
    if event["kind"] != "child.tool" or "delegat" not in event["tool"]:
        return []
    return re.findall(rf"\b{re.escape(event['run_id'])}-\d+\b", event["output"])


# ----------------------------------------------------------------------------------------------------------- one task


def _trajectory(task: RecordedTask, children: dict[str, list[RecordedTask]]) -> JsonObject:
    """The trajectory of a task. Raises DelegateError if its record isn't one of this version."""
    try:
        return _converted(task, children)
    except (LookupError, TypeError, ValueError) as error:
        problem = "was written by another version of delegate, or is damaged"
        raise DelegateError(f"the record of {task.handle} can't be exported: it {problem}") from error


def _converted(task: RecordedTask, children: dict[str, list[RecordedTask]]) -> JsonObject:
    record, run = task.record, task.run
    below = children.get(task.handle, [])
    handles = {child.handle for child in below}
    said = [(record["began_at"], first_message(record))]
    said += [(event["at"], event["text"]) for event in record["events"] if event["kind"] == "message.delivered"]
    steps: list[JsonObject] = []
    for step in _steps(record["events"]):
        while said and (not steps or said[0][0] <= step.at):
            steps.append(_said(*said.pop(0)))
        steps.append(step.as_json(handles))
    steps += [_said(*message) for message in said]
    if run.get("report") and run["report"] not in [step["message"] for step in steps]:
        steps.append({"source": "agent", "message": run["report"]})  # a runner that doesn't report what its model said
    usage: JsonObject = run.get("usage", _NOTHING)
    result: JsonObject = {
        "schema_version": SCHEMA_VERSION,
        "session_id": record["run_id"],
        "trajectory_id": task.handle,
        "agent": _agent(task.result.get("requested_model") or run.get("model")),
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, start=1)],
        "notes": _NOTES,
        "final_metrics": _known(
            {
                "total_prompt_tokens": usage.get("input_tokens"),
                "total_completion_tokens": usage.get("output_tokens"),
                "total_cached_tokens": usage.get("cached_tokens"),
                "total_cost_usd": run.get("cost_usd"),
                "total_steps": len(steps),
                "extra": {"delegate": {"cost_usd_with_judges": task.result.get("cost_usd")}},
            }
        ),
        "extra": {"delegate": _ours(task)},
    }
    if below:
        result["subagent_trajectories"] = [_trajectory(child, children) for child in below]
    return result


def _agent(model: str | None) -> JsonObject:
    return _known({"name": "delegate", "version": version("delegate-task"), "model_name": model})


def first_message(record: JsonObject) -> str:
    """What the child was asked to do: goal, context and criteria."""
    task = task_of(record)
    lines = "\n".join(f"- {criterion.describe()}" for criterion in task.criteria)
    return f"{assignment(task)}\n\nAcceptance criteria:\n{lines}" if lines else assignment(task)


@dataclass(slots=True)
class _Step:
    """One model call, and the tool calls until the next one. `usage` is None for tool calls before any model call."""

    at: float
    usage: JsonObject | None
    tools: list[JsonObject] = field(default_factory=list[JsonObject])

    def as_json(self, subagents: set[str]) -> JsonObject:
        """The step without its number. `subagents` are the handles that results may refer to."""
        calls, results = list[JsonObject](), list[JsonObject]()
        for call, receipt in self._calls():
            calls.append(call)
            if receipt is not None:
                results.append(_result(call["tool_call_id"], receipt, subagents))
        step = {
            "source": "agent",
            "timestamp": _time(self.at),
            "model_name": self.usage and self.usage["model"],
            "message": self.usage["text"] if self.usage else "",
            "tool_calls": calls or None,
            "observation": {"results": results} if results else None,
            "metrics": _metrics(self.usage) if self.usage else None,
            "llm_call_count": self.usage and self.usage["model_calls"],
        }
        return _known(step)

    def asks_for(self, receipt: JsonObject) -> bool:
        """Whether the reply asked for this call."""
        asked: Sequence[JsonObject] = self.usage["calls"] if self.usage else ()
        return any((call["tool"], call["args"] or {}) == (receipt["tool"], receipt["args"]) for call in asked)

    def _calls(self) -> Iterator[tuple[JsonObject, JsonObject | None]]:
        """The tool calls that the reply asked for, each with its receipt, and then receipts of other calls."""
        receipts = sorted(self.tools, key=lambda receipt: receipt["n"])
        for n, request in enumerate(self.usage["calls"] if self.usage else (), start=1):
            tool, args = request["tool"], request["args"] or {}
            receipt = next((item for item in receipts if (item["tool"], item["args"]) == (tool, args)), None)
            if receipt is not None:
                receipts.remove(receipt)
            id = f"call_{receipt['n']}" if receipt else f"call_without_receipt_{n}"
            call: JsonObject = {"tool_call_id": id, "function_name": tool, "arguments": args}
            if request["args"] is None:
                call["extra"] = {"delegate": {"invalid_arguments": True}}
            yield call, receipt
        for receipt in receipts:
            id = f"call_{receipt['n']}"
            yield {"tool_call_id": id, "function_name": receipt["tool"], "arguments": receipt["args"]}, receipt


def _steps(events: Sequence[JsonObject]) -> list[_Step]:
    steps: list[_Step] = []
    for event in events:
        if event["kind"] == "child.usage":
            steps.append(_Step(event["at"], event))
        elif event["kind"] == "child.tool":
            if not steps:
                steps.append(_Step(event["at"] - event["seconds"], None))
            # A tool that calls a model itself, as a search does, has added a step since it was asked for.
            next((step for step in reversed(steps) if step.asks_for(event)), steps[-1]).tools.append(event)
    return steps


def _said(at: float, text: str) -> JsonObject:
    return {"source": "user", "timestamp": _time(at), "message": text}


def _result(call_id: str, receipt: JsonObject, subagents: set[str]) -> JsonObject:
    details = ("status", "seconds", "output_bytes", "output_sha256", "sandbox")
    result: JsonObject = {"source_call_id": call_id, "content": receipt["output"]}
    if refs := [handle for handle in _handles_in(receipt) if handle in subagents]:
        result["subagent_trajectory_ref"] = [{"trajectory_id": handle} for handle in dict.fromkeys(refs)]
    return {**result, "extra": {"delegate": _known({name: receipt[name] for name in details})}}


def _metrics(usage: JsonObject) -> JsonObject:
    extra = {name: usage[name] for name in ("reasoning_tokens", "cache_write_tokens", "seconds")}
    metrics = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "cached_tokens": usage["cached_tokens"],
        "cost_usd": usage["cost_usd"],
        "extra": {"delegate": _known(extra)},
    }
    return _known(metrics)


def _ours(task: RecordedTask) -> JsonObject:
    record = task.record
    verdict: JsonObject = task.result.get("verdict") or _NOTHING
    return {
        "task": record["task"],
        "criteria": record["task"].get("acceptance_criteria", []),
        "state": record["state"],
        "status": task.result.get("status"),
        "error": task.run.get("error"),
        "artifacts": task.run.get("artifacts", []),
        "verdict": verdict or None,
        "level": verdict.get("level"),
        "goal_end": task.result.get("goal_end"),
        "claims": task.result.get("claims", []),
        "rulings": list(task.rulings),
        "rubric_version": verdict.get("rubric_version"),
        "judge_version": verdict.get("judge_version"),
    }


def _known(values: JsonObject) -> dict[str, Any]:
    """The values that aren't None, which ATIF leaves out."""
    return {name: value for name, value in values.items() if value is not None}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
