"""Pydantic AI: an agent on Chat Completions, with a handler of its events."""

import asyncio
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

import openai
import pydantic_ai as framework
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from delegate import Delegator, Tool
from delegate.hosts import pydantic_ai
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of, own_tool, own_tools
from tests.hosts.world import NativeTool, World


class PydanticAI:
    name = "pydantic_ai"
    package = "pydantic-ai-slim"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "refused_call_marked": "most providers would send a result that Pydantic AI marks as failed as JSON inside JSON"
    }
    refusal = "Field required"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(self._run(delegator, world), cancel)

    async def _run(self, delegator: Delegator, world: World) -> Outcome:
        tools = [own_tool(pydantic_ai, world, delegator), *(self.native_tool(world, name) for name in world.native)]
        async with client_of(world) as client:
            return await observed(Agent(chat_model(client, world.parent), tools=tools))

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return framework.Tool[Any](world.functions[name], requires_approval=name == "erase")

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(pydantic_ai, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return pydantic_ai.child_tools(tools)


def client_of(world: World) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy")


def chat_model(client: openai.AsyncOpenAI, name: str) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


async def observed(agent: Agent[Any, Any], **run: Any) -> Outcome:
    """Run an agent and return what its user sees."""
    lines: list[str] = []

    async def handler(context: RunContext[Any], events: AsyncIterable[Any]) -> None:
        lines.extend([event.text async for event in events if isinstance(event, pydantic_ai.ChildProgressEvent)])

    result = await agent.run("Find it out.", event_stream_handler=handler, **run)
    results: list[JsonObject] = [part.metadata for part in tool_returns(result.all_messages()) if part.metadata]
    return Outcome(lines, (result.usage.input_tokens, result.usage.output_tokens), results)


def tool_returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def invoke(tool: framework.Tool[Any], arguments: JsonObject) -> object:
    """Call the tool like an agent's loop does."""
    context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), run_id="run")
    manager = await ToolManager[Any](FunctionToolset[Any]([tool])).for_run_step(context)
    return await manager.handle_call(ToolCallPart(tool.name, arguments, "call_1"))


DRIVER = PydanticAI()
