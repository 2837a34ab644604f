"""Strands Agents (`strands-agents`): the tool as an `AgentTool`.

    from strands import Agent
    from delegate.hosts import strands

    agent = Agent(tools=[strands.tool()])

Progress comes as the tool's stream events. `agent.cancel()`, or the `cancel_signal` of the invocation, stops the
children, and the tool's result is the report of what they did until then. Tokens of children and judges count in
`result.metrics` and in the invocation's limits. The report is the tool result's `structuredContent`.

Strands has no deadline that a tool could see.
"""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, cast
from uuid import uuid4

from strands import Agent
from strands.tools.executors._executor import ToolExecutor
from strands.types.tools import AgentTool, ToolGenerator, ToolResult, ToolSpec, ToolUse

from delegate._util.cancellation import Cancellation
from delegate._util.loopthread import LOOK_SECONDS
from delegate.delegator import Delegator
from delegate.errors import ConfigError, ToolDenied, ToolError
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.hosts.stream import steps
from delegate.ports import EventSink, Tool, ToolOutput
from delegate.types import Parent, Usage

_State = dict[str, Any]
_CYCLE = "event_loop_cycle_id"
_run_of_parent: ContextVar[tuple[Agent, _State]] = ContextVar("delegate_strands_run")
"""The agent that a child works for, and the state of its invocation."""


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> AgentTool:
    """The tool for `Agent(tools=[…])`. Without a delegator one is made with `options`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _Offered(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> AgentTool:
    """The second tool, which reads a report that was cut."""
    return _Offered(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> AgentTool:
    """`think`: a thought held against its criteria, as a checklist. No model is asked."""
    return _Offered(make_think_tool(delegator), by_run=False)


def child_tools(tools: Sequence[AgentTool]) -> list[Tool]:
    """An agent's tools for `Delegator(tools=…)`, ours left out.

    A child's calls go through the parent's hooks and middleware. One that asks a person there is denied to children.

    Raises:
        ConfigError: a path, a module or a provider of tools is among them, which only an agent can load.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _Offered)]


class _Offered(AgentTool):
    """One of our tools, as Strands calls it. Not `by_run`, its calls aren't tied to the run in which they are made."""

    def __init__(self, host_tool: HostTool, *, by_run: bool = True) -> None:
        super().__init__()
        self._offer, self._by_run = host_tool, by_run

    @property
    def tool_name(self) -> str:
        return self._offer.name

    @property
    def tool_spec(self) -> ToolSpec:
        schema = {"json": self._offer.parameters}
        return {"name": self._offer.name, "description": self._offer.description, "inputSchema": schema}

    @property
    def tool_type(self) -> str:
        return "delegate"

    async def stream(self, tool_use: ToolUse, invocation_state: _State, **kwargs: Any) -> ToolGenerator:
        agent: Agent = invocation_state["agent"]
        context = kwargs.get("_tool_context")  # a call in the background has a signal of its own
        signal = cast("threading.Event | None", getattr(context or agent, "cancel_signal", None))

        async def call(on_event: EventSink) -> ToolAnswer:
            _run_of_parent.set((agent, invocation_state))
            cancellation = Cancellation()
            parent = _parent(agent, invocation_state) if self._by_run else Parent()
            known = Invocation(parent=parent, session=agent, on_event=on_event, cancellation=cancellation)
            watching = asyncio.create_task(_cancel_when(signal, cancellation))
            try:
                return await self._offer.call(tool_use["input"], known)
            finally:
                watching.cancel()

        async with aclosing(steps(call)) as happening:
            async for step in happening:
                if isinstance(step, ToolAnswer):
                    _count(agent, step.usage)
                    yield _result(tool_use, step)
                else:
                    yield progress.line(step)


async def _cancel_when(signal: threading.Event | None, cancellation: Cancellation) -> None:
    while signal is not None and not signal.is_set():  # noqa: ASYNC110 — a thread's event can only be polled
        await asyncio.sleep(LOOK_SECONDS)
    if signal is not None:
        cancellation.cancel()


def _result(use: ToolUse, answer: ToolAnswer) -> ToolResult:
    result = ToolResult(
        toolUseId=use["toolUseId"], status="error" if answer.is_error else "success", content=[{"text": answer.text}]
    )
    # As Strands keeps it for MCP's tools: models aren't sent this field.
    return cast("ToolResult", {**result, "structuredContent": answer.structured}) if answer.structured else result


def _parent(agent: object, state: _State) -> Parent:
    if not isinstance(agent, Agent):  # one that talks by voice tells nothing of this
        return Parent()
    invocation = agent.event_loop_metrics.latest_agent_invocation
    # The first turn's id names the run. A direct call, `agent.tool.…()`, is in no turn.
    first = invocation.cycles[0].event_loop_cycle_id if invocation and invocation.cycles and _CYCLE in state else None
    model: dict[str, Any] = agent.model.get_config()
    return Parent(run_id=first, model=model.get("model_id"), tools=tuple(agent.tool_names))


def _count(agent: object, usage: Usage) -> None:
    """Add to the totals, but not to the turn's tokens: those tell Strands how full the parent's context is."""
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
        mend = "give the tools that an agent has loaded: list(agent.tool_registry.registry.values())"
        raise ConfigError(f"{type(given).__name__} is no Strands tool: {mend}")
    spec = given.tool_spec
    schema = cast("dict[str, Any]", spec["inputSchema"])

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        return await _called(given.tool_name, arguments)

    return Tool(spec["name"], spec["description"], schema.get("json", schema), call)


async def _called(name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as the parent's own loop does."""
    run = _run_of_parent.get(None)
    if run is None:
        raise ToolError(f"{name} works only in a run of its Strands agent")
    agent, state = run
    use = ToolUse(toolUseId=f"child-{uuid4().hex}", name=name, input=dict(arguments))
    # Without a turn's id Strands runs it at once, never in the background.
    own_state = {key: value for key, value in state.items() if key != _CYCLE}
    results: list[ToolResult] = []
    async for _ in ToolExecutor._stream(agent, use, results, own_state):  # pyright: ignore[reportPrivateUsage]
        pass  # its progress is the child's own affair
    if not results:
        raise ToolDenied(f"{name} asks a person first, which a child can't")
    texts = [block.get("text") or json.dumps(block, default=str) for block in results[0]["content"]]
    return ToolOutput("\n".join(texts), "ok" if results[0]["status"] == "success" else "error")
