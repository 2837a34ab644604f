"""Differences between servers of the same API."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from delegate.types import Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Message, ToolReply
from tests.models.providers.conftest import KEY, WIRES, Opener, Wire
from tests.support.model_server import Call, Fault, ModelServer, Reply

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)


async def test_a_server_that_requires_the_newer_token_limit_gets_it_afterwards(opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        if "max_tokens" in call.body:
            text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Fault(400, {"error": {"message": text, "code": "unsupported_parameter"}})
        return Reply("hello")

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        replies = [await client.complete(ASK), await client.complete(ASK)]

    assert [reply.text for reply in replies] == ["hello", "hello"]
    assert [call.body.get("max_completion_tokens") for call in server.calls] == [None, 99, 99]


async def test_a_model_without_reasoning_is_asked_for_its_reasoning_only_once(opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        if "include" in call.body:
            return Fault(400, {"error": {"message": "Encrypted content is not supported with this model."}})
        return Reply("hello")

    with ModelServer(script) as server:
        client = opened(WIRES["responses"], server)
        replies = [await client.complete(ASK), await client.complete(ASK)]

    assert [reply.text for reply in replies] == ["hello", "hello"]
    assert ["include" in call.body for call in server.calls] == [True, False, False]


async def test_responses_are_not_stored_and_bring_their_reasoning_along(opened: Opener) -> None:
    with ModelServer([Reply("hello")]) as server:
        await opened(WIRES["responses"], server).complete(ASK)

    body = server.calls[0].body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])


async def test_commentary_is_not_part_of_the_reply(opened: Opener) -> None:
    def message(phase: str, text: str) -> dict[str, Any]:
        return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

    output = [message("commentary", "Looking into it."), message("final_answer", "It is 4.")]
    with ModelServer([Fault(200, {"status": "completed", "output": output})]) as server:
        reply = await opened(WIRES["responses"], server).complete(ASK)

    assert (reply.text, reply.stop) == ("It is 4.", "end")


@pytest.mark.parametrize(
    ("written", "expected"),
    [("", {}), (" ", {}), ('{"path": "x"}', {"path": "x"}), ({"path": "x"}, {"path": "x"}), ('"x"', None)],
)
async def test_arguments_are_read_as_the_various_servers_write_them(
    opened: Opener, written: object, expected: dict[str, Any] | None
) -> None:
    call = {"id": "c1", "function": {"name": "read_file", "arguments": written}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "stop"}]}
    with ModelServer([Fault(200, body)]) as server:
        reply = await opened(WIRES["chat"], server).complete(ASK)

    assert [made.arguments for made in reply.tool_calls] == [expected]
    assert reply.stop == "tool_calls"


async def test_tool_calls_that_were_announced_but_not_made_could_not_be_read(opened: Opener) -> None:
    body = {"choices": [{"message": {"content": "hm"}, "finish_reason": "tool_calls"}]}
    with ModelServer([Fault(200, body)]) as server:
        reply = await opened(WIRES["chat"], server).complete(ASK)

    assert (reply.stop, reply.text) == ("malformed_call", "hm")


def chat_reply(message: dict[str, Any], finish: str = "stop") -> Fault:
    return Fault(
        200, {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}], "usage": None}
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "hello", "tool_calls": None, "reasoning_content": None}, "hello"),
        ({"content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}, "hello"),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}]}, "hello"),
        ({"content": None, "reasoning": "hm"}, ""),
    ],
)
async def test_texts_are_read_as_the_various_servers_write_them(
    opened: Opener, message: dict[str, Any], text: str
) -> None:
    with ModelServer([chat_reply(message)]) as server:
        reply = await opened(WIRES["chat"], server).complete(ASK)

    assert (reply.text, reply.stop, reply.usage) == (text, "end", Usage(model_calls=1))


def calling(name: str, calls: list[dict[str, Any]]) -> Fault:
    """A reply with tool calls, each given as a subset of `id`, `name` and `arguments`."""

    def spelled(call: dict[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in call.items() if key != "id"}
        id = call.get("id")
        spellings: dict[str, dict[str, Any]] = {
            "chat": {"id": id, **({"function": {**rest, "arguments": "{}"}} if rest else {})},
            "responses": {"type": "function_call", "call_id": id, "arguments": "{}", **rest},
            "messages": {"type": "tool_use", "id": id, "input": {}, **rest},
            "generate": {"functionCall": {"id": id, "args": {}, **rest}},
        }
        return spellings[name]

    made = [spelled(call) for call in calls]
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"choices": [{"message": {"content": None, "tool_calls": made}, "finish_reason": "tool_calls"}]},
        "responses": {"status": "completed", "output": made},
        "messages": {"content": made, "stop_reason": "tool_use"},
        "generate": {"candidates": [{"content": {"role": "model", "parts": made}, "finishReason": "STOP"}]},
    }
    return Fault(200, bodies[name])


async def test_calls_without_ids_or_with_the_same_one_are_told_apart(wire: Wire, opened: Opener) -> None:
    calls = [{"name": "a"}, {"name": "b", "id": ""}, {"name": "c", "id": "x"}, {"name": "d", "id": "x"}]
    with ModelServer([calling(wire.name, calls), Reply("done")]) as server:
        client = opened(wire, server)
        reply = await client.complete(ASK)
        replies = tuple(ToolReply(call.id, call.name, f"ok {call.name}") for call in reply.tool_calls)
        said = Message("assistant", "", reply.tool_calls, native=reply.native)
        await client.complete(replace(ASK, messages=[*ASK.messages, said, Message("tool", tool_replies=replies)]))

    assert [call.name for call in reply.tool_calls] == ["a", "b", "c", "d"]
    assert len({call.id for call in reply.tool_calls} - {""}) == 4
    assert reply.tool_calls[2].id == "x"
    assert server.calls[1].tool_results == ["ok a", "ok b", "ok c", "ok d"]
    sent = server.calls[1].raw.decode()
    for call in reply.tool_calls:
        assert sent.count(f'"{call.id}"') == {"generate": 3 if call.id == "x" else 0}.get(wire.name, 2)


async def test_a_call_without_a_name_is_one_that_the_model_can_be_told_about(wire: Wire, opened: Opener) -> None:
    with ModelServer([calling(wire.name, [{"id": "x"}, {"id": "y", "name": "b"}])]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert reply.stop == "tool_calls"
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [("x", "unnamed", {}), ("y", "b", {})]


THOUGHT = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
SIGNED = {**THOUGHT, "extra_content": {"google": {"thought_signature": "sealed"}}}
DETAILS = [{"type": "reasoning.encrypted", "data": "sealed", "index": 0}]


def continued(asked: ChatRequest, reply: ChatReply) -> ChatRequest:
    replies = tuple(ToolReply(call.id, call.name, "ok") for call in reply.tool_calls)
    said = Message("assistant", reply.text, reply.tool_calls, native=reply.native)
    return replace(asked, messages=[*asked.messages, said, Message("tool", tool_replies=replies)])


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "reasoning_content": "let me think", "tool_calls": [THOUGHT]},  # DeepSeek requires it
        {"content": None, "reasoning": "hm", "reasoning_details": DETAILS, "tool_calls": [THOUGHT]},  # OpenRouter
        {"content": None, "tool_calls": [SIGNED]},  # Gemini
    ],
)
async def test_a_chat_server_gets_its_reasoning_back(opened: Opener, message: dict[str, Any]) -> None:
    with ModelServer([chat_reply({**message, "refusal": None}, "tool_calls"), Reply("done")]) as server:
        client = opened(WIRES["chat"], server)
        reply = await client.complete(ASK)
        await client.complete(continued(ASK, reply))
    with ModelServer([Reply("done")]) as other:
        await opened(WIRES["chat"], other).complete(continued(ASK, reply))

    assert server.calls[1].body["messages"][1] == {"role": "assistant", **message}
    assert other.calls[0].body["messages"][1] == {
        "role": "assistant",
        "content": message["content"] or None,
        "tool_calls": [THOUGHT],
    }


async def test_a_server_that_refuses_its_reasoning_gets_none_afterwards(opened: Opener) -> None:
    thoughtful = chat_reply({"reasoning": "hm", "tool_calls": [THOUGHT]}, "tool_calls")

    def script(call: Call) -> Reply | Fault:
        if "hm" in call.raw.decode():
            text = "'messages.1' : for 'role:assistant': property 'reasoning' is unsupported"
            return Fault(400, {"error": {"message": text, "type": "invalid_request_error"}})
        return Reply("done") if call.tool_results else thoughtful

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        reply = await client.complete(ASK)
        answers = [await client.complete(continued(ASK, reply)) for _ in range(2)]

    assert [answer.text for answer in answers] == ["done", "done"]
    assert len(server.calls) == 4


ONLY_RESPONSES = [
    "This model is only supported in v1/responses and not in v1/chat/completions.",
    "Function tools with reasoning_effort are not supported for gpt-6-astra in /v1/chat/completions. To use function"
    " tools, use /v1/responses or set reasoning_effort to 'none'.",
    "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use"
    " v1/completions?",
    "Unsupported legacy protocol: /v1/chat/completions is not supported. Please use /v1/responses.",
]


@pytest.mark.parametrize("text", ONLY_RESPONSES)
async def test_a_model_that_needs_responses_gets_them_afterwards(opened: Opener, text: str) -> None:
    def script(call: Call) -> Reply | Fault:
        needs = call.model == "new" and call.api == "chat"
        return Fault(404 if "not a chat" in text else 400, {"error": {"message": text}}) if needs else Reply("hello")

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        for model in ("new", "new", "old"):
            assert (await client.complete(replace(ASK, model=model))).text == "hello"

    assert [(call.model, call.api) for call in server.calls] == [
        ("new", "chat"),
        ("new", "responses"),
        ("new", "responses"),
        ("old", "chat"),
    ]


async def test_a_model_on_azure_that_lacks_responses_is_asked_by_chat(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(call: Call) -> Reply | Fault:
        text = "The responses operation does not work with the specified model, deepseek-v4. Please choose another."
        lacks = call.api == "responses" and call.model == "deepseek-v4"
        return Fault(400, {"error": {"code": "OperationNotSupported", "message": text}}) if lacks else Reply("hello")

    with ModelServer(script) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        client = opened(WIRES["chat"], "http://mine.openai.azure.com/openai/v1/")
        for model in ("deepseek-v4", "deepseek-v4", "gpt-6"):
            await client.complete(replace(ASK, model=model))

    assert [call.api for call in server.calls] == ["responses", "chat", "chat", "responses"]
    assert server.calls[0].path == "http://mine.openai.azure.com/openai/v1/responses"
    assert KEY in server.calls[0].headers["authorization"]


async def test_calls_at_once_that_learn_a_dialect_all_succeed(opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        if call.api == "chat":
            return Fault(400, {"error": {"message": ONLY_RESPONSES[0]}}, delay=0.02)
        if "include" in call.body:
            return Fault(400, {"error": {"message": "Encrypted content is not supported with this model."}}, delay=0.02)
        return Reply("hello")

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        replies = await asyncio.gather(*(client.complete(ASK) for _ in range(5)))

    assert [reply.text for reply in replies] == ["hello"] * 5


async def test_an_api_that_was_chosen_is_kept(opened: Opener) -> None:
    fault = Fault(400, {"error": {"message": ONLY_RESPONSES[0]}})
    with ModelServer([fault]) as server, pytest.raises(ProviderError, match="only supported in v1/responses"):
        await opened(Wire("chat", "openai", "chat"), server).complete(ASK)

    assert len(server.calls) == 1


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
async def test_a_messages_server_may_be_given_with_its_version(opened: Opener, suffix: str) -> None:
    with ModelServer([Reply("hello")]) as server:
        await opened(WIRES["messages"], server.url + suffix).complete(ASK)

    assert server.calls[0].path == "/v1/messages"


async def test_other_errors_are_not_mistaken_for_a_dialect(opened: Opener) -> None:
    with ModelServer([Fault(400), Reply("never asked")]) as server, pytest.raises(ProviderError):
        await opened(WIRES["chat"], server).complete(ASK)

    assert len(server.calls) == 1


async def test_gemini_calls_without_ids_get_one_that_is_not_sent_back(opened: Opener) -> None:
    def part(name: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {}}}

    content = {"role": "model", "parts": [part("a"), part("b")]}
    body = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    with ModelServer([Fault(200, body), Reply("done")]) as server:
        client = opened(WIRES["generate"], server)
        reply = await client.complete(ASK)
        replies = tuple(ToolReply(call.id, call.name, "ok") for call in reply.tool_calls)
        told = [*ASK.messages, Message("assistant", "", reply.tool_calls), Message("tool", tool_replies=replies)]
        await client.complete(replace(ASK, messages=told))

    assert len({call.id for call in reply.tool_calls} - {""}) == 2
    assert '"id"' not in server.calls[1].raw.decode()
    assert server.calls[1].tool_results == ["ok", "ok"]
