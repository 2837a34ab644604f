"""LangChain: `create_agent` on LangGraph, streamed."""

# create_agent is partly untyped:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt
from pydantic import SecretStr

from delegate import Delegator, Tool
from delegate.hosts import langchain
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of, own_tool, own_tools
from tests.hosts.world import NativeTool, World


class LangChain:
    name = "langchain"
    package = "langchain"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}
    refusal = "b: Field required"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(self._run(delegator, world), cancel)

    async def _run(self, delegator: Delegator, world: World) -> Outcome:
        tools = [own_tool(langchain, world, delegator), *(self.native_tool(world, name) for name in world.native)]
        async with httpx.AsyncClient() as client:
            return await observed(create_agent(chat_model(world, world.parent, client), tools))

    def native_tool(self, world: World, name: NativeTool) -> Any:
        erase_file = world.functions["erase"]

        @as_tool
        def erase(path: str) -> str:
            """Erase a file, with approval."""
            interrupt("May I?")
            return erase_file(path)

        return erase if name == "erase" else as_tool(world.functions[name])

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(langchain, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return langchain.child_tools(tools)


def chat_model(world: World, name: str, client: httpx.AsyncClient | None = None) -> ChatOpenAI:
    key = SecretStr("dummy")
    return ChatOpenAI(model=name, base_url=world.server.openai_url, api_key=key, http_async_client=client)


async def observed(agent: Any) -> Outcome:
    """Run an agent and return what its user sees."""
    counted, lines, last = UsageMetadataCallbackHandler(), list[str](), dict[str, Any]()
    state = {"messages": [{"role": "user", "content": "Find it out."}]}
    async for mode, part in agent.astream(state, {"callbacks": [counted]}, stream_mode=["custom", "values"]):
        if mode == "custom":
            lines.append(part["delegate"]["text"])
        else:
            last = part
    results = [message for message in last["messages"] if isinstance(message, ToolMessage)]
    return Outcome(
        progress=lines,
        usage=total(counted),
        structured=[result.artifact for result in results if result.artifact],
        errors=[result.status == "error" for result in results],
    )


def total(counted: UsageMetadataCallbackHandler) -> tuple[int, int]:
    used = counted.usage_metadata.values()
    return sum(one["input_tokens"] for one in used), sum(one["output_tokens"] for one in used)


async def invoke(tool: BaseTool, arguments: JsonObject) -> object:
    """Call the tool like a `ToolNode` does, in a run that counts tokens."""
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
