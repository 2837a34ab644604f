"""Serves MCP on stdin and stdout, which are reserved for the protocol meanwhile."""

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from delegate._util.redaction import logger
from delegate._util.threads import run_in_daemon_thread
from delegate.contract.amounts import counted
from delegate.hosts.mcp.connection import StdioConnection, reserved_stdio
from delegate.hosts.mcp.opening import object_in
from delegate.hosts.mcp.sdk import is_notification_in, tools_of
from delegate.hosts.mcp.tools import Tools
from delegate.types import JsonObject

_log = logger(__name__)
_LATE_SECONDS = 0.1
"""The age of a line from which on the call in it is remembered, as its client has waited since."""
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
"""Codes of JSON-RPC."""


async def serve_stdio(
    server: Server[Any],
    connection: StdioConnection | None = None,
    *,
    before_end: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve one client until it closes stdin, or until cancelled. Both stop all running calls.

    Args:
        server: the server that `server()` returned.
        connection: the one that `reserved_stdio` opened, if the client may already have sent requests.
        before_end: is awaited when the client has left. `Background.join` waits for its calls instead of stopping them.
    """
    try:
        with reserved_stdio() if connection is None else nullcontext(connection) as client:
            client.end_opening()
            lines: Any = _Lines(client, tools_of(server), before_end)
            try:
                async with stdio_server(stdin=lines, stdout=lines) as (read, write):
                    await server.run(read, write, server.create_initialization_options())
            finally:
                if lines.lost:  # tell the operator, because nobody else is left, that work was for nothing
                    _log.warning("%s", lines.lost)
    except* BrokenPipeError:
        pass  # it is reported where it happens


@dataclass
class _Lines:
    """Reads and writes messages, one per line, with the few methods that the SDK uses of its streams.

    Unlike the SDK's own reader, it can be cancelled while it waits. What the SDK couldn't read is answered here, since
    the SDK doesn't, and its sender may wait for an answer.
    """

    _client: StdioConnection
    _tools: Tools
    _before_end: Callable[[], Awaitable[None]] | None
    lost: str = ""
    """What was for nothing, once the client has left."""

    async def __aiter__(self) -> AsyncGenerator[str]:
        while (line := await run_in_daemon_thread(self._client.next_line)) is not None:
            if not line.text.strip():
                continue
            if (refused := _refusal(line.text)) is None:
                if '"tools/call"' in line.text and time.monotonic() - line.at > _LATE_SECONDS:
                    self._tools.since[object_in(line.text).get("id")] = line.at
                yield line.text
            else:
                _log.warning("a message on stdin was refused: %s", refused["error"]["message"])
                await self.write(json.dumps(refused) + "\n")
        if self._before_end is not None:
            await self._before_end()
        else:
            self._ends("the client closed stdin")

    async def write(self, text: str) -> None:
        try:
            await run_in_daemon_thread(self._client.send, text)
        except BrokenPipeError:
            if self._before_end is None:
                self._ends("the client has disconnected")
                raise

    async def flush(self) -> None:
        pass  # nothing is buffered

    def _ends(self, reason: str) -> None:
        """Take note of the calls that nobody is left to read the answers of."""
        if (n := self._tools.open_calls) and not self.lost:
            self.lost = f"{reason}; {counted(n, 'unanswered call')} {'was' if n == 1 else 'were'} stopped"


def _refusal(text: str) -> JsonObject | None:
    """The JSON-RPC error that answers the line if the SDK can't read it, else None.

    It has the id of the request if that can be told, so that its sender stops waiting for a result.
    """
    try:
        # A notification to the SDK, which answers none.
        if is_notification_in(text) and '"id"' in text and "id" in object_in(text):
            return _error(_INVALID_REQUEST, "the id of a request must be a text or a whole number", None)
        return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    fields = object_in(text)
    id = fields.get("id") if "method" in fields else None
    id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if first["type"] != "json_invalid":
        where = ".".join(str(part) for part in first["loc"])
        return _error(_INVALID_REQUEST, f"this is no JSON-RPC message: {where}: {first['msg']}", id)
    reason = first["msg"].removeprefix("Invalid JSON: ")
    hint = "; \\ud800 to \\udfff are valid in pairs only" if "hex escape" in reason else ""
    return _error(_PARSE_ERROR, f"this is no valid JSON: {reason}{hint}", id)


def _error(code: int, message: str, id: str | int | None) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
