"""smolagents: a `ToolCallingAgent` with an `OpenAIServerModel`.

After its last step, it calls its model once more, without tools, for the answer. It sends results to its model as user
messages, so the results are taken from the agent's own stream.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# smolagents has few type hints.

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console
from smolagents import AgentLogger, OpenAIServerModel, ToolCallingAgent
from smolagents import Tool as SmolTool
from smolagents import tool as as_tool
from smolagents.agents import ToolOutput
from smolagents.utils import AgentError

from delegate import Delegator, Tool
from delegate.hosts import smolagents
from tests.hosts.driving import Outcome, Scenario, own_tool, own_tools
from tests.hosts.world import NativeTool, World


class Smolagents:
    name = "smolagents"
    package = "smolagents"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "refused_call_marked": "an exception, the only mark, would discard the results of the step's other calls",
        "approval_denied": "smolagents never asks a person before it calls a tool",
    }
    refusal = "Argument b is required"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        tools = [own_tool(smolagents, world, delegator), *(self.native_tool(world, name) for name in world.native)]
        lead, log = agent(world, tools)
        smolagents.attach(lead)
        # An interrupted run needs a second step: smolagents raises before it.
        running = asyncio.create_task(asyncio.to_thread(outputs, lead, max_steps=2 if cancel else world.turns))
        if cancel is not None:
            await cancel.wait()
            lead.interrupt()
            with pytest.raises(AgentError, match="interrupted"):
                await running
            return Outcome()
        results = await running
        used = lead.monitor.get_total_token_counts()
        return Outcome(
            progress=[line for line in log.getvalue().splitlines() if line.startswith("task ")],
            usage=(used.input_tokens, used.output_tokens),
            structured=[one.output.to_raw().run for one in results if one.output.to_raw().run],
            results=[one.observation for one in results],
        )

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return as_tool(world.functions[name])

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(smolagents, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return smolagents.child_tools(tools)


def agent(world: World, tools: Sequence[SmolTool]) -> tuple[ToolCallingAgent, io.StringIO]:
    """An agent with these tools, and its log."""
    log = io.StringIO()
    model = OpenAIServerModel(world.parent, api_base=world.server.openai_url, api_key="dummy")
    logger = AgentLogger(console=Console(file=log, width=500))
    return ToolCallingAgent(tools=list(tools), model=model, logger=logger), log


def outputs(lead: ToolCallingAgent, *, max_steps: int = 1) -> list[ToolOutput]:
    """The outputs of the tools in one run, in the order of their calls."""
    events: Any = lead.run("Find it out.", stream=True, max_steps=max_steps)
    return sorted((event for event in events if isinstance(event, ToolOutput)), key=lambda one: one.id)


async def invoke(tool_object: SmolTool, arguments: dict[str, Any]) -> object:
    """Call the tool like the agent's loop does, in a thread."""
    return await asyncio.to_thread(tool_object, sanitize_inputs_outputs=True, **arguments)


DRIVER = Smolagents()
