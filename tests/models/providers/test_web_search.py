"""Searches of the web that a provider makes for a reply: how they are asked for, and what is read of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegate.models.providers import Endpoint, connect
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Message, ToolSpec, WebSearch, WebSource
from tests.models.providers.conftest import WIRES, Opener
from tests.support.model_server import Fault, ModelServer, Pieces, Reply
from tests.support.searches import ANSWER, MILL, OTHER, QUOTE, generate, messages, responses
from tests.support.streams import events

REQUEST = ChatRequest("gpt-6-m", "Search.", [Message("user", "mill")], max_output_tokens=99, web_searches=3)
REPLIES: dict[str, Callable[[], dict[str, Any]]] = {
    "responses": responses, "messages": messages, "generate": generate,
}  # fmt: skip
ASKED: dict[str, dict[str, Any]] = {
    "responses": {"tools": [{"type": "web_search"}], "max_tool_calls": 3},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
    "generate": {"tools": [{"googleSearch": {}}]},
}
FOUND = {
    "responses": WebSearch(1, (WebSource(MILL, "Mill figures"),)),
    "messages": WebSearch(1, (WebSource(MILL, "Mill figures", QUOTE), WebSource(OTHER, "Other"))),
    "generate": WebSearch(2, (WebSource(MILL, "mill.test"),)),
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", ASKED)
async def test_a_search_is_asked_for_and_read_as_the_provider_has_it(name: Any, streams: bool, opened: Opener) -> None:
    wire = REPLIES[name]()
    answer = Pieces(events(name, wire, chars=10)) if streams else Fault(200, wire)
    with ModelServer([answer]) as server:
        client = opened(WIRES[name], server)
        assert getattr(client, "searches_web", False)
        reply = await client.complete(REQUEST)
    (call,) = server.calls
    assert {field: call.body[field] for field in ASKED[name]} == ASKED[name]
    assert (reply.text, reply.stop, reply.web_search) == (ANSWER, "end", FOUND[name])
    assert reply.usage.output_tokens == 100


@pytest.mark.parametrize("name", ASKED)
async def test_other_requests_and_replies_have_nothing_of_searches(name: str, opened: Opener) -> None:
    tools = (ToolSpec("look", "Looks.", {"type": "object"}),)
    request = ChatRequest("m", "", [Message("user", "mill")], max_output_tokens=99, tools=tools)
    with ModelServer([Reply("hello")]) as server:
        reply = await opened(WIRES[name], server).complete(request)
    assert reply.web_search is None
    assert "max_tool_calls" not in server.calls[0].body
    assert len(server.calls[0].body["tools"]) == 1
    assert b"earch" not in server.calls[0].raw


async def test_quotes_come_in_events_of_their_own(opened: Opener) -> None:
    """As Anthropic streams them: a block of text begins without its citations."""
    wire = messages()
    citation = wire["content"][3].pop("citations")[0]
    stream = events("messages", wire, chars=100)
    at = next(n for n, event in enumerate(stream) if b'"index": 3' in event and b"block_stop" in event)
    delta = b'{"type": "content_block_delta", "index": 3, "delta": {"type": "citations_delta", "citation": %b}}'
    stream.insert(at, b"event: content_block_delta\ndata: " + delta % json.dumps(citation).encode() + b"\n\n")
    with ModelServer([Pieces(stream)]) as server:
        reply = await opened(WIRES["messages"], server).complete(REQUEST)
    assert reply.web_search == FOUND["messages"]


@pytest.mark.parametrize(
    ("name", "wire", "error"),
    [
        ("responses", responses(failed=True), "web_search_call failed"),
        ("messages", messages(failed=True), "too_many_requests"),
    ],
)
async def test_a_search_that_failed_says_so(name: str, wire: dict[str, Any], error: str, opened: Opener) -> None:
    with ModelServer([Fault(200, wire)]) as server:
        reply = await opened(WIRES[name], server).complete(REQUEST)
    assert reply.web_search is not None
    assert reply.web_search.error == error


async def test_an_error_beside_results_is_none(opened: Opener) -> None:
    """As where a model wants one search more than it may make."""
    wire = messages()
    wire["content"][2:2] = messages(failed=True)["content"][:2]
    with ModelServer([Fault(200, wire)]) as server:
        reply = await opened(WIRES["messages"], server).complete(REQUEST)
    assert reply.web_search == FOUND["messages"]


async def test_more_searches_than_there_are_results_are_not_believed(opened: Opener) -> None:
    wire = messages()
    wire["usage"]["server_tool_use"]["web_search_requests"] = 10**9
    with ModelServer([Fault(200, wire)]) as server:
        reply = await opened(WIRES["messages"], server).complete(REQUEST)
    assert reply.web_search == FOUND["messages"]


@pytest.mark.parametrize("name", ["messages", "responses"])
async def test_results_without_their_fields_are_a_bad_reply(name: str, opened: Opener) -> None:
    wire = REPLIES[name]()
    if name == "messages":
        del wire["content"][1]["content"][0]["url"], wire["content"][3]["citations"]
    else:
        del wire["output"][2]["content"][0]["annotations"][0]["url"]
    with ModelServer([Fault(200, wire)]) as server, pytest.raises(ProviderError) as failed:
        await opened(WIRES[name], server).complete(REQUEST)
    assert failed.value.fault == "bad_reply"


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("openai", "http://127.0.0.1:9/v1", "dummy"),
        Endpoint("openai", "http://127.0.0.1:9/v1", "dummy", "chat"),
    ],
)
async def test_a_server_of_chat_completions_does_not_search(endpoint: Endpoint) -> None:
    client = connect(endpoint, timeout_seconds=1)
    assert not getattr(client, "searches_web", False)
    await client.aclose()


async def test_a_refused_search_teaches_nothing_about_the_api(opened: Opener) -> None:
    """The next request of the model is sent as before."""
    refusal = Fault(400, {"error": {"message": "The responses operation does not work with the model."}})
    with ModelServer([refusal, Reply("hello")]) as server:
        client = opened(WIRES["responses"], server)
        with pytest.raises(ProviderError):
            await client.complete(REQUEST)
        assert (await client.complete(ChatRequest("gpt-6-m", "", [Message("user", "x")], 99))).text == "hello"
    assert [call.api for call in server.calls] == ["responses", "responses"]
