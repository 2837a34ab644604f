"""No framework: a loop of twenty lines around the openai SDK, with the tool in OpenAI's own dialect."""

import asyncio
from collections.abc import Mapping
from typing import Any

import openai

from delegate import Delegator
from delegate.hosts import host_tool, progress
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import PARENT, World


class Raw:
    name = "raw"
    package = "openai"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(_loop(delegator, world), cancel)


async def _loop(delegator: Delegator, world: World) -> Outcome:
    said: list[str] = []
    tool, spent = host_tool.make_delegate_tool(delegator), [0, 0]
    known = host_tool.Invocation(session="raw", on_event=progress.lines(said.append))
    messages: list[Any] = [{"role": "user", "content": "Find it out."}]
    async with openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy") as client:
        while True:
            reply = await client.chat.completions.create(
                model=PARENT,
                messages=messages,
                tools=[delegator.tool("openai")],  # pyright: ignore[reportArgumentType]
            )
            assert reply.usage
            spent = [spent[0] + reply.usage.prompt_tokens, spent[1] + reply.usage.completion_tokens]
            message = reply.choices[0].message
            if not message.tool_calls:
                return Outcome(said, (spent[0], spent[1]))
            messages.append(message.model_dump(exclude_none=True))
            made = [call for call in message.tool_calls if call.type == "function"]
            answers = await asyncio.gather(*(tool.call(call.function.arguments, known) for call in made))
            for call, answer in zip(made, answers, strict=True):
                spent = [spent[0] + answer.usage.input_tokens, spent[1] + answer.usage.output_tokens]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})


DRIVER = Raw()
