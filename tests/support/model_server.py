"""A scripted model server on the loopback interface, for tests and benchmarks over real HTTP.

It serves OpenAI Chat Completions (`POST …/chat/completions`), OpenAI Responses (`POST …/responses`), Anthropic
Messages (`POST …/messages`, and the paths of Bedrock and Vertex AI), Google generateContent
(`POST …/models/NAME:generateContent`) and the model list (`GET …/models`). It runs in its own thread, so it can be used
by synchronous and asynchronous tests:

    from tests.support.model_server import Call, Fault, ModelServer, Reply

    async def test_a_rate_limit_is_waited_out() -> None:
        script = [Fault(429, headers={"retry-after": "0"}), Reply("hello", input_tokens=20)]
        with ModelServer(script) as server:
            client = openai.AsyncOpenAI(base_url=server.openai_url, api_key="dummy")
            ...
        assert [call.api for call in server.calls] == ["chat", "chat"]
        assert server.calls[0].last_text == "say hello"

A script is a list of replies, used in order, or a function of the call, for concurrent calls:

    def script(call: Call) -> Reply | Fault:
        if call.wants_json:
            return Reply('{"answers": []}')
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "a.txt", "text": "hi"}),))
        return Reply("wrote a.txt", delay=0.05)

The function runs on the server's loop. It can be a coroutine function, so that one call can wait for another
(`asyncio.Event`), and a test can wait for the server: `server.wait_for_calls(3)` blocks until three were received. If
the script doesn't expect a call, or raises an error, the reply is an HTTP 500 that says so and that the SDKs don't
retry.
"""

import asyncio
import inspect
import json
import socket
import struct
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Literal, Self, cast
from urllib.parse import unquote

from tests.support.streams import stream
from tests.support.wire_formats import FORMATS, Api, Json, Reply, WireFormat

__all__ = ["Call", "Fault", "ModelServer", "Pieces", "Reply", "cut_off"]

DRIP_SECONDS = 0.05


@dataclass(frozen=True)
class Fault:
    """A reply other than a successful one.

    `status` and `html` answer with `status`; `hang` never answers; `reset` breaks the connection with a TCP reset;
    `truncate` sends half of `body` and closes, `stall` sends half of it and then nothing more, and `drip` sends it
    byte by byte, one every `DRIP_SECONDS`. Without a `body` the API's own form of an error is sent. `share` is how much
    is sent if it isn't half. `cut_off` makes the body of a reply.
    """

    status: int = 500
    body: bytes | str | Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    kind: Literal["status", "hang", "reset", "truncate", "stall", "drip", "html"] = "status"
    share: float = 0.5


@dataclass(frozen=True)
class Pieces:
    """A reply that is streamed piece by piece. `ending` is whether it ends, stops, or breaks off."""

    pieces: Sequence[bytes]
    every: float = 0.0
    ending: Literal["end", "stall", "close"] = "end"
    delay: float = 0.0


