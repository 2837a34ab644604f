"""Every failure of a model call becomes a `ProviderError` with the right fault."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors

from delegate.models.providers import anthropic as ours_anthropic
from delegate.models.providers import google as ours_google
from delegate.models.providers import openai as ours_openai
from delegate.models.providers._faults import fault_of
from delegate.types.errors import ProviderError, ProviderFault
from delegate.types.ports import ChatClient, ChatRequest, Message
from tests.models.providers.conftest import KEY, WIRES, Opener, Wire
from tests.support.model_server import Fault, ModelServer, Reply

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)


async def failure(client: ChatClient) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await client.complete(ASK)
    return caught.value


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (400, "bad_request"),
        (401, "auth"),
        (403, "auth"),
        (404, "bad_request"),
        (422, "bad_request"),
        (408, "server_error"),
        (409, "server_error"),
        (413, "context_overflow"),
        (429, "rate_limited"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
async def test_each_status_has_its_fault_and_the_sdks_retry_nothing(
    wire: Wire, opened: Opener, status: int, fault: ProviderFault
) -> None:
    headers = {"retry-after-ms": "1", "x-should-retry": "true"}
    with ModelServer([Fault(status, headers=headers), Reply("never asked")]) as server:
        error = await failure(opened(wire, server))

    assert (error.fault, error.status, error.provider) == (fault, status, wire.protocol)
    assert str(error).partition("; ")[0] == f"{wire.protocol}: HTTP {status}: scripted fault {status}"
    assert len(server.calls) == 1


SPEND_LIMIT = {"type": "rate_limit_error", "message": "x", "details": {"error_code": "enforced_spend_limit_reached"}}


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (WIRES["chat"], {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (WIRES["messages"], SPEND_LIMIT),
    ],
)
async def test_an_account_without_credit_is_not_a_rate_limit(opened: Opener, wire: Wire, error: dict[str, Any]) -> None:
    with ModelServer([Fault(429, {"error": error})]) as server:
        failed = await failure(opened(wire, server))

    assert (failed.fault, failed.status) == ("auth", 429)


@pytest.mark.parametrize(
    ("param", "length", "fault"),
    [("messages[1].content", 1_048_576, "context_overflow"), ("tools[0].function.name", 64, "bad_request")],
)
async def test_only_a_long_text_makes_a_request_too_long(
    param: str, length: int, fault: ProviderFault, opened: Opener
) -> None:
    text = f"Invalid '{param}': string too long. Expected a string with maximum length {length}, but got a longer one."
    body = {"error": {"message": text, "param": param, "code": "string_above_max_length"}}
    with ModelServer([Fault(400, body)]) as server:
        error = await failure(opened(WIRES["chat"], server))

    assert error.fault == fault


@pytest.mark.parametrize("wanted", ["7", "Fri, 31 Dec 2100 23:59:59 GMT"])
async def test_the_wait_that_a_server_asks_for_is_reported(wire: Wire, opened: Opener, wanted: str) -> None:
    with ModelServer([Fault(429, headers={"retry-after": wanted})]) as server:
        error = await failure(opened(wire, server))

    assert error.retry_after is not None
    assert error.retry_after == 7.0 if wanted == "7" else error.retry_after > 1e9


async def test_google_names_the_wait_and_the_wrong_key_in_its_error_details(opened: Opener) -> None:
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
    wrong = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    faults = [
        Fault(429, {"error": {"code": 429, "message": "slow down", "details": [wait]}}),
        Fault(400, {"error": {"code": 400, "message": "API key not valid", "details": [wrong]}}),
    ]
    with ModelServer(faults) as server:
        client = opened(WIRES["generate"], server)
        slow, refused = await failure(client), await failure(client)

    assert (slow.fault, slow.retry_after) == ("rate_limited", 17.0)
    assert (refused.fault, refused.status) == ("auth", 400)


async def test_a_response_with_status_failed_is_a_failure(opened: Opener) -> None:
    faults = [
        Fault(200, {"status": "failed", "error": {"code": "server_error", "message": "it broke"}, "output": []}),
        Fault(200, {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}, "output": []}),
    ]
    with ModelServer(faults) as server:
        client = opened(WIRES["responses"], server)
        broke, slow = await failure(client), await failure(client)

    assert (broke.fault, slow.fault) == ("server_error", "rate_limited")
    assert "it broke" in str(broke)


async def test_an_error_that_quotes_the_key_is_reported_without_it(wire: Wire, opened: Opener) -> None:
    with ModelServer(
        [Fault(401, {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": 401}})]
    ) as server:
        error = await failure(opened(wire, server))

    assert "Incorrect API key provided: [redacted]." in str(error)
    assert KEY not in repr(error)


UNREADABLE = {
    "a page": Fault(200, kind="html"),
    "a page that claims to be JSON": Fault(200, "<html>busy</html>", {"content-type": "application/json"}),
    "half an object": Fault(200, '{"choices": [{"mess'),
    "a list": Fault(200, "[1, 2]"),
    "nothing": Fault(200, b""),
    "not UTF-8": Fault(200, b'{"a": "\xff\xfe"}'),
    "an object of another shape": Fault(200, {"hello": "world"}),
    "the right names with wrong types": Fault(200, {"choices": 1, "output": 2, "content": 3, "candidates": "4"}),
    "a good reply but for a number that is none": Fault(
        200,
        '{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "status": "completed", "output": [],'
        ' "content": [], "candidates": [{"finishReason": "STOP"}], "temperature": NaN}',
    ),
}


@pytest.mark.parametrize("kind", list(UNREADABLE))
async def test_an_answer_that_is_not_a_reply_is_a_bad_reply(wire: Wire, opened: Opener, kind: str) -> None:
    with ModelServer([UNREADABLE[kind]]) as server:
        error = await failure(opened(wire, server))

    assert (error.fault, error.provider) == ("bad_reply", wire.protocol)
    assert len(str(error)) < 350


async def test_an_error_page_keeps_its_status(wire: Wire, opened: Opener) -> None:
    with ModelServer([Fault(502, kind="html")]) as server:
        error = await failure(opened(wire, server))

    assert (error.fault, error.status) == ("server_error", 502)
    assert str(error) == f"{wire.protocol}: HTTP 502: Bad Gateway"


async def test_a_server_that_never_answers_runs_into_the_deadline(wire: Wire, opened: Opener) -> None:
    with ModelServer([Fault(kind="hang"), Reply("never asked")]) as server:
        began = time.monotonic()
        error = await failure(opened(wire, server, timeout_seconds=0.3))

    assert error.fault == "timeout"
    assert time.monotonic() - began < 12


async def test_a_broken_connection_is_distinguished_from_a_slow_one(wire: Wire, opened: Opener) -> None:
    if wire.name == "generate" and tuple(map(int, version("google-genai").split(".")[:2])) < (2, 33):
        pytest.skip("before 2.33 the SDK sleeps up to ten seconds here, whatever it is told")
    with ModelServer([Fault(kind="reset"), Reply("never asked")]) as server:
        error = await failure(opened(wire, server))

    assert error.fault == "connection"
    assert len(server.calls) == 1


async def test_a_closed_port_is_a_connection_fault(wire: Wire, opened: Opener, unused_tcp_port: int) -> None:
    if wire.name == "generate" and tuple(map(int, version("google-genai").split(".")[:2])) < (2, 33):
        pytest.skip("before 2.33 the SDK sleeps up to ten seconds here, whatever it is told")
    error = await failure(opened(wire, f"http://127.0.0.1:{unused_tcp_port}"))

    assert error.fault == "connection"


async def test_a_reply_that_breaks_off_is_a_broken_connection_and_a_call_can_follow(wire: Wire, opened: Opener) -> None:
    body: dict[str, Any] = {"choices": [], "output": [], "content": [], "candidates": []}
    with ModelServer([Fault(200, body, kind="truncate"), Reply("hello")]) as server:
        client = opened(wire, server)
        assert (await failure(client)).fault == "connection"
        assert (await client.complete(ASK)).text == "hello"


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncGenerator[tuple[str, asyncio.Event, asyncio.Event]]:
    """A server that sends `answer` to every client. Yields its URL, and events for request and close."""
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(answer)
        while await reader.read(65536):
            pass
        hung_up.set()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked, hung_up


async def test_a_server_without_http_gives_a_bad_reply(wire: Wire, opened: Opener) -> None:
    async with raw_server(b"SSH-2.0-OpenSSH_9.9\r\n\r\n") as (url, _, _):
        error = await failure(opened(wire, url))

    assert error.fault == "bad_reply"


async def test_cancelling_propagates_and_closes_the_request(wire: Wire, opened: Opener) -> None:
    async with raw_server(b"") as (url, asked, hung_up):
        task = asyncio.create_task(opened(wire, url).complete(ASK))
        async with asyncio.timeout(20):
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await hung_up.wait()


def sdk_exceptions() -> dict[str, tuple[Any, Any]]:
    """Every exception class that an SDK's call may raise, with the function that converts it."""
    roots = {
        "openai": (openai, openai.OpenAIError, ours_openai.provider_error),
        "anthropic": (anthropic, anthropic.AnthropicError, ours_anthropic.provider_error),
        "google": (errors, (errors.APIError, ValueError), ours_google.provider_error),
    }
    return {
        f"{sdk}.{name}": (found, translate)
        for sdk, (module, root, translate) in roots.items()
        for name, found in list(vars(module).items())
        if issubclass(type(found), type) and issubclass(found, root)  # `isinstance` loads the SDK's lazy modules
    }


