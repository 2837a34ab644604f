"""The HTTP client that is passed to the SDKs of OpenAI and Anthropic: aiohttp, which repeats known requests by itself.

For a request, the SDKs and their HTTP libraries need twice the CPU time of aiohttp. Most of it gives the same result in
each call: the address, the headers and the credentials. So the SDK builds the first request to an address, and its
headers are sent with the bodies that follow. A response that isn't a success is given to the SDK as the answer to a
request of its own, so that errors remain its business.
"""

import inspect
import logging
import select
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, TypeVar, cast
from urllib.request import getproxies
from weakref import ReferenceType, WeakKeyDictionary

import aiohttp
import yarl
from multidict import CIMultiDict

from delegate.models.providers._shared import MAX_REPLY_BYTES
from delegate.models.providers._stream import EVENT_STREAM, Stream

REUSE_SECONDS = 5.0
"""Seconds for which an idle connection may be reused. Common servers close it then."""
KEEPALIVE_SECONDS = 60
"""Seconds of silence after which the system checks whether a connection is alive, and between two checks."""
MAX_HEADER = 1 << 16
"""The longest header of a response, in bytes. Gateways report what they did in some, of more than aiohttp's 8 kB."""
SUCCESS = 200
_OF_CONNECTION = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
"""The headers of a request that aiohttp writes itself."""
_PER_REQUEST = "Idempotency-Key"
"""The header that no two requests may share. The SDKs' calls of models don't have it so far."""
_DECODED = {"content-encoding", "content-length", "transfer-encoding"}
"""The headers of a response that no longer hold after aiohttp has decoded it."""


def http_client(sdk: ModuleType, library: str, *, is_plain: bool) -> Any:
    """Create the client for an SDK that uses `library`, which is `httpx` or `httpx2`.

    It is the SDK's own unless requests are plain: nothing changes them after they were built, as signatures do.
    """
    tls = _tls(library)
    sessions = partial(session, tls)
    if is_plain and not getproxies():  # the SDK's client knows which requests go through which proxy
        log = logging.getLogger(f"{sdk.__name__}._base_client")  # the SDK's own
        return _repeating_client(library)(verify=tls, sessions=sessions, log=log)
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
    _repeating_client(library)


@cache
def _tls(library: str) -> ssl.SSLContext:
    """The default TLS context of the library. Shared by all clients, since creating it takes 25 ms."""
    return import_module(library).create_ssl_context()


def session(tls: ssl.SSLContext, **options: Any) -> aiohttp.ClientSession:
    """A session whose connections can be reused and stay alive, and whose responses are `Response`s."""
    return aiohttp.ClientSession(
        connector=Connector(tls),
        response_class=Response,
        max_line_size=MAX_HEADER,
        max_field_size=MAX_HEADER,
        **options,
    )


receiving: ContextVar[ReferenceType[Stream] | None] = ContextVar("receiving", default=None)
"""What receives the events of the response to the request that is being sent. Weak: a connection and a task keep their
context for much longer, and a reply with it."""


class Response(aiohttp.ClientResponse):
    """A response whose events go to `receiving` while they arrive, and whose body is then empty.

    Of an error, the status is enough: a body that breaks off is empty, too.
    """

    async def read(self) -> bytes:
        if self._body is None:
            try:
                self._body = await self._received()
            except aiohttp.ClientPayloadError:
                self.close()
                if self.status == SUCCESS:
                    raise
                self._body = b""
            except BaseException:
                self.close()
                raise
        return self._body

    async def _received(self) -> bytes:
        is_stream = self.status == SUCCESS and self.content_type == EVENT_STREAM
        stream = reference() if is_stream and (reference := receiving.get()) else None
        whole = bytearray()
        async for chunk in self.content.iter_any():
            if stream is not None:
                stream.hear(chunk)
            else:
                whole += chunk
                if len(whole) > MAX_REPLY_BYTES:
                    self.close()  # its reader refuses a body of that length
                    break
        return bytes(whole)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent. `headers` are found in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class _Known:
    """What the SDK sends to an address with every body."""

    url: yarl.URL
    headers: CIMultiDict[str]
    timeout: aiohttp.ClientTimeout


_asked: ContextVar[tuple[str, Answer | None]] = ContextVar("asked", default=("", None))
"""The address that the SDK is asked to send a request to, and the answer to it, if there is one already."""


