import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web

from delegate.child.fetch import fetch_url, is_own, is_public
from delegate.types.errors import ToolDenied, ToolError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

PAGE = """<html><head><title>Bread &amp; butter</title><style>p {}</style><script>alert("no")</script></head>
<body><h1>How to   bake</h1><p>Mix <b>flour</b>
and water.<br>Wait.</p><ul><li>one<li>two</ul></body></html>"""


class Site:
    """A web server on loopback, whose pages are functions. It keeps the requests."""

    def __init__(self) -> None:
        self.pages: dict[str, Handler] = {}
        self.requests: list[web.BaseRequest] = []
        self.port = 0
        self.closing = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        return await self.pages[request.path](request)

    def serve(self, path: str, **response: object) -> str:
        async def page(request: web.BaseRequest) -> web.Response:
            return web.Response(**response)  # pyright: ignore[reportArgumentType]

        self.pages[path] = page
        return f"http://127.0.0.1:{self.port}{path}"

    def redirect(self, path: str, to: str) -> str:
        return self.serve(path, status=302, headers={"Location": to})

    @property
    def allowed(self) -> tuple[str]:
        return (f"127.0.0.1:{self.port}",)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    server = web.Server(found.answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    found.port = runner.addresses[0][1]
    yield found
    found.closing.set()
    await runner.cleanup()


# -------------------------------------------------------------------------------------------- refused URLs

NOT_PUBLIC = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16",
    "198.18.0.1", "203.0.113.7", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
    "::ffff:0:7f00:1", "5f00::1", "4000::1", "100::1",
)  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_not_everybody_reaches_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_an_address_of_the_open_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_of_this_machine_is_its_own(address: str) -> None:
    try:
        socket.getaddrinfo(address, 9, flags=socket.AI_ADDRCONFIG)
        assert is_own(address)
    except socket.gaierror:
        pytest.skip(f"no way to {address} here")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "2130706433", "0x7f000001", "0x7f.1",
        "0177.0.0.1", "017700000001", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "169.254.169.254", "[fd00:ec2::254]", "１２７.0.0.1",
        "[::ffff:0:7f00:1]", "[2002:7f00:1::]", "①②⑦.⓪.⓪.①", "127。0。0。1", "1.1.1.1@127.0.0.1", "1.1.1.1\\@127.0.0.1",
    ],
)  # fmt: skip
async def test_loopback_and_metadata_are_refused_in_every_spelling(site: Site, host: str) -> None:
    site.serve("/", text="canary")
    with pytest.raises(ToolError):
        await fetch_url(f"http://{host}:{site.port}/", timeout_seconds=5)
    assert site.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1/", "data:text/plain,x", "/etc/passwd", "",
        "http://", "http:///x", "javascript:1", "http://user:pw@example.com/", "http://[::1",
        "http://example.com:99999/", "http://" + "a" * 5_000,
    ],
)  # fmt: skip
async def test_anything_but_a_plain_web_url_is_refused(url: str) -> None:
    with pytest.raises(ToolError):
        await fetch_url(url, timeout_seconds=5)


async def test_a_redirect_to_a_host_that_is_not_allowed_is_refused(site: Site) -> None:
    canary = site.serve("/canary", text="canary").replace("127.0.0.1", "localhost")
    with pytest.raises(ToolDenied, match="not a public address"):
        await fetch_url(site.redirect("/", canary), site.allowed)
    assert [request.path for request in site.requests] == ["/"]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://169.254.169.254/latest/meta-data/", "//[::1]/"])
async def test_a_redirect_is_checked_like_the_first_address(site: Site, target: str) -> None:
    with pytest.raises(ToolDenied):
        await fetch_url(site.redirect("/", target), site.allowed)


async def test_allowing_one_port_does_not_allow_other_ports(site: Site) -> None:
    site.serve("/", text="canary")
    with pytest.raises(ToolDenied):
        await fetch_url(f"http://127.0.0.1:{site.port}/", ("127.0.0.1:1",))
    assert site.requests == []


async def test_a_proxy_in_the_environment_is_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert "direct" in await fetch_url(site.serve("/", text="direct"), site.allowed)


# -------------------------------------------------------------------------------------------- results


async def test_a_text_is_returned_with_url_status_and_type(site: Site) -> None:
    url = site.serve("/a.txt", text="plain words")
    assert await fetch_url(url, site.allowed) == f"{url} (200, text/plain)\n\nplain words"


