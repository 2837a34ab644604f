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


async def stop_of(opened: Opener, wire: str, reason: object, *, text: str = "hello", calls: bool = False) -> str:
    content = [{"type": "text", "text": text}] if text else []
    message = {"content": text, "tool_calls": [CALL] if calls else None}
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": message, "finish_reason": reason}]},
        "messages": {"content": [*content, BLOCK] if calls else content, "stop_reason": reason},
    }
    with ModelServer([Fault(200, bodies[wire])]) as server:
        reply = await opened(WIRES[wire], server).complete(ASK)
    assert (reply.text, len(reply.tool_calls)) == (text, int(calls))
    return reply.stop


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("reason", ENDS)
async def test_a_text_with_a_missing_or_unusual_reason_is_an_end(reason: str | None, wire: str, opened: Opener) -> None:
    assert await stop_of(opened, wire, reason) == "end"
    assert await stop_of(opened, wire, reason, text="") == "end"  # which the child's loop finds empty


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("reason", [*ENDS, *ANNOUNCED])
async def test_tool_calls_are_calls_whatever_the_reason(reason: str | None, wire: str, opened: Opener) -> None:
    assert await stop_of(opened, wire, reason, calls=True) == "tool_calls"


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize(
    ("reason", "stop"),
    [
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
    ],
)
async def test_other_reasons_are_no_clean_end(reason: object, stop: str, wire: str, opened: Opener) -> None:
    assert await stop_of(opened, wire, reason) == stop


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
