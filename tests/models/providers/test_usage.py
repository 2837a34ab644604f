"""Prompt caching: requested from providers that need a request, and counted separately."""

import itertools
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import pytest

from delegate.types import Usage
from delegate.types.ports import ChatRequest, Message, ToolCall, ToolReply, ToolSpec
from tests.models.providers.conftest import WIRES, Opener, Wire
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.wire_formats import FORMATS

TOOLS = (ToolSpec("look", "Looks.", {"type": "object"}),)
ASSIGNMENT = Message("user", "do it")
MARK = {"type": "ephemeral"}
COUNTED: dict[str, dict[str, Any]] = {
    "chat": {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    },
    "responses": {
        "input_tokens": 100,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    },
    "messages": {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
    },
}


def asked(*messages: Message, conversation: str | None = "task-1") -> ChatRequest:
    conversed = [ASSIGNMENT, *messages]
    return ChatRequest("m", "You are a child.", conversed, max_output_tokens=99, tools=TOOLS, conversation=conversation)


def turn(number: int, *, calls: int = 1) -> tuple[Message, Message]:
    """A turn with tool calls, and the replies of the tools."""
    ids = [f"{number}-{n}" for n in range(calls)]
    said = Message("assistant", f"turn {number}", tuple(ToolCall(id, "look", {}) for id in ids))
    return said, Message("tool", tool_replies=tuple(ToolReply(id, "look", f"seen {id}") for id in ids))


