"""The SDK's server around our tools: the one place that knows in what its versions 1 and 2 differ.

Results and definitions are handed over in the protocol's own spelling, which the models of both versions read.
"""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
# Of the two versions one is installed, and the other's names are unknown.

from collections.abc import Hashable
from functools import partial
from importlib.metadata import version
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server

from delegate._util.cancellation import Cancellation
from delegate.delegator import Delegator
from delegate.hosts import host_tool
from delegate.hosts.mcp.tools import ProgressCallback, ToolRequest, Tools
from delegate.types import JsonObject, Parent

NAME = "delegate"
INSTRUCTIONS = (
    "Hands tasks to child agents, side by side, and gives each back with a PASS or FAIL verdict on its acceptance "
    "criteria. Progress notifications say what each child does."
)
GONE = "delegate.gone"
"""Where an HTTP request's scope holds the `Cancellation` that its end cancels."""


def server(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> Server[Any]:
    """Our tools, as a low-level server of the MCP SDK that is installed.

    Args:
        delegator: does the work; made with `options` (settings) where it is None.
        parent: what the operator knows of the parent, such as its tier; MCP says nothing of it.
        **options: single settings, such as `model="…"`.

    Raises:
        ConfigError: the settings are wrong.
    """
    delegation = host_tool.make_delegate_tool(delegator, parent=parent, **options)
    of_ours = delegation.delegator
    tools = Tools(
        delegation=delegation, reading=host_tool.make_read_tool(of_ours), thinking=host_tool.make_think_tool(of_ours)
    )
    of_version = _version_1 if hasattr(Server, "call_tool") else _version_2
    return of_version(tools)


def _version_2(tools: Tools) -> Server[Any]:
    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult.model_validate({"tools": tools.listed})

    async def call_tool(context: Any, params: Any) -> Any:
        asked = "progress_token" in (context.meta or {})
        request = ToolRequest(
            tool=params.name,
            arguments=params.arguments or {},
            session=_session(context.request),
            report=context.session.report_progress if asked else None,
            gone=_gone(context.request),
        )
        return types.CallToolResult.model_validate(await tools.answer(request))

    own = version("delegate-task")
    return Server(NAME, version=own, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def _version_1(tools: Tools) -> Server[Any]:
    server: Any = Server(NAME, version=version("delegate-task"), instructions=INSTRUCTIONS)

    @server.list_tools()
    async def list_tools() -> Any:  # pyright: ignore[reportUnusedFunction]
        return types.ListToolsResult.model_validate({"tools": tools.listed}).tools

    @server.call_tool(validate_input=False)
    async def call_tool(name: str, arguments: JsonObject) -> Any:  # pyright: ignore[reportUnusedFunction]
        context = server.request_context
        request = ToolRequest(
            tool=name,
            arguments=arguments,
            session=_session(context.request),
            report=_report_1(context),
            gone=_gone(context.request),
        )
        return types.CallToolResult.model_validate(await tools.answer(request))

    return server


def _report_1(context: Any) -> ProgressCallback | None:
    token = context.meta.progressToken if context.meta else None
    if token is None:
        return None
    # Only what is related to a request travels on that request's own HTTP response.
    send = partial(context.session.send_progress_notification, token, related_request_id=str(context.request_id))
    return lambda done, of, line: send(done, of, line)


def _session(http: Any) -> Hashable:
    """The session's id over HTTP. On stdio there is one session; and protocol 2026-07-28 knows none."""
    return http.headers.get("mcp-session-id") if http is not None else None


def _gone(http: Any) -> Cancellation | None:
    return http.scope.get(GONE) if http is not None else None
