"""How requests reach a server: through proxies, compressed, and never to where a response redirects them."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from delegate.errors import ProviderError
from delegate.models.providers import Endpoint, connect
from delegate.ports import ChatRequest, Message
from tests.support.model_server import Reply
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
async def test_a_redirect_gets_neither_the_key_nor_the_messages(protocol: str) -> None:
    async with answering("200 OK\r\nContent-Type: application/json", hello(protocol)) as (elsewhere, seen):
        head = f"307 Temporary Redirect\r\nLocation: {elsewhere}/v1/chat/completions"
        async with answering(head, b"") as (url, _):
            with pytest.raises(ProviderError):
                await ask(protocol, url + PROTOCOLS[protocol][1])
    assert seen == []
