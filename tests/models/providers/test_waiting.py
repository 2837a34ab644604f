"""How long a call may take, and that connections survive it."""

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from delegate.models.providers._shared import call_seconds
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.models.providers.conftest import WIRES, Opener, Wire
from tests.support.model_server import Fault, ModelServer, Reply

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)


@pytest.mark.parametrize(
    ("limit", "tokens", "seconds"), [(None, 99, 180), (None, 5_400, 180), (None, 30_000, 1_000), (7, 30_000, 7)]
)
def test_a_long_reply_may_take_longer_unless_the_settings_say_otherwise(
    limit: float | None, tokens: int, seconds: float
) -> None:
    assert call_seconds(limit, tokens) == seconds


async def test_each_call_has_a_limit_of_its_own(opened: Opener) -> None:
    with ModelServer([Reply("hello")] * 2) as server:
        client = opened(WIRES["generate"], server, timeout_seconds=None)
        for tokens in (99, 30_000):
            await client.complete(replace(ASK, max_output_tokens=tokens))

    # The only API that is told.
    assert [call.headers["x-server-timeout"] for call in server.calls] == ["180", "1000"]


@pytest.mark.parametrize("kind", ["hang", "stall", "drip"])
async def test_no_kind_of_slowness_outlasts_the_limit(wire: Wire, opened: Opener, kind: str) -> None:
    body = {"padding": "x" * 1_000}
    with ModelServer([Fault(200, body, kind=kind)]) as server:  # pyright: ignore[reportArgumentType]
        began = time.monotonic()
        with pytest.raises(ProviderError) as caught:
            await opened(wire, server, timeout_seconds=0.1).complete(ASK)

    assert caught.value.fault == "timeout"
    assert time.monotonic() - began < 12


def _timers(port: int) -> list[str]:
    """The kinds of timers of the connections to a port, in the kernel's words: 02 is a keep-alive probe."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    return [field[5].partition(":")[0] for field in fields if field[2].endswith(f":{port:04X}") and field[3] == "01"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's table of connections")
@pytest.mark.skipif(
    tuple(map(int, aiohttp.__version__.split(".")[:2])) < (3, 12), reason="older versions can't set options of sockets"
)
async def test_connections_stay_alive_while_a_model_writes(wire: Wire, opened: Opener) -> None:
    with ModelServer([Fault(kind="hang")]) as server:
        call = asyncio.create_task(opened(wire, server).complete(ASK))
        await asyncio.to_thread(server.wait_for_calls, 1)
        timers = _timers(urlsplit(server.url).port or 0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    assert timers == ["02"]
