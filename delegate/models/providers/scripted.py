"""A scripted model, whose replies come from a list or a function. For the demo and for tests.

    from delegate.models.providers.scripted import Scripted

    client = Scripted([Scripted.call("write_file", path="a.txt", content="hi"), "I wrote a.txt."])

The list is served in order. Where several children share a client, a function is easier, because it sees the request:

    def answer(request: ChatRequest) -> ChatReply | str:
        return "done" if request.messages[-1].role == "tool" else Scripted.call("think", thought="…")

    client = Scripted(answer)

Requests that ask what criteria in words are about are answered apart from the script: see `reading`.

A string is a final reply. An exception in the list is raised instead of a reply, so a `ProviderError` simulates an
outage. `client.requests` contains every request, with the messages it had when it was made.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, cast

from delegate.types import JsonObject, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, ToolCall

Answer = ChatReply | str
Script = Sequence[ChatReply | str | Exception] | Callable[[ChatRequest], Answer | Awaitable[Answer]]

LONG_CHARACTERS = 10_000
CHARACTERS_PER_TOKEN = 4

_numbers = count(1)
_REPORTS: Mapping[str, Any] = {}
"""Every criterion is about the report."""


class Scripted:
    """A `ChatClient` with given replies. If a reply has no usage, it is estimated from the number of characters.

    `reading` answers the requests in which a model is asked what criteria are about: by criterion id, as `report`,
    `file`, `deed` or `absence`, or as the fields of a part (`{"about": "deed", "tools": ["send_mail"]}`), or a list of
    parts. Criteria that it doesn't name are about the report. `effects` says what tools do that don't declare it
    (`{"send_mail": "acts"}`). A function gets the request, as a script does. These requests are in `readings`, and not
    in `requests`.

    Raises `ProviderError("exhausted")` if the list is exhausted.
    """

    def __init__(
        self, replies: Script, *, reading: Mapping[str, Any] | Callable[[ChatRequest], Answer] = _REPORTS
    ) -> None:
        self.requests: list[ChatRequest] = []
        self.readings: list[ChatRequest] = []
        self._answer = replies if callable(replies) else _in_order(replies)
        self._read = reading if callable(reading) else partial(_reading, reading)

    @staticmethod
    def call(name: str, /, **arguments: Any) -> ChatReply:
        """A reply that calls one tool."""
        return Scripted.calls((name, arguments))

    @staticmethod
    def calls(*calls: tuple[str, JsonObject], text: str = "") -> ChatReply:
        """A reply that calls several tools, given as `(name, arguments)`."""
        tool_calls = tuple(ToolCall(f"call_{next(_numbers)}", name, arguments) for name, arguments in calls)
        return ChatReply(text, "tool_calls", Usage(), tool_calls)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the next reply."""
        fields: JsonObject = (request.reply_schema or {}).get("properties", {})
        is_reading = "effects" in fields
        kept = self.readings if is_reading else self.requests
        kept.append(replace(request, messages=tuple(request.messages)))
        await asyncio.sleep(0)  # like a real client, let other tasks run
        answer = self._read(request) if is_reading else self._answer(request)
        if not isinstance(answer, (str, ChatReply)):
            answer = await answer
        reply = ChatReply(answer, "end", Usage()) if isinstance(answer, str) else answer
        if request.incoming is not None and request.incoming.on_text is not None:
            request.incoming.on_text(reply.text)
        usage = reply.usage if reply.usage.model_calls else _estimate(request, reply)
        return replace(reply, usage=usage, model_served=reply.model_served or request.model)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


def _reading(rules: Mapping[str, Any], request: ChatRequest) -> str:
    """The reply to a request that asks what criteria are about."""
    ids = request.messages[0].text.rpartition("exactly once: ")[2].split(", ")
    criteria = [{"id": id, "parts": _parts(rules.get(id.partition(".")[2], "report"))} for id in ids]
    effects = [{"tool": tool, "effect": effect} for tool, effect in rules.get("effects", {}).items()]
    return json.dumps({"criteria": criteria, "effects": effects})


def _parts(value: Any) -> list[JsonObject]:
    lists: JsonObject = {"files": [], "tools": [], "names": [], "allowed": []}
    empty = {"text": "", **lists, "claim": False, "whole": False}
    parts = cast("list[Any]", value if isinstance(value, list) else [value])
    return [empty | ({"about": part} if isinstance(part, str) else part) for part in parts]


def _in_order(replies: Sequence[ChatReply | str | Exception]) -> Callable[[ChatRequest], Answer]:
    remaining = iter(replies)

    def answer(request: ChatRequest) -> Answer:
        for reply in remaining:
            if isinstance(reply, Exception):
                raise reply
            return reply
        text = f"scripted: all {len(replies)} replies are used up"
        raise ProviderError("exhausted", text, provider="scripted")

    return answer


def _estimate(request: ChatRequest, reply: ChatReply) -> Usage:
    input_characters = len(request.system) + sum(
        len(message.text)
        + _characters(message.tool_calls)
        + sum(len(tool_reply.text) for tool_reply in message.tool_replies)
        for message in request.messages
    )
    output_characters = len(reply.text) + _characters(reply.tool_calls)
    return Usage(
        model_calls=1,
        input_tokens=-(-input_characters // CHARACTERS_PER_TOKEN),
        output_tokens=-(-output_characters // CHARACTERS_PER_TOKEN),
    )


def _characters(calls: tuple[ToolCall, ...]) -> int:
    return sum(
        len(call.name) + (len(call.raw_arguments) or _argument_characters(call.arguments or {})) for call in calls
    )


def _argument_characters(arguments: JsonObject) -> int:
    """Of their JSON, into which long texts aren't converted, since that takes long."""
    long = {name: value for name, value in arguments.items() if isinstance(value, str) and len(value) > LONG_CHARACTERS}
    return len(json.dumps({**arguments, **dict.fromkeys(long, "")})) + sum(map(len, long.values()))
