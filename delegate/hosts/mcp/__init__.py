"""Adapter for MCP: delegate's tools as a server of the MCP SDK, version 1 or 2.

Most hosts start the command `delegate mcp` and communicate with it on stdin and stdout, or connect to `delegate mcp
--http` at http://127.0.0.1:8765/mcp with a bearer token. Your own program can serve it as well:

    from delegate import Delegator
    from delegate.hosts import mcp
    async with Delegator(model="…") as delegator:
        server = mcp.server(delegator)  # the SDK's own mcp.server.lowlevel.Server
        await mcp.serve_stdio(server)

The parent reads the text of the result, which is all there is unless the server is made with `structured=True`. A
client that requests progress is notified about every child. A call that takes longer than its client is known to wait,
or else 45 seconds (`answer_within`), goes on in the background and is answered with its handles: `read_delegation`
waits for the results, `stop_delegation` stops a task. Clients that declare MCP's tasks extension get a task of the
protocol instead. A call and its children are stopped when the client cancels the call, and when its connection is lost.

Calls of one run share a ledger: those whose `_meta` has the same `delegate/run`, else those of one turn of Codex, else
all calls of a connection, whose limits count what was used within the last hour. Only Codex says which model the parent
is; no client says which tools it has, or how much time. Over HTTP, a client reads only the results of its own calls,
unless the server is made with `shared_records=True`. MCP has no usage totals: `delegate show` prints them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegate.hosts.mcp.http import PATH, serve_http
    from delegate.hosts.mcp.sdk import server
    from delegate.hosts.mcp.stdio import serve_stdio
    from delegate.hosts.web import LOOPBACK, listen

__all__ = ["LOOPBACK", "PATH", "listen", "serve_http", "serve_stdio", "server"]

_MODULES = {
    **dict.fromkeys(("PATH", "serve_http"), "delegate.hosts.mcp.http"),
    **dict.fromkeys(("LOOPBACK", "listen"), "delegate.hosts.web"),
    "server": "delegate.hosts.mcp.sdk",
    "serve_stdio": "delegate.hosts.mcp.stdio",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the SDK takes longer to load than clients wait for their first answer."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
