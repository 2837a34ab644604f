"""One client per endpoint and event loop."""

import asyncio
import threading

import pytest

from delegate.models.providers import ClientPool, Endpoint
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatClient, ChatRequest, Message
from tests.models.providers.conftest import KEY, WIRES, Wire
from tests.support.model_server import ModelServer, Reply

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)
HERE = Endpoint("openai", "http://127.0.0.1:1/v1", KEY)


class Closing(Scripted):
    """A client that records whether it was closed, and on which thread."""

    closed_on: threading.Thread | None = None

    async def aclose(self) -> None:
        self.closed_on = threading.current_thread()


class Factory:
    def __init__(self) -> None:
        self.made: list[Closing] = []
        self.timeouts: list[float | None] = []

    def __call__(self, endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient:
        self.made.append(Closing(["hello"]))
        self.timeouts.append(timeout_seconds)
        return self.made[-1]


async def test_children_and_judges_share_one_client_per_endpoint() -> None:
    pool = ClientPool(Factory())

    assert pool.client(HERE) is pool.client(Endpoint("openai", "http://127.0.0.1:1/v1", KEY))
    assert pool.client(HERE) is not pool.client(Endpoint("openai", "http://127.0.0.1:2/v1", KEY))
    assert pool.client(HERE) is not pool.client(Endpoint("openai", "http://127.0.0.1:1/v1", "another-key"))


async def test_the_pools_deadline_reaches_its_clients() -> None:
    factory = Factory()
    ClientPool(factory, timeout_seconds=7).client(HERE)

    assert factory.timeouts == [7]


async def test_closing_closes_the_running_loops_clients_only() -> None:
    factory = Factory()
    pool = ClientPool(factory)
    ours = pool.client(HERE)

    async def elsewhere() -> bool:
        theirs = pool.client(HERE)
        await pool.aclose()
        return theirs is not ours

    assert await asyncio.to_thread(asyncio.run, elsewhere())
    mine, other = factory.made
    assert (mine.closed_on, other.closed_on is not None) == (None, True)
    assert pool.client(HERE) is ours
    await pool.aclose()
    assert mine.closed_on is threading.current_thread()


async def test_one_client_that_fails_to_close_does_not_keep_the_others_open() -> None:
    class Stubborn(Closing):
        async def aclose(self) -> None:
            raise OSError("won't")

    good, bad = Closing([]), Stubborn([])
    clients = iter([good, bad])

    def make(endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient:
        return next(clients)

    pool = ClientPool(make)
    pool.client(HERE)
    pool.client(Endpoint("openai", None, KEY))

    with pytest.raises(OSError, match="won't"):
        await pool.aclose()
    assert good.closed_on is not None


def test_loops_that_come_and_go_each_have_working_connections(wire: Wire) -> None:
    async def one_run(pool: ClientPool, endpoint: Endpoint) -> str:
        try:
            return (await pool.client(endpoint).complete(ASK)).text
        finally:
            await pool.aclose()

    with ModelServer(lambda call: Reply("hello")) as server:
        pool = ClientPool()
        endpoint = wire.endpoint(wire.url(server))
        assert [asyncio.run(one_run(pool, endpoint)) for _ in range(3)] == ["hello"] * 3


async def test_two_loops_at_once_do_not_disturb_each_other() -> None:
    async def several(pool: ClientPool, endpoint: Endpoint) -> list[str]:
        replies = await asyncio.gather(*(pool.client(endpoint).complete(ASK) for _ in range(5)))
        await pool.aclose()
        return [reply.text for reply in replies]

    with ModelServer(lambda call: Reply("hello", delay=0.02)) as server:
        pool = ClientPool()
        endpoint = WIRES["chat"].endpoint(server.openai_url)
        there = asyncio.to_thread(asyncio.run, several(pool, endpoint))
        assert await asyncio.gather(several(pool, endpoint), there) == [["hello"] * 5] * 2
