"""Serves MCP on stdin and stdout, which are reserved for the protocol meanwhile."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from delegate._util.redaction import logger
from delegate.hosts.mcp.connection import Connection, reserved_stdio
from delegate.hosts.mcp.refusals import refusal

_log = logger(__name__)
T = TypeVar("T")


async def serve_stdio(
    server: Server[Any],
    connection: Connection | None = None,
    *,
    before_end: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve one client until it closes stdin, or until canceled. Both stop all running calls.

    Args:
        server: the server that `server()` returned.
        connection: the one that `reserved_stdio` opened, if the client may already have sent requests.
        before_end: is awaited when the client has left. `Delegator.join` waits for its calls instead of stopping them.
    """
    try:
        with reserved_stdio() if connection is None else nullcontext(connection) as client:
            client.end_opening()
            # The SDK uses only the few methods of its streams that these two have.
            writer = _Writer(client, needs_reader=before_end is None)
            lines = _LineReader(client, writer, before_end)
            async with stdio_server(stdin=cast("Any", lines), stdout=cast("Any", writer)) as (read, write):
                await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client has disconnected


class _LineReader:
    """Reads messages, one per line. Unlike the SDK's own reader, it can be canceled while it waits.

    What the SDK couldn't read is answered here, because the SDK doesn't, and its sender may wait for an answer.
    """

    def __init__(self, client: Connection, writer: "_Writer", before_end: Callable[[], Awaitable[None]] | None) -> None:
        self._client = client
        self._writer = writer
        self._before_end = before_end

    async def __aiter__(self) -> AsyncGenerator[str]:
        while (line := await _run_in_daemon_thread(self._client.next_line)) is not None:
            if line.is_blank:
                continue
            if (refused := refusal(line)) is None:
                yield line.text
            else:
                _log.warning("a message on stdin was refused: %s", refused["error"]["message"])
                await self._writer.write(json.dumps(refused) + "\n")
        if self._before_end is not None:
            await self._before_end()


class _Writer:
    """Sends messages to the client, one after the other. With `needs_reader`, it's an error if the client has left."""

    def __init__(self, client: Connection, *, needs_reader: bool) -> None:
        self._client = client
        self._needs_reader = needs_reader
        self._lock = asyncio.Lock()

    async def write(self, text: str) -> None:
        async with self._lock:
            try:
                await _run_in_daemon_thread(self._client.send, text)
            except BrokenPipeError:
                if self._needs_reader:
                    raise

    async def flush(self) -> None:
        pass  # nothing is buffered


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
