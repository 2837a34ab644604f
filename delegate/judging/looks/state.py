"""Lets a judge call the worker's own look-up tools, to see how things are now.

A hostile text could ask a judge to send what it has seen to somebody. So a tool that reaches out of the machine is
called only with arguments that a successful call of the worker had. Any other is called with what is known, and a
little besides (`carriers.py`).
"""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from delegate._util.cancellation import contained
from delegate._util.threads import run_in_thread
from delegate.judging.checks.json_schema import SchemaProblem, validate
from delegate.judging.looks.carriers import Known, why_not_sent
from delegate.judging.looks.look import Found, Look
from delegate.judging.submission import Submission
from delegate.types import JsonObject
from delegate.types.errors import ToolError
from delegate.types.ports import Effect, Tool, ToolOutput

SECONDS = 30.0
"""Time limit of one call."""
_NO_NAME = re.compile(r"[^\w-]", re.ASCII)
"""What providers refuse in the name of a tool."""
MAX_NAME_CHARS = 56
_REACHES_OUT: frozenset[Effect] = frozenset({"network"})


def state_tools(submission: Submission, taken: frozenset[str]) -> dict[str, Tool]:
    """The tools that a judge may call, by the names that it knows them by. `taken` are names of our own tools."""
    tools: dict[str, Tool] = {}
    for tool in submission.state_tools:
        only_reads = tool.read_only and (tool.effects is None or tool.effects <= _REACHES_OUT)
        if not (only_reads or tool.effects == _REACHES_OUT) or tool.cost_usd or tool.irreversible:
            continue
        if _reaches_out(tool) and not any(_earlier_arguments(tool, submission)):
            continue
        name = _NO_NAME.sub("_", tool.name)[:MAX_NAME_CHARS]  # of a call that was recorded elsewhere, perhaps
        tools[f"worker_{name}" if name in taken else name] = tool
    return tools


async def call(tool: Tool, values: Mapping[str, Any], submission: Submission, earlier: Iterable[Look]) -> Found:
    """The tool's answer. `earlier` are the judge's looks so far.

    Raises ToolError for arguments with which it is not called, and TimeoutError.
    """
    args = _without_omitted(tool, values)
    try:
        problem = await validate(args, tool.parameters)
    except SchemaProblem as error:
        raise ToolError(f"the arguments can't be checked: {error}") from None
    if problem:
        raise ToolError(f"invalid arguments: {problem}")
    why = None
    if _as_json(args) not in _earlier_arguments(tool, submission):
        why = f"{tool.name} reaches out of this machine"
        if not _reaches_out(tool):
            why = await run_in_thread(lambda: why_not_sent(args, Known(submission, tool, earlier)))
    if why:
        raise ToolError(f"not called, since {why}. Use arguments that a call of the worker had.")
    async with submission.probing, asyncio.timeout(SECONDS):
        answer = await contained(tool.call(args))
    answer = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
    return Found(answer.text, status=answer.status)


def _reaches_out(tool: Tool) -> bool:
    return tool.effects is not None and bool(tool.effects & _REACHES_OUT)


def _without_omitted(tool: Tool, values: Mapping[str, Any]) -> JsonObject:
    """The arguments without those that are null and may be left out: models write null for what they omit."""
    required: Any = tool.parameters.get("required") or ()
    return {name: value for name, value in values.items() if value is not None or name in required}


def _earlier_arguments(tool: Tool, submission: Submission) -> Iterator[str]:
    """The arguments of the worker's successful calls, as JSON."""
    for receipt in submission.run.receipts:
        if receipt.tool == tool.name and receipt.status == "ok":
            yield _as_json(_without_omitted(tool, receipt.args))


def _as_json(args: Mapping[str, Any]) -> str:
    return json.dumps(args, sort_keys=True, default=str)
