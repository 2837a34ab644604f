"""Why replies end, in the words of the servers."""

from typing import Any

import pytest

from tests.models.providers.conftest import WIRES, Opener
from tests.models.providers.test_dialects import ASK
from tests.support.model_server import Fault, ModelServer

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
BLOCK: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
ENDS = [None, "", "stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "FinishReason.STOP"]
ANNOUNCED = ["tool_calls", "tool_use", "function_call"]


OTHERS: list[tuple[object, str]] = [
    *((one, "malformed_call") for one in ANNOUNCED),
    ("max_tokens", "length"),
    ("length", "length"),
    ("MAX_TOKENS", "length"),
    ("model_length", "context"),
    ("content_filter", "refusal"),
    ("refusal", "refusal"),
    ("MALFORMED_FUNCTION_CALL: no such tool", "malformed_call"),
    ("error", "other"),
    ("insufficient_system_resource", "other"),
    (7, "other"),
]
REPLIES: list[tuple[object, str, bool, str]] = [
    # the reason, the text, whether there are calls, and what is read
    *((reason, "hello", False, "end") for reason in ENDS),
    *((reason, "", False, "end") for reason in ENDS),  # which the child's loop finds empty
    *((reason, "hello", True, "tool_calls") for reason in (*ENDS, *ANNOUNCED)),
    *((reason, "hello", False, stop) for reason, stop in OTHERS),
]


def body(wire: str, reason: object, text: str, has_calls: bool) -> dict[str, Any]:
    if wire == "chat":
        message = {"content": text, "tool_calls": [CALL] if has_calls else None}
        return {"choices": [{"message": message, "finish_reason": reason}]}
    content = [{"type": "text", "text": text}] if text else []
    return {"content": [*content, BLOCK] if has_calls else content, "stop_reason": reason}


@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_why_a_reply_ended_is_read_in_the_words_of_every_server(wire: str, opened: Opener) -> None:
    with ModelServer([Fault(200, body(wire, *reply[:3])) for reply in REPLIES]) as server:
        client = opened(WIRES[wire], server)
        for reason, text, has_calls, stop in REPLIES:
            reply = await client.complete(ASK)
            assert (reply.text, len(reply.tool_calls), reply.stop) == (text, int(has_calls), stop), reason


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize(("written", "stop"), [(98, "end"), (99, "length")])
async def test_a_reply_without_a_reason_that_fills_the_limit_was_cut_off(
    wire: str, written: int, stop: str, opened: Opener
) -> None:
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": {"content": "hello"}}], "usage": {"completion_tokens": written}},
        "messages": {"content": [{"type": "text", "text": "hello"}], "usage": {"output_tokens": written}},
    }
    with ModelServer([Fault(200, bodies[wire])]) as server:
        assert (await opened(WIRES[wire], server).complete(ASK)).stop == stop
