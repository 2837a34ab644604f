"""Serves MCP on stdin and stdout, which are reserved for the protocol meanwhile."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any, cast

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from delegate._util.redaction import logger
from delegate._util.threads import run_in_daemon_thread
from delegate.contract.amounts import counted
from delegate.hosts.mcp.connection import StdioConnection, reserved_stdio
from delegate.hosts.mcp.refusals import refusal
from delegate.hosts.mcp.sdk import set_clock

_log = logger(__name__)


async def serve_stdio(
    server: Server[Any],
    connection: StdioConnection | None = None,
    *,
    before_end: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve one client until it closes stdin, or until canceled. Both stop all running calls.

    Args:
        server: the server that `server()` returned.
        connection: the one that `reserved_stdio` opened, if the client may already have sent requests.
        before_end: is awaited when the client has left. `Background.join` waits for its calls instead of stopping them.
    """
    calls = _OpenCalls()
    set_clock(server, calls.since)
    try:
        with reserved_stdio() if connection is None else nullcontext(connection) as client:
            client.end_opening()
            # The SDK uses only the few methods of its streams that these two have.
            writer = _Writer(client, calls, needs_reader=before_end is None)
            lines = _LineReader(client, writer, calls, before_end)
            async with stdio_server(stdin=cast("Any", lines), stdout=cast("Any", writer)) as (read, write):
                await server.run(read, write, server.create_initialization_options())
        calls.report_lost("the client closed stdin")
    except* BrokenPipeError:
        calls.report_lost("the client has disconnected")


class _OpenCalls:
    """The calls that the client made and neither canceled nor got an answer to."""

    def __init__(self) -> None:
        self._ids: dict[str | int, float] = {}
        """Each with the time when its line was read."""
        self._is_over = False

    def since(self, id: object) -> float | None:
        """When the call was made, in seconds of the monotonic clock; None if it isn't known."""
        return self._ids.get(id) if isinstance(id, str | int) else None

    def end(self) -> None:
        """Take note that the client has left: the SDK stops the calls, and answers with an error, or not at all."""
        self._is_over = True

    def receive(self, text: str, at: float) -> None:
        """Take note of a message of the client, which the SDK can read."""
        if '"tools/call"' in text:
            message = json.loads(text)
            if message.get("method") == "tools/call" and "id" in message:
                self._ids[message["id"]] = at
        elif self._ids and '"notifications/cancelled"' in text:
            canceled = (json.loads(text).get("params") or {}).get("requestId")
            if isinstance(canceled, str | int):
                self._ids.pop(canceled, None)

    def send(self, text: str) -> None:
        """Take note of a message to the client, once it is sent."""
        if not self._ids or "method" in (message := json.loads(text)):
            return
        if "result" in message or not self._is_over:
            self._ids.pop(message.get("id"), None)

    def report_lost(self, reason: str) -> None:
        """Tell the operator, because nobody else is left, that work was for nothing."""
        if self._ids:
            were = "was" if len(self._ids) == 1 else "were"
            _log.warning("%s; %s %s stopped", reason, counted(len(self._ids), "unanswered call"), were)


class _LineReader:
    """Reads messages, one per line. Unlike the SDK's own reader, it can be canceled while it waits.

    What the SDK couldn't read is answered here, because the SDK doesn't, and its sender may wait for an answer.
    """

    def __init__(
        self,
        client: StdioConnection,
        writer: "_Writer",
        calls: _OpenCalls,
        before_end: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._client = client
        self._writer = writer
        self._calls = calls
        self._before_end = before_end

    async def __aiter__(self) -> AsyncGenerator[str]:
        while (line := await run_in_daemon_thread(self._client.next_line)) is not None:
            if not line.text.strip():
                continue
            if (refused := refusal(line.text)) is None:
                self._calls.receive(line.text, line.at)
                yield line.text
            else:
                _log.warning("a message on stdin was refused: %s", refused["error"]["message"])
                await self._writer.write(json.dumps(refused) + "\n")
        if self._before_end is not None:
            await self._before_end()
        else:
            self._calls.end()


class _Writer:
    """Sends messages to the client, one after the other. With `needs_reader`, it's an error if the client has left."""

    def __init__(self, client: StdioConnection, calls: _OpenCalls, *, needs_reader: bool) -> None:
        self._client = client
        self._calls = calls
        self._needs_reader = needs_reader
        self._lock = asyncio.Lock()

    async def write(self, text: str) -> None:
        async with self._lock:
            try:
                await run_in_daemon_thread(self._client.send, text)
            except BrokenPipeError:
                if self._needs_reader:
                    raise
        self._calls.send(text)

    async def flush(self) -> None:
        pass  # nothing is buffered
