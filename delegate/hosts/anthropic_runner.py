"""Adapter for the tool runner of the anthropic SDK (`client.beta.messages.tool_runner`), async and sync.

    from delegate import Parent
    from delegate.hosts import anthropic_runner

    tool = anthropic_runner.tool(parent=Parent(model="claude-sonnet-5-5"), on_answer=lambda answer: print(answer.usage))
    runner = client.beta.messages.tool_runner(tools=[tool], model="claude-sonnet-5-5", messages=[…], max_tokens=8_000)

Use `tool_sync` with the runner of a sync client. The runner tells its tools nothing about the run, so pass the parent's
model here. It has no usage totals and keeps only a text: `on_answer` receives the run's result and its token usage. If
OpenTelemetry traces the client, progress is reported as spans under the call's span, without any model's text, and
all calls of a run share a ledger. Without tracing, each call has its own ledger, unless `Parent(run_id=…)` is given.

The runner makes the calls of one turn one after the other: send tasks that should run in parallel in one call. It has
no deadline. Interrupting the thread of a sync runner stops its children; there is no other way to stop them.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Unpack, cast

import anthropic.lib.tools as sdk
from anthropic.types.beta import BetaToolParam, BetaToolUnionParam
from opentelemetry import trace

from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer, make_delegate_tool, small_tools, text_of
from delegate.policy.settings import SettingsOptions
from delegate.types import JsonObject, Parent
from delegate.types.errors import ToolError
from delegate.types.events import Event, EventSink
from delegate.types.ports import Tool, ToolOutput

__all__ = [
    "child_tools",
    "follow_up_tools",
    "follow_up_tools_sync",
    "read_tool",
    "read_tool_sync",
    "think_tool",
    "think_tool_sync",
    "tool",
    "tool_sync",
]

OnAnswer = Callable[[ToolAnswer], None]
_Runnable = sdk.BetaFunctionTool[Any] | sdk.BetaAsyncFunctionTool[Any]


def tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    **options: Unpack[SettingsOptions],
) -> sdk.BetaAsyncBuiltinFunctionTool:
    """Create delegate_task for an async client's runner. Without a delegator, one is created from `options` (settings).

    Raises:
        ConfigError: the settings are wrong.
    """
    return _AsyncTool(make_delegate_tool(delegator, parent=parent, **options), on_answer)


def tool_sync(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    **options: Unpack[SettingsOptions],
) -> sdk.BetaBuiltinFunctionTool:
    """`tool` for a sync client's runner."""
    return _SyncTool(make_delegate_tool(delegator, parent=parent, **options), on_answer)


class _DelegateTool:
    """Common base of both kinds of tools. The SDK's own function wrapper would validate the arguments before us."""

    def __init__(self, host_tool: HostTool, on_answer: OnAnswer | None = None) -> None:
        self._host_tool = host_tool
        self._on_answer = on_answer

    def to_dict(self) -> BetaToolUnionParam:
        host_tool = self._host_tool
        return BetaToolParam(name=host_tool.name, description=host_tool.description, input_schema=host_tool.parameters)

    def _result(self, answer: ToolAnswer) -> str:
        if self._on_answer is not None:
            self._on_answer(answer)
        if answer.is_error:
            raise sdk.ToolError(answer.text)
        return answer.text


class _AsyncTool(_DelegateTool, sdk.BetaAsyncBuiltinFunctionTool):
    async def call(self, input: object) -> str:
        return self._result(await self._host_tool.call(cast("JsonObject", input), _traced_invocation()))


class _SyncTool(_DelegateTool, sdk.BetaBuiltinFunctionTool):
    def call(self, input: object) -> str:
        return self._result(self._host_tool.call_sync(cast("JsonObject", input), _traced_invocation()))


read_tool, think_tool, follow_up_tools = small_tools(_AsyncTool)
read_tool_sync, think_tool_sync, follow_up_tools_sync = small_tools(_SyncTool)


def _traced_invocation() -> Invocation:
    """What the span of the current tool call tells about it, if there is one."""
    try:  # a runner calls its tools in its own task or thread, which so identifies one user's run
        session: object = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        session = threading.get_ident()
    span = trace.get_current_span()
    attributes: Mapping[str, object] = getattr(span, "attributes", None) or {}
    if "gen_ai.tool.call.id" not in attributes:
        return Invocation(session=session)
    run_span: trace.SpanContext | None = getattr(span, "parent", None)
    run_id = f"anthropic-{run_span.trace_id:032x}-{run_span.span_id:016x}" if run_span else None
    return Invocation(parent=Parent(run_id=run_id), session=session, on_event=_span_sink(span))


def _span_sink(call_span: trace.Span) -> EventSink:
    context = trace.set_span_in_context(call_span)

    def write(event: Event, line: str) -> None:
        data = {"delegate.event": event.kind, "delegate.task_index": event.task_index or 0}
        trace.get_tracer("delegate").start_span(line, context, attributes=data).end()

    return progress.news(write, content=False)  # a trace doesn't get what models wrote


# ------------------------------------------------------------------------------------------------ tools for children


def child_tools(tools: Iterable[object]) -> list[Tool]:
    """Convert the runnable tools of a runner, sync and async, for `Delegator(tools=…)`.

    Delegate's own tools, tools that run at Anthropic, and built-in tools (memory, toolsets) are omitted. A child calls
    its tools one at a time, as the runner does. A sync tool runs in a thread and can't be stopped.
    """
    runnable = [
        cast("_Runnable", one) for one in tools if isinstance(one, sdk.BetaFunctionTool | sdk.BetaAsyncFunctionTool)
    ]
    return [
        Tool(
            one.name, one.description, cast("JsonObject", one.input_schema), partial(_call_native, one), parallel=False
        )
        for one in runnable
    ]


async def _call_native(tool: _Runnable, arguments: Mapping[str, Any]) -> ToolOutput:
    try:
        if isinstance(tool, sdk.BetaAsyncFunctionTool):
            content = await tool.call(dict(arguments))
        else:
            content = await asyncio.to_thread(tool.call, dict(arguments))
    except sdk.ToolError as error:
        raise ToolError(_text(error.content)) from error
    return ToolOutput(_text(content))


def _text(content: sdk.BetaFunctionToolResultType | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return text_of(cast("JsonObject", block) for block in content)
