"""One connection to an MCP server, by the SDK of either generation. Loaded only where a server is used."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# Only one of the two generations is installed, so names of the other are unknown.

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TextIO, cast

import mcp
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from delegate.policy.mcp_servers import McpServer
from delegate.types.errors import ToolError

CLOSE_SECONDS = 10.0
"""How long a server may take to end. Then it is left to the SDK, which kills it."""
_PROBE_SECONDS = 5.0
"""How long a server may take to show that it still answers."""
_UNCLEAR = frozenset({-32000, 32600, -32600})
"""The codes of errors that the SDK makes up for a connection or session that has ended. A server may send them too."""
_MOST_PAGES = 100


class McpConnection:
    """A server that was started or reached, in a task of its own: the SDK's contexts have to be left where they were
    entered.
    """

    def __init__(self, name: str, server: McpServer, environ: Mapping[str, str]) -> None:
        self._name, self._server = name, server
        self._environ = environ
        self._closing = asyncio.Event()
        self._session: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve())
        self.ended = False

    async def opened(self) -> None:
        """Wait until the server is ready. Raises what keeps it from that; TimeoutError if it takes too long."""
        try:
            async with asyncio.timeout(self._server.timeout_seconds):
                await asyncio.shield(self._session)
        except BaseException:
            await self.aclose()
            raise

    async def tools(self) -> AsyncIterator[Mapping[str, Any]]:
        session, cursor = await self._session, None
        for _ in range(_MOST_PAGES):
            page = _plain(await session.list_tools(**({"cursor": cursor} if cursor else {})))
            for tool in page.get("tools", ()):
                yield tool
            if not (cursor := page.get("nextCursor")):
                return

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a tool, and return its result as in the protocol.

        Raises:
            ToolError: The server answered with an error, or it ended meanwhile.
            TimeoutError: It took too long, without a sign of progress.
        """
        seconds, loop = self._server.timeout_seconds, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds) as limit:

                async def progressed(*_: object) -> None:
                    limit.reschedule(loop.time() + seconds)

                return _plain(await self._call(tool, dict(arguments), progressed))
        except TimeoutError:
            self.ended = not await self._answers()
            raise
        except Exception as error:
            code = getattr(getattr(error, "error", None), "code", None)
            if (code is not None and code not in _UNCLEAR) or await self._answers():
                raise ToolError(str(error)) from error
            self.ended = True
            message = f"the server {self._name} ended during this call, which may have been done or not"
            raise ToolError(message) from error

    async def _call(self, tool: str, arguments: dict[str, Any], progressed: Any) -> Any:
        session = await self._session
        request = getattr(session, "_request_id", None)  # generation 1, which doesn't tell the server of a cancel
        try:
            return await session.call_tool(tool, arguments, progress_callback=progressed)
        except asyncio.CancelledError:
            if request is not None:
                params = types.CancelledNotificationParams(requestId=request, reason="the call was stopped")
                note = types.CancelledNotification(method="notifications/cancelled", params=params)
                with suppress(Exception):
                    async with asyncio.timeout(1):
                        await session.send_notification(types.ClientNotification(note))
            raise

    async def _answers(self) -> bool:
        if self._task.done():
            return False
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._session.result().list_tools()
        except Exception:
            return False
        return True

    async def aclose(self) -> None:
        self._closing.set()
        if not self._session.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    async def _serve(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._session.set_result(await self._connect(stack))
                await self._closing.wait()
        except asyncio.CancelledError:
            self._session.cancel()
            raise
        except BaseException as error:
            if not self._session.done():
                self._session.set_exception(_cause(error))
        finally:
            self.ended = True

    async def _connect(self, stack: AsyncExitStack) -> Any:
        """The session, which has `list_tools` and `call_tool` in both generations."""
        transport = await self._transport(stack)
        client: Any = getattr(mcp, "Client", None)
        if client is not None:
            return await stack.enter_async_context(client(transport))
        read, write, *_ = await stack.enter_async_context(transport)
        session = await stack.enter_async_context(ClientSession(read, write))
        await session.initialize()
        return session

    async def _transport(self, stack: AsyncExitStack) -> Any:
        server = self._server
        if server.command is not None:
            env = server.environment(self._environ)
            # The terminal belongs to who runs delegate.
            errors = stack.enter_context(_discarded())
            parameters = StdioServerParameters(command=server.command, args=list(server.args), env=env)
            return stdio_client(parameters, errlog=errors)
        headers = {"Authorization": f"Bearer {self._environ[server.token_env]}"} if server.token_env else {}
        client = await stack.enter_async_context(create_mcp_http_client(headers=headers))
        client.timeout = max(300, server.timeout_seconds + 5)  # the limits are kept here
        return streamable_http_client(cast("str", server.url), http_client=client)


def _discarded() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _plain(result: Any) -> dict[str, Any]:
    """A result as JSON, with the names of the protocol, which differ from the SDK's in one of its generations."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("it was closed")
