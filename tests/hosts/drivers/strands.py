"""An `Agent` on Strands' own OpenAI provider, which streams."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from strands import Agent
from strands.agent.agent_result import AgentResult
from strands.models.openai import OpenAIModel
from strands.types.tools import AgentTool

from delegate import Delegator
from delegate.hosts import strands
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World


class Strands:
    name = "strands"
    package = "strands-agents"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        lead = agent(world, [strands.tool(delegator)])
        running = asyncio.create_task(run(lead))
        if cancel is not None:
            await cancel.wait()
            lead.cancel()
        result, said = await running
        assert (result.stop_reason == "cancelled") == (cancel is not None)
        used = result.metrics.accumulated_usage
        kept = [result["structuredContent"] for result in results(lead) if "structuredContent" in result]
        return Outcome(said, (used["inputTokens"], used["outputTokens"]), kept)


def agent(world: World, tools: Sequence[AgentTool], **options: Any) -> Agent:
    model = OpenAIModel(client_args={"base_url": world.server.openai_url, "api_key": "dummy"}, model_id=PARENT)
    return Agent(model=model, tools=list(tools), callback_handler=None, **options)


async def run(lead: Agent, **options: Any) -> tuple[AgentResult, list[str]]:
    """The result of one run, and what the agent's tools streamed in it."""
    said: list[str] = []
    async for event in lead.stream_async("Find it out.", **options):
        streamed = event.get("tool_stream_event", {}).get("data")
        if isinstance(streamed, str):
            said.append(streamed)
        if "result" in event:
            return event["result"], said
    raise AssertionError("the stream ended without a result")


def results(lead: Agent) -> list[dict[str, Any]]:
    """The results of tools in the agent's messages."""
    blocks = [block for message in lead.messages for block in message["content"]]
    return [cast("dict[str, Any]", block["toolResult"]) for block in blocks if "toolResult" in block]


@cache
def _idle() -> Agent:
    return Agent(model=OpenAIModel(client_args={"api_key": "dummy"}, model_id=PARENT), callback_handler=None)


async def invoke(tool_object: AgentTool, arguments: dict[str, Any]) -> object:
    """Call the tool as the agent's loop does."""
    last: object = None
    use: Any = {"toolUseId": "t1", "name": tool_object.tool_name, "input": arguments}
    async for event in tool_object.stream(use, {"agent": _idle()}):
        last = event
    return last


DRIVER = Strands()
