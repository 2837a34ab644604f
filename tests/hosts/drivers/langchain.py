"""LangChain: `create_agent` on LangGraph, streamed."""

# create_agent has types that are partly open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolRuntime
from pydantic import SecretStr

from delegate import Delegator
from delegate.hosts import langchain
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import PARENT, World


class LangChain:
    name = "langchain"
    package = "langchain"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(_run(delegator, world), cancel)


async def _run(delegator: Delegator, world: World) -> Outcome:
    async with httpx.AsyncClient() as client:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        return await watched(agent)


def chat_model(world: World, name: str, client: httpx.AsyncClient | None = None) -> ChatOpenAI:
    key = SecretStr("dummy")
    return ChatOpenAI(model=name, base_url=world.server.openai_url, api_key=key, http_async_client=client)


async def watched(agent: Any) -> Outcome:
    """Run an agent, and look at what its user sees."""
    counted, said, last = UsageMetadataCallbackHandler(), list[str](), dict[str, Any]()
    asked = {"messages": [{"role": "user", "content": "Find it out."}]}
    async for mode, part in agent.astream(asked, {"callbacks": [counted]}, stream_mode=["custom", "values"]):
        if mode == "custom":
            said.append(part["delegate"]["text"])
        else:
            last = part
    reports = [message.artifact for message in last["messages"] if isinstance(message, ToolMessage)]
    return Outcome(said, total(counted), [report for report in reports if report])


def total(counted: UsageMetadataCallbackHandler) -> tuple[int, int]:
    used = counted.usage_metadata.values()
    return sum(one["input_tokens"] for one in used), sum(one["output_tokens"] for one in used)


async def invoke(tool: BaseTool, arguments: JsonObject) -> object:
    """Call the tool as a `ToolNode` does, in a run that counts tokens."""
    config = RunnableConfig(callbacks=[UsageMetadataCallbackHandler()])
    runtime = ToolRuntime[Any, Any](
        state={"messages": []},
        context=None,
        config=config,
        stream_writer=lambda _: None,
        tool_call_id="call_1",
        store=None,
        tools=[tool],
    )
    given = {**arguments, "langchain_runtime": runtime}
    return await tool.ainvoke({"type": "tool_call", "name": tool.name, "args": given, "id": "call_1"}, config)


DRIVER = LangChain()
