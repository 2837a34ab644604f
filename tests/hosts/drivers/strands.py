"""Strands Agents: an `Agent` on Strands' own OpenAI provider, which streams."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from strands import Agent
from strands import tool as as_tool  # pyright: ignore[reportUnknownVariableType] — its signature is partly untyped
from strands.agent.agent_result import AgentResult
from strands.hooks import BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.types.tools import AgentTool

from delegate import Delegator, Tool
from delegate.hosts import strands
from tests.hosts.driving import Outcome, Scenario, own_tool, own_tools
from tests.hosts.world import PARENT, NativeTool, World


class Strands:
    name = "strands"
    package = "strands-agents"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}
    refusal = "b\n  Field required"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        lead = agent(
            world, [own_tool(strands, world, delegator), *(self.native_tool(world, name) for name in world.native)]
        )
        lead.add_hook(_ask_before_erasing, BeforeToolCallEvent)
        running = asyncio.create_task(run(lead))
        if cancel is not None:
            await cancel.wait()
            lead.cancel()
        result, progress = await running
        assert (result.stop_reason == "cancelled") == (cancel is not None)
        used = result.metrics.accumulated_usage
        return Outcome(
            progress=progress,
            usage=(used["inputTokens"], used["outputTokens"]),
            structured=[result["structuredContent"] for result in results(lead) if "structuredContent" in result],
            errors=[result["status"] == "error" for result in results(lead)],
        )

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return as_tool(world.functions[name])

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(strands, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return strands.child_tools(tools)


def _ask_before_erasing(event: BeforeToolCallEvent) -> None:
    if event.tool_use["name"] == "erase":
        event.interrupt("sure", reason="May I?")


def agent(world: World, tools: Sequence[AgentTool], **options: Any) -> Agent:
    model = OpenAIModel(client_args={"base_url": world.server.openai_url, "api_key": "dummy"}, model_id=world.parent)
    return Agent(model=model, tools=list(tools), callback_handler=None, **options)


async def run(lead: Agent, **options: Any) -> tuple[AgentResult, list[str]]:
    """The result of one run, and the progress that its tools streamed."""
    progress: list[str] = []
    async for event in lead.stream_async("Find it out.", **options):
        streamed = event.get("tool_stream_event", {}).get("data")
        if isinstance(streamed, str):
            progress.append(streamed)
        if "result" in event:
            return event["result"], progress
    raise AssertionError("the stream ended without a result")


def results(lead: Agent) -> list[dict[str, Any]]:
    """The tool results in the agent's messages."""
    blocks = [block for message in lead.messages for block in message["content"]]
    return [cast("dict[str, Any]", block["toolResult"]) for block in blocks if "toolResult" in block]


@cache
def _idle() -> Agent:
    return Agent(model=OpenAIModel(client_args={"api_key": "dummy"}, model_id=PARENT), callback_handler=None)


async def invoke(tool_object: AgentTool, arguments: dict[str, Any]) -> object:
    """Call the tool like the agent's loop does."""
    last: object = None
    use: Any = {"toolUseId": "t1", "name": tool_object.tool_name, "input": arguments}
    async for event in tool_object.stream(use, {"agent": _idle()}):
        last = event
    return last


DRIVER = Strands()
