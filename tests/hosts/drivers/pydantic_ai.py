"""Pydantic AI: an agent on Chat Completions, with a handler of its events."""

import asyncio
from collections.abc import AsyncIterable, Mapping
from typing import Any

import openai
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from delegate import Delegator
from delegate.hosts import pydantic_ai
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import PARENT, World


class PydanticAI:
    name = "pydantic_ai"
    package = "pydantic-ai-slim"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(_run(delegator, world), cancel)


async def _run(delegator: Delegator, world: World) -> Outcome:
    async with client_of(world) as client:
        return await watched(Agent(chat_model(client, PARENT), tools=[pydantic_ai.tool(delegator)]))


def client_of(world: World) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy")


def chat_model(client: openai.AsyncOpenAI, name: str) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


async def watched(agent: Agent[Any, Any], **run: Any) -> Outcome:
    """Run an agent, and look at what its user sees."""
    said: list[str] = []

    async def handler(context: RunContext[Any], events: AsyncIterable[Any]) -> None:
        said.extend([event.text async for event in events if isinstance(event, pydantic_ai.ChildProgressEvent)])

    result = await agent.run("Find it out.", event_stream_handler=handler, **run)
    reports: list[JsonObject] = [part.metadata for part in tool_returns(result.all_messages()) if part.metadata]
    return Outcome(said, (result.usage.input_tokens, result.usage.output_tokens), reports)


def tool_returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def invoke(tool: Tool[Any], arguments: JsonObject) -> object:
    """Call the tool as an agent's loop does."""
    context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), run_id="run")
    manager = await ToolManager[Any](FunctionToolset[Any]([tool])).for_run_step(context)
    return await manager.handle_call(ToolCallPart(tool.name, arguments, "call_1"))


DRIVER = PydanticAI()
