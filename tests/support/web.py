"""A small web on loopback: pages by path, redirects, and pages that change once they were asked for."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

REDIRECT = "redirect "


class Web:
    """Serves pages under two host names, with `{web}` and `{other}` in their texts replaced by these."""

    def __init__(self) -> None:
        self.pages: Mapping[str, str] = {}
        self.changes: Mapping[str, str] = {}
        self.port = 0
        self._asked: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def hosts(self) -> Sequence[str]:
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def filled(self, text: str) -> str:
        return text.replace("{web}", self.address).replace("{other}", f"http://localhost:{self.port}")

    def shows(self, pages: Mapping[str, str], changes: Mapping[str, str] | None = None) -> None:
        """Serve these pages, as if nobody had asked for any."""
        self.pages, self.changes, self._asked = pages, changes or {}, set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        pages = {**self.pages, **self.changes} if request.path in self._asked else self.pages
        self._asked.add(request.path)
        page = pages.get(request.path)
        if page is None:
            return web.Response(status=404, text="there is no such page")
        if page.startswith(REDIRECT):
            return web.Response(status=302, headers={"Location": self.filled(page.removeprefix(REDIRECT))})
        kind = "text/html" if page.startswith(("<", "\ufeff<")) else "text/plain"
        return web.Response(text=self.filled(page), content_type=kind, charset="utf-8")


@asynccontextmanager
async def serving() -> AsyncGenerator[Web]:
    """A web without pages, until the block ends."""
    found = Web()
    runner = web.ServerRunner(web.Server(found.answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.port = runner.addresses[0][1]
        yield found
    finally:
        await runner.cleanup()
