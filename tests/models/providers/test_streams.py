"""Replies that are streamed: the same as whole ones, alive while they go on, and known as far as they came."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from delegate.models.providers import _shared, _stream
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Incoming, Message
from tests.models.providers.conftest import WIRES, Opener, Wire
from tests.support.model_server import Call, Fault, ModelServer, Pieces, Reply
from tests.support.streams import events
from tests.support.wire_formats import FORMATS

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)
TEXT = "Grüße aus Zürich, 你好: “quoted”\n\nand a second paragraph 🦀."
RICH = Reply(
    TEXT,
    tool_calls=(("write_file", {"path": "a.txt", "text": "Überschrift\n"}), ("look", {})),
    input_tokens=70,
    cached_tokens=30,
    output_tokens=40,
    reasoning_tokens=12,
)


def wire_of(wire: Wire, reply: Reply) -> dict[str, Any]:
    return FORMATS[wire.name].render(reply, "test-model", 1)


def pieces(wire: Wire, reply: Reply, chars: int = 4) -> list[bytes]:
    return events(wire.name, wire_of(wire, reply), chars=chars)


@pytest.mark.parametrize("chars", [1, 3, 1000])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
async def test_a_streamed_reply_is_the_whole_one(wire: Wire, opened: Opener, chars: int, ending: str) -> None:
    sent = b"".join(pieces(wire, RICH, chars)).replace(b"\n", ending.encode())
    cut_anywhere = [sent[at : at + 11] for at in range(0, len(sent), 11)]
    with ModelServer([Fault(200, wire_of(wire, RICH)), Pieces([b": hello\n\n", *cut_anywhere])]) as server:
        client = opened(wire, server)
        whole = await client.complete(ASK)
        streamed = await client.complete(ASK)
    assert streamed == whole
    assert (streamed.text, streamed.usage.output_tokens, len(streamed.tool_calls)) == (TEXT, 40, 2)
    assert all(call.streams for call in server.calls)


async def test_what_a_model_thought_is_sent_back_as_it_came(wire: Wire, opened: Opener) -> None:
    with ModelServer([Pieces(pieces(wire, RICH)), Reply("done")]) as server:
        client = opened(wire, server)
        first = await client.complete(ASK)
        turns = [*ASK.messages, Message("assistant", first.text, first.tool_calls, native=first.native)]
        await client.complete(replace(ASK, messages=turns))
    with ModelServer([Fault(200, wire_of(wire, RICH)), Reply("done")]) as other:
        client = opened(wire, other)
        whole = await client.complete(ASK)
        turns = [*ASK.messages, Message("assistant", whole.text, whole.tool_calls, native=whole.native)]
        await client.complete(replace(ASK, messages=turns))
    assert server.calls[1].body == other.calls[1].body


async def test_a_reply_that_breaks_off_anywhere_is_an_error_with_what_came(wire: Wire, opened: Opener) -> None:
    sent = pieces(wire, RICH, 8)
    # The mark at the end of a chat, its usage and the end of a message follow the event that ends the reply.
    ends = {"chat": 3, "responses": 1, "messages": 2, "generate": 1}[wire.name]
    cuts = range(0, len(sent) - ends + 1, 3)
    script = [Pieces([*sent[:cut], b'data: {"half'], ending="close") for cut in cuts]
    with ModelServer(script) as server:
        client = opened(wire, server)
        texts: list[str] = []
        for _ in cuts:
            incoming = Incoming()
            with pytest.raises(ProviderError) as caught:
                await client.complete(replace(ASK, incoming=incoming))
            assert (caught.value.fault, caught.value.outcome) == ("connection", "broken_off")
            so_far = incoming.so_far()
            texts.append(so_far.text if so_far else "")
    assert all(TEXT.startswith(text) for text in texts)
    assert texts == sorted(texts, key=len)
    assert len(texts[-1]) > len(TEXT) - 8


async def test_a_stream_that_ends_without_its_end_is_not_a_reply(wire: Wire, opened: Opener) -> None:
    sent = pieces(wire, Reply("All 3 orders are refunded."), 8)
    for ending in (b"", b'data: {"half'):
        with ModelServer([Pieces([*sent[:3], ending or b"\n"])]) as server, pytest.raises(ProviderError) as caught:
            await opened(wire, server).complete(ASK)
        assert caught.value.outcome == "broken_off"


@pytest.mark.slow
async def test_a_reply_may_take_longer_than_a_call_while_it_goes_on(
    wire: Wire, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shared, "CALL_SECONDS", 0.5)
    monkeypatch.setattr(_stream, "IDLE_SECONDS", 1.0)
    sent = pieces(wire, Reply("x" * 80), 8)
    with ModelServer([Pieces(sent, every=0.07), Pieces(sent[:4], ending="stall")]) as server:
        client = opened(wire, server, timeout_seconds=None)
        started = time.monotonic()
        assert (await client.complete(ASK)).text == "x" * 80
        assert time.monotonic() - started > 0.6
        with pytest.raises(ProviderError, match="the reply stopped for 1 s") as caught:
            await client.complete(ASK)
    assert (caught.value.fault, caught.value.outcome) == ("timeout", "left_waiting")


@pytest.mark.slow
async def test_a_model_may_reason_in_silence_longer_than_a_reply_may_stop(
    wire: Wire, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shared, "CALL_SECONDS", 3.0)
    monkeypatch.setattr(_stream, "IDLE_SECONDS", 0.25)
    first, *others = pieces(wire, Reply("hello"), 8)
    begun = [b": processing\n\n"] if wire.name == "generate" else [first]  # before any text
    rest = [first, *others] if wire.name == "generate" else others
    with ModelServer([Pieces([*begun, b"".join(rest)], every=0.5)]) as server:
        assert (await opened(wire, server, timeout_seconds=None).complete(ASK)).text == "hello"


async def test_a_limit_of_the_settings_is_one_for_the_whole_call(wire: Wire, opened: Opener) -> None:
    with (
        ModelServer([Pieces(pieces(wire, Reply("x" * 400)), every=0.02)]) as server,
        pytest.raises(ProviderError, match=r"no answer within 0\.3 s"),
    ):
        await opened(wire, server, timeout_seconds=0.3).complete(ASK)


UNVERIFIED = {
    "error": {
        "message": "Your organization must be verified to stream this model.",
        "type": "invalid_request_error",
        "param": "stream",
        "code": "unsupported_value",
    }
}


async def test_a_server_that_refuses_streams_is_asked_without(wire: Wire, opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        return Fault(400, UNVERIFIED) if call.streams else Reply("hello")

    with ModelServer(script) as server:
        client = opened(wire, server)
        assert [(await client.complete(ASK)).text for _ in range(2)] == ["hello", "hello"]
    assert [call.streams for call in server.calls] == [True, False, False]
    assert "stream_options" not in server.calls[-1].body


async def test_an_unknown_gemini_model_is_asked_for_once(opened: Opener) -> None:
    missing = {"error": {"code": 404, "message": "models/x is not found for API version v1beta", "status": "NOT_FOUND"}}
    with ModelServer([Fault(404, missing), Reply("hello")]) as server:
        client = opened(WIRES["generate"], server)
        with pytest.raises(ProviderError, match="is not found"):
            await client.complete(ASK)
        await client.complete(ASK)
    assert [call.streams for call in server.calls] == [True, True]


async def test_a_gemini_gateway_without_the_path_of_streams_is_asked_without(opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        return Fault(404, {"detail": "Not Found"}) if call.streams else Reply("hello")

    with ModelServer(script) as server:
        client = opened(WIRES["generate"], server)
        assert [(await client.complete(ASK)).text for _ in range(2)] == ["hello", "hello"]
    assert [call.streams for call in server.calls] == [True, False, False]


ERRORS = {
    "chat": b'data: {"error": {"message": "worker died", "type": "server_error", "code": 500}}\n\n',
    "responses": b'data: {"type": "error", "code": "server_error", "message": "worker died"}\n\n',
    "messages": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "worker died"}}\n\n',
    "generate": b'data: {"error": {"code": 500, "message": "worker died", "status": "INTERNAL"}}\n\n',
}


async def test_an_error_inside_a_stream_is_the_servers(wire: Wire, opened: Opener) -> None:
    error = ERRORS[wire.name]
    with ModelServer([Pieces([error]), Pieces([*pieces(wire, RICH)[:4], error])]) as server:
        client = opened(wire, server)
        outcomes: list[tuple[str, str]] = []
        for _ in range(2):
            with pytest.raises(ProviderError, match="worker died") as caught:
                await client.complete(ASK)
            outcomes.append((caught.value.fault, caught.value.outcome))
    # Nothing was written before the first one.
    assert outcomes == [("server_error", "errored"), ("server_error", "broken_off")]


async def test_an_overloaded_server_may_say_so_in_a_stream(opened: Opener) -> None:
    error = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'
    with ModelServer([Pieces([error])]) as server, pytest.raises(ProviderError) as caught:
        await opened(WIRES["messages"], server).complete(ASK)
    assert (caught.value.fault, caught.value.outcome) == ("overloaded", "errored")


async def test_what_is_not_json_in_a_stream_is_a_bad_reply(wire: Wire, opened: Opener) -> None:
    with ModelServer(
        [Pieces([b"data: {nonsense}\n\n"]), Pieces([b'data: {"choices": 3, "type": "message_start"}\n\n'])]
    ) as server:
        client = opened(wire, server)
        for _ in range(2 if wire.name in ("chat", "messages") else 1):
            with pytest.raises(ProviderError) as caught:
                await client.complete(ASK)
            assert caught.value.fault == "bad_reply"


async def test_a_stream_under_another_content_type_is_read(wire: Wire, opened: Opener) -> None:
    body = b"".join(pieces(wire, RICH))
    with ModelServer([Fault(200, body, headers={"content-type": "text/plain"})]) as server:
        assert (await opened(wire, server).complete(ASK)).text == TEXT


async def test_a_stream_without_end_is_cut_off(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream, "MAX_STREAM_BYTES", 100_000)
    wire = WIRES["chat"]
    with (
        ModelServer([Pieces(pieces(wire, Reply("x" * 1000), 1))]) as server,
        pytest.raises(ProviderError, match="more than 100,000 bytes"),
    ):
        await opened(wire, server).complete(ASK)


async def test_the_text_is_told_while_it_is_written(wire: Wire, opened: Opener) -> None:
    came: list[str] = []
    with ModelServer([Pieces(pieces(wire, Reply(TEXT), 5), every=0.001)]) as server:
        reply = await opened(wire, server).complete(replace(ASK, incoming=Incoming(came.append)))
    assert "".join(came) == reply.text == TEXT
    assert len(came) > 5


# ------------------------------------------------------------------------------------- how servers differ in Chat


def chunk(delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
    return f"data: {json.dumps({'model': 'm', 'choices': [choice]})}\n\n".encode()


async def streamed(opened: Opener, *sent: bytes) -> ChatReply:
    with ModelServer([Pieces([*sent, chunk({}, finish_reason="stop"), b"data: [DONE]\n\n"])]) as server:
        return await opened(WIRES["chat"], server).complete(ASK)


def call(index: int | None, id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    given = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{key: value for key, value in given.items() if value is not None}]}


async def test_parallel_calls_that_all_have_the_same_number_are_told_apart(opened: Opener) -> None:
    reply = await streamed(opened, chunk(call(0, "a", "one", '{"x": 1}')), chunk(call(0, "b", "two", '{"x": 2}')))
    assert [(one.id, one.name, one.arguments) for one in reply.tool_calls] == [
        ("a", "one", {"x": 1}),
        ("b", "two", {"x": 2}),
    ]


async def test_parts_of_calls_without_a_number_belong_to_the_call_before(opened: Opener) -> None:
    parts = [call(None, "a", "one", '{"x"'), call(None, None, None, ": 1}"), call(None, "b", "two", "{}")]
    reply = await streamed(opened, *map(chunk, parts))
    assert [(one.id, one.name, one.arguments) for one in reply.tool_calls] == [("a", "one", {"x": 1}), ("b", "two", {})]


async def test_interleaved_calls_are_put_together_by_their_numbers(opened: Opener) -> None:
    parts = [
        call(0, "a", "one", ""),
        call(1, "b", "two", ""),
        call(0, None, None, '{"x": 1}'),
        call(1, None, None, "{}"),
    ]
    reply = await streamed(opened, *map(chunk, parts))
    assert [(one.name, one.arguments) for one in reply.tool_calls] == [("one", {"x": 1}), ("two", {})]


async def test_arguments_may_be_an_object(opened: Opener) -> None:
    delta = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "one", "arguments": {"x": 1}}}]}
    assert (await streamed(opened, chunk(delta))).tool_calls[0].arguments == {"x": 1}


async def test_thoughts_in_parts_of_a_list_are_put_together(opened: Opener) -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": part}]} for part in ("Let me ", "see.")]
    reply = await streamed(
        opened,
        *(chunk({"content": [part]}) for part in thought),
        chunk({"content": "It is "}),
        chunk({"content": "42."}),
    )
    assert reply.text == "It is 42."
    assert reply.native["items"]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]},
        {"type": "text", "text": "It is 42."},
    ]


async def test_signed_blocks_of_thinking_are_kept_apart(opened: Opener) -> None:
    parts = [
        {"type": "thinking", "thinking": "a", "signature": None},
        {"type": "thinking", "thinking": "b", "signature": None},
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "thinking", "thinking": "c", "signature": "s2"},
    ]
    reply = await streamed(opened, *(chunk({"thinking_blocks": [part]}) for part in parts), chunk({"content": "ok"}))
    assert reply.native["items"]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "ab", "signature": "s1"},
        {"type": "thinking", "thinking": "c", "signature": "s2"},
    ]


async def test_a_server_without_the_mark_at_the_end_or_without_usage_is_read(opened: Opener) -> None:
    sent = [chunk({"role": "assistant", "content": "hel"}), chunk({"content": "lo"}, finish_reason="stop")]
    with ModelServer([Pieces(sent)]) as server:
        reply = await opened(WIRES["chat"], server).complete(ASK)
    assert (reply.text, reply.stop, reply.usage.total_tokens) == ("hello", "end", 0)


async def test_an_empty_last_line_may_be_missing(opened: Opener) -> None:
    sent = [chunk({"content": "hello"}, finish_reason="stop"), b"data: [DONE]"]
    with ModelServer([Pieces(sent)]) as server:
        assert (await opened(WIRES["chat"], server).complete(ASK)).text == "hello"


async def test_a_cancel_in_the_middle_closes_the_connection(wire: Wire, opened: Opener) -> None:
    with ModelServer([Pieces(pieces(wire, RICH)[:4], ending="stall"), Reply("hello")]) as server:
        incoming, client = Incoming(), opened(wire, server)
        running = asyncio.create_task(client.complete(replace(ASK, incoming=incoming)))
        async with asyncio.timeout(10):
            while incoming.so_far() is None:  # noqa: ASYNC110 - nothing tells of what isn't text
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await asyncio.to_thread(server.wait_until_idle) == 0
        assert (await client.complete(ASK)).text == "hello"