@dataclass(frozen=True)
class Call:
    """One request, with the same properties for every API."""

    method: str
    path: str
    head: bytes = field(repr=False)
    raw: bytes = field(repr=False)
    at: float
    """`time.monotonic()` when the whole request was received."""

    @cached_property
    def api(self) -> Api:
        path = self.path.partition("?")[0]
        if self.method == "GET":
            return "models" if path.endswith("/models") and not path.startswith("/api/") else "other"
        for end, api in _ENDINGS:
            if path.endswith(end):
                return api
        return "other"

    @cached_property
    def model(self) -> str:
        path = unquote(self.path.partition("?")[0])
        if self.api == "generate" or path.endswith(":rawPredict"):
            return path.rpartition("/models/")[2].partition(":")[0]
        if path.endswith("/invoke"):
            return path.removesuffix("/invoke").rpartition("/")[2]
        return self.body.get("model", "")

    @cached_property
    def body(self) -> Json:
        return json.loads(self.raw) if self.raw else {}

    @cached_property
    def headers(self) -> dict[str, str]:
        lines = (line.partition(":") for line in self.head.decode("latin-1").split("\r\n")[1:])
        return {name.strip().lower(): value.strip() for name, _, value in lines}

    @property
    def system(self) -> str:
        return self._format.system(self.body)

    @property
    def texts(self) -> list[str]:
        """All texts of user, assistant and tools, in order."""
        return [text for _, text in self._format.turns(self.body) if text]

    @property
    def last_text(self) -> str:
        return (self.texts or [""])[-1]

    @property
    def tool_results(self) -> list[str]:
        return [text for role, text in self._format.turns(self.body) if role == "tool"]

    @property
    def tool_names(self) -> list[str]:
        return self._format.tool_names(self.body)

    @property
    def reply_schema(self) -> Json | None:
        return self._format.reply_schema(self.body)

    @property
    def wants_json(self) -> bool:
        """Whether the request has a reply schema."""
        return self.reply_schema is not None

    @property
    def max_output_tokens(self) -> int:
        """The limit of the output, under the name that the API has for it."""
        fields = self.body.get("generationConfig", self.body)
        return next(fields[name] for name in _OUTPUT_LIMITS if name in fields)

    @property
    def streams(self) -> bool:
        """Whether the reply should be sent as server-sent events."""
        return bool(self.body.get("stream")) or ":streamGenerateContent" in self.path

    @property
    def _format(self) -> WireFormat:
        return FORMATS[self.api]


def cut_off(call: Call, reply: Reply, share: float, *, delay: float = 0) -> Fault:
    """The beginning of a reply, after which the server closes: of a stream, this many whole events and half of one."""
    wire = FORMATS[call.api].render(reply, reply.model or call.model, 1)
    if not call.streams:
        return Fault(200, json.dumps(wire), kind="truncate", share=share, delay=delay)
    body = stream(call.api, wire)
    events = body.split(b"\n\n")[:-1]
    whole = int(len(events) * share)
    sent = sum(len(event) + 2 for event in events[:whole]) + len(events[whole]) // 2
    return Fault(200, body, {"content-type": "text/event-stream"}, delay=delay, kind="truncate", share=sent / len(body))


