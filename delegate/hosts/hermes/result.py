"""Formats a report like the result of Hermes's own `delegate_task`: a JSON object with the same field names.

`report` is the text that every host gives its model, with each child's text marked as data. It comes first, so that
truncation can't remove the verdicts. `results` has one entry per task, for code that reads Hermes's results; its
`summary` is the child's text, quoted and truncated.
"""

import json
from collections.abc import Mapping, Sequence

from delegate._util.fencing import one_line, quoted
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject, RunStatus, TaskResult

Receipts = Mapping[int, Sequence[JsonObject]]
"""Receipts by the index of their task."""

SUMMARY_CHARS = 300
TRACE_CALLS = 20
"""The maximum number of tool calls listed per task; the report counts all of them."""

_HERMES_STATUS: dict[RunStatus, tuple[str, str]] = {
    "completed": ("completed", "completed"),
    "failed": ("failed", "error"),
    "timeout": ("timeout", "timeout"),
    "cancelled": ("interrupted", "interrupted"),
    "budget_exceeded": ("failed", "budget_exceeded"),
    "max_steps": ("failed", "max_iterations"),
}
"""Hermes's `status` and `exit_reason`. Hermes itself reports `completed` for any child that wrote text."""


def as_json(answer: ToolAnswer, receipts: Receipts) -> str:
    """The tool's result. For a refused call it is the error, which Hermes recognizes as one."""
    report = answer.report
    if report is None or report.error is not None:
        return answer.text
    body = {
        "report": answer.text,
        "results": [_entry(result, receipts.get(result.task_index, ())) for result in report.results],
        "total_duration_seconds": round(report.totals.seconds, 2),
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
        "summary": quoted(result.summary, SUMMARY_CHARS),
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
