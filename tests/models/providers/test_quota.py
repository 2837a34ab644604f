"""The quota in rate-limit headers reaches the caller, if it can be parsed."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from delegate.types.ports import ChatReply, ChatRequest, Message, Quota
from tests.models.providers.conftest import WIRES, Opener, Wire
from tests.support.model_server import Fault, ModelServer, Reply
from tests.support.wire_formats import FORMATS

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)
OPENAI = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-tokens": "6m0s",
}


async def reply_with(opened: Opener, wire: Wire, headers: Mapping[str, str]) -> ChatReply:
    return (await replies_with(opened, wire, [headers]))[0]


async def replies_with(opened: Opener, wire: Wire, headers: Sequence[Mapping[str, str]]) -> list[ChatReply]:
    body = FORMATS[wire.name].render(Reply("hello"), "test-model", 1)
    with ModelServer([Fault(200, body, one) for one in headers]) as server:
        client = opened(wire, server)
        return [await client.complete(ASK) for _ in headers]


async def test_a_reply_without_such_headers_has_no_quota(wire: Wire, opened: Opener) -> None:
    assert (await reply_with(opened, wire, {})).quota is None


@pytest.mark.parametrize("wire", [WIRES["chat"], WIRES["responses"]])
async def test_openais_quotas_are_read(opened: Opener, wire: Wire) -> None:
    reply = await reply_with(opened, wire, OPENAI)

    assert reply.quota == Quota(60, 59, 1.0, 150_000, 149_984, 360.0)
    assert reply.text == "hello"


async def test_anthropics_quotas_are_read(opened: Opener) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat(timespec="seconds").replace("+00:00", "Z")
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": soon,
        "anthropic-ratelimit-tokens-limit": "80000",
        "anthropic-ratelimit-tokens-remaining": "79000",
        "anthropic-ratelimit-tokens-reset": "2000-01-01T00:00:00Z",
    }
    quota = (await reply_with(opened, WIRES["messages"], headers)).quota

    assert quota
    assert (quota.requests_limit, quota.requests_left) == (50, 49)
    assert quota.requests_full_in == pytest.approx(29, abs=2)  # pyright: ignore[reportUnknownMemberType]
    assert (quota.tokens_limit, quota.tokens_left, quota.tokens_full_in) == (80_000, 79_000, 0.0)


async def test_durations_are_read_in_every_spelling_and_nothing_else_is(opened: Opener) -> None:
    durations = {"120ms": 0.12, "1m30s": 90.0, "2h0m1.5s": 7201.5, "7.5": 7.5}
    wrong = ("", "soon", "-3", "nan", "1e999", "5 s", "s", "1.2.3s", "9" * 400 + "s")
    expected: dict[str, float | None] = {**durations, **dict.fromkeys(wrong)}
    headers = [{**OPENAI, "x-ratelimit-reset-requests": text} for text in expected]
    replies = await replies_with(opened, WIRES["chat"], headers)

    assert {
        text: one.quota and one.quota.requests_full_in for text, one in zip(expected, replies, strict=True)
    } == expected


@pytest.mark.parametrize("wire", [WIRES["chat"], WIRES["messages"]])
async def test_invalid_headers_do_not_cause_errors(opened: Opener, wire: Wire) -> None:
    names = [*OPENAI, *(f"anthropic-ratelimit-{u}-{w}" for u in ("requests", "tokens") for w in ("limit", "reset"))]
    junk = ("", "-1", "many", "1e999", "\u00b2", "9" * 5000)
    replies = await replies_with(opened, wire, [dict.fromkeys(names, text) for text in junk])

    assert [(reply.text, reply.quota) for reply in replies] == [("hello", Quota())] * len(junk)