_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_ENDINGS: tuple[tuple[str, Api], ...] = (
    ("/chat/completions", "chat"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    (":generateContent", "generate"),
    (":streamGenerateContent", "generate"),
    ("/invoke", "messages"),  # Amazon Bedrock
    (":rawPredict", "messages"),  # Google Vertex AI
)

Answer = Reply | Fault | Pieces
Script = Callable[[Call], Answer | Awaitable[Answer]] | Sequence[Answer]


class ModelServer:
    """Serves `script` while its `with` block lasts. `calls`, `peak` and `in_flight` can be read during and after.

    `models` is what the model list names, or has as entries. Paths that don't start with `below` get a 404. `others`
    answers requests that aren't of a model API. `record=False` keeps no calls, for benches. Connections without a
    request for `idle_seconds` are closed, as servers do.
    """

    def __init__(
        self,
        script: Script,
        *,
        models: Sequence[str | Json] = ("test-model",),
        below: str = "",
        others: Callable[[Call], Fault] | None = None,
        record: bool = True,
        idle_seconds: float | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.peak = 0
        self.url = ""
        self._script = script if callable(script) else _in_order(script)
        self._models = models
        self._below = below
        self._others = others
        self._record = record
        self.idle_seconds = idle_seconds
        self._numbers = count(1)
        self.in_flight = 0
        self._came = threading.Condition()
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    @property
    def google_url(self) -> str:
        return self.url

    def wait_for_calls(self, number: int, timeout: float = 5) -> None:
        """Block until `number` calls were received. In a coroutine: `await asyncio.to_thread(...)`."""
        with self._came:
            if not self._came.wait_for(lambda: len(self.calls) >= number, timeout):
                raise TimeoutError(f"{len(self.calls)} of {number} calls came within {timeout:g} s")

    def wait_until_idle(self, timeout: float = 5) -> int:
        """Block until no call is in flight. Returns the number of calls in flight when the time is up."""
        with self._came:
            self._came.wait_for(lambda: self.in_flight == 0, timeout)
            return self.in_flight

    def __enter__(self) -> Self:
        port: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(port,), name="model-server", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{port.result(timeout=10)}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(timeout=10)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__()

    def _run(self, port: "Future[int]") -> None:
        try:
            asyncio.run(self._serve(port))
        except BaseException as error:
            if port.done():
                raise
            port.set_exception(error)

    async def _serve(self, port: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        listener = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=2048)
        try:
            port.set_result(listener.sockets[0].getsockname()[1])
            await self._stopped.wait()
        finally:
            listener.close()
            for connection in tuple(self._connections):
                connection.abort()
            await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    # ------------------------------------------------------------------------- called by connections, on the loop

    def opened(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def closed(self, connection: "_Connection") -> None:
        self._connections.discard(connection)

    def received(self, connection: "_Connection", call: Call) -> None:
        """Count the call, run the script, and send its reply."""
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        if self._record:
            with self._came:
                self.calls.append(call)
                self._came.notify_all()
        try:
            answer = self._answer(call)
        except Exception as error:
            answer = _unexpected(call, error)
        if inspect.isawaitable(answer):
            task = self._loop.create_task(self._answer_later(connection, call, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._send(connection, call, answer)

    def answered(self) -> None:
        with self._came:
            self.in_flight -= 1
            self._came.notify_all()

    def _answer(self, call: Call) -> Answer | Awaitable[Answer]:
        if not call.path.startswith(self._below):
            return Fault(404, {"detail": "Not Found"})
        if call.api == "models":
            head = {"object": "model", "created": 0, "owned_by": "test"}
            listed = [{**head, **({"id": one} if isinstance(one, str) else one)} for one in self._models]
            return Fault(200, {"object": "list", "data": listed})
        if call.api == "other":
            return (
                self._others(call)
                if self._others
                else Fault(404, {"error": {"message": f"no such endpoint: {call.method} {call.path}"}})
            )
        return self._script(call)

    async def _answer_later(self, connection: "_Connection", call: Call, answer: Awaitable[Answer]) -> None:
        try:
            self._send(connection, call, await answer)
        except Exception as error:
            self._send(connection, call, _unexpected(call, error))

    def _send(self, connection: "_Connection", call: Call, answer: Answer) -> None:
        if isinstance(answer, Reply):
            wire = FORMATS[call.api].render(answer, answer.model or call.model, next(self._numbers))
            streamed = stream(call.api, wire) if call.streams else None
            sent = {"content-type": "text/event-stream"} if streamed else None
            data = _response(200, streamed or json.dumps(wire).encode(), sent)
            send: Callable[[], None] = lambda: connection.send(data)  # noqa: E731
        elif isinstance(answer, Pieces):
            send = lambda: connection.stream(answer)  # noqa: E731
        else:
            send = lambda: connection.fail(answer, _fault_bytes(call, answer))  # noqa: E731
        if answer.delay:
            self._loop.call_later(answer.delay, send)
        else:
            send()


class _Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection: parses requests and writes the server's replies."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._waiting = self._answered = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        while self._waiting:
            self._done()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (request := _cut_request(self._buffer)) is not None:
            head, body = request
            method, path, _ = head[: head.index(b"\r\n")].decode("latin-1").split(" ", 2)
            self._waiting += 1
            self._server.received(self, Call(method, path, head, body, time.monotonic()))

    def send(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        self._done()

    def fail(self, fault: Fault, data: bytes) -> None:
        if fault.kind == "hang" or self._transport.is_closing():
            return
        if fault.kind == "reset":
            linger = struct.pack("ii", 1, 0)  # closing with a zero linger time is what sends a reset
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
        elif fault.kind == "stall":
            self._transport.write(data)
        elif fault.kind == "drip":
            head = data.index(b"\r\n\r\n") + 4
            self._transport.write(data[:head])
            self._drip(data[head:])
        else:
            self.send(data)
        if fault.kind == "truncate":
            self._transport.close()

    def stream(self, reply: Pieces) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head)
        self._stream_on(reply, 0)

    def _stream_on(self, reply: Pieces, n: int) -> None:
        if self._transport.is_closing():
            return
        for at, piece in enumerate(reply.pieces[n:], n + 1):
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if reply.every and at < len(reply.pieces):
                asyncio.get_running_loop().call_later(reply.every, self._stream_on, reply, at)
                return
        if reply.ending == "end":
            self.send(b"0\r\n\r\n")
        elif reply.ending == "close":
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _drip(self, left: bytes) -> None:
        if self._transport.is_closing():
            return
        if len(left) <= 1:
            self.send(left)
            return
        self._transport.write(left[:1])
        asyncio.get_running_loop().call_later(DRIP_SECONDS, self._drip, left[1:])

    def _done(self) -> None:
        self._waiting -= 1
        self._answered += 1
        self._server.answered()
        if self._server.idle_seconds is not None and not self._transport.is_closing():
            asyncio.get_running_loop().call_later(self._server.idle_seconds, self._close_if_idle, self._answered)

    def _close_if_idle(self, answered: int) -> None:
        if not self._waiting and self._answered == answered:
            self._transport.close()


def _cut_request(buffer: bytearray) -> tuple[bytes, bytes] | None:
    """Remove one complete request from `buffer` and return its head and body. None if it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(buffer[: end + 2])
    lower = head.lower()
    if b"\r\ntransfer-encoding: chunked" in lower:
        taken = _read_chunks(buffer, end + 4)
    else:
        at = lower.find(b"\r\ncontent-length:")
        size = int(lower[at + 17 : lower.index(b"\r\n", at + 17)]) if at >= 0 else 0
        stop = end + 4 + size
        taken = (bytes(buffer[end + 4 : stop]), stop) if len(buffer) >= stop else None
    if taken is None:
        return None
    body, stop = taken
    del buffer[:stop]
    return head[:-2], body


def _read_chunks(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    """Return the body of a chunked request and its end in the buffer. None if it is incomplete."""
    body = bytearray()
    while (line_end := buffer.find(b"\r\n", start)) >= 0:
        size = int(bytes(buffer[start:line_end]).partition(b";")[0], 16)
        start = line_end + 2 + size + 2
        if len(buffer) < start:
            return None
        if size == 0:
            return bytes(body), start
        body += buffer[line_end + 2 : line_end + 2 + size]
    return None


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None, size: int | None = None) -> bytes:
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    length = len(body) if size is None else size
    kind = "" if "content-type" in extra.lower() else "content-type: application/json\r\n"
    return f"HTTP/1.1 {status} -\r\n{kind}{extra}content-length: {length}\r\n\r\n".encode("latin-1") + body


def _fault_bytes(call: Call, fault: Fault) -> bytes:
    body: Any = fault.body
    headers = dict(fault.headers)
    if fault.kind == "html":
        headers.setdefault("content-type", "text/html; charset=utf-8")
        body = "<html><body><h1>Bad gateway</h1></body></html>" if body is None else body
    elif body is None:
        body = FORMATS[call.api].error(fault.status, f"scripted fault {fault.status}")
    if isinstance(body, dict):
        body = json.dumps(body)
    data = body.encode() if isinstance(body, str) else cast("bytes", body)
    sent = data[: int(len(data) * fault.share)] if fault.kind in ("truncate", "stall") else data
    return _response(fault.status, sent, headers, size=len(data))


def _in_order(answers: Sequence[Answer]) -> Callable[[Call], Answer]:
    left = iter(answers)

    def answer(call: Call) -> Answer:
        for reply in left:
            return reply
        raise LookupError(f"the script's {len(answers)} answers are used up")

    return answer


def _unexpected(call: Call, error: Exception) -> Fault:
    why = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = f"unexpected {call.api} call for {call.model!r} ({why}, line {where.lineno}): {call.last_text[:200]!r}"
    return Fault(500, {"error": {"message": text, "type": "script"}}, {"x-should-retry": "false"})
