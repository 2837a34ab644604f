"""The anthropic SDK's tool runner of an async client. Spans are its channel of progress."""

import asyncio
from collections.abc import Mapping
from typing import Any

from anthropic import AsyncAnthropic
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from delegate import Delegator, Parent
from delegate.hosts import anthropic_runner
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import PARENT, World


class Watching(SpanProcessor):
    """Keeps the names of delegate's spans, and sends nothing anywhere."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_end(self, span: ReadableSpan) -> None:
        if "delegate.event" in (span.attributes or {}):
            self.said.append(span.name)


WATCHING = Watching()
_provider = TracerProvider()
_provider.add_span_processor(WATCHING)
trace.set_tracer_provider(_provider)


class AnthropicRunner:
    name = "anthropic_runner"
    package = "anthropic"
    side_by_side = False
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(_run(delegator, world), cancel)


async def _run(delegator: Delegator, world: World) -> Outcome:
    answers: list[ToolAnswer] = []
    WATCHING.said.clear()
    tool = anthropic_runner.tool(delegator, parent=Parent(model=PARENT), on_answer=answers.append)
    async with AsyncAnthropic(base_url=world.server.anthropic_url, api_key="dummy") as client:
        runner = client.beta.messages.tool_runner(
            model=PARENT, max_tokens=1_000, tools=[tool], messages=[{"role": "user", "content": "Find it out."}]
        )
        used = [(message.usage.input_tokens, message.usage.output_tokens) async for message in runner]
    return outcome(used, answers)


def outcome(used: list[tuple[int, int]], answers: list[ToolAnswer]) -> Outcome:
    """What a program that adds up its messages' tokens has, since the runner has no totals."""
    used = used + [(answer.usage.input_tokens, answer.usage.output_tokens) for answer in answers]
    reports = [answer.structured for answer in answers if answer.structured]
    return Outcome(list(WATCHING.said), (sum(read for read, _ in used), sum(wrote for _, wrote in used)), reports)


async def invoke(tool: Any, arguments: JsonObject) -> object:
    """Call the tool as the runner does."""
    return await tool.call(arguments)


DRIVER = AnthropicRunner()
