"""Runs attacks on `fetch_url` with a temporary server on the loopback interface.

Nothing leaves the machine: the addresses are numeric, so they need no resolver, and connecting to them is refused.
"""

import asyncio
import gzip
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from delegate.child.fetch import MAX_BYTES, fetch_url
from delegate.cli.doctor.security.commands import Row
from delegate.errors import ToolError

SECONDS = 1.0
"""Timeout of one fetch. Twice as long counts as not in time."""

ADDRESSES = {
    "localhost, in spellings that bypass filters": (
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0",
        "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:0:7f00:1]",  # noqa: S104 - requested
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "①②⑦.⓪.⓪.①", "127。0。0。1",
    ),
    "link-local addresses": ("169.254.1.1", "[fe80::1]"),
    "private addresses": ("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "[fc00::1]"),
    "cloud metadata services": (
        "169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "100.100.100.200", "192.0.0.192", "168.63.129.16",
    ),
}  # fmt: skip
"""Hosts that only this machine or its network can reach."""
INVALID_URLS = {
    "a scheme other than http and https": (
        "file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "data:text/plain,x", "//127.0.0.1/", "http:///x",
    ),
    "credentials before the host": (
        "http://1.1.1.1@127.0.0.1/", "http://1.1.1.1\\@127.0.0.1/", "http://user:password@1.1.1.1/",
    ),
}  # fmt: skip
REDIRECTS = {
    "a redirect to localhost": (
        "http://localhost:{port}/canary", "http://[::1]:{port}/canary", "//0.0.0.0:{port}/canary",
    ),
    "a redirect to a metadata service": ("http://169.254.169.254/latest/meta-data/",),
    "a redirect to a file": ("file:///etc/passwd",),
    "a redirect to itself": ("/redirect",),
}  # fmt: skip
BODIES = {
    "an endless body": "/endless",
    "endless headers": "/head",
    "a body that decompresses to 20 MB": "/bomb",
    "a body that never arrives": "/hang",
    "a charset that takes minutes to decode": "/punycode",
}


async def url_attacks() -> list[Row]:
    """Run all attacks on this machine. Takes a second."""
    server = _Server()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        rows = [
            await server.refused(attack, [f"http://{host}:{server.port}/canary" for host in hosts])
            for attack, hosts in ADDRESSES.items()
        ]
        rows += [await server.refused(attack, urls) for attack, urls in INVALID_URLS.items()]
        rows += [await server.redirected(attack, targets) for attack, targets in REDIRECTS.items()]
        rows += [await server.bounded(attack, path) for attack, path in BODIES.items()]
        return rows
    finally:
        server.closing.set()
        listening.close()
        await listening.wait_closed()


@dataclass(slots=True)
class _Server:
    """A hostile server, which records whether its protected page was requested."""

    port: int = 0
    location: str = ""
    reached: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def refused(self, attack: str, urls: Sequence[str]) -> Row:
        """Fetch URLs that no policy allows."""
        faults = [f"{url}: {fault}" for url in urls if (fault := await self._fault(url))]
        return _row(attack, faults, f"refused before a connection is made ({len(urls)} tried)")

    async def redirected(self, attack: str, targets: Sequence[str]) -> Row:
        """Fetch from an allowed server that redirects."""
        faults: list[str] = []
        for target in targets:
            self.location = target.format(port=self.port)
            fault = await self._fault(f"{self._base}/redirect", (self._host,))
            faults += [f"{target}: {fault}"] if fault else []
        return _row(attack, faults, "each redirect is checked like the first URL; at most five are followed")

    async def bounded(self, attack: str, path: str) -> Row:
        """Fetch from an allowed server that sends too much, or nothing."""
        fault = await self._fault(f"{self._base}{path}", (self._host,), refused=False)
        return _row(attack, [fault] if fault else [], "size and time are limited")

    async def _fault(self, url: str, allowed: Sequence[str] = (), *, refused: bool = True) -> str | None:
        """How the attack succeeded, or None if it was stopped."""
        self.reached, started, length = False, time.monotonic(), 0
        fault = "not refused" if refused else None
        try:
            length = len(await fetch_url(url, allowed, timeout_seconds=SECONDS))
        except ToolError:
            fault = None
        if time.monotonic() - started > 2 * SECONDS:
            return "not in time"
        if length > MAX_BYTES + 1_000:
            return f"{length:,} characters were returned"
        return "the protected page was returned" if self.reached else fault

    @property
    def _base(self) -> str:
        return f"http://{self._host}"

    @property
    def _host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            request = await reader.readuntil(b"\r\n\r\n")
            await self._send(request.split()[1].decode(), writer)
        writer.close()

    async def _send(self, path: str, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain"
        match path:
            case "/redirect":
                writer.write(f"HTTP/1.1 302 Found\r\nLocation: {self.location}\r\nContent-Length: 0\r\n\r\n".encode())
            case "/endless":
                writer.write(f"{head}\r\n\r\n".encode())
                await self._forever(writer, b"x" * 65_536)
            case "/head":
                writer.write(f"{head}\r\n".encode())
                await self._forever(writer, b"X-More: " + b"x" * 8_000 + b"\r\n")
            case "/bomb":
                body = gzip.compress(bytes(20_000_000), 1)
                writer.write(f"{head}\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            case "/punycode":
                body = b"a-" + b"b9" * 500_000
                writer.write(f"{head}; charset=punycode\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            case "/hang":
                await self.closing.wait()
            case _:
                self.reached = True
                writer.write(f"{head}\r\nContent-Length: 2\r\n\r\nhi".encode())
        await writer.drain()

    async def _forever(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        while not self.closing.is_set():
            writer.write(part)
            await writer.drain()


def _row(attack: str, faults: Sequence[str], stopped: str) -> Row:
    return Row("url", attack, "fetch_url", "possible" if faults else "stopped", "; ".join(faults) or stopped)
