"""Serves the list of runs and their pages to a browser on this machine only.

It listens on 127.0.0.1, and every address begins with a token that other users and web pages can't know. Requests that
name another host are refused, since a page elsewhere can make its own name point here. There is nothing to change:
only GET and HEAD are answered.
"""

import asyncio
import hmac
import os
import secrets
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from delegate._util.redaction import logger
from delegate._util.slow_clients import SlowClients
from delegate._util.threads import run_in_thread
from delegate.pages.page import Page, compare_page, list_page, problem_page, run_page
from delegate.pages.reading import RunReader
from delegate.types.errors import CallError, DelegateError

ADDRESS = "127.0.0.1"
LISTED_RUNS, SEARCHED_RUNS = 200, 5_000
"""How many of the latest runs the list has, and are searched."""
_SHUTDOWN_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_log = logger(__name__)


async def serve(home: Path, *, port: int = 0, on_ready: Callable[[str], None]) -> None:
    """Serve the runs that are recorded in `home` until cancelled. `on_ready` gets the address to open.

    Port 0 is any free one. Raises CallError `port_in_use`.
    """
    async with RunReader(home) as reader:
        views = _Views(reader)
        runner = web.AppRunner(views.app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, ADDRESS, port).start()
            except OSError as error:
                message = f"port {port} can't be used: {os.strerror(error.errno or 0)}"
                hint = "choose another --port, or leave it out"
                raise CallError("port_in_use", message, field="port", hint=hint) from None
            on_ready(f"http://{ADDRESS}:{runner.addresses[0][1]}/{views.token}/")
            await views.close_slow(runner)
        finally:
            await runner.cleanup()


class _Views:
    def __init__(self, reader: RunReader) -> None:
        self.token = secrets.token_urlsafe(18)
        self._reader = reader
        self._turns = dict[web.RequestHandler, int]()
        """How often a request or an answer began on each connection: an odd number of times while one is answered."""
        self.app = web.Application(middlewares=[self._answer])
        self.app.router.add_get("/{token}/", self._list)
        self.app.router.add_get("/{token}/run/{id}", self._run)
        self.app.router.add_get("/{token}/compare", self._compare)

    async def close_slow(self, runner: web.AppRunner) -> None:
        """Close the connections of clients that don't send a whole request, until cancelled."""
        slow = SlowClients[web.RequestHandler]()
        while runner.server is not None:
            self._turns = {connection: self._turns.get(connection, 0) for connection in runner.server.connections}
            waiting = {connection: turns for connection, turns in self._turns.items() if turns % 2 == 0}
            for connection in slow.to_close(waiting):
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(_LOOK_SECONDS)

    def _turn(self, connection: web.RequestHandler) -> None:
        self._turns[connection] = self._turns.get(connection, 0) + 1

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests without the token or for another host, and set the headers of all replies."""
        self._turn(request.protocol)
        try:
            if not self._is_ours(request):
                raise web.HTTPNotFound
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.status}: {error.reason}\n")
        except DelegateError as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, CallError) else HTTPStatus.INTERNAL_SERVER_ERROR
            response = _reply(problem_page(str(error)), status)
        except Exception:
            _log.exception("a page can't be shown")
            response = web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="500: this page can't be shown\n")
        finally:
            self._turn(request.protocol)
        response.headers.update(_HEADERS)
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
        return response

    def _is_ours(self, request: web.Request) -> bool:
        """Whether the request names this server by its address, and knows the token."""
        name, _, port = request.headers.get("Host", "").rpartition(":")
        local = request.get_extra_info("sockname")
        token = request.path.removeprefix("/").partition("/")[0]
        is_known = hmac.compare_digest(token.encode(errors="replace"), self.token.encode())
        return is_known and name in (ADDRESS, "localhost") and local is not None and port == str(local[1])

    async def _list(self, request: web.Request) -> web.Response:
        words, only = request.query.get("q", ""), request.query.get("only", "")
        runs = await self._reader.runs(SEARCHED_RUNS if words or only else LISTED_RUNS)
        return _reply(await run_in_thread(lambda: list_page(runs, words=words, only=only, limit=LISTED_RUNS)))

    async def _run(self, request: web.Request) -> web.Response:
        page = request.query.get("page", "1")
        view = await self._reader.view(request.match_info["id"], int(page) if page.isdecimal() else 1)
        return _reply(await run_in_thread(lambda: run_page(view, served=True)))

    async def _compare(self, request: web.Request) -> web.Response:
        runs = request.query.getall("run", [])
        if len(runs) != 2:
            return _reply(problem_page(f"choose two runs of the list, not {len(runs)}"), HTTPStatus.BAD_REQUEST)
        views = [await self._reader.view(run) for run in runs]
        return _reply(await run_in_thread(lambda: compare_page(views)))


def _reply(page: Page, status: int = HTTPStatus.OK) -> web.Response:
    response = web.Response(status=status, text=page.html, content_type="text/html")
    response.headers["Content-Security-Policy"] = f"{page.policy}; frame-ancestors 'none'"
    return response