WITHOUT_STATUS: dict[str, ProviderFault] = {
    "openai.APIConnectionError": "connection",
    "openai.APIError": "bad_reply",
    "openai.APIResponseValidationError": "bad_reply",
    "openai.APITimeoutError": "timeout",
    "anthropic.APIConnectionError": "connection",
    "anthropic.APIError": "bad_reply",
    "anthropic.APIResponseValidationError": "bad_reply",
    "anthropic.APITimeoutError": "timeout",
    "anthropic.APIWebhookValidationError": "bad_reply",
    "google.UnknownApiResponseError": "bad_reply",
}


@pytest.mark.parametrize("name", list(sdk_exceptions()))
def test_every_exception_class_of_the_sdks_is_translated(name: str) -> None:
    found, translate = sdk_exceptions()[name]
    status = getattr(found, "status_code", 500)
    raised = found.__new__(found)  # their constructors differ; these are the attributes that they set
    answer = SimpleNamespace(headers={})
    raised.__dict__.update(status_code=status, code=status, response=answer, request_id=None, body=None, details=None)

    error = translate(raised)

    if error.status is not None:
        assert (error.status, error.fault) == (status, fault_of(status))
    else:
        # Errors that aren't in the table are about credentials, or about a request that is never sent.
        assert error.fault == WITHOUT_STATUS.get(name, "bad_request" if name.startswith("google.") else "auth")
