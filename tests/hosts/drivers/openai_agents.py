"""OpenAI Agents SDK: an agent on the Responses API, run by `Runner.run`. Traces are its channel of progress."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import openai
from agents import (
    Agent,
    FunctionTool,
    OpenAIProvider,
    RunConfig,
    Runner,
    Span,
    Trace,
    TracingProcessor,
    Usage,
    set_trace_processors,
)
from agents.items import ToolCallOutputItem
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext
from agents.tracing import CustomSpanData

from delegate import Delegator
from delegate.hosts import openai_agents
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import PARENT, World


class Watching(TracingProcessor):
    """Keeps the names of custom spans, and sends nothing anywhere."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_span_start(self, span: Span[Any]) -> None:
        if isinstance(span.span_data, CustomSpanData):
            self.said.append(span.span_data.name)

    def on_span_end(self, span: Span[Any]) -> None: ...
    def on_trace_start(self, trace: Trace) -> None: ...
    def on_trace_end(self, trace: Trace) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


set_trace_processors([])


class OpenAIAgents:
    name = "openai_agents"
    package = "openai-agents"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        watching, others = Watching(), asyncio.all_tasks()
        set_trace_processors([watching])
        outcome = await outcome_of(_run(delegator, world, watching), cancel)
        if cancel is not None and (
            left := asyncio.all_tasks() - others
        ):  # the SDK doesn't wait for the tools that it cancels
            await asyncio.wait(left, timeout=10)
        return outcome


async def _run(delegator: Delegator, world: World, watching: Watching) -> Outcome:
    agent = Agent(name="lead", model=PARENT, tools=[openai_agents.tool(delegator)])
    async with openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy") as client:
        config = RunConfig(model_provider=OpenAIProvider(openai_client=client))
        result = await Runner.run(agent, "Find it out.", run_config=config)
    usage = result.context_wrapper.usage
    outputs = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    reports: list[JsonObject] = [item.custom_data["report"] for item in outputs if item.custom_data]
    return Outcome(watching.said, (usage.input_tokens, usage.output_tokens), reports)


async def invoke(tool: FunctionTool, arguments: JsonObject) -> object:
    """Call the tool as the SDK's loop does."""
    raw = json.dumps(arguments)
    context = ToolContext[Any](None, Usage(), tool.name, "call_1", raw, agent=Agent(name="lead", tools=[tool]))
    return await invoke_function_tool(function_tool=tool, context=context, arguments=raw)


DRIVER = OpenAIAgents()
