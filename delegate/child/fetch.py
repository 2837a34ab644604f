"""Implements `fetch_url`: one GET request for a public web page, as text.

A child's model chooses the URL, so it must not reach what only this machine can: loopback, the local network, a
cloud's metadata service. Names are resolved here, every address is checked, and the connection uses exactly the checked
addresses, also for redirects, so a name that resolves differently a moment later has no effect.
"""

import asyncio
import codecs
import ipaddress
import socket
import zlib
from collections.abc import Collection

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from delegate._util.redaction import redactor
from delegate.child.page import readable
from delegate.types.errors import ToolDenied, ToolError

MAX_REDIRECTS = 5
MAX_URL_CHARS = 4_000
MAX_BYTES = 1_000_000
USER_AGENT = "delegate (fetch_url)"

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ALLOCATED = ipaddress.IPv6Network("2000::/3")
"""All IPv6 addresses allocated so far (RFC 4291, RFC 3587); forms that embed an IPv4 address are outside this range."""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service is 192.0.0.192
        "168.63.129.16/32",  # Azure's platform service
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
    )
)  # in addition to Python's `is_global`, which differs between Python versions
_TEXT_TYPES = frozenset({
    "application/json", "application/xml", "application/javascript", "application/x-javascript", "application/yaml",
    "application/x-yaml", "application/toml", "application/x-sh", "application/sql", "application/rtf",
    "application/x-ndjson",
})  # fmt: skip
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Python's own text encodings, which are no character sets. Punycode takes quadratic time: minutes for a megabyte."""


async def fetch_url(url: str, allowed_hosts: Collection[str] = (), *, timeout_seconds: float = 30) -> str:
    """The text at `url`, with the URL, status and content type in the first line. HTML becomes text (see `page`).

    Hosts in `allowed_hosts` (`name` or `name:port`) may have non-public addresses. Raises `ToolDenied` for another
    address that isn't public, and `ToolError` for any other failure.
    """
    if len(url) > MAX_URL_CHARS:
        raise ToolError(f"the URL has {len(url)} characters; at most {MAX_URL_CHARS} are allowed")
    target = _checked(_url(url.strip()))
    try:
        async with asyncio.timeout(timeout_seconds):
            for _ in range(MAX_REDIRECTS + 1):
                answer = await _get(target, allowed_hosts)
                if isinstance(answer, str):
                    return answer
                target = _checked(answer)
            raise ToolError(f"more than {MAX_REDIRECTS} redirects")
    except TimeoutError as problem:
        raise ToolError(f"no complete response within {timeout_seconds:g} s") from problem
    except (aiohttp.ClientError, OSError) as problem:
        raise ToolError(f"can't fetch {target.host}: {problem}") from problem


async def _get(url: URL, allowed_hosts: Collection[str]) -> str | URL:
    """One request to the checked addresses: the text, or the target of a redirect, which the caller has to check.

    Each request has a session of its own, so that no cookies are kept.
    """
    addresses = await _addresses(url, allowed_hosts)
    connector = aiohttp.TCPConnector(resolver=_pinned(addresses), use_dns_cache=False, force_close=True)
    # Compression is declined because a small body could decompress to gigabytes; see `_body`.
    headers = {"User-Agent": USER_AGENT, "Accept": "text/*, application/json;q=0.9", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        location = response.headers.get("Location")
        if response.status in (301, 302, 303, 307, 308) and location:
            return url.join(_url(location))
        return await _as_text(url, response)


def _url(text: str) -> URL:
    try:
        return URL(text)
    except ValueError as problem:
        raise ToolError(f"{redactor.beginning(text, 200)!r} is not a URL: {problem}") from problem


def _checked(url: URL) -> URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolDenied(f"only http and https addresses can be fetched, not {redactor.beginning(str(url), 200)!r}")
    if url.user is not None or url.password is not None:
        raise ToolDenied("a URL with a user name or a password can't be fetched")
    return url


async def _addresses(url: URL, allowed_hosts: Collection[str]) -> list[str]:
    """The addresses of `url`, all checked. The system's resolver also parses forms such as 0x7f.1 and 2130706433."""
    host, port = url.host, url.port
    assert host is not None
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise ToolError(f"{host} can't be resolved: {problem}") from problem
    addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    if not {name.lower() for name in allowed_hosts} & {host.lower(), f"{host.lower()}:{port}"}:
        for address in addresses:
            if not is_public(address):
                raise ToolDenied(f"{host} can't be fetched: {address} is not a public address")
            if is_own(address):
                raise ToolDenied(f"{host} can't be fetched: {address} is an address of this machine")
    return addresses


def is_public(address: str) -> bool:
    """Whether `address`, an IPv4 or IPv6 address in any notation, is reachable from the whole internet."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        elif ip not in _ALLOCATED:
            return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC)


def is_own(address: str) -> bool:
    """Whether `address` belongs to this machine, even if it is public: a firewall doesn't filter local connections.

    The kernel uses a local address as its own source address. Connecting a datagram socket sends nothing.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return probe.getsockname()[0] == address
    except OSError:  # unreachable
        return False


def _pinned(addresses: list[str]) -> AbstractResolver:
    class Pinned(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        async def close(self) -> None: ...

    return Pinned()


async def _as_text(url: URL, response: aiohttp.ClientResponse) -> str:
    kind = response.content_type
    if not (kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))):
        raise ToolError(f"{url} is {kind[:80]}, not text")
    body = await _body(response, MAX_BYTES + 1)
    text = body[:MAX_BYTES].decode(_charset(response.charset), errors="replace")
    if kind in ("text/html", "application/xhtml+xml"):
        text = await asyncio.to_thread(readable, text, str(url))
    if len(body) > MAX_BYTES:
        text += f"\n[… cut: the body is longer than {MAX_BYTES:,} bytes …]"
    if response.status >= 400:
        raise ToolError(f"{url} returned {response.status} {response.reason}: {text[:500]}")
    return f"{url} ({response.status}, {kind})\n\n{text}"


def _charset(name: str | None) -> str:
    """The codec to decode with: the one that the server names if it is a character set, else UTF-8."""
    try:
        codec = codecs.lookup(name or "utf-8").name
        b"x".decode(codec, errors="replace")
    except (LookupError, ValueError):  # unknown, or not a text encoding
        return "utf-8"
    return "utf-8" if codec in _NO_CHARSETS else codec


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The first `limit` bytes of the body, also of one that is compressed although that was declined."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise ToolError(f"the response is compressed with {encoding}, which isn't supported")
    decompressor = zlib.decompressobj(wbits=47) if encoding != "identity" else None
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        try:
            body += decompressor.decompress(chunk, limit - len(body)) if decompressor else chunk
        except zlib.error as problem:
            raise ToolError(f"the response can't be decompressed: {problem}") from problem
        if len(body) >= limit:
            break
    return bytes(body[:limit])
