"""MCP, for every host that speaks it: our tools as a server of the MCP SDK, version 1 or 2.

Most hosts start the command `delegate mcp` and speak with it on stdin and stdout, or reach `delegate mcp --http` at
http://127.0.0.1:8765/mcp with a bearer token. A program of your own may serve it as well:

    from delegate import Delegator
    from delegate.hosts import mcp
    async with Delegator(model="…") as delegator:
        server = mcp.server(delegator)  # the SDK's own mcp.server.lowlevel.Server
        await mcp.serve_stdio(server)

The answer's text is what the parent reads; the report beside it is `structuredContent`, and fits the tool's output
schema. A client that asks for progress is told of every child. A call ends with its children when the client cancels
it, and when nobody is left who could read the answer.

What MCP doesn't say: who the parent is (its model, its tools, its time left) and which run a call belongs to, so calls
that overlap in one session share a ledger. It counts no tokens: what was used stands in the report's totals.
"""

from delegate.hosts.mcp.http import LOOPBACK, PATH, listen, serve_http
from delegate.hosts.mcp.sdk import server
from delegate.hosts.mcp.stdio import serve_stdio

__all__ = ["LOOPBACK", "PATH", "listen", "serve_http", "serve_stdio", "server"]