class RepeatingClient:
    """Sends the requests that the SDK builds through aiohttp, and remembers them without their bodies."""

    http: ClassVar[Any]
    """The module of the library."""

    def __init__(self, *, sessions: Callable[[], aiohttp.ClientSession], log: logging.Logger, **options: Any) -> None:
        self._library: Any = super()
        self._library.__init__(**options)
        self._sessions = sessions
        self._log = log
        self._session: aiohttp.ClientSession | None = None
        self._known: dict[str, _Known] = {}
        self._forgotten = 0

    async def repeat(self, url: str, content: bytes) -> Answer | None:
        """Send the request that the SDK built for `url` with another body. None if it hasn't built one.

        Raises the errors of aiohttp.
        """
        if (known := self._known.get(url)) is None:
            return None
        answer = await self._exchange(known, content)
        if self._log.isEnabledFor(logging.DEBUG):  # as the SDK does for the requests that it sends itself
            id = answer.headers.get("x-request-id") or answer.headers.get("request-id")
            self._log.debug('HTTP Response: POST %s "%i" request_id: %s', known.url, answer.status, id)
        return answer

    @contextmanager
    def asking(self, url: str, answer: Answer | None) -> Generator[None]:
        """Learn from the request to `url` that the SDK sends inside the block, and give it this answer if not None."""
        token = _asked.set((url, answer))
        try:
            yield
        finally:
            _asked.reset(token)

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send a request of the SDK and read the response."""
        if stream or request.method != "POST" or cast("Any", self).is_closed:
            return await self._library.send(request, stream=stream, **options)
        url, answer = _asked.get()
        if answer is None:
            known, forgotten = _known(request), self._forgotten
            try:
                answer = await self._exchange(known, await request.aread())
            except TimeoutError as error:  # and aiohttp's, which are subclasses
                raise self.http.ReadTimeout(str(error), request=request) from error
            except aiohttp.ClientConnectorError as error:
                raise self.http.ConnectError(str(error), request=request) from error
            except aiohttp.ClientError as error:
                raise self.http.ReadError(str(error), request=request) from error
            if url and _PER_REQUEST not in known.headers and forgotten == self._forgotten:
                self._known[url] = known
        # As they were sent: aiohttp takes them for UTF-8, whatever they are.
        headers = [
            (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
            for name, value in answer.headers.items()
            if name.lower() not in _DECODED
        ]
        return self.http.Response(answer.status, headers=headers, content=answer.content, request=request)

    def forget(self) -> None:
        """Let the SDK build the next request to each address anew."""
        self._known.clear()
        self._forgotten += 1  # so that an answer that comes later isn't learned from

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        self.forget()
        if session is not None:
            await session.close()
        await self._library.aclose()

    async def _exchange(self, known: _Known, content: bytes) -> Answer:
        if self._session is None:
            self._session = self._sessions()
        async with self._session.post(
            known.url, headers=known.headers, data=content, allow_redirects=False, timeout=known.timeout
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


CLOSED_AFTER = 1.0
"""The idle seconds after which a server may close a connection. One that ends sooner ends for another reason."""
RESEND_SECONDS = 2.0
"""How soon a request fails on a connection that its server had closed. One that fails later may have been processed."""

T = TypeVar("T")


async def sent(send: Callable[[], Awaitable[T]]) -> T:
    """Await `send()`, again if its request wasn't read: the server had just closed the idle connection that was reused.

    `Connector` finds nearly all of these before. What remains is closed while the request is on its way.
    """
    _idle_seconds.set(0.0)
    started = time.monotonic()
    try:
        return await send()
    except Exception as error:
        is_late = time.monotonic() - started > RESEND_SECONDS
        if _idle_seconds.get() < CLOSED_AFTER or is_late or not _is_unanswered(error):
            raise
    return await send()


def _is_unanswered(error: BaseException) -> bool:
    """Whether the connection ended before the first byte of a response."""
    return any(
        isinstance(cause, ConnectionResetError | BrokenPipeError)
        # of which aiohttp says how the response began, if it did
        or (isinstance(cause, aiohttp.ServerDisconnectedError) and isinstance(cause.message, str))
        for cause in causes(error)
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _known(request: Any) -> _Known:
    headers = CIMultiDict[str]((name, value) for name, value in request.headers.items() if name not in _OF_CONNECTION)
    seconds: dict[str, float | None] = request.extensions["timeout"]
    timeout = aiohttp.ClientTimeout(sock_connect=seconds["connect"], sock_read=seconds["read"])
    return _Known(yarl.URL(str(request.url), encoded=True), headers, timeout)


@cache
def _repeating_client(library: str) -> Any:
    """The class of the client. The SDKs accept only subclasses of their library's `AsyncClient`."""
    http: Any = import_module(library)
    return type("RepeatingClient", (RepeatingClient, http.AsyncClient), {"http": http})


_idle_seconds: ContextVar[float] = ContextVar("idle_seconds", default=0.0)
"""How long the connection of the last request had been idle; 0 if it was new."""


class Connector(aiohttp.TCPConnector):
    """Reuses no connection that its server has closed meanwhile, even if the event loop was too busy to notice.

    The network drops none while a model writes: gateways forget silent ones after minutes. aiohttp can see to that
    since version 3.12.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        options: dict[str, Any] = {"limit": 0, "ssl": tls, "keepalive_timeout": REUSE_SECONDS}
        if "socket_factory" in inspect.signature(aiohttp.TCPConnector).parameters:
            options["socket_factory"] = _socket
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._idle_since = WeakKeyDictionary[Any, float]()
        """When each connection was released, by its protocol."""

    async def connect(self, *args: Any, **options: Any) -> Any:
        while True:
            connection = await super().connect(*args, **options)
            since = self._idle_since.get(connection.protocol)
            if since is None or not _has_input(connection.transport):
                break
            connection.close()
        _idle_seconds.set(0.0 if since is None else time.monotonic() - since)
        protocol = connection.protocol
        connection.add_callback(lambda: self._idle_since.__setitem__(protocol, time.monotonic()))
        return connection


def _has_input(transport: Any) -> bool:
    """Whether something has come on an idle connection: its end, or what belongs to no request."""
    number = transport.get_extra_info("socket").fileno()
    if not hasattr(select, "poll"):  # Windows
        return number < 0 or bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def _socket(address: tuple[Any, ...]) -> socket.socket:
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL"):  # not all systems have all of them
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE_SECONDS)
    return connection
