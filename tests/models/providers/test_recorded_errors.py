"""Errors that providers and servers really sent have the right fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.models.providers.conftest import WIRES, Opener
from tests.support.model_server import Fault, ModelServer

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)
LINES = (Path(__file__).parents[2] / "data" / "provider_errors.jsonl").read_text(encoding="utf-8").splitlines()
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def served(row: dict[str, Any]) -> Fault:
    return Fault(row["status"], row["body"], {"content-type": "application/json", **row.get("headers", {})})


@pytest.mark.parametrize(
    "row", [row for row in RECORDED if "fault" in row], ids=lambda row: f"{row['provider']}-{row['status']}"
)
async def test_a_recorded_error_has_its_fault(row: dict[str, Any], opened: Opener) -> None:
    with ModelServer([served(row)]) as server, pytest.raises(ProviderError) as caught:
        await opened(WIRES[row["api"]], server).complete(ASK)

    assert caught.value.fault == row["fault"]
    assert caught.value.retry_after == pytest.approx(row.get("retry_after"))  # pyright: ignore[reportUnknownMemberType]
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "row", [row for row in RECORDED if "stop" in row], ids=lambda row: f"{row['provider']}-{row['status']}"
)
async def test_a_recorded_error_that_is_an_answer_is_a_reply(row: dict[str, Any], opened: Opener) -> None:
    with ModelServer([served(row)]) as server:
        reply = await opened(WIRES[row["api"]], server).complete(ASK)

    assert (reply.stop, reply.text, reply.tool_calls) == (row["stop"], "", ())
    assert str(row["status"]) in reply.stop_detail
