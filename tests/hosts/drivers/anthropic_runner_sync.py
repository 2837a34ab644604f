"""The anthropic SDK's tool runner of a client that isn't async, in a thread of its own."""

import asyncio
from collections.abc import Mapping

from anthropic import Anthropic

from delegate import Delegator, Parent
from delegate.hosts import anthropic_runner
from delegate.hosts.host_tool import ToolAnswer
from tests.hosts.drivers.anthropic_runner import WATCHING, outcome
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World


class AnthropicRunnerSync:
    name = "anthropic_runner_sync"
    package = "anthropic"
    side_by_side = False
    gaps: Mapping[Scenario, str] = {
        "cancel_in_flight": "nothing stops a sync runner from outside its thread; an interrupt of it stops the children"
    }

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await asyncio.to_thread(_run, delegator, world)


def _run(delegator: Delegator, world: World) -> Outcome:
    answers: list[ToolAnswer] = []
    WATCHING.said.clear()
    tool = anthropic_runner.tool_sync(delegator, parent=Parent(model=PARENT), on_answer=answers.append)
    with Anthropic(base_url=world.server.anthropic_url, api_key="dummy") as client:
        runner = client.beta.messages.tool_runner(
            model=PARENT, max_tokens=1_000, tools=[tool], messages=[{"role": "user", "content": "Find it out."}]
        )
        used = [(message.usage.input_tokens, message.usage.output_tokens) for message in runner]
    return outcome(used, answers)


DRIVER = AnthropicRunnerSync()
