"""OpenAI Agents SDK: an agent on the Responses API, run by `Runner.run`. Its progress reports are traces."""

import asyncio
import json
from collections.abc import Mapping, Sequence
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
    function_tool,
    set_trace_processors,
)
from agents.items import ToolCallOutputItem
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext
from agents.tracing import CustomSpanData

from delegate import Delegator, Tool
from delegate.hosts import openai_agents
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of, own_tool, own_tools
from tests.hosts.world import NativeTool, World


class SpanRecorder(TracingProcessor):
    """Keeps the names of custom spans and exports nothing."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_span_start(self, span: Span[Any]) -> None:
        if isinstance(span.span_data, CustomSpanData):
            self.names.append(span.span_data.name)

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
    gaps: Mapping[Scenario, str] = {
        "refused_call_marked": "the SDK has no mark for a result that is an error: the model reads it in the text"
    }
    refusal = "An error occurred while running the tool. Please try again."

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        others = asyncio.all_tasks()
        outcome = await outcome_of(self._run(delegator, world), cancel)
        if cancel is not None and (left := asyncio.all_tasks() - others):
            await asyncio.wait(left, timeout=10)  # the SDK doesn't wait for the tools that it cancels
        return outcome

    async def _run(self, delegator: Delegator, world: World) -> Outcome:
        spans = SpanRecorder()
        set_trace_processors([spans])
        tools = [own_tool(openai_agents, world, delegator), *(self.native_tool(world, name) for name in world.native)]
        agent = Agent(name="lead", model=world.parent, tools=tools)
        async with openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy") as client:
            config = RunConfig(model_provider=OpenAIProvider(openai_client=client))
            result = await Runner.run(agent, "Find it out.", run_config=config)
        usage = result.context_wrapper.usage
        outputs = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        results: list[JsonObject] = [item.custom_data["result"] for item in outputs if item.custom_data]
        return Outcome(spans.names, (usage.input_tokens, usage.output_tokens), results)

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return function_tool(world.functions[name], needs_approval=name == "erase")

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(openai_agents, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return openai_agents.child_tools(tools)


async def invoke(tool: FunctionTool, arguments: JsonObject) -> object:
    """Call the tool like the SDK's loop does."""
    raw = json.dumps(arguments)
    context = ToolContext[Any](None, Usage(), tool.name, "call_1", raw, agent=Agent(name="lead", tools=[tool]))
    return await invoke_function_tool(function_tool=tool, context=context, arguments=raw)


DRIVER = OpenAIAgents()
