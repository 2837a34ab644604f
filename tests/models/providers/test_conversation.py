"""Successful calls, for every provider."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from delegate.models.providers.google import content_body
from delegate.types import Usage
from delegate.types.ports import Attachment, ChatReply, ChatRequest, Message, ToolCall, ToolReply, ToolSpec
from tests.models.providers.conftest import WIRES, Opener, Wire
from tests.support.model_server import Call, Fault, ModelServer, Reply

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ok"],
    "properties": {"ok": {"type": "boolean"}},
}
PATH_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (ToolSpec("read_file", "Reads a file.", PATH_SCHEMA), ToolSpec("list_files", "Lists files.", PATH_SCHEMA))
ASK = ChatRequest("test-model", "You are a child.", [Message("user", "say hello")], max_output_tokens=99)


def answered(asked: ChatRequest, reply: ChatReply, *results: tuple[str, bool]) -> ChatRequest:
    """The next request: the model's reply and the replies of its tools are appended."""
    replies = tuple(
        ToolReply(call.id, call.name, text, failed)
        for call, (text, failed) in zip(reply.tool_calls, results, strict=True)
    )
    said = Message("assistant", reply.text, reply.tool_calls, native=reply.native)
    return replace(asked, messages=[*asked.messages, said, Message("tool", tool_replies=replies)])


async def test_plain_text_ends_cleanly(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("hello", model="served-model")]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert (reply.text, reply.stop, reply.tool_calls) == ("hello", "end", ())
    assert reply.model_served == "served-model"
    [call] = server.calls
    assert (call.api, call.model, call.system, call.texts) == (
        wire.name,
        "test-model",
        "You are a child.",
        ["say hello"],
    )
    limits: dict[str, Any] = {
        "chat": call.body.get("max_tokens"),
        "responses": call.body.get("max_output_tokens"),
        "messages": call.body.get("max_tokens"),
        "generate": call.body.get("generationConfig", {}).get("maxOutputTokens"),
    }
    assert limits[wire.name] == 99


async def test_an_empty_system_prompt_is_left_out(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("hello")]) as server:
        await opened(wire, server).complete(replace(ASK, system=""))

    body = server.calls[0].body
    assert not {"system", "instructions", "systemInstruction"} & set(body)
    assert [m for m in body.get("messages", ()) if m["role"] == "system"] == []


async def test_two_tool_calls_and_their_replies_go_round(wire: Wire, opened: Opener) -> None:
    calls = (("read_file", {"path": "ü.txt"}), ("list_files", {"path": "."}))
    with ModelServer([Reply("let me look", tool_calls=calls), Reply("done")]) as server:
        client = opened(wire, server)
        asked = replace(ASK, tools=TOOLS)
        first = await client.complete(asked)
        second = await client.complete(answered(asked, first, ("ü text", False), ("no such folder", True)))

    assert (first.stop, first.text) == ("tool_calls", "let me look")
    assert [(call.name, call.arguments) for call in first.tool_calls] == list(calls)
    assert len({call.id for call in first.tool_calls}) == 2
    assert (second.stop, second.text) == ("end", "done")
    assert server.calls[0].tool_names == ["read_file", "list_files"]
    assert "ü text" in server.calls[1].tool_results[0]
    assert "no such folder" in server.calls[1].tool_results[1]
    failed = {"messages": '"is_error": true', "generate": '"error": "no such folder"'}
    assert failed.get(wire.name, "ERROR:\\nno such folder") in json.dumps(server.calls[1].body)


async def test_a_tools_parameters_are_sent_as_they_are(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("done")]) as server:
        await opened(wire, server).complete(replace(ASK, tools=TOOLS[:1]))

    described = {"name": "read_file", "description": "Reads a file."}
    expected: dict[str, Any] = {
        "chat": {"type": "function", "function": {**described, "parameters": PATH_SCHEMA}},
        "responses": {"type": "function", **described, "parameters": PATH_SCHEMA, "strict": False},
        "messages": {**described, "input_schema": PATH_SCHEMA},
        "generate": {"functionDeclarations": [{**described, "parametersJsonSchema": PATH_SCHEMA}]},
    }
    assert server.calls[0].body["tools"] == [expected[wire.name]]


