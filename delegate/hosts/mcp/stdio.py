"""The protocol on stdin and stdout, which are its alone while it is served."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

T = TypeVar("T")

_CHUNK = 65_536
_LINE_BYTES = 16 * 1024 * 1024
"""A longer message ends the connection."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our stdin, or until cancelled. Both end all that it asked for."""
    try:
        with _claimed() as (given, taken):
            lines = cast("Any", _Lines(given))  # the SDK wants no more of them than these few methods
            async with stdio_server(stdin=lines, stdout=cast("Any", _Out(taken))) as (read, write):
                await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client has gone


@contextmanager
def _claimed() -> Generator[tuple[int, int]]:
    """The descriptors of the protocol. Whatever else reads stdin finds it at its end; what it prints is on stderr."""
    sys.stdout.flush()
    given, taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield given, taken
    finally:
        sys.stdout.flush()
        os.dup2(given, 0)
        os.dup2(taken, 1)  # and neither copy is closed: a thread may still wait in it


class _Lines:
    """The lines of a descriptor. Waiting for the next can be given up, which the SDK's own reading can't."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncGenerator[str]:
        rest = b""
        while len(rest) <= _LINE_BYTES and (chunk := await _aside(os.read, self._descriptor, _CHUNK)):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")


class _Out:
    """Writes to a descriptor, all or an error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def write(self, text: str) -> None:
        await _aside(_write, self._descriptor, text.encode())

    async def flush(self) -> None:
        pass  # nothing is held back


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


async def _aside(do: Callable[..., T], *arguments: Any) -> T:
    """The result of a call that blocks, made on a thread that neither a cancel nor the end of the process waits for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle, outcome = result.set_result, do(*arguments)
        except OSError as error:
            settle, outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, result, settle, outcome)

    threading.Thread(target=run, name="delegate-stdio", daemon=True).start()
    return await result


def _settle(result: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not result.done():  # it was given up
        settle(outcome)
