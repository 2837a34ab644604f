"""Connections that servers close: nothing is lost, and nothing is sent twice that may have been processed."""

import inspect
import json
import logging
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from google.genai._api_client import BaseApiClient

from delegate.models.providers import _http
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.models.providers.conftest import Opener, Wire
from tests.support.model_server import Fault, ModelServer, Reply
from tests.support.wire_formats import FORMATS

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)
REPEATS = "implicit_retry" not in inspect.signature(vars(BaseApiClient)["_async_request_once"]).parameters
"""Whether Google's SDK itself sends a request again after a broken connection, as its older versions do."""
Ending = Callable[[socket.socket, int], None]


@pytest.fixture
def once(wire: Wire) -> Wire:
    """The APIs whose SDK sends a request once."""
    if REPEATS and wire.protocol == "google":
        pytest.skip("this version of Google's SDK sends a request again itself")
    return wire


@dataclass
class Closing:
    """A server of one connection at a time, which it ends as the test says. Counts the requests that it has read."""

    wire: Wire
    answers: Callable[[int], bytes | None]
    """What is sent to the request of this number, from 1; None to send nothing."""
    ends: Ending
    """Called after each answer, with the connection and the number of the request."""
    requests: int = 0
    open: socket.socket | None = None
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Counts the connections that the server has closed."""

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                self.open = connection
                self._serve(connection)
            self.ended.release()

    def _serve(self, connection: socket.socket) -> None:
        while connection.fileno() >= 0 and _has_read(connection):
            self.requests += 1
            answer = self.answers(self.requests)
            if answer is not None:
                connection.sendall(answer)
            self.ends(connection, self.requests)


def _has_read(connection: socket.socket) -> bool:
    """Read one request. False if the client closes the connection."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return False
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(body) < length:
            body += connection.recv(65536)
    except OSError:
        return False
    return True


def response(wire: Wire) -> bytes:
    body = json.dumps(FORMATS[wire.name].render(Reply("hello"), "test-model", 1)).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def closing(
    wire: Wire, ends: Ending, answers: Callable[[int], bytes | None] | None = None
) -> Generator[tuple[str, Closing]]:
    """The address of such a server, and what it has seen."""
    answer = response(wire)
    server = Closing(wire, answers or (lambda number: answer), ends)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        path = "/v1" if wire.protocol == "openai" else ""
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{path}", server
        listener.shutdown(socket.SHUT_RDWR)
        if server.open is not None and server.open.fileno() >= 0:
            with suppress(OSError):
                server.open.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    assert not thread.is_alive()


def close(connection: socket.socket, number: int) -> None:
    connection.close()


def close_second(connection: socket.socket, number: int) -> None:
    if number % 2 == 0:
        connection.close()


def reset_second(connection: socket.socket, number: int) -> None:
    if number % 2 == 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


async def test_a_connection_closed_while_the_loop_was_busy_is_not_used(wire: Wire, opened: Opener) -> None:
    with closing(wire, close) as (url, server):
        client = opened(wire, url)
        for _ in range(6):
            assert (await client.complete(ASK)).text == "hello"
            # A tool that blocks the loop, so that it doesn't see that the connection ends.
            assert server.ended.acquire(timeout=5)
    assert server.requests == 6


@pytest.mark.parametrize("ends", [close_second, reset_second])
async def test_a_request_that_no_byte_answers_is_sent_again(
    once: Wire, opened: Opener, ends: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "CLOSED_AFTER", 0.0)
    answer = response(once)
    # The server reads every second request and closes its connection, as if it had been closed before.
    with closing(once, ends, lambda number: answer if number % 2 else None) as (url, server):
        client = opened(once, url)
        for _ in range(3):
            assert (await client.complete(ASK)).text == "hello"
    assert server.requests == 5


async def test_a_request_on_a_new_connection_is_sent_once(once: Wire, opened: Opener) -> None:
    with closing(once, close, lambda number: None) as (url, server), pytest.raises(ProviderError) as caught:
        await opened(once, url).complete(ASK)
    assert (server.requests, caught.value.outcome) == (1, "broken_off")


PROCESSED: dict[str, tuple[Ending, bytes | None]] = {
    "the connection wasn't idle": (reset_second, None),
    "a part of the first line came": (close_second, b"HTTP/1.1 200 O"),
    "headers came": (close_second, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"),
}


@pytest.mark.parametrize(("ends", "begun"), PROCESSED.values(), ids=PROCESSED)
async def test_a_request_that_may_have_been_processed_is_not_sent_again(
    once: Wire, opened: Opener, ends: Ending, begun: bytes | None
) -> None:
    answer = response(once)
    with closing(once, ends, lambda number: answer if number % 2 else begun) as (url, server):
        client = opened(once, url)
        await client.complete(ASK)
        with pytest.raises(ProviderError) as caught:
            await client.complete(ASK)
    assert (server.requests, caught.value.outcome) == (2, "broken_off")


async def test_long_headers_are_read(wire: Wire, opened: Opener) -> None:
    reply = FORMATS[wire.name].render(Reply("hello"), "test-model", 1)
    with ModelServer([Fault(200, reply, headers={"x-gateway-trace": "x" * 60_000})]) as server:
        assert (await opened(wire, server).complete(ASK)).text == "hello"


async def test_repeated_requests_are_logged_as_the_sdk_logs_its_own(
    wire: Wire, opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    if wire.protocol == "google":
        pytest.skip("its SDK sends every request itself")
    caplog.set_level(logging.DEBUG, wire.protocol)
    with ModelServer([Reply("hello")] * 3) as server:
        client = opened(wire, server)
        for _ in range(3):
            await client.complete(ASK)
    lines = [one.getMessage() for one in caplog.records if one.getMessage().startswith("HTTP Response: ")]
    assert len(lines) == 3
    assert all(line.startswith("HTTP Response: POST") and "200" in line for line in lines)
    assert not any("dummy-key" in one.getMessage() for one in caplog.records)


async def test_a_reply_without_end_is_read_up_to_its_limit(wire: Wire, opened: Opener) -> None:
    blanks, sent = b"100000\r\n" + b" " * 0x100000 + b"\r\n", 0

    def endless(connection: socket.socket, number: int) -> None:
        nonlocal sent
        with suppress(OSError):
            while sent < 500:
                connection.sendall(blanks)
                sent += 1
        connection.close()

    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    server = closing(wire, endless, lambda number: head)
    with server as (url, _), pytest.raises(ProviderError, match="at most 16,777,216 are read") as caught:
        await opened(wire, url).complete(ASK)
    assert caught.value.fault == "bad_reply"
    assert 16 <= sent < 40, "megabytes that were read, or lie in buffers of the system"