async def test_a_reply_schema_is_asked_for_strictly(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply('{"ok": true}')]) as server:
        reply = await opened(wire, server).complete(replace(ASK, reply_schema=SCHEMA))

    assert json.loads(reply.text) == {"ok": True}
    strict = {"name": "reply", "strict": True, "schema": SCHEMA}
    expected: dict[str, tuple[str, Any]] = {
        "chat": ("response_format", {"type": "json_schema", "json_schema": strict}),
        "responses": ("text", {"format": {"type": "json_schema", **strict}}),
        "messages": ("output_config", {"format": {"type": "json_schema", "schema": SCHEMA}}),
        "generate": (
            "generationConfig",
            {"maxOutputTokens": 99, "responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        ),
    }
    field, value = expected[wire.name]
    assert server.calls[0].body[field] == value


async def test_effort_is_sent_only_when_it_is_asked_for(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("a"), Reply("b")]) as server:
        client = opened(wire, server)
        await client.complete(ASK)
        await client.complete(replace(ASK, effort="low"))

    without, with_effort = (json.dumps(call.body) for call in server.calls)
    sent = {
        "chat": '"reasoning_effort": "low"',
        "responses": '"reasoning": {"effort": "low"}',
        "messages": '"output_config": {"effort": "low"}',
        "generate": '"thinkingConfig": {"thinkingLevel": "LOW"}',
    }
    assert sent[wire.name] in with_effort
    assert not any(word in without for word in ("effort", "thinking"))


async def test_a_request_may_forbid_tool_calls_and_still_send_the_tools(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("done")] * 3) as server:
        client = opened(wire, server)
        await client.complete(replace(ASK, tools=TOOLS, tool_choice="none"))
        await client.complete(replace(ASK, tools=TOOLS))
        await client.complete(replace(ASK, tool_choice="none"))

    expected: dict[str, tuple[str, Any]] = {
        "chat": ("tool_choice", "none"),
        "responses": ("tool_choice", "none"),
        "messages": ("tool_choice", {"type": "none"}),
        "generate": ("toolConfig", {"functionCallingConfig": {"mode": "NONE"}}),
    }
    field, value = expected[wire.name]
    assert server.calls[0].tool_names == ["read_file", "list_files"]
    assert [call.body.get(field) for call in server.calls] == [value, None, None]


IMAGE = Attachment("image/png", b"\x89PNG", "plot.png")
PDF = Attachment("application/pdf", b"%PDF-1", "paper.pdf")
IMAGE_URL, PDF_URL = "data:image/png;base64,iVBORw==", "data:application/pdf;base64,JVBERi0x"


async def test_files_that_tools_return_reach_the_model(wire: Wire, opened: Opener) -> None:
    calls = (ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))
    replies = (ToolReply("c1", "look", "a plot and a paper", attachments=(IMAGE, PDF)), ToolReply("c2", "look", "no"))
    messages = [*ASK.messages, Message("assistant", "", calls), Message("tool", tool_replies=replies)]
    with ModelServer([Reply("a rising line")]) as server:
        await opened(wire, server).complete(replace(ASK, messages=messages))

    body = server.calls[0].body
    sent: dict[str, Any] = {
        "chat": lambda: body["messages"][-1]["content"][1:],
        "responses": lambda: body["input"][-2]["output"][1:],
        "messages": lambda: body["messages"][-1]["content"][0]["content"][1:],
        "generate": lambda: body["contents"][-1]["parts"][0]["functionResponse"]["parts"],
    }
    expected: dict[str, list[Any]] = {
        "chat": [
            {"type": "image_url", "image_url": {"url": IMAGE_URL}},
            {"type": "file", "file": {"filename": "paper.pdf", "file_data": PDF_URL}},
        ],
        "responses": [
            {"type": "input_image", "image_url": IMAGE_URL},
            {"type": "input_file", "filename": "paper.pdf", "file_data": PDF_URL},
        ],
        "messages": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"},
                "title": "paper.pdf",
            },
        ],
        "generate": [
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0x"}},
        ],
    }
    assert sent[wire.name]() == expected[wire.name]
    assert server.calls[0].tool_results == ["a plot and a paper", "no"]


async def test_chat_replies_of_all_tools_stand_before_their_files(opened: Opener) -> None:
    calls = (ToolCall("c1", "look", {}), ToolCall("c2", "look", {}))
    replies = tuple(ToolReply(call.id, "look", "seen", attachments=(IMAGE,)) for call in calls)
    messages = [*ASK.messages, Message("assistant", "", calls), Message("tool", tool_replies=replies)]
    with ModelServer([Reply("done")]) as server:
        await opened(WIRES["chat"], server).complete(replace(ASK, messages=messages))

    sent = server.calls[0].body["messages"]
    assert [message["role"] for message in sent[-4:]] == ["assistant", "tool", "tool", "user"]
    assert [part["type"] for part in sent[-1]["content"]] == ["text", "image_url"] * 2


async def test_gemini_2_gets_files_beside_the_response(opened: Opener) -> None:
    replies = (ToolReply("c1", "look", "a plot", attachments=(IMAGE,)),)
    messages = [
        *ASK.messages,
        Message("assistant", "", (ToolCall("c1", "look", {}),)),
        Message("tool", tool_replies=replies),
    ]
    with ModelServer([Reply("done")]) as server:
        await opened(WIRES["generate"], server).complete(replace(ASK, model="gemini-2.5-pro", messages=messages))

    assert [list(part) for part in server.calls[0].body["contents"][-1]["parts"]] == [
        ["functionResponse"],
        ["inlineData"],
    ]


