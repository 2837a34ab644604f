"""Differences between servers of the same API."""

from dataclasses import replace
from typing import Any

import pytest

from delegate.errors import ProviderError
from delegate.ports import ChatRequest, Message, ToolReply
from tests.models.providers.conftest import WIRES, Opener
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


async def test_tool_calls_that_were_announced_but_not_made_are_no_clean_end(opened: Opener) -> None:
    body = {"choices": [{"message": {"content": "hm"}, "finish_reason": "tool_calls"}]}
    with ModelServer([Fault(200, body)]) as server:
        reply = await opened(WIRES["chat"], server).complete(ASK)

    assert reply.stop == "other"


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
