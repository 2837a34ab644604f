"""The anthropic SDK's tool runner of a sync client, in a thread of its own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from anthropic import Anthropic, beta_tool

from delegate import Delegator, Parent, Tool
from delegate.hosts import anthropic_runner
from delegate.hosts.host_tool import ToolAnswer
from tests.hosts.drivers.anthropic_runner import GAPS, SPANS, outcome
from tests.hosts.driving import Outcome, Scenario, own_tool, own_tools
from tests.hosts.world import NativeTool, World


class AnthropicRunnerSync:
    name = "anthropic_runner_sync"
    package = "anthropic"
    side_by_side = False
    gaps: Mapping[Scenario, str] = {
        **GAPS,
        "cancel_in_flight": "a sync runner can be stopped only by interrupting its thread, which stops the children",
    }
    refusal = "Invalid arguments for function multiply"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await asyncio.to_thread(self._run, delegator, world)

    def _run(self, delegator: Delegator, world: World) -> Outcome:
        answers: list[ToolAnswer] = []
        SPANS.names.clear()
        if world.own == "delegate":
            parent = Parent(model=world.parent)
            own = anthropic_runner.tool_sync(delegator, parent=parent, on_answer=answers.append)
        else:
            own = own_tool(anthropic_runner, world, delegator, "_sync")
        tools = [own, *(self.native_tool(world, name) for name in world.native)]
        with Anthropic(base_url=world.server.anthropic_url, api_key="dummy") as client:
            runner = client.beta.messages.tool_runner(
                model=world.parent,
                max_tokens=1_000,
                tools=tools,
                messages=[{"role": "user", "content": "Find it out."}],
                thread=False,  # every request then has all messages
            )
            used = [(message.usage.input_tokens, message.usage.output_tokens) for message in runner]
        return outcome(world, used, answers)

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return beta_tool(world.functions[name])

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(anthropic_runner, delegator, "_sync")

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return anthropic_runner.child_tools(tools)


DRIVER = AnthropicRunnerSync()
