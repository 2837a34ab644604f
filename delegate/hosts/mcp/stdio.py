"""Serves MCP on stdin and stdout, which are reserved for the protocol meanwhile."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from delegate._util.redaction import logger
from delegate.hosts.mcp.lines import Line

_log = logger(__name__)
T = TypeVar("T")

_CHUNK = 65_536


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes stdin, or until canceled. Both stop all running calls."""
    try:
        with _reserved_stdio() as (stdin, stdout):
            # The SDK uses only the few methods of its streams that these two have.
            writer = _Writer(stdout)
            lines = _LineReader(stdin, writer)
            async with stdio_server(stdin=cast("Any", lines), stdout=cast("Any", writer)) as (read, write):
                await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client has disconnected


@contextmanager
def _reserved_stdio() -> Generator[tuple[int, int]]:
    """File descriptors for the protocol. For all other code stdin is empty, and stdout goes to stderr."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    try:
        yield stdin, stdout
    finally:
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)  # the copies stay open: a thread may still be blocked on one


class _LineReader:
    """Reads messages, one per line, from a descriptor. Unlike the SDK's own reader, it can be canceled while it waits.

    What the SDK couldn't read is answered here, because the SDK doesn't, and its sender may wait for an answer.
    """

    def __init__(self, descriptor: int, writer: "_Writer") -> None:
        self._descriptor = descriptor
        self._writer = writer

    async def __aiter__(self) -> AsyncGenerator[str]:
        line = Line()
        while chunk := await _run_in_daemon_thread(os.read, self._descriptor, _CHUNK):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line.add(end)
                if await self._is_message(line):
                    yield line.text
                line = Line()
            line.add(rest)
        if await self._is_message(line):  # the last one may lack its end
            yield line.text

    async def _is_message(self, line: Line) -> bool:
        """Whether the SDK can read the line. If not, it is answered with an error, unless it is empty."""
        if line.is_blank:
            return False
        if (refusal := line.refusal()) is None:
            return True
        _log.warning("a message on stdin was refused: %s", refusal["error"]["message"])
        await self._writer.write(json.dumps(refusal) + "\n")
        return False


class _Writer:
    """Writes to a descriptor, completely or with an error, one message after the other."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = asyncio.Lock()

    async def write(self, text: str) -> None:
        async with self._lock:
            await _run_in_daemon_thread(_write_all, self._descriptor, text.encode())

    async def flush(self) -> None:
        pass  # nothing is buffered


def _write_all(descriptor: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


async def _run_in_daemon_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call in a thread that neither cancellation nor the process exit waits for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle, outcome = result.set_result, function(*arguments)
        except OSError as error:
            settle, outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result
            loop.call_soon_threadsafe(_settle, result, settle, outcome)

    threading.Thread(target=run, name="delegate-stdio", daemon=True).start()
    return await result


def _settle(result: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not result.done():  # false after a cancellation
        settle(outcome)
