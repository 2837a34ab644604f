"""The tool runner of the anthropic SDK (`client.beta.messages.tool_runner`), async and sync.

    from delegate import Parent
    from delegate.hosts import anthropic_runner

    tool = anthropic_runner.tool(parent=Parent(model="claude-sonnet-5-5"), on_answer=lambda answer: print(answer.usage))
    runner = client.beta.messages.tool_runner(tools=[tool], model="claude-sonnet-5-5", messages=[…], max_tokens=8_000)

`tool_sync` is for the runner of a client that isn't async. The runner tells its tools nothing about the run, so name
the parent's model here. It keeps no totals and passes on nothing but text: `on_answer` gets the report and its tokens.
Where OpenTelemetry traces the client, the children's steps are spans under the call's span, without any text, and all
calls of a run share a ledger. Elsewhere each call has a ledger of its own, unless `Parent(run_id=…)` is given.

The runner makes the calls of a turn one after the other, so put tasks that should run in parallel into one call. It has
no deadline. A sync runner stops its children when its own thread is interrupted; there is no other way to stop it.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import anthropic.lib.tools as sdk
from anthropic.types.beta import BetaToolParam, BetaToolUnionParam
from opentelemetry import trace

from delegate.delegator import Delegator
from delegate.errors import ToolError
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.ports import Event, EventSink, Tool, ToolOutput
from delegate.types import JsonObject, Parent

OnAnswer = Callable[[ToolAnswer], None]
_CALL_ID = "gen_ai.tool.call.id"


def tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    **options: Any,
) -> sdk.BetaAsyncBuiltinFunctionTool:
    """The tool for an async client's runner. `options` are settings, where no delegator is given; see `delegate_tool`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _AsyncTool(make_delegate_tool(delegator, parent=parent, **options), on_answer, known=_call_known)


def tool_sync(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    **options: Any,
) -> sdk.BetaBuiltinFunctionTool:
    """The tool for a sync client's runner; otherwise as `tool`."""
    return _SyncTool(make_delegate_tool(delegator, parent=parent, **options), on_answer, known=_call_known)


def read_tool(delegator: Delegator) -> sdk.BetaAsyncBuiltinFunctionTool:
    """The second tool, which reads a report that was cut."""
    return _AsyncTool(make_read_tool(delegator))


def read_tool_sync(delegator: Delegator) -> sdk.BetaBuiltinFunctionTool:
    """`read_tool` for a sync client's runner."""
    return _SyncTool(make_read_tool(delegator))


def think_tool(delegator: Delegator) -> sdk.BetaAsyncBuiltinFunctionTool:
    """`think`, with which a parent holds a thought against its criteria."""
    return _AsyncTool(make_think_tool(delegator))


def think_tool_sync(delegator: Delegator) -> sdk.BetaBuiltinFunctionTool:
    """`think_tool` for a sync client's runner."""
    return _SyncTool(make_think_tool(delegator))


class _Offered:
    """What both have in common. The SDK's own wrapper of functions would take arguments apart before we see them."""

    def __init__(
        self, host_tool: HostTool, on_answer: OnAnswer | None = None, *, known: Callable[[], Invocation] = Invocation
    ) -> None:
        self._offer = host_tool
        self._known = known
        self._on_answer = on_answer

    def to_dict(self) -> BetaToolUnionParam:
        host_tool = self._offer
        return BetaToolParam(name=host_tool.name, description=host_tool.description, input_schema=host_tool.parameters)

    def _said(self, answer: ToolAnswer) -> str:
        if self._on_answer is not None:
            self._on_answer(answer)
        if answer.is_error:
            raise sdk.ToolError(answer.text)
        return answer.text


class _AsyncTool(_Offered, sdk.BetaAsyncBuiltinFunctionTool):
    async def call(self, input: object) -> str:
        return self._said(await self._offer.call(cast("JsonObject", input), self._known()))


class _SyncTool(_Offered, sdk.BetaBuiltinFunctionTool):
    def call(self, input: object) -> str:
        return self._said(self._offer.call_sync(cast("JsonObject", input), self._known()))


def _call_known() -> Invocation:
    """What the call's span says, where there is one."""
    span = trace.get_current_span()
    attributes: Mapping[str, object] = getattr(span, "attributes", None) or {}
    if _CALL_ID not in attributes:
        return Invocation(session=_session())
    of_run: trace.SpanContext | None = getattr(span, "parent", None)
    run_id = f"anthropic-{of_run.trace_id:032x}-{of_run.span_id:016x}" if of_run else None
    return Invocation(parent=Parent(run_id=run_id), session=_session(), on_event=_spans(span))


def _spans(around: trace.Span) -> EventSink:
    context = trace.set_span_in_context(around)

    def sink(event: Event) -> None:
        told = replace(event, text="") if event.kind == "model_called" else event
        data = {"delegate.event": event.kind, "delegate.task_index": event.task_index}
        trace.get_tracer("delegate").start_span(progress.line(told), context, attributes=data).end()

    return sink


def _session() -> object:
    """A runner calls its tools where it is run itself: two users' runs are two tasks, or two threads."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return threading.get_ident()


# ------------------------------------------------------------------------------------------------ tools for children


def child_tools(tools: Iterable[object]) -> list[Tool]:
    """The runnable tools of a runner, of both kinds, for `Delegator(tools=…)`.

    Left out are delegate's own, those that run at Anthropic, and those that only its models know (memory, toolsets).
    Within a child they are called one at a time, as in the runner. A sync tool is called in a thread, where it can't be
    stopped.
    """
    return [made for one in tools if (made := _child_tool(one)) is not None]


def _child_tool(given: object) -> Tool | None:
    if isinstance(given, sdk.BetaFunctionTool | sdk.BetaAsyncFunctionTool):
        tool = cast("sdk.BetaFunctionTool[Any] | sdk.BetaAsyncFunctionTool[Any]", given)
        schema = cast("JsonObject", tool.input_schema)
        return Tool(tool.name, tool.description, schema, lambda arguments: _output(tool, arguments), parallel=False)
    return None


async def _output(
    tool: sdk.BetaFunctionTool[Any] | sdk.BetaAsyncFunctionTool[Any], arguments: Mapping[str, Any]
) -> ToolOutput:
    try:
        if isinstance(tool, sdk.BetaAsyncFunctionTool):
            given = await tool.call(dict(arguments))
        else:
            given = await asyncio.to_thread(tool.call, dict(arguments))
    except sdk.ToolError as error:
        raise ToolError(_text(error.content)) from error
    return ToolOutput(_text(given))


def _text(content: sdk.BetaFunctionToolResultType | None) -> str:
    """What there is of text; another block is named."""
    if content is None or isinstance(content, str):
        return content or ""
    blocks = [cast("JsonObject", block) for block in content]
    return "\n".join(str(block["text"]) if block["type"] == "text" else f"[{block['type']}]" for block in blocks)
