"""The anthropic SDK's tool runner of an async client. Its progress reports are spans."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any

from anthropic import AsyncAnthropic, beta_async_tool
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from delegate import Delegator, Parent, Tool
from delegate.hosts import anthropic_runner
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, errors_in_messages, outcome_of, own_tool, own_tools
from tests.hosts.world import NativeTool, World

GAPS: Mapping[Scenario, str] = {
    "parent_tools_only": "a tool isn't told which tools the parent has: children get all that were converted",
    "approval_denied": "the runner never asks a person before it calls a tool",
}


class SpanRecorder(SpanProcessor):
    """Keeps the names of delegate's spans and exports nothing."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_end(self, span: ReadableSpan) -> None:
        if "delegate.event" in (span.attributes or {}):
            self.names.append(span.name)


SPANS = SpanRecorder()
_provider = TracerProvider()
_provider.add_span_processor(SPANS)
trace.set_tracer_provider(_provider)


class AnthropicRunner:
    name = "anthropic_runner"
    package = "anthropic"
    side_by_side = False
    gaps = GAPS
    refusal = "Invalid arguments for function multiply"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(self._run(delegator, world), cancel)

    async def _run(self, delegator: Delegator, world: World) -> Outcome:
        answers: list[ToolAnswer] = []
        SPANS.names.clear()
        if world.own == "delegate":
            parent = Parent(model=world.parent)
            own = anthropic_runner.tool(delegator, parent=parent, on_answer=answers.append)
        else:
            own = own_tool(anthropic_runner, world, delegator)
        tools = [own, *(self.native_tool(world, name) for name in world.native)]
        async with AsyncAnthropic(base_url=world.server.anthropic_url, api_key="dummy") as client:
            runner = client.beta.messages.tool_runner(
                model=world.parent,
                max_tokens=1_000,
                tools=tools,
                messages=[{"role": "user", "content": "Find it out."}],
                thread=False,  # every request then has all messages
            )
            used = [(message.usage.input_tokens, message.usage.output_tokens) async for message in runner]
        return outcome(world, used, answers)

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return beta_async_tool(_as_async(world.functions[name]))

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(anthropic_runner, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return anthropic_runner.child_tools(tools)


def _as_async(function: Callable[..., str]) -> Callable[..., Coroutine[Any, Any, str]]:
    @wraps(function)
    async def call(*args: Any, **arguments: Any) -> str:
        return function(*args, **arguments)

    return call


def outcome(world: World, used: list[tuple[int, int]], answers: list[ToolAnswer]) -> Outcome:
    """The outcome of a program that adds up the tokens of messages and answers, since the runner has no totals."""
    used = used + [(answer.usage.input_tokens, answer.usage.output_tokens) for answer in answers]
    return Outcome(
        progress=list(SPANS.names),
        usage=(sum(read for read, _ in used), sum(written for _, written in used)),
        structured=[answer.structured for answer in answers if answer.structured],
        errors=errors_in_messages(world),
    )


async def invoke(tool: Any, arguments: JsonObject) -> object:
    """Call the tool like the runner does."""
    return await tool.call(arguments)


DRIVER = AnthropicRunner()
