"""An MCP server without the SDK, so that it can do what a good server doesn't: a program on stdin and stdout, or over
HTTP in the test's own process.

    python -P mcp_server.py LOG [definitions as JSON]

Each line of `LOG` says what reached it: `start PID`, `call NAME`, `cancelled`.
"""

import asyncio
import base64
import json
import os
import struct
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# Nothing of the tests is imported: the program runs with few environment variables.

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 64, 48) + b"\x08\x02\0\0\0"
PACE_SECONDS = 0.3
"""How long the tool `progress` takes for each of its four messages."""
_NUMBER = {"type": "number"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {"type": "object", "properties": {"a": _NUMBER, "b": _NUMBER}, "required": ["a", "b"]},
    },
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    *({"name": name, "inputSchema": {"type": "object"}} for name in
      ("environment", "picture", "rows", "repeat", "refuse", "fault", "die", "forever", "progress", "big")),
]  # fmt: skip


def _result(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a tool returns. Those that never return aren't here."""
    match name:
        case "add":
            return _text(str(arguments["a"] + arguments["b"]))
        case "look":
            return _text("nothing changed")
        case "environment":
            return _text(json.dumps(sorted(os.environ)))
        case "picture":
            image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
            huge = {**image, "data": base64.b64encode(PNG + bytes(4_000_000)).decode()}
            return {"content": [image, huge, {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}]}
        case "rows":
            return {"content": [{"type": "text", "text": "2 rows"}], "structuredContent": {"rows": [1, None]}}
        case "repeat":
            return {**_text("one page"), "structuredContent": {"content": "one page"}}
        case "refuse":
            return {**_text("no such file"), "isError": True}
        case "big":
            return _text("x" * arguments["chars"])
        case _:
            return _text("done")


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def replies(message: dict[str, Any], log: Path, tools: list[dict[str, Any]] = TOOLS) -> Iterator[dict[str, Any]]:
    """What the server sends on a message."""
    method, params = message.get("method"), message.get("params", {})
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    if method == "initialize":
        about: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "a test", "version": "1"}}
        yield {**answer, "result": {"protocolVersion": params["protocolVersion"], **about}}
    elif method == "tools/list":
        yield {**answer, "result": {"tools": tools}}
    elif method == "notifications/cancelled":
        note(log, "cancelled")
    elif method == "tools/call":
        name = params["name"]
        note(log, f"call {name}")
        token = params.get("_meta", {}).get("progressToken")
        for n in range(1, 4 if name == "progress" else 1):
            yield {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": n},
            }
        if name == "fault":
            yield {**answer, "error": {"code": -32603, "message": "the disk is full"}}
        elif name != "forever":
            yield {**answer, "result": _result(name, params.get("arguments", {}))}
    elif "id" in message:
        yield {**answer, "error": {"code": -32601, "message": "unknown method"}}


def note(log: Path, line: str) -> None:
    """Add a line to the log."""
    with log.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> None:
    """Serve stdin and stdout."""
    log = Path(sys.argv[1])
    tools = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")) if len(sys.argv) > 2 else TOOLS
    note(log, f"start {os.getpid()}")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("params", {}).get("name") == "die":
            os._exit(1)
        for reply in replies(message, log, tools):
            time.sleep(PACE_SECONDS if message.get("params", {}).get("name") == "progress" else 0)
            print(json.dumps(reply), flush=True)


@asynccontextmanager
async def over_http(log: Path, *, token: str = "", port: int = 0) -> AsyncGenerator[str]:
    """The same server over HTTP. Yields its URL."""
    from aiohttp import web

    async def post(request: Any) -> Any:
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            return web.Response(status=401)
        message = await request.json()
        if "id" not in message:
            list(replies(message, log))
            return web.Response(status=202)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for reply in replies(message, log):
            await response.write(b"event: message\ndata: " + json.dumps(reply).encode() + b"\n\n")
        if message.get("params", {}).get("name") == "forever":
            await asyncio.Event().wait()  # until the client leaves
        return response

    async def get(request: Any) -> Any:
        return web.Response(status=405)

    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/mcp", post)
    app.router.add_get("/mcp", get)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        note(log, "start")
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    main()
