"""Runs the built-in child: a loop over a model and tools, until the model stops calling tools or reaches a limit."""

import asyncio
from collections.abc import Sequence
from itertools import groupby

from delegate._util.fencing import frame, new_mark
from delegate.budget import metering, runs
from delegate.child import prompt
from delegate.child.job import Job, call_tool
from delegate.errors import TierExceeded
from delegate.models.catalog import tokens_of
from delegate.models.tiers import is_above
from delegate.ports import ChatReply, ChatRequest, Message, ToolCall, ToolOutput, ToolReply
from delegate.types import ChildRun, ErrorDetail

MAX_CALLS_PER_TURN = 32
"""Further tool calls in one turn get an error as their reply."""
MAX_REPLIES_PER_TURN = 256
"""A turn with more tool calls than this fails the child: every call needs a reply, which the next request contains."""
TOOL_REPLY_CHARS = 40_000
_LAST_TURN = "\n\n[That was the last turn with tools. The next message must be the report.]"
_STOPS = {"length": "truncated", "refusal": "refused"}


class AgentLoop:
    """Runs a child on `job.connection` with `job.tools`. Keeps no state between jobs."""

    needs_model = True
    records_tools = True
    uses_job_tools = True

    async def run(self, job: Job) -> ChildRun:
        """Run turns until the model reports, or until none are left."""
        conversation = _Conversation(job)
        for turn in range(1, job.max_steps + 1):
            reply = await conversation.ask()
            if not reply.tool_calls:
                return _finish(job, reply)
            if (count := len(reply.tool_calls)) > MAX_REPLIES_PER_TURN:
                message = f"the model called {count:,} tools in one turn; at most {MAX_REPLIES_PER_TURN} are allowed"
                return job.recorder.finish("failed", error=ErrorDetail(code="too_many_tool_calls", message=message))
            await conversation.answer(reply, last_turn=turn == job.max_steps - 1)
        message = f"the child still called tools after {job.max_steps} turns"
        return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=message))


def _finish(job: Job, reply: ChatReply) -> ChildRun:
    """The run with the status that the last message implies: only a clean end is `completed`."""
    if reply.stop in ("end", "tool_calls"):
        return job.recorder.finish("completed", output=reply.text)
    detail = f" ({reply.stop_detail})" if reply.stop_detail else ""
    error = ErrorDetail(
        code=_STOPS.get(reply.stop, "unexpected_stop"),
        message=f"the model's last message ended as {reply.stop}{detail}",
    )
    return job.recorder.finish("failed", error=error)


class _Conversation:
    """The messages of one child so far."""

    def __init__(self, job: Job) -> None:
        assert job.connection is not None
        self._job = job
        self._connection = job.connection
        self._mark = new_mark()
        self._system = prompt.system_text(job.task, job.workspace, max_steps=job.max_steps, mark=self._mark)
        self._messages = [Message("user", prompt.assignment(job.task))]
        self._tools = {tool.name: tool for tool in job.tools}
        self._specs = tuple(tool.spec for tool in job.tools)
        self._tokens = metering.request_tokens(self._connection.model, self._request())
        """Estimated length of the next request."""

    async def ask(self) -> ChatReply:
        """Make one model call within the ledger's limits, and record it."""
        call = await metering.complete(
            self._connection, self._request(), input_tokens=self._tokens, ledger=self._job.ledger
        )
        tokens = call.charge.usage.total_tokens
        self._tokens = tokens
        text = self._job.recorder.model_called(call.reply, call.charge, substituted=call.substituted)
        self._job.notify("model_called", text[:200], tokens=tokens)
        self._refuse_above_parent(call)
        if call.served:
            runs.note_served_tier(call.served.tier)
        return call.reply

    async def answer(self, reply: ChatReply, *, last_turn: bool) -> None:
        """Call the tools that the reply asks for, and add the reply and their outputs to the conversation."""
        calls = reply.tool_calls
        outputs: list[ToolOutput] = []
        for group in self._groups(calls[:MAX_CALLS_PER_TURN]):
            outputs += await self._call_all(group)
        refused = ToolOutput(f"not called: a turn may call at most {MAX_CALLS_PER_TURN} tools", "denied")
        outputs += [refused] * (len(calls) - len(outputs))
        replies = [_tool_reply(call, output, self._mark) for call, output in zip(calls, outputs, strict=True)]
        if last_turn:
            final = replies[-1]
            replies[-1] = ToolReply(final.call_id, final.name, final.text + _LAST_TURN, final.is_error)
        self._tokens += self._connection.model.tokens(sum(tokens_of(one.text) for one in replies))
        self._messages.append(Message("assistant", reply.text, calls, native=reply.native))
        self._messages.append(Message("tool", tool_replies=tuple(replies)))

    def _request(self) -> ChatRequest:
        return ChatRequest(
            model=self._connection.model.id,
            system=self._system,
            messages=self._messages,
            max_output_tokens=min(self._job.max_output_tokens, self._connection.model.max_output_tokens),
            tools=self._specs,
        )

    def _refuse_above_parent(self, call: metering.MeteredReply) -> None:
        """Raise `TierExceeded` if the provider substituted a model of a higher tier than the parent's."""
        ceiling = self._job.ceiling
        if ceiling and call.served and is_above(call.served.tier, ceiling):
            what = f"{call.reply.model_served}, of tier {call.served.tier}, in place of {self._connection.model.id}"
            raise TierExceeded(f"the provider served {what}, which is above the parent's tier {ceiling}")

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """The calls in order: consecutive parallel ones grouped together, every other call alone."""
        groups: list[list[ToolCall]] = []
        for parallel, found in groupby(calls, self._is_parallel):
            group = list(found)
            groups += [group] if parallel else [[call] for call in group]
        return groups

    def _is_parallel(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is None or tool.parallel

    async def _call_all(self, calls: Sequence[ToolCall]) -> list[ToolOutput]:
        if len(calls) == 1:
            return [await self._call(calls[0])]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._call(call)) for call in calls]
        return [task.result() for task in running]

    async def _call(self, call: ToolCall) -> ToolOutput:
        """Call one tool and write its receipt, even if the call is interrupted."""
        with self._job.tool_call(call.name, call.arguments or {}) as receipt:
            receipt.output = await self._output_of(call)
        return receipt.output

    async def _output_of(self, call: ToolCall) -> ToolOutput:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolOutput(f"there is no tool {call.name!r}; use one of: {', '.join(self._tools)}", "error")
        if call.arguments is None:
            return ToolOutput(f"the arguments are not a valid JSON object: {call.raw_arguments[:200]!r}", "error")
        return await call_tool(tool, call.arguments)


def _tool_reply(call: ToolCall, output: ToolOutput, mark: str) -> ToolReply:
    """What the child reads: the output framed and shortened. The receipt has the original."""
    text = frame(output.text[:TOOL_REPLY_CHARS], mark)
    if (cut := len(output.text) - TOOL_REPLY_CHARS) > 0:
        text += f"\n[… {cut} more characters left out]"
    return ToolReply(call.id, call.name, text, is_error=output.status != "ok")