async def test_a_page_is_returned_as_its_visible_text(site: Site) -> None:
    text = await fetch_url(site.serve("/", text=PAGE, content_type="text/html"), site.allowed)
    lines = ["Bread & butter", "# How to bake", "Mix flour and water.", "Wait.", "- one", "- two"]
    assert text.splitlines()[2:] == lines


async def test_redirects_are_followed_relative_ones_too(site: Site) -> None:
    site.serve("/b/end", text="arrived")
    site.redirect("/b/middle", "end")
    assert (await fetch_url(site.redirect("/a", "/b/middle"), site.allowed)).endswith("arrived")


async def test_a_redirect_loop_ends(site: Site) -> None:
    with pytest.raises(ToolError, match="5 redirects"):
        await fetch_url(site.redirect("/", "/"), site.allowed)
    assert len(site.requests) == 6


async def test_only_get_is_used_and_no_cookie_is_kept(site: Site) -> None:
    site.serve("/b", text="ok")
    await fetch_url(
        site.serve("/a", status=302, headers={"Location": "/b", "Set-Cookie": "id=1; Path=/"}), site.allowed
    )
    assert [request.method for request in site.requests] == ["GET", "GET"]
    assert [request.headers.get("Cookie") for request in site.requests] == [None, None]


async def test_a_long_body_is_cut_and_says_so(site: Site) -> None:
    text = await fetch_url(site.serve("/", text="x" * 3_000_000), site.allowed)
    assert len(text) < 1_000_300
    assert text.endswith("[… cut: the body is longer than 1,000,000 bytes …]")


async def test_a_compressed_body_is_decompressed_only_up_to_the_limit(site: Site) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    url = site.serve("/", body=bomb, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})
    text = await fetch_url(url, site.allowed)
    assert len(text) < 1_000_300
    assert "cut" in text
    assert site.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("sends", ["nothing", "no body"])
async def test_an_endless_answer_ends_with_the_time_limit(site: Site, sends: str) -> None:
    async def drip(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if sends == "no body":
            await response.prepare(request)
        await site.closing.wait()
        return response

    site.pages["/"] = drip
    with pytest.raises(ToolError, match=r"within 0\.1 s"):
        await fetch_url(f"http://127.0.0.1:{site.port}/", ("127.0.0.1",), timeout_seconds=0.1)


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/pdf"])
async def test_a_response_that_is_not_text_is_refused(site: Site, kind: str) -> None:
    with pytest.raises(ToolError, match="not text"):
        await fetch_url(site.serve("/", body=b"\x89PNG", content_type=kind), site.allowed)


@pytest.mark.parametrize("charset", ["punycode", "idna", "undefined", "base64", "unicode_escape", "a b", "\xff"])
async def test_a_codec_that_is_no_character_set_is_not_used(site: Site, charset: str) -> None:
    body = b"a-" + b"b9" * 400_000  # ten seconds of punycode, more on a slow machine
    url = site.serve("/", body=body, headers={"Content-Type": f"text/plain; charset={charset}"})
    started = time.monotonic()
    assert (await fetch_url(url, site.allowed)).endswith("b9b9")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("charset", "data"), [("latin-1", b"gr\xfcn"), ("utf-16", "grün".encode("utf-16"))])
async def test_a_named_character_set_is_read_with(site: Site, charset: str, data: bytes) -> None:
    url = site.serve("/", body=data, headers={"Content-Type": f"text/plain; charset={charset}"})
    assert (await fetch_url(url, site.allowed)).endswith("grün")


async def test_an_error_page_is_an_error_that_shows_its_beginning(site: Site) -> None:
    with pytest.raises(ToolError, match="404 Not Found: no such page"):
        await fetch_url(site.serve("/", status=404, text="no such page"), site.allowed)


async def test_endless_headers_are_an_error() -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while not writer.is_closing():
                writer.write(b"X-More: " + b"x" * 8_000 + b"\r\n")
                await writer.drain()

    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ToolError):
            await fetch_url(f"http://127.0.0.1:{port}/", (f"127.0.0.1:{port}",), timeout_seconds=1)


async def test_the_links_of_a_page_are_absolute_after_a_redirect(site: Site) -> None:
    site.serve("/docs/end", text="<a href='next?a=1'>Next</a>", content_type="text/html")
    text = await fetch_url(site.redirect("/a", "/docs/end"), site.allowed)
    assert text.splitlines()[2:] == [f"[Next](http://127.0.0.1:{site.port}/docs/next?a=1)"]
