"""MCP, for every host that speaks it: the tools as a server of the MCP SDK, version 1 or 2.

Most hosts start the command `delegate mcp` and talk to it over stdin and stdout, or reach `delegate mcp --http` at
http://127.0.0.1:8765/mcp with a bearer token. A program of your own can serve it as well:

    from delegate import Delegator
    from delegate.hosts import mcp
    async with Delegator(model="…") as delegator:
        server = mcp.server(delegator)  # the SDK's own mcp.server.lowlevel.Server
        await mcp.serve_stdio(server)

The answer's text is what the parent reads; `structuredContent` is the report, which fits the tool's output schema. A
client that asks for progress is told about every child. A call and its children end when the client cancels it, or when
no client is left to read the answer.

MCP doesn't say who the parent is (its model, its tools, its time left) or which run a call belongs to, so overlapping
calls of one session share a ledger. It counts no tokens: what was used is in the report's totals.
"""

from delegate.hosts.mcp.http import LOOPBACK, PATH, listen, serve_http
from delegate.hosts.mcp.sdk import server
from delegate.hosts.mcp.stdio import serve_stdio

__all__ = ["LOOPBACK", "PATH", "listen", "serve_http", "serve_stdio", "server"]