async def test_usage_counts_cached_and_reasoning_tokens_inside_the_totals(wire: Wire, opened: Opener) -> None:
    said = Reply("hello", input_tokens=100, cached_tokens=60, output_tokens=50, reasoning_tokens=20)
    with ModelServer([said]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert reply.usage == Usage(
        model_calls=1, input_tokens=100, cached_tokens=60, output_tokens=50, reasoning_tokens=20
    )


async def test_a_refusal_is_told_apart_and_quoted(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply(refusal="I won't help with that.")]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert reply.stop == "refusal"
    assert "I won't help with that." in reply.stop_detail


@pytest.mark.parametrize(("stop", "text"), [("refusal", ""), ("length", "half a sen"), ("context", "half a sen")])
async def test_other_ends_are_told_apart(wire: Wire, opened: Opener, stop: Any, text: str) -> None:
    if stop == "context" and wire.name not in ("chat", "messages"):
        pytest.skip("this API has no such reason")
    with ModelServer([Reply(text, stop=stop)]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert (reply.stop, reply.text) == (stop, text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("chat", "malformed_function_call"),
        ("generate", "MALFORMED_FUNCTION_CALL"),
        ("generate", "UNEXPECTED_TOOL_CALL"),
        ("generate", "TOO_MANY_TOOL_CALLS"),
    ],
)
async def test_a_call_that_the_provider_could_not_read_is_told_apart(name: str, reason: str, opened: Opener) -> None:
    parts: list[dict[str, Any]] = [{"text": "hm"}, {"functionCall": {"name": "no_such_tool", "args": {}}}]
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": {"content": "hm"}, "finish_reason": reason}]},
        "generate": {"candidates": [{"content": {"parts": parts}, "finishReason": reason}]},
    }
    with ModelServer([Fault(200, bodies[name])]) as server:
        reply = await opened(WIRES[name], server).complete(ASK)

    assert (reply.stop, reply.stop_detail, reply.text) == ("malformed_call", reason, "hm")
    assert (reply.tool_calls, reply.native) == ((), None)


async def test_an_unknown_stop_is_never_a_clean_end(wire: Wire, opened: Opener) -> None:
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": {"content": "hm"}, "finish_reason": "novel"}]},
        "responses": {"status": "cancelled", "output": []},
        "messages": {"content": [{"type": "text", "text": "hm"}], "stop_reason": "pause_turn"},
        "generate": {"candidates": [{"content": {"parts": [{"text": "hm"}]}, "finishReason": "MALFORMED_RESPONSE"}]},
    }
    with ModelServer([Fault(200, bodies[wire.name])]) as server:
        reply = await opened(wire, server).complete(ASK)

    assert reply.stop == "other"
    assert reply.stop_detail in {"novel", "cancelled", "pause_turn", "MALFORMED_RESPONSE"}
    assert reply.usage == Usage(model_calls=1)


async def test_what_the_provider_wants_back_is_handed_back_untouched(wire: Wire, opened: Opener) -> None:
    said = Reply("let me look", tool_calls=(("read_file", {"path": "x"}),), reasoning_tokens=7)
    with ModelServer([said, Reply("done")]) as server:
        client = opened(wire, server)
        first = await client.complete(ASK)
        await client.complete(answered(ASK, first, ("text", False)))

    body = server.calls[1].body
    sealed = {
        "responses": lambda: [item["encrypted_content"] for item in body["input"] if item.get("type") == "reasoning"],
        "messages": lambda: [b["signature"] for b in body["messages"][1]["content"] if b["type"] == "thinking"],
        "generate": lambda: [p["thoughtSignature"] for p in body["contents"][1]["parts"] if "functionCall" in p],
    }
    if wire.name == "chat":
        assert first.native is None  # the reply of this server has nothing that it needs back
    else:
        assert sealed[wire.name]() == {"generate": ["c2VhbGVk"]}.get(wire.name, ["sealed-1"])


@pytest.mark.parametrize("other", list(WIRES))
async def test_the_native_form_of_another_api_is_ignored(wire: Wire, other: str, opened: Opener) -> None:
    said = Reply("let me look", tool_calls=(("read_file", {"path": "x"}),), reasoning_tokens=7)
    with ModelServer([said]) as elsewhere:
        first = await opened(WIRES[other], elsewhere).complete(ASK)
    with ModelServer([Reply("done")]) as server:
        await opened(wire, server).complete(answered(ASK, first, ("text", False)))

    [call] = server.calls
    assert call.texts[:2] == ["say hello", "let me look"]
    assert call.tool_results == ["text"]
    if wire.name != other:
        assert "sealed" not in json.dumps(call.body)
        assert "c2VhbGVk" not in json.dumps(call.body)


