"""Builds the SDK's server around delegate's tools. Only this module depends on the differences of SDK versions 1 and 2.

Results and definitions are passed with the protocol's field names, which the models of both versions accept.
"""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
# Only one of the two versions is installed, so names of the other are unknown.

from functools import partial
from importlib.metadata import version
from typing import Any, Unpack

from mcp import types
from mcp.server.lowlevel import Server

from delegate._util.cancellation import Cancellation
from delegate.delegator import Delegator
from delegate.hosts import host_tool
from delegate.hosts.mcp.clients import RUN_NAME, Clients
from delegate.hosts.mcp.tools import ProgressCallback, ToolRequest, Tools
from delegate.settings import SettingsOptions
from delegate.types import JsonObject, Parent

NAME = "delegate"
INSTRUCTIONS = (
    "Delegates tasks to child agents that run in parallel, and returns each with a PASS or FAIL verdict on its "
    "acceptance criteria. Progress notifications report what each child does."
)
DISCONNECTED = "delegate.disconnected"
"""The key in an HTTP request's scope for the `Cancellation` that is canceled when the request ends."""


def server(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    shared_records: bool = False,
    **options: Unpack[SettingsOptions],
) -> Server[Any]:
    """Create a low-level server of the installed MCP SDK with delegate's tools.

    Args:
        delegator: runs the tasks; if None, one is created from `options`.
        parent: what the operator knows about the parent, such as its tier; MCP doesn't provide it.
        shared_records: whether clients over HTTP may read every recorded report whose handle they have, and share the
            ledger of a run that several of them name. By default, a client reads only the reports of its own calls.
        **options: single settings, such as `model="…"`.

    Raises:
        ConfigError: the settings are wrong.
    """
    delegate_tool = host_tool.make_delegate_tool(delegator, parent=parent, **options)
    delegator, clients = delegate_tool.delegator, Clients(shared_records=shared_records)
    tools = Tools(
        clients,
        delegate=delegate_tool,
        read=host_tool.make_read_tool(delegator, may_read=clients.may_read),
        think=host_tool.make_think_tool(delegator),
    )
    return _server_v1(tools) if hasattr(Server, "call_tool") else _server_v2(tools)


def is_notification_in(text: str) -> bool:
    """Parse a JSON-RPC message as the SDK does. Raises pydantic's ValidationError if it can't."""
    if hasattr(types, "jsonrpc_message_adapter"):
        return isinstance(types.jsonrpc_message_adapter.validate_json(text, by_name=False), types.JSONRPCNotification)
    return isinstance(types.JSONRPCMessage.model_validate_json(text).root, types.JSONRPCNotification)


def _server_v2(tools: Tools) -> Server[Any]:
    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult.model_validate({"tools": tools.listed})

    async def call_tool(context: Any, params: Any) -> Any:
        meta = context.meta or {}
        wants_progress = "progress_token" in meta
        request = ToolRequest(
            tool=params.name,
            arguments=params.arguments or {},
            http=context.request,
            run_name=meta.get(RUN_NAME),
            report_progress=context.session.report_progress if wants_progress else None,
            disconnected=_disconnected(context.request),
        )
        return types.CallToolResult.model_validate(await tools.answer(request))

    return Server(
        NAME,
        version=version("delegate-task"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _server_v1(tools: Tools) -> Server[Any]:
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
            http=context.request,
            run_name=context.meta and (context.meta.model_extra or {}).get(RUN_NAME),
            report_progress=_progress_v1(context),
            disconnected=_disconnected(context.request),
        )
        return types.CallToolResult.model_validate(await tools.answer(request))

    return server


def _progress_v1(context: Any) -> ProgressCallback | None:
    token = context.meta.progressToken if context.meta else None
    if token is None:
        return None
    # Over HTTP, only a notification with a related request is sent in that request's response.
    send = partial(context.session.send_progress_notification, token, related_request_id=str(context.request_id))
    return lambda done, total, line: send(done, total, line)


def _disconnected(http: Any) -> Cancellation | None:
    return http.scope.get(DISCONNECTED) if http is not None else None
