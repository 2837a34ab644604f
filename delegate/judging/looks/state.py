"""Lets a judge call the worker's own look-up tools, to see how things are now.

A hostile text could ask a judge to send what it has seen to somebody. So a tool that reaches out of the machine is
called only with arguments that a successful call of the worker had, and so is any other with an address or a long text.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from delegate.errors import ToolError
from delegate.judging.checks.json_schema import SchemaProblem, validate
from delegate.judging.looks.look import Found
from delegate.judging.proof.calls import leaves
from delegate.judging.submission import Submission
from delegate.ports import Effect, Tool, ToolOutput

SECONDS = 30.0
"""Time limit of one call."""
MAX_ARGUMENT_CHARS = 200
"""Longer texts are not sent to a tool, unless the worker sent them."""
_NO_NAME = re.compile(r"[^\w-]", re.ASCII)
"""What providers refuse in the name of a tool."""
MAX_NAME_CHARS = 56
_REACHES_OUT: frozenset[Effect] = frozenset({"network"})


def state_tools(submission: Submission, taken: frozenset[str]) -> dict[str, Tool]:
    """The tools that a judge may call, by the names that it knows them by. `taken` are names of our own tools."""
    found: dict[str, Tool] = {}
    for tool in submission.state_tools:
        only_reads = tool.read_only and (tool.effects is None or tool.effects <= _REACHES_OUT)
        if not (only_reads or tool.effects == _REACHES_OUT) or tool.cost_usd or tool.irreversible:
            continue
        if _reaches_out(tool) and not any(_earlier_arguments(tool, submission)):
            continue
        name = _NO_NAME.sub("_", tool.name)[:MAX_NAME_CHARS]  # of a call that was recorded elsewhere, perhaps
        found[f"worker_{name}" if name in taken else name] = tool
    return found


async def call(tool: Tool, args: Mapping[str, Any], submission: Submission) -> Found:
    """The tool's answer. Raises ToolError for arguments with which it is not called, and TimeoutError."""
    try:
        problem = await validate(dict(args), tool.parameters)
    except SchemaProblem as error:
        raise ToolError(f"the arguments can't be checked: {error}") from None
    if problem:
        raise ToolError(f"invalid arguments: {problem}")
    if not _is_earlier(tool, args, submission) and (_reaches_out(tool) or any(map(_could_carry, leaves(args)))):
        raise ToolError("not called: it could send something to others. Use arguments that the worker's own call had.")
    async with submission.probing, asyncio.timeout(SECONDS):
        answer = await tool.call(dict(args))
    answer = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
    return Found(answer.text, status=answer.status)


def _reaches_out(tool: Tool) -> bool:
    return tool.effects is not None and bool(tool.effects & _REACHES_OUT)


def _could_carry(text: str) -> bool:
    """Whether an argument could carry something away: an address, or a long text."""
    return "://" in text or text.startswith("//") or len(text) > MAX_ARGUMENT_CHARS


def _is_earlier(tool: Tool, args: Mapping[str, Any], submission: Submission) -> bool:
    wanted = json.dumps(args, sort_keys=True, default=str)
    return wanted in _earlier_arguments(tool, submission)


def _earlier_arguments(tool: Tool, submission: Submission) -> Iterator[str]:
    """The arguments of the worker's successful calls, as JSON."""
    for receipt in submission.run.receipts:
        if receipt.tool == tool.name and receipt.status == "ok":
            yield json.dumps(receipt.args, sort_keys=True, default=str)
