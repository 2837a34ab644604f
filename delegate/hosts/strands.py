"""Adapter for Strands Agents (`strands-agents`): the tool as an `AgentTool`.

    from strands import Agent
    from delegate.hosts import strands

    agent = Agent(tools=[strands.tool()])

Progress is reported as the tool's stream events. `agent.cancel()`, or the `cancel_signal` of the invocation, stops the
children; the tool's result then has what they did so far. Tokens of children and judges are added to
`result.metrics` and count toward the invocation's limits. The run's result is the tool result's `structuredContent`.

Strands doesn't tell tools about deadlines.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`.
"""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast
from uuid import uuid4

from strands import Agent
from strands.tools.executors._executor import ToolExecutor
from strands.types.tools import AgentTool, ToolGenerator, ToolResult, ToolSpec, ToolUse

from delegate._util.cancellation import Cancellation
from delegate._util.loopthread import LOOK_SECONDS
from delegate.hosts import progress
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer, approval_denied
from delegate.hosts.stream import steps
from delegate.hosts.tool_functions import tool_functions
from delegate.types import Parent, Usage
from delegate.types.errors import ConfigError, ToolError
from delegate.types.events import EventSink
from delegate.types.ports import Tool, ToolOutput

__all__ = ["child_tools", "follow_up_tools", "read_tool", "think_tool", "tool"]

_State = dict[str, Any]
_CYCLE = "event_loop_cycle_id"


def child_tools(tools: Sequence[AgentTool]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. Delegate's own tools are omitted.

    A child's calls go through the parent's hooks and middleware. A call that interrupts there, to ask a person, is
    denied to children.

    Raises:
        ConfigError: a path, a module or a tool provider was given, which only an agent can load.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _DelegateTool)]


class _DelegateTool(AgentTool):
    """A `HostTool` as a Strands tool."""

    def __init__(self, host_tool: HostTool) -> None:
        super().__init__()
        self._host_tool = host_tool

    @property
    def tool_name(self) -> str:
        return self._host_tool.name

    @property
    def tool_spec(self) -> ToolSpec:
        schema = {"json": self._host_tool.parameters}
        return {"name": self._host_tool.name, "description": self._host_tool.description, "inputSchema": schema}

    @property
    def tool_type(self) -> str:
        return "delegate"

    async def stream(self, tool_use: ToolUse, invocation_state: _State, **kwargs: Any) -> ToolGenerator:
        agent: Agent = invocation_state["agent"]
        context = kwargs.get("_tool_context")  # a background call has a signal of its own
        signal = cast("threading.Event | None", getattr(context or agent, "cancel_signal", None))

        async def call(on_event: EventSink) -> ToolAnswer:
            parent, stop, state = _parent(agent, invocation_state), Cancellation(), invocation_state
            invocation = Invocation(parent=parent, session=agent, on_event=on_event, cancellation=stop, native=state)
            watcher = asyncio.create_task(_cancel_when(signal, stop))
            try:
                return await self._host_tool.call(tool_use["input"], invocation)
            finally:
                watcher.cancel()

        async with aclosing(steps(call)) as stream:
            async for step in stream:
                if isinstance(step, ToolAnswer):
                    _add_usage(agent, step.usage)
                    yield _result(tool_use, step)
                else:
                    yield progress.line(step)


tool, read_tool, think_tool, follow_up_tools = tool_functions(_DelegateTool)


async def _cancel_when(signal: threading.Event | None, cancellation: Cancellation) -> None:
    while signal is not None and not signal.is_set():  # noqa: ASYNC110 — a threading.Event can only be polled
        await asyncio.sleep(LOOK_SECONDS)
    if signal is not None:
        cancellation.cancel()


def _result(use: ToolUse, answer: ToolAnswer) -> ToolResult:
    result = ToolResult(
        toolUseId=use["toolUseId"], status="error" if answer.is_error else "success", content=[{"text": answer.text}]
    )
    # The field that Strands sets for MCP tools. It isn't sent to models.
    return cast("ToolResult", {**result, "structuredContent": answer.structured}) if answer.structured else result


def _parent(agent: object, state: _State) -> Parent:
    if not isinstance(agent, Agent):  # a bidirectional (voice) agent has none of this
        return Parent()
    invocation = agent.event_loop_metrics.latest_agent_invocation
    # The id of the first turn serves as the run id. A direct call, `agent.tool.…()`, belongs to no turn.
    run_id = invocation.cycles[0].event_loop_cycle_id if invocation and invocation.cycles and _CYCLE in state else None
    model: dict[str, Any] = agent.model.get_config()
    return Parent(run_id=run_id, model=model.get("model_id"), tools=tuple(agent.tool_names))


def _add_usage(agent: object, usage: Usage) -> None:
    """Add to the totals, but not to the turn's tokens: from those Strands computes how full the parent's context is."""
    if not isinstance(agent, Agent):
        return
    metrics = agent.event_loop_metrics
    invocation = metrics.latest_agent_invocation
    for total in (metrics.accumulated_usage, *([invocation.usage] if invocation else [])):
        total["inputTokens"] += usage.input_tokens
        total["outputTokens"] += usage.output_tokens
        total["totalTokens"] += usage.total_tokens
        if usage.cached_tokens:
            total["cacheReadInputTokens"] = total.get("cacheReadInputTokens", 0) + usage.cached_tokens


# ------------------------------------------------------------------------------------------------ tools for children


def _child_tool(given: object) -> Tool:
    if not isinstance(given, AgentTool):
        raise ConfigError(
            f"child_tools: {type(given).__name__} is not a Strands tool; "
            "pass the tools that an agent has loaded: list(agent.tool_registry.registry.values())"
        )
    spec = given.tool_spec
    schema = cast("dict[str, Any]", spec["inputSchema"])
    call = partial(_call_native, given.tool_name)
    made = Tool(spec["name"], spec["description"], schema.get("json", schema), call)
    return declared(made, getattr(getattr(given, "mcp_tool", None), "annotations", None))


async def _call_native(name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as the parent's own loop does."""
    state = cast("_State | None", Invocation.current(dict))
    if state is None:
        raise ToolError(f"{name} is available only in a run of its Strands agent: continue without it")
    use = ToolUse(toolUseId=f"child-{uuid4().hex}", name=name, input=dict(arguments))
    # Without a turn id, Strands runs the call in the foreground.
    child_state = {key: value for key, value in state.items() if key != _CYCLE}
    results: list[ToolResult] = []
    async for _ in ToolExecutor._stream(state["agent"], use, results, child_state):  # pyright: ignore[reportPrivateUsage]
        pass  # progress of a child's tool isn't reported
    if not results:
        raise approval_denied(name)
    texts = [block.get("text") or json.dumps(block, default=str) for block in results[0]["content"]]
    return ToolOutput("\n".join(texts), "ok" if results[0]["status"] == "success" else "error")
