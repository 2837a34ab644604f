"""Calls the tools that a child's model asks for, and notices when its calls go round in circles."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from delegate._util.redaction import redactor
from delegate._util.threads import run_in_thread_if
from delegate.child.job import Job, call_tool
from delegate.records.recorder import LARGE_CHARS, argument_chars, canonical
from delegate.telemetry import operations
from delegate.types.ports import Tool, ToolCall, ToolOutput

MAX_CALLS_PER_TURN = 32
"""Further tool calls in one turn get an error as their reply."""
REMARK_AT, END_AT = 3, 6
"""How many identical calls with the same result get a remark, and end the run."""


class ToolCalls:
    """Calls the tools of one child, and writes a receipt of every call. Counts identical calls with identical results,
    for as long as nothing else happens.

    A call that wasn't made before, or has another result, is progress and starts the count anew: running the same tests
    after every edit is no repetition. A thought isn't progress, however new it is.
    """

    __slots__ = ("_counts", "_job", "_own", "_tools")

    def __init__(self, job: Job, own_tools: Sequence[Tool] = ()) -> None:
        """`own_tools` only concern the conversation itself, so their calls have no receipts."""
        self._job = job
        self._tools = {name: tool for tool in job.tools for name in (tool.name, tool.spec.name)}
        self._own = {tool.name: tool for tool in own_tools}
        self._counts: dict[bytes, int] = {}
        """How often each call with its result was made since there was progress; 0 for those before."""

    @property
    def in_circles(self) -> bool:
        """Whether the last calls only repeated earlier ones, with the same results."""
        return max(self._counts.values(), default=0) >= END_AT

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolOutput]:
        """Call the tools, and return their outputs in the order of the calls."""
        outputs: list[ToolOutput] = []
        if not all(self._is_read_only(call) for call in calls):
            await self._job.flush()
        for group in self._groups(calls[:MAX_CALLS_PER_TURN]):
            if len(group) == 1:
                outputs.append(await self.call(group[0]))
            else:
                async with asyncio.TaskGroup() as running:
                    tasks = [running.create_task(self.call(call)) for call in group]
                outputs += [task.result() for task in tasks]
            if not all(self._is_read_only(call) for call in group):
                await self._job.folder.check_size(soon=False)
        refusal = ToolOutput(f"not called: a turn may call at most {MAX_CALLS_PER_TURN} tools", "denied")
        outputs += [refusal] * (len(calls) - len(outputs))
        results = list(zip(calls, outputs, strict=True))
        is_long = any(_is_long(*result) for result in results)
        counts = await run_in_thread_if(is_long, partial(self._count, results))
        return [_with_remark(output, count) for output, count in zip(outputs, counts, strict=True)]

    def _count(self, results: Sequence[tuple[ToolCall, ToolOutput]]) -> list[int]:
        """How often each call of a turn was made with its result. Identical calls of one turn count once: the model
        couldn't know their results.
        """
        keys = [_key_of(call, output) for call, output in results]
        if any(key not in self._counts and call.name != "think" for key, (call, _) in zip(keys, results, strict=True)):
            self._counts = dict.fromkeys(self._counts, 0)
        for key in set(keys):
            self._counts[key] = self._counts.get(key, 0) + 1
        return [self._counts[key] for key in keys]

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """The calls in order: consecutive parallel ones grouped together, every other call alone."""

        def is_parallel(call: ToolCall) -> bool:
            tool = self._own.get(call.name) or self._tools.get(call.name)
            return tool is None or tool.parallel

        for parallel, members in groupby(calls, is_parallel):
            if parallel:
                yield list(members)
            else:
                yield from ([call] for call in members)

    def _is_read_only(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is None or tool.read_only

    async def call(self, call: ToolCall) -> ToolOutput:
        """Call one tool and write its receipt, even if the call is interrupted."""
        if own := self._own.get(call.name):
            return await call_tool(own, call.arguments or {})
        tool = self._tools.get(call.name)
        receipt = self._job.tool_call(tool.name if tool else call.name, call.arguments or {})
        try:
            receipt.output = await self._output_of(call, tool)
        finally:
            await run_in_thread_if(_is_long(call, receipt.output), receipt.write)
        return receipt.output

    async def _output_of(self, call: ToolCall, tool: Tool | None) -> ToolOutput:
        if tool is None:
            names = ", ".join(tool.spec.name for tool in self._job.tools)
            return ToolOutput(f"there is no tool {call.name!r}; use one of: {names}", "error")
        if call.arguments is None:
            given = redactor.beginning(call.raw_arguments, 200)
            return ToolOutput(f"the arguments are not a valid JSON object with each key once: {given!r}", "error")
        with operations.tool(tool.name, call.id, call.arguments) as operation:
            output = await call_tool(tool, call.arguments)
            operation.returned(output)
        return output


def _is_long(call: ToolCall, output: ToolOutput) -> bool:
    return argument_chars(call.arguments) + len(output.text) > LARGE_CHARS


def _with_remark(output: ToolOutput, count: int) -> ToolOutput:
    """The output, with a remark if the same call had the same result before. The receipt doesn't have it."""
    if count < REMARK_AT:
        return output
    remark = (
        f"\n\n[You made this call {count} times with the same result. Do something else, or report what is missing: "
        f"{END_AT} of them end the run.]"
    )
    return ToolOutput(output.text + remark, output.status, attachments=output.attachments)


def _key_of(call: ToolCall, output: ToolOutput) -> bytes:
    arguments = canonical(call.arguments) if call.arguments else call.raw_arguments
    text = "\0".join((call.name, arguments, output.status, output.text))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