def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of the conversation, each with the role of its turn. A plain text is one block."""
    found: list[dict[str, Any]] = []
    for message in body["messages"]:
        content: Any = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [{"role": message["role"], **part} for part in parts]
    return found


def marked(body: dict[str, Any]) -> list[int]:
    return [index for index, block in enumerate(blocks(body)) if block.get("cache_control") == MARK]


def unmarked(body: dict[str, Any], end: int) -> list[dict[str, Any]]:
    parts = blocks(body)[:end]
    return [{name: value for name, value in part.items() if name != "cache_control"} for part in parts]


@pytest.mark.parametrize("name", COUNTED)
async def test_tokens_written_to_a_cache_are_counted_and_part_of_the_input(name: str, opened: Opener) -> None:
    def script(call: Call) -> Fault:
        body = FORMATS[call.api].render(Reply("hello"), "m", 1)
        return Fault(200, body={**body, "usage": COUNTED[name]})

    with ModelServer(script) as server:
        reply = await opened(WIRES[name], server).complete(asked())

    expected = Usage(model_calls=1, input_tokens=100, cached_tokens=60, cache_write_tokens=30, output_tokens=5)
    assert reply.usage == expected


async def test_a_reply_that_says_nothing_of_a_cache_counts_none(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("hello")]) as server:
        reply = await opened(wire, server).complete(asked())
    assert (reply.usage.cached_tokens, reply.usage.cache_write_tokens) == (0, 0)


@pytest.mark.parametrize("calls", [1, 32])
async def test_each_turn_reads_from_anthropics_cache_what_the_last_one_wrote(calls: int, opened: Opener) -> None:
    messages: list[Message] = []
    with ModelServer([Reply("on")] * 4) as server:
        client = opened(WIRES["messages"], server)
        for number in range(4):
            await client.complete(asked(*messages))
            messages += turn(number, calls=calls)

    bodies = [call.body for call in server.calls]
    for before, after in itertools.pairwise(bodies):
        written = marked(before)[-1]
        assert written == len(blocks(before)) - 1, "all of the conversation is written"
        assert written in marked(after), "and looked for where it was written, not by searching back"
        assert unmarked(before, written + 1) == unmarked(after, written + 1), "unchanged, or it would not be found"
    assert max(len(marked(body)) for body in bodies) <= 4, "more is an error"


async def test_marks_for_the_cache_are_never_left_in_the_conversation(opened: Opener) -> None:
    said, told = ({"protocol": "messages", "items": [{"type": "text", "text": text}]} for text in ("thought", "go on"))
    conversation = [Message("assistant", "thought", native=said), Message("user", "go on", native=told), *turn(1)]
    before = deepcopy(conversation)
    with ModelServer([Reply("on")] * 2) as server:
        client = opened(WIRES["messages"], server)
        for _ in range(2):
            await client.complete(asked(*conversation))

    assert conversation == before
    assert server.calls[0].body == server.calls[1].body


async def test_a_single_question_such_as_a_judges_pays_for_no_cache(opened: Opener) -> None:
    with ModelServer([Reply("{}")]) as server:
        await opened(WIRES["messages"], server).complete(asked(conversation=None))
    assert "cache_control" not in json.dumps(server.calls[0].body)


@pytest.mark.parametrize("conversation", ["task-1", None])
@pytest.mark.parametrize("name", ["chat", "responses", "generate"])
async def test_other_servers_are_not_asked_to_cache(name: str, conversation: str | None, opened: Opener) -> None:
    with ModelServer([Reply("on")]) as server:
        await opened(WIRES[name], server).complete(replace(asked(conversation=conversation), model="gpt-6-sol"))
    assert "cache" not in json.dumps(server.calls[0].body)


OPENAI_ITSELF = ["http://api.openai.com/v1", "http://eu.api.openai.com/v1", "http://mine.openai.azure.com/openai/v1/"]


@pytest.fixture
def through_proxy(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelServer], None]:
    """Let a server answer for every host."""
    return lambda server: monkeypatch.setenv("HTTP_PROXY", server.url)


@pytest.mark.parametrize("url", OPENAI_ITSELF)
@pytest.mark.parametrize("api", ["auto", "chat"])
async def test_requests_of_one_conversation_share_a_key_at_openai(
    url: str, api: Literal["auto", "chat"], opened: Opener, through_proxy: Callable[[ModelServer], None]
) -> None:
    with ModelServer([Reply("on")] * 2) as server:
        through_proxy(server)
        client = opened(Wire("responses", "openai", api), url)
        await client.complete(asked())
        await client.complete(asked(*turn(1), conversation="x" * 99))

    assert [call.body["prompt_cache_key"] for call in server.calls] == ["task-1", "x" * 64]
    assert [call.api for call in server.calls] == ["chat" if api == "chat" else "responses"] * 2
    assert not any("prompt_cache_options" in call.body for call in server.calls)


@pytest.mark.parametrize(
    ("model", "refuses"),
    [
        ("gpt-5.6-luna", True),
        ("gpt-6-sol", True),
        ("gpt-10", True),
        ("gpt-5.5-pro", False),
        ("gpt-5", False),
        ("gpt-4.1", False),
        ("o4-mini", False),
        ("my-deployment", False),
    ],
)
async def test_a_single_question_writes_to_no_cache_that_costs_money(
    model: str, refuses: bool, opened: Opener, through_proxy: Callable[[ModelServer], None]
) -> None:
    with ModelServer([Reply("on")]) as server:
        through_proxy(server)
        await opened(WIRES["chat"], OPENAI_ITSELF[0]).complete(replace(asked(conversation=None), model=model))

    body = server.calls[0].body
    assert body.get("prompt_cache_options") == ({"mode": "explicit"} if refuses else None)
    assert "prompt_cache_key" not in body


async def test_a_model_that_refuses_such_fields_gets_none_afterwards(
    opened: Opener, through_proxy: Callable[[ModelServer], None]
) -> None:
    def script(call: Call) -> Reply | Fault:
        text = "Unsupported parameter: 'prompt_cache_options' is not supported with this model."
        refused = "prompt_cache_options" in call.body
        return Fault(400, {"error": {"message": text, "code": "unsupported_parameter"}}) if refused else Reply("on")

    with ModelServer(script) as server:
        through_proxy(server)
        client = opened(WIRES["chat"], OPENAI_ITSELF[0])
        for _ in range(2):
            await client.complete(replace(asked(conversation=None), model="gpt-6-sol"))

    assert len(server.calls) == 3
