"""No framework: a loop of twenty lines around the openai SDK, with the tool in OpenAI's own format."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import openai

from delegate import Delegator, Parent, Tool
from delegate.hosts import host_tool, progress
from delegate.types import JsonObject
from delegate.types.errors import ToolError
from tests.hosts.driving import Outcome, Scenario, outcome_of
from tests.hosts.world import NativeTool, World


class Raw:
    name = "raw"
    package = "openai"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "own_tools_omitted": "a loop of your own decides which tools it passes on",
        "approval_denied": "a loop of your own has no approvals",
    }
    refusal = "missing a required argument: 'b'"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        return await outcome_of(self._loop(delegator, world), cancel)

    async def _loop(self, delegator: Delegator, world: World) -> Outcome:
        lines: list[str] = []
        results: list[JsonObject] = []
        errors: list[bool] = []
        make, definition = {
            "delegate": (host_tool.make_delegate_tool, delegator.tool),
            "read": (host_tool.make_read_tool, delegator.background.read_tool),
            "think": (host_tool.make_think_tool, delegator.think_tool),
            "message": (host_tool.make_message_tool, delegator.background.message_tool),
        }[world.own]
        tool, used = make(delegator), [0, 0]
        parent = Parent(run_id=f"run-{uuid4().hex}", model=world.parent, tools=tuple(world.native))
        invocation = host_tool.Invocation(parent=parent, on_event=progress.lines(lines.append))
        messages: list[Any] = [{"role": "user", "content": "Find it out."}]
        async with openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy") as client:
            while True:
                reply = await client.chat.completions.create(
                    model=world.parent,
                    messages=messages,
                    tools=[definition("openai")],  # pyright: ignore[reportArgumentType]
                )
                assert reply.usage
                used = [used[0] + reply.usage.prompt_tokens, used[1] + reply.usage.completion_tokens]
                message = reply.choices[0].message
                if not message.tool_calls:
                    return Outcome(lines, (used[0], used[1]), results, errors)
                messages.append(message.model_dump(exclude_none=True))
                calls = [call for call in message.tool_calls if call.type == "function"]
                answers = await asyncio.gather(*(tool.call(call.function.arguments, invocation) for call in calls))
                for call, answer in zip(calls, answers, strict=True):
                    used = [used[0] + answer.usage.input_tokens, used[1] + answer.usage.output_tokens]
                    results += [answer.structured] if answer.structured else []
                    errors.append(answer.is_error)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})

    def native_tool(self, world: World, name: NativeTool) -> Tool:
        function = world.functions[name]

        async def call(arguments: Mapping[str, Any]) -> str:
            try:
                inspect.signature(function).bind(**arguments)
            except TypeError as error:
                raise ToolError(str(error)) from None
            return function(**arguments)

        properties: JsonObject = {argument: {} for argument in inspect.signature(function).parameters}
        return Tool(name, str(function.__doc__), {"type": "object", "properties": properties}, call)

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return []

    def child_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return tools


DRIVER = Raw()
