"""How requests reach a server: through proxies, compressed, and never to where a response redirects them."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from delegate.models.providers import Endpoint, connect
from delegate.models.providers._http import http_client
from delegate.models.providers._posting import http_library
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.models.providers.conftest import KEY, WIRES, Opener
from tests.support.model_server import Fault, ModelServer, Reply
from tests.support.wire_formats import FORMATS

ASK = ChatRequest("test-model", "Be short.", [Message("user", "Say hello.")], 100)
PROTOCOLS: dict[str, tuple[Any, str]] = {"openai": ("chat", "/v1"), "anthropic": ("messages", "")}


@asynccontextmanager
async def answering(head: str, body: bytes) -> AsyncGenerator[tuple[str, list[str]]]:
    """A server that sends this response to every request; yields its address and the lines of the requests' heads."""
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend((await reader.readuntil(b"\r\n\r\n")).decode().splitlines())
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


async def ask(protocol: str, url: str) -> str:
    client = connect(Endpoint(protocol, url, "dummy", "chat"))  # pyright: ignore[reportArgumentType]
    try:
        return (await client.complete(ASK)).text
    finally:
        await client.aclose()


def hello(protocol: str) -> bytes:
    return json.dumps(FORMATS[PROTOCOLS[protocol][0]].render(Reply("hello"), "test-model", 1)).encode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_compressed_response_is_read(protocol: str) -> None:
    head = "200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip"
    async with answering(head, gzip.compress(hello(protocol))) as (url, seen):
        assert await ask(protocol, url + PROTOCOLS[protocol][1]) == "hello"
    names = [line.partition(":")[0].lower() for line in seen[1:] if line]
    assert len(names) == len(set(names)), "a header was sent twice"
    assert {"accept-encoding", "content-length", "content-type", "host", "user-agent"} <= set(names)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_proxy_of_the_environment_is_used(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering("200 OK\r\nContent-Type: application/json", hello(protocol)) as (url, seen):
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.setenv("http_proxy", url)
        assert await ask(protocol, "http://models.test" + PROTOCOLS[protocol][1]) == "hello"
    assert seen[0].startswith("POST http://models.test/")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_request_is_repeated_with_all_but_its_body(protocol: str, opened: Opener) -> None:
    with ModelServer([Reply("one"), Reply("two"), Fault(500), Reply("three")]) as server:
        client = opened(WIRES[PROTOCOLS[protocol][0]], server)
        asked = [replace(ASK, messages=[Message("user", text)]) for text in ("first", "second ü", "third", "fourth")]
        assert [(await client.complete(one)).text for one in asked[:2]] == ["one", "two"]
        with pytest.raises(ProviderError):
            await client.complete(asked[2])
        assert (await client.complete(asked[3])).text == "three"
    assert [call.last_text for call in server.calls] == ["first", "second ü", "third", "fourth"]
    first, *others = [{**call.headers, "content-length": ""} for call in server.calls]
    assert others == [first] * 3
    assert first.get("authorization", first.get("x-api-key", "")).endswith(KEY)


FAULTS = {
    "wrong key": Fault(401, {"error": {"message": "wrong key dummy-key-0123456789", "code": "invalid_api_key"}}),
    "quota": Fault(429, {"error": {"message": "slow down"}}, headers={"retry-after": "7"}),
    "too long": Fault(
        400, {"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}
    ),
    "overloaded": Fault(529),
    "no retry": Fault(500, headers={"x-should-retry": "false"}),
    "a page": Fault(502, "<html>Bad gateway</html>", kind="html"),
    "disconnected": Fault(kind="reset"),
    "cut off": Fault(200, "{" + " " * 1000, kind="truncate"),
    "not JSON": Fault(200, "hello"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_error_is_the_same_when_the_request_is_a_repeated_one(
    protocol: str, fault: Fault, opened: Opener
) -> None:
    with ModelServer([fault, Reply("hello"), fault]) as server:
        client = opened(WIRES[PROTOCOLS[protocol][0]], server)
        errors: list[ProviderError] = []
        for _ in range(2):
            with pytest.raises(ProviderError) as caught:
                await client.complete(ASK)
            errors.append(caught.value)
            if len(errors) == 1:
                assert (await client.complete(ASK)).text == "hello"
    assert len(server.calls) == 3
    first, second = errors
    assert str(first) == str(second)
    assert vars(first) == vars(second)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_closed_client_sends_nothing_more(protocol: str, opened: Opener) -> None:
    with ModelServer([Reply("hello")]) as server:
        client = opened(WIRES[PROTOCOLS[protocol][0]], server)
        await client.complete(ASK)
        await client.aclose()
        with pytest.raises((ProviderError, RuntimeError)):  # as the SDK says it
            await client.complete(ASK)
    assert len(server.calls) == 1


@pytest.mark.parametrize(("sdk", "client_class"), [(openai, "AsyncOpenAI"), (anthropic, "AsyncAnthropic")])
async def test_a_key_that_only_one_request_may_have_is_not_repeated(sdk: Any, client_class: str) -> None:
    with ModelServer(lambda call: Reply("hello")) as server:
        http: Any = http_client(sdk, http_library(sdk), is_plain=True)
        url = f"{server.openai_url}/chat/completions"
        async with getattr(sdk, client_class)(api_key="dummy", http_client=http) as client:
            for header, known in (({"Idempotency-Key": "one"}, False), ({}, True)):
                with http.asking(url, None):
                    await client.post(url, cast_to=object, content=b"{}", options={"headers": header})
                repeated = await http.repeat(url, b"{}")
                assert (repeated is not None) is known
                if repeated is not None:
                    assert repeated.status == 200
