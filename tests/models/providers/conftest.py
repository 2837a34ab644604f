"""Four wire formats through three SDKs, each against a real HTTP server on the loopback interface."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

import pytest

from delegate.models.providers import Endpoint, connect
from delegate.types.ports import ChatClient
from tests.support.model_server import ModelServer

KEY = "dummy-key-0123456789"


@dataclass(frozen=True)
class Wire:
    """One of the APIs that providers use. `name` is its name in the model server."""

    name: Literal["chat", "responses", "messages", "generate"]
    protocol: Literal["openai", "anthropic", "google"]
    api: Literal["auto", "chat", "responses"] = "auto"

    def url(self, server: ModelServer) -> str:
        return {"openai": server.openai_url, "anthropic": server.anthropic_url, "google": server.google_url}[
            self.protocol
        ]

    def endpoint(self, url: str, key: str = KEY) -> Endpoint:
        return Endpoint(self.protocol, url, key, self.api)


WIRES = {
    "chat": Wire("chat", "openai"),
    "responses": Wire("responses", "openai", "responses"),
    "messages": Wire("messages", "anthropic"),
    "generate": Wire("generate", "google"),
}

Opener = Callable[..., ChatClient]


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Creates clients for a server or a URL, and closes them after the test."""
    clients: list[ChatClient] = []

    def open_client(
        wire: Wire, at: ModelServer | str, *, key: str = KEY, timeout_seconds: float | None = 10
    ) -> ChatClient:
        url = at if isinstance(at, str) else wire.url(at)
        client = connect(wire.endpoint(url, key), timeout_seconds=timeout_seconds)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        await client.aclose()
