"""Builds the SDK's server around delegate's tools. Only this module depends on the differences of SDK versions 1 and 2.

Results and definitions are passed with the protocol's field names, which the models of both versions accept.
"""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
# Only one of the two versions is installed, so names of the other are unknown.

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, Unpack, cast
from weakref import WeakKeyDictionary

from mcp import types
from mcp.server.lowlevel import Server

from delegate._util.cancellation import Cancellation
from delegate._util.redaction import logger, redactor
from delegate.delegator import Delegator
from delegate.hosts.mcp.approvals import HeldCall, HeldCalls, Question
from delegate.hosts.mcp.clients import Clients
from delegate.hosts.mcp.definitions import INSTRUCTIONS, NAME, TASKS_EXTENSION
from delegate.hosts.mcp.projects import ListRoots
from delegate.hosts.mcp.tasks import ProtocolTask, ProtocolTasks
from delegate.hosts.mcp.tools import ToolRequest, Tools
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.policy.settings import SettingsOptions
from delegate.types import JsonObject, Parent
from delegate.types.errors import ConfigError

_VERSION = version("delegate-task")
_log = logger(__name__)

_TOOLS: "WeakKeyDictionary[Server[Any], Tools]" = WeakKeyDictionary()
_ROOTS = "roots"
"""The name under which a client of the protocol of 2026-07-28 is asked for its roots."""
_APPROVAL = "approval"
"""The name under which such a client is asked for an approval."""
DISCONNECTED = "delegate.disconnected"
"""The key in an HTTP request's scope for the `Cancellation` that is cancelled when the request ends."""


def server(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    shared_records: bool = False,
    answer_within: float | Literal["client"] | None = "client",
    structured: bool = False,
    workspaces: WorkspacePolicy | None = None,
    keep: bool = False,
    problem: str = "",
    **options: Unpack[SettingsOptions],
) -> Server[Any]:
    """Create a low-level server of the installed MCP SDK with delegate's tools.

    Args:
        delegator: runs the tasks; if None, one is created from `options`.
        parent: what the operator knows about the parent, such as its tier; MCP doesn't provide it.
        shared_records: whether clients over HTTP may list and read every recorded result, and share the ledger of a
            run that several of them name. By default, a client reads only the results of its own calls.
        answer_within: seconds after which a call that still runs goes on in the background and is answered with its
            handles, unless the client says otherwise; None for no limit, and `client` for as long as the client is
            known to wait, or else 45 seconds. It is also the default and the maximum of `wait_seconds`.
        structured: whether results have a `structuredContent` with each task's verdict, code and handle. Many clients
            show it to the model instead of the text, which says more.
        workspaces: where children work; None for empty folders.
        keep: whether calls go on when their client leaves, as the server's transport was told. Parents are told so.
        problem: why no call can be run. All of them are answered with it.
        **options: single settings, such as `model="…"`.

    Raises:
        ConfigError: the settings are wrong.
    """
    if delegator is not None and options:
        raise ConfigError(f"{', '.join(options)}: the delegator has its own settings")
    delegator = delegator or Delegator(**options)
    delegator.background.outlives_session = keep
    tools = Tools(
        delegator,
        Clients(shared_records=shared_records),
        parent=parent,
        answer_within=answer_within,
        structured=structured,
        workspaces=workspaces,
        problem=problem,
    )
    made = _server_v1(tools) if hasattr(Server, "call_tool") else _server_v2(tools)
    _TOOLS[made] = tools
    return made


def tools_of(server: Server[Any]) -> Tools:
    """The tools of a server that `server` has made."""
    return _TOOLS[server]


def is_notification_in(text: str) -> bool:
    """Parse a JSON-RPC message as the SDK does. Raises pydantic's ValidationError if it can't."""
    if hasattr(types, "jsonrpc_message_adapter"):
        return isinstance(types.jsonrpc_message_adapter.validate_json(text, by_name=False), types.JSONRPCNotification)
    return isinstance(types.JSONRPCMessage.model_validate_json(text).root, types.JSONRPCNotification)


def _server_v2(tools: Tools) -> Server[Any]:
    protocol_tasks, held_calls = ProtocolTasks(), HeldCalls()

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult.model_validate({"tools": tools.listed})

    async def call_tool(context: Any, params: Any) -> Any:
        if not _is_modern(context) or not _has_forms(context.session.client_capabilities):
            return await answer(context, params)
        # The client may have to be asked something before the call ends, and then repeats it.
        client = tools.clients.identify(context.request)
        if params.request_state is None:
            held = HeldCall(client)
            held.start(answer(context, params, held))
        elif (known := held_calls.take(client, params.request_state)) is not None:
            held = known
            held.reply((params.input_responses or {}).get(_APPROVAL))
        else:
            text = "there is no call that waits for this answer; call again without it"
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        held.report_progress = context.session.report_progress if "progress_token" in (context.meta or {}) else None
        answered = await held_calls.answer(held, _disconnected(context))
        if not isinstance(answered, Question):
            return answered
        form = types.ElicitRequestFormParams(message=answered.message, requested_schema=answered.form)
        requests: dict[str, Any] = {_APPROVAL: types.ElicitRequest(params=form)}
        return types.InputRequiredResult(input_requests=requests, request_state=answered.state)

    async def answer(context: Any, params: Any, held: HeldCall | None = None) -> Any:
        meta, capabilities = cast("Mapping[str, Any]", context.meta or {}), context.session.client_capabilities
        roots = partial(_request_roots, context, params)
        request = _request(context, capabilities, params.name, params.arguments or {}, meta, roots)
        progress = held.progress if held else context.session.report_progress
        request.report_progress = progress if "progress_token" in meta else None
        request.as_task = protocol_tasks.create if _declares_tasks(context) else None
        if held is not None:
            request.disconnected, request.elicit = held.cancellation, held.elicit
        try:
            result = await tools.answer(request)
        except _RootsNeeded:
            return types.InputRequiredResult(input_requests={_ROOTS: types.ListRootsRequest()})
        return result if result.get("resultType") == "task" else types.CallToolResult.model_validate(result)

    server: Server[Any] = Server(
        NAME, version=_VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    _add_tasks(server, protocol_tasks, tools)
    return server


class _RootsNeeded(Exception):
    """The client is to be asked in the answer, and repeats its call: the latest protocol has no requests of servers."""


async def _request_roots(context: Any, call: Any) -> Any:
    if not _is_modern(context):
        return await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult)
    if call.input_responses is None:
        raise _RootsNeeded
    return call.input_responses[_ROOTS]


