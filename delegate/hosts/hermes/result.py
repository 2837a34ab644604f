"""Formats a run's result like that of Hermes's own `delegate_task`, and adds its tokens to Hermes's usage tables.

It is a JSON object with the same field names.

`text` is what every host gives its model to read, with each child's text marked as data. It comes first, so that
truncation can't remove the verdicts. `results` has one entry per task, for code that reads Hermes's results; its
`summary` is the child's text, quoted and truncated.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence

from delegate._util.fencing import one_line, quoted
from delegate.hosts.hermes.compat import hermes_attribute
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject, RunResult, RunStatus, TaskResult, Usage

_log = logging.getLogger(__name__)

SUMMARY_CHARS = 300
TRACE_CALLS = 20
"""The maximum number of tool calls listed per task; the text counts all of them."""

_HERMES_STATUS: dict[RunStatus, tuple[str, str]] = {
    "completed": ("completed", "completed"),
    "failed": ("failed", "error"),
    "timeout": ("timeout", "timeout"),
    "cancelled": ("interrupted", "interrupted"),
    "budget_exceeded": ("failed", "budget_exceeded"),
    "max_steps": ("failed", "max_iterations"),
}
"""Hermes's `status` and `exit_reason`. Hermes itself reports `completed` for any child that wrote text."""


def as_json(answer: ToolAnswer, receipts: Mapping[int, Sequence[JsonObject]]) -> str:
    """The tool's result, with receipts by task index. For a refused call it is the error, which Hermes recognizes."""
    run = answer.result
    if run is None or run.error is not None:
        return answer.text
    body = {
        "text": answer.text,
        "results": [_entry(result, receipts.get(result.task_index, ())) for result in run.results],
        "total_duration_seconds": round(run.totals.seconds, 2),
    }
    return json.dumps(body, ensure_ascii=False)


def error_json(code: str, message: str, hint: str) -> str:
    """The result of a call that wasn't executed."""
    error = {"code": code, "message": message, "field": None, "hint": hint}
    return json.dumps({"error": error}, ensure_ascii=False)


def _entry(result: TaskResult, receipts: Sequence[JsonObject]) -> JsonObject:
    status, exit_reason = _HERMES_STATUS[result.status]
    verdict, usage = result.verdict, result.usage
    entry: JsonObject = {
        "judge": verdict and {"verdict": verdict.verdict, "reasoning": one_line(verdict.reasoning, SUMMARY_CHARS)},
        "level": verdict.level if verdict else None,
        "verified": verdict.verified if verdict else False,
        "task_index": result.task_index,
        "status": status,
        "summary": quoted(result.report, SUMMARY_CHARS),
        "api_calls": usage.model_calls,
        "duration_seconds": round(result.seconds, 2),
        "model": result.model,
        "exit_reason": exit_reason,
        "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
        "cost_usd": result.cost_usd,
        "tool_trace": [
            {
                "tool": one["tool"],
                "args_bytes": len(json.dumps(one["args"], ensure_ascii=False).encode()),
                "result_bytes": one["output_bytes"],
                "status": one["status"],
            }
            for one in receipts[:TRACE_CALLS]
        ],
    }
    if result.error is not None:
        entry["error"] = one_line(f"{result.error.code}: {result.error.message}", SUMMARY_CHARS)
    return entry


def record_usage(run: RunResult, *, judged_by_hermes: bool) -> None:
    """Add what a run's tasks used to Hermes's table of auxiliary model calls, for the turn that runs on this thread.

    Of judges that Hermes calls, it counts the tokens itself. An error is logged and doesn't fail the call.
    """
    get_context = hermes_attribute("agent.aux_accounting", "get_accounting_context")
    database, session_id = (get_context() if get_context else None) or (None, "")
    if database is None or not hasattr(database, "record_auxiliary_usage"):  # this version has no such table
        return
    try:
        for task, model, usage, cost in _used(run, judged_by_hermes=judged_by_hermes):
            if usage.total_tokens:
                database.record_auxiliary_usage(
                    session_id,
                    task,
                    model=model or "unknown",
                    input_tokens=usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
                    output_tokens=usage.output_tokens,
                    cache_read_tokens=usage.cached_tokens,
                    cache_write_tokens=usage.cache_write_tokens,
                    reasoning_tokens=usage.reasoning_tokens,
                    estimated_cost_usd=cost,
                )
    except Exception:
        _log.warning("Hermes could not record the token usage of a delegated task", exc_info=True)


def _used(run: RunResult, *, judged_by_hermes: bool) -> Iterator[tuple[str, str | None, Usage, float | None]]:
    """What each child, what it delegated, and each judge used, with the model and the cost."""
    for result in run.results:
        judge = result.verdict.judge if result.verdict else None
        judge_cost = judge.cost_usd if judge else 0
        child_cost = None if result.cost_usd is None or judge_cost is None else max(0.0, result.cost_usd - judge_cost)
        yield "delegate", result.model, result.usage, child_cost
        if result.delegated:
            yield "delegate", None, result.delegated.child_usage + result.delegated.judge_usage, None
        if judge and not judged_by_hermes:
            yield "judge", judge.model, judge.usage, judge.cost_usd
