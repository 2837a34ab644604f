"""MCP: the SDK's own client, of version 1 or 2, at the real command. The client makes the calls, without a model."""
# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportCallIssue=false, reportArgumentType=false
# Only one of the SDK's two versions is installed, so names of the other are unknown.

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import mcp
from mcp import types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import server as lowlevel
from mcp.shared._httpx_utils import create_mcp_http_client

from delegate import Delegator
from delegate.policy.settings import Settings, variable
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import NAMES, World

V2 = hasattr(mcp, "Client")
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
TOKEN = "a-token-of-the-tests"
QUIET_SECONDS = 10
"""How long the model calls of a cancelled call may take to end."""


class Session:
    """A connected client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[JsonObject]:
        return [_wire(tool) for tool in (await self._client.list_tools()).tools]

    async def call(
        self,
        arguments: JsonObject,
        on_progress: OnProgress | None = None,
        *,
        tool: str = "delegate_task",
        meta: JsonObject | None = None,
    ) -> JsonObject:
        """One call. Its cancellation is sent to the server, which version 1 of the SDK leaves to its user."""
        request_id = None if V2 else self._client._request_id
        try:
            return _wire(await self._client.call_tool(tool, arguments, progress_callback=on_progress, meta=meta))
        except asyncio.CancelledError:
            if request_id is not None:
                with anyio.CancelScope(shield=True):
                    notification = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
                    await self._client.send_notification(types.ClientNotification.model_validate(notification))
            raise


def _wire(value: Any) -> JsonObject:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connected(
    transport: AbstractAsyncContextManager[Any],
    *,
    latest: bool = False,
    roots: Sequence[str] | None = None,
    person: Callable[[str], Awaitable[JsonObject]] | None = None,
) -> AsyncGenerator[Session]:
    """A client on this transport. `latest` selects the newest protocol; version 2 of the SDK supports two. `person`
    answers the forms that the server sends."""

    async def list_roots(context: Any) -> Any:
        return types.ListRootsResult.model_validate({"roots": [{"uri": root} for root in roots or ()]})

    async def elicited(context: Any, params: Any) -> Any:
        assert person is not None
        return types.ElicitResult.model_validate(await person(params.message))

    callback: dict[str, Any] = {} if roots is None else {"list_roots_callback": list_roots}
    callback |= {} if person is None else {"elicitation_callback": elicited}
    if V2:
        async with mcp.Client(transport, mode="auto" if latest else "legacy", **callback) as client:
            yield Session(client)
    else:
        async with transport as (read, write, *_), mcp.ClientSession(read, write, **callback) as session:
            await session.initialize()
            yield Session(session)


def over_stdio(settings: Settings | None = None, *options: str) -> Any:
    """The command in its own process, with the environment of the test and these settings."""
    env = {**os.environ, **(environment(settings) if settings else {})}
    command = ["-m", "delegate", "mcp", *options]
    return stdio_client(StdioServerParameters(command=sys.executable, args=command, env=env))


@asynccontextmanager
async def over_http(url: str, token: str | None = TOKEN, **more_headers: str) -> AsyncGenerator[Any]:
    """A transport to the server at `url`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {name.replace("_", "-"): value for name, value in more_headers.items()}
    async with (
        create_mcp_http_client(headers=headers) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def environment(settings: Settings) -> dict[str, str]:
    """The environment variables for these settings."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {
        variable(name): ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in given.items()
        if value is not None
    }


class Mcp:
    name = "mcp"
    package = "mcp"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "usage_counted": "MCP has no usage totals: token usage is in what `delegate show` prints",
        "one_ledger_per_run": "a client that names neither run nor turn has one run with the limits of an hour",
        "result_kept": "many clients show a `structuredContent` to the model instead of the text",
        "tier_ceiling": "MCP doesn't say which model the parent is",
        **dict.fromkeys(
            (
                "own_tools_omitted",
                "parent_tools_used",
                "parent_tools_only",
                "tool_refuses_arguments",
                "approval_denied",
            ),
            "MCP gives a server no access to the client's tools",
        ),
    }

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        lines: list[str] = []

        async def on_progress(done: float, of: float | None, message: str | None) -> None:
            lines.append(message or "")

        async def person(message: str) -> JsonObject:
            return {"action": "accept", "content": {"answer": world.reply}}

        # What continues ends before the server does, which each turn starts anew.
        server = over_stdio(delegator.settings, *(["--keep"] if world.own == "message" else []))
        async with connected(server, person=person if world.reply else None) as session:
            await session.tools()
            calls = [arguments for arguments in world.calls if isinstance(arguments, dict)]
            tool = NAMES[world.own]
            running = asyncio.gather(*(session.call(arguments, on_progress, tool=tool) for arguments in calls))
            if cancel is not None:
                await cancel.wait()
                running.cancel()
                await asyncio.wait([running])
                await _quiet(world)
                # By its answer, version 1 of the client has received all that was on its way, and can be closed.
                await session.tools()
                return Outcome()
            answers = await running
        return Outcome(
            progress=lines,
            structured=[answer["structuredContent"] for answer in answers if "structuredContent" in answer],
            errors=[answer["isError"] for answer in answers],
            results=["\n".join(block["text"] for block in answer["content"]) for answer in answers],
        )


async def _quiet(world: World) -> None:
    """Wait until all model calls have ended, with the connection still open: closing it would stop them, too."""
    async with asyncio.timeout(QUIET_SECONDS):
        while world.server.in_flight:  # noqa: ASYNC110 - the model server runs in another thread
            await asyncio.sleep(0.01)


async def invoke(server: Any, arguments: JsonObject) -> object:
    """Call the tool like the SDK's dispatcher does, without a transport."""
    params = {"name": "delegate_task", "arguments": arguments}
    if V2:
        context = SimpleNamespace(meta=None, request=None, session=None)
        entry = server.get_request_handler("tools/call")
        return await entry.handler(context, entry.params_type.model_validate(params))
    token = lowlevel.request_ctx.set(SimpleNamespace(meta=None, request=None, session=None, request_id=0))
    with contextlib.ExitStack() as stack:
        stack.callback(lowlevel.request_ctx.reset, token)
        request = types.CallToolRequest.model_validate({"method": "tools/call", "params": params})
        return await server.request_handlers[types.CallToolRequest](request)


DRIVER = Mcp()