def _is_modern(context: Any) -> bool:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _declares_tasks(context: Any) -> bool:
    """Whether the client of a request has declared the extension, which needs the protocol of 2026-07-28."""
    capabilities = context.session.client_capabilities
    declared = (capabilities.extensions if capabilities else None) or {}
    return _is_modern(context) and TASKS_EXTENSION in declared


def _add_tasks(server: Any, tasks: ProtocolTasks, tools: Tools) -> None:
    """Add the requests about tasks, which only the protocol of 2026-07-28 has."""
    from mcp.server.mcpserver.server import require_client_extension
    from mcp.shared.exceptions import MCPError

    class TaskParams(types.RequestParams):
        taskId: str

    class UpdateParams(TaskParams):
        inputResponses: dict[str, Any] | None = None

    def handler(answer: Callable[[ProtocolTask, Any], Awaitable[JsonObject]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(context: Any, params: Any) -> Any:
            require_client_extension(context, TASKS_EXTENSION)
            if (task := tasks.of(tools.clients.identify(context.request), params.taskId)) is None:
                raise MCPError(types.INVALID_PARAMS, f"there is no task {redactor.beginning(params.taskId, 100)!r}")
            return await answer(task, params)

        return handle

    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, handler(lambda task, _: task.get()))
    server.add_request_handler("tasks/cancel", TaskParams, handler(lambda task, _: task.cancel()))
    update = handler(lambda task, sent: task.update(sent.inputResponses or {}))
    server.add_request_handler("tasks/update", UpdateParams, update)


def _server_v1(tools: Tools) -> Server[Any]:
    server: Any = Server(NAME, version=_VERSION, instructions=INSTRUCTIONS)

    @server.list_tools()
    async def list_tools() -> Any:  # pyright: ignore[reportUnusedFunction]
        return types.ListToolsResult.model_validate({"tools": tools.listed}).tools

    @server.call_tool(validate_input=False)
    async def call_tool(name: str, arguments: JsonObject) -> Any:  # pyright: ignore[reportUnusedFunction]
        context = server.request_context
        session, client = context.session, context.session.client_params
        meta = (context.meta and context.meta.model_extra) or {}
        request = _request(context, client and client.capabilities, name, arguments, meta, session.list_roots)
        if (token := context.meta.progressToken if context.meta else None) is not None:
            # Over HTTP, only a notification with a related request is sent in that request's response.
            send = partial(session.send_progress_notification, token, related_request_id=str(context.request_id))
            request.report_progress = send
        return types.CallToolResult.model_validate(await tools.answer(request))

    return server


def _request(
    context: Any, capabilities: Any, tool: str, arguments: JsonObject, meta: Any, roots: Callable[[], Awaitable[Any]]
) -> ToolRequest:
    """What both versions say of a call. `roots` requests the client's roots."""
    session, has_forms = context.session, _has_forms(capabilities)
    info = getattr(session.client_params, "client_info", None) or getattr(session.client_params, "clientInfo", None)
    return ToolRequest(
        tool=tool,
        arguments=arguments,
        http=context.request,
        meta=meta,
        disconnected=_disconnected(context),
        list_roots=_roots(capabilities, roots),
        elicit=partial(session.elicit_form, related_request_id=context.request_id) if has_forms else None,
        id=context.request_id,
        client_name=info.name if info else "",
    )


def _roots(capabilities: Any, request: Callable[[], Awaitable[Any]]) -> ListRoots | None:
    """Returns the URIs of the client's roots, or none if the request fails. None if the client has no roots."""
    if capabilities is None or capabilities.roots is None:
        return None

    async def ask() -> list[str]:
        try:
            return [str(root.uri) for root in (await request()).roots]
        except _RootsNeeded:
            raise
        except Exception as error:  # of a class that the two versions have at different places, or a wrong answer
            _log.warning("the client can't name its roots: %s", error)
            return []

    return ask


def _has_forms(capabilities: Any) -> bool:
    """Whether a client shows its user forms. One that declares no modes of elicitation has them."""
    declared = capabilities.elicitation if capabilities is not None else None
    return declared is not None and (declared.form is not None or declared.url is None)


def _disconnected(context: Any) -> Cancellation | None:
    return context.request.scope.get(DISCONNECTED) if context.request is not None else None
