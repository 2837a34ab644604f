"""A `ToolCallingAgent` with an `OpenAIServerModel`.

It ends after one step, and then asks its model once more, without tools, for its answer. It shows its model results as
words of the user's, so they are taken from the agent's own stream.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# smolagents has few type hints.

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console
from smolagents import AgentLogger, OpenAIServerModel, Tool, ToolCallingAgent
from smolagents.agents import ToolOutput
from smolagents.utils import AgentError

from delegate import Delegator
from delegate.hosts import smolagents
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World


class Smolagents:
    name = "smolagents"
    package = "smolagents"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        lead, log = agent(world, [smolagents.tool(delegator)])
        smolagents.attach(lead)
        # The second step of one that is stopped doesn't begin.
        running = asyncio.create_task(asyncio.to_thread(outputs, lead, max_steps=2 if cancel else 1))
        if cancel is not None:
            await cancel.wait()
            lead.interrupt()
            with pytest.raises(AgentError, match="interrupted"):
                await running
            return Outcome()
        made = await running
        used = lead.monitor.get_total_token_counts()
        return Outcome(
            progress=[line for line in log.getvalue().splitlines() if line.startswith("task ")],
            usage=(used.input_tokens, used.output_tokens),
            structured=[one.output.to_raw().report for one in made],
            results=[one.observation for one in made],
        )


def agent(world: World, tools: Sequence[Tool]) -> tuple[ToolCallingAgent, io.StringIO]:
    """An agent with these tools, and its log."""
    log = io.StringIO()
    model = OpenAIServerModel(PARENT, api_base=world.server.openai_url, api_key="dummy")
    logger = AgentLogger(console=Console(file=log, width=500))
    return ToolCallingAgent(tools=list(tools), model=model, logger=logger), log


def outputs(lead: ToolCallingAgent, *, max_steps: int = 1) -> list[ToolOutput]:
    """What the tools of one run gave, in the order of their calls."""
    events: Any = lead.run("Find it out.", stream=True, max_steps=max_steps)
    return sorted((event for event in events if isinstance(event, ToolOutput)), key=lambda one: one.id)


async def invoke(tool_object: Tool, arguments: dict[str, Any]) -> object:
    """Call the tool as the agent's loop does, in a thread."""
    return await asyncio.to_thread(tool_object, sanitize_inputs_outputs=True, **arguments)


DRIVER = Smolagents()