async def test_arguments_that_are_not_an_object_are_kept_as_text(wire: Wire, opened: Opener) -> None:
    function = {"name": "read_file", "arguments": '["not", an object'}
    bodies: dict[str, Any] = {
        "chat": {
            "choices": [
                {"message": {"tool_calls": [{"id": "c1", "function": function}]}, "finish_reason": "tool_calls"}
            ]
        },
        "responses": {"status": "completed", "output": [{"type": "function_call", "call_id": "c1", **function}]},
        "messages": {
            "content": [{"type": "tool_use", "id": "c1", "name": "read_file", "input": ["not"]}],
            "stop_reason": "tool_use",
        },
        "generate": {
            "candidates": [
                {
                    "content": {"parts": [{"functionCall": {"id": "c1", "name": "read_file", "args": ["not"]}}]},
                    "finishReason": "STOP",
                }
            ]
        },
    }
    with ModelServer([Fault(200, bodies[wire.name]), Reply("sorry")]) as server:
        client = opened(wire, server)
        reply = await client.complete(ASK)
        # The native form of such a call may be dropped; the request must still be JSON that an API accepts.
        said = Message("assistant", reply.text, reply.tool_calls)
        fault = Message("tool", tool_replies=(ToolReply("c1", "read_file", "not an object", True),))
        await client.complete(replace(ASK, messages=[*ASK.messages, said, fault]))

    assert reply.stop == "tool_calls"
    [call] = reply.tool_calls
    assert (call.arguments, call.name) == (None, "read_file")
    assert call.raw_arguments.startswith('["not"')
    assert "not an object" in server.calls[1].tool_results[0]


async def test_text_that_no_api_accepts_is_replaced_in_requests(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("ok")]) as server:
        await opened(wire, server).complete(replace(ASK, messages=[Message("user", "odd \udcff name \x00 \u2028")]))

    assert server.calls[0].last_text == "odd ? name \x00 \u2028"


async def test_a_conversation_is_sent_alike_again_and_to_other_apis(wire: Wire, opened: Opener) -> None:
    def conversation() -> list[Message]:
        call = ToolCall("c1", "read_file", {"path": "a"}, '{"path": "a"}')
        return [
            Message("user", "start"),
            Message("assistant", "", (call,), native={"protocol": "unknown", "items": []}),
            Message("tool", tool_replies=(ToolReply("c1", "read_file", "no \ud800 file", is_error=True),)),
            Message("assistant"),
            Message("user", "a long text, " * 1_000),
        ]

    kept = conversation()
    with ModelServer(lambda call: Reply("hello")) as server:
        for other in WIRES.values():
            await opened(other, server).complete(replace(ASK, messages=kept, tools=TOOLS))
        server.calls.clear()
        client = opened(wire, server)
        for messages in (kept, kept, conversation()):
            await client.complete(replace(ASK, messages=messages, tools=TOOLS))

    first, second, fresh = (call.body for call in server.calls)
    assert first == second == fresh
    longest = max(len(part) for message in kept for part in message.encoded.values())
    assert longest < 2_001  # the long one isn't kept twice


async def test_a_turn_in_which_the_model_said_nothing_can_be_sent_back(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("ok")]) as server:
        messages = [Message("user", "a"), Message("assistant"), Message("user", "b")]
        await opened(wire, server).complete(replace(ASK, messages=messages))

    assert server.calls[0].texts == ["a", "b"]
    if wire.name in {"messages", "generate"}:  # these reject empty turns
        assert len(server.calls[0].body.get("messages") or server.calls[0].body["contents"]) == 2


async def test_many_calls_at_once_share_one_client(wire: Wire, opened: Opener) -> None:

    def script(call: Call) -> Reply:
        return Reply(f"re: {call.last_text}", delay=0.05)

    with ModelServer(script) as server:
        client = opened(wire, server)
        asked = [replace(ASK, messages=[Message("user", str(n))]) for n in range(20)]
        replies = await asyncio.gather(*(client.complete(each) for each in asked))

    assert [reply.text for reply in replies] == [f"re: {n}" for n in range(20)]
    assert server.peak >= 10


@pytest.mark.parametrize(("model", "both"), [("gemini-2.5-flash-lite", False), ("gemini-3.8-flash", True)])
def test_models_before_gemini_3_get_tools_or_a_schema_and_not_both(model: str, both: bool) -> None:
    asked = replace(ASK, model=model, tools=TOOLS, reply_schema=SCHEMA)
    looking, last = content_body(asked), content_body(replace(asked, tool_choice="none"))
    assert ("tools" in looking, "responseJsonSchema" in looking["generationConfig"]) == (True, both)
    assert ("tools" in last, "responseJsonSchema" in last["generationConfig"]) == (both, True)
