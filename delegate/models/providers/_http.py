"""The HTTP client that is passed to the SDKs of OpenAI and Anthropic: theirs, on aiohttp, with less work per request.

A request through the SDKs' own client takes 300 µs more than through aiohttp. Most of it is spent on what no model call
has: redirects, cookies, authentication schemes, event hooks, and URLs that are parsed four times. This client builds
and sends plain requests itself, and leaves all others to the SDK's client. Headers, credentials, retries and errors
remain the SDK's business. What is the same in every request and response is built once.
"""

import inspect
import socket
import ssl
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, cast
from urllib.request import getproxies

import aiohttp
import yarl

REUSE_SECONDS = 5.0
"""Seconds for which an idle connection may be reused. Common servers close it then."""
KEEPALIVE_SECONDS = 60
"""Seconds of silence after which the system checks whether a connection is alive, and between two checks."""
_PLAIN = {"headers", "content", "timeout"}


def http_client(sdk: ModuleType, library: str, *, is_plain: bool) -> Any:
    """Create the client for an SDK that uses `library`, which is `httpx` or `httpx2`.

    It is the SDK's own unless requests are plain: nothing changes them after they were built, as signatures do.
    """
    tls = _tls(library)
    sessions = partial(_session, tls)
    if is_plain and not getproxies():  # the SDK's client knows which requests go through which proxy
        return _plain_client(library)(verify=tls, sessions=sessions)
    try:
        client = sdk.DefaultAioHttpClient(verify=tls, follow_redirects=False)
    except RuntimeError:  # the SDKs' error if their `aiohttp` extra isn't installed
        raise ModuleNotFoundError(name="the SDK's aiohttp extra") from None
    # The backend has no parameter for its sessions. Proxies have transports of their own, which keep theirs.
    transport: Any = getattr(client, "_transport", None)
    if hasattr(transport, "client"):
        transport.client = sessions
    return client


def prepare_client(library: str) -> None:
    """Do what the first client needs: reading the trusted certificates takes 25 ms."""
    _tls(library)
    _plain_client(library)


@cache
def _tls(library: str) -> ssl.SSLContext:
    """The default TLS context of the library. Shared by all clients, since creating it takes 25 ms."""
    return import_module(library).create_ssl_context()


def _session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector(tls))


class _PlainRequest:
    """A request as the SDK asked for it. The library's own parts are those of the first request to the address."""

    def __init__(self, first: Any, url: yarl.URL, headers: list[tuple[str, str]], content: bytes, timeout: Any) -> None:
        self.__dict__.update(first.__dict__)
        self.sent_to, self.sent_headers, self.sent_content, self.timeout = url, headers, content, timeout


class _PlainResponse:
    """A successful response that isn't encoded. The library's own parts are those of the first one."""

    content: bytes = b""

    def __init__(self, first: Any, headers: Any, content: bytes, request: Any) -> None:
        self.__dict__.update(first.__dict__)
        self.headers, self.content, self.request = headers, content, request


class _PlainClient:
    """Sends requests that have a body and nothing unusual through aiohttp, and leaves the others to the library."""

    http: ClassVar[Any]
    """The module of the library."""
    request_class: ClassVar[Any]
    response_class: ClassVar[Any]
    first_response: ClassVar[Any]

    def __init__(self, *, sessions: Callable[[], aiohttp.ClientSession], **options: Any) -> None:
        self._library: Any = super()
        self._library.__init__(**options)
        self._sessions = sessions
        self._session: aiohttp.ClientSession | None = None
        self._first: dict[tuple[str, str], tuple[Any, yarl.URL]] = {}
        self._encodings: tuple[str, str] = ("Accept-Encoding", cast("Any", self).headers["Accept-Encoding"])

    def build_request(self, method: str, url: Any, **options: Any) -> Any:
        """Build a request with the headers given, to which only the accepted encodings are added."""
        given = {name for name, value in options.items() if value is not None}
        if given != _PLAIN or not isinstance(options["content"], bytes):
            return self._library.build_request(method, url, **options)
        first = self._first.get((method, url))
        if first is None:
            first = self._first[method, url] = self.http.Request(method, url), yarl.URL(str(url))
        headers: Any = options["headers"]
        if type(headers) is not list:  # in some versions of the SDKs they are a mapping
            headers = self.http.Headers(headers).multi_items()
        return self.request_class(*first, [self._encodings, *headers], options["content"], options["timeout"])

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send a request and read the response."""
        if not isinstance(request, _PlainRequest) or stream or cast("Any", self).is_closed:
            return await self._library.send(request, stream=stream, **options)
        if self._session is None:
            self._session = self._sessions()
        plain: Any = request
        try:
            async with self._session.request(
                plain.method,
                plain.sent_to,
                headers=plain.sent_headers,
                data=plain.sent_content,
                allow_redirects=False,
                auto_decompress=False,
                timeout=_timeout(plain.timeout.connect, plain.timeout.read),
            ) as answer:
                content = await answer.read()
        except TimeoutError as error:  # and aiohttp's, which are subclasses
            raise self.http.ReadTimeout(str(error), request=request) from error
        except aiohttp.ClientConnectorError as error:
            raise self.http.ConnectError(str(error), request=request) from error
        except aiohttp.ClientError as error:
            raise self.http.ReadError(str(error), request=request) from error
        if answer.status == 200 and "Content-Encoding" not in answer.headers:
            return self.response_class(self.first_response, self.http.Headers(answer.raw_headers), content, request)
        return self.http.Response(answer.status, headers=answer.raw_headers, content=content, request=request)

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self._library.aclose()


@cache
def _plain_client(library: str) -> Any:
    """The class of the client. The SDKs accept only subclasses of their library's `AsyncClient`."""
    http: Any = import_module(library)
    parts = {
        "http": http,
        "request_class": type("PlainRequest", (_PlainRequest, http.Request), {}),
        "response_class": type("PlainResponse", (_PlainResponse, http.Response), {}),
        "first_response": http.Response(200, content=b""),
    }
    return type("PlainClient", (_PlainClient, http.AsyncClient), parts)


@cache
def address(library: str, url: str) -> Any:
    """The address of requests, already parsed, which the SDKs take for text: they parse it anew for every request."""
    http: Any = import_module(library)
    made: Any = type("Address", (_Address, http.URL), {})
    return made(url)


class _Address:
    def __getattr__(self, name: str) -> Any:
        """What the SDK does with text, such as a look at how it begins."""
        return getattr(str(self), name)


@cache
def _timeout(connect: float | None, read: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect, sock_read=read)


def connector(tls: ssl.SSLContext) -> aiohttp.TCPConnector:
    """Connections that the network doesn't drop while a model writes: gateways forget silent ones after minutes.

    aiohttp can do that since version 3.12.
    """
    options: dict[str, Any] = {}
    if "socket_factory" in inspect.signature(aiohttp.TCPConnector).parameters:
        options["socket_factory"] = _socket
    return aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=REUSE_SECONDS, **options)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL"):  # not all systems have all of them
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE_SECONDS)
    return made
