"""Receives replies as server-sent events, and puts together the bodies that the APIs send when they don't stream.

So a reply may take as long as it goes on, what has come of one that breaks off is known, and its text can be shown
while it is written. What reads a reply is the same with and without streaming.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, cast

from pydantic_core import from_json

from delegate.models.providers._shared import (
    SHAPE_ERRORS,
    ReadReply,
    call_seconds,
    parse_body,
    parse_object,
    unknown_format,
)
from delegate.types import JsonObject
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Incoming

EVENT_STREAM = "text/event-stream"
IDLE_SECONDS = 120.0
"""How long a reply that has begun may stop, unless the settings limit the whole call."""
MAX_STREAM_BYTES = 64 << 20
"""Four times what a reply may have otherwise: each token comes in an object of its own."""
BATCH_BYTES = 1 << 16
"""Events are parsed together once there are this many bytes of them. One by one takes several times as long."""
DONE: JsonObject = {"[DONE]": True}
"""What stands for the mark at the end of Chat Completions, which isn't JSON."""


class Assembly(Protocol):
    """Puts together the reply of one API from its events."""

    is_whole: bool
    """Whether the reply has come to its end."""
    error: object
    """What the server reported in place of the rest; None without an error."""

    def add(self, event: JsonObject) -> str | None:
        """Add an event, and return its text, which is empty for a part of a tool call.

        None if it has neither, such as one with thoughts. May raise `SHAPE_ERRORS`.
        """
        ...

    def body(self) -> JsonObject:
        """What has come so far, as the API sends it without streaming."""
        ...


class Receiver:
    """What the attempts at one call share: who is told of what arrives, and the time limit, which that moves.

    `wait` is the limit until the first text, or for the whole call if `pause` is None; `pause` is that of each pause
    after it. A model that reasons may be silent for minutes, also after its reply has formally begun.
    """

    def __init__(self, incoming: Incoming | None, timer: asyncio.Timeout, wait: float, pause: float | None) -> None:
        self.incoming = incoming or Incoming()
        self._timer = timer
        self._wait = wait
        self._pause = pause
        self._moved_at = 0.0
        self.is_pausing = False
        """Whether the limit that holds now is that of a pause."""

    @property
    def seconds(self) -> float:
        """The limit that holds now."""
        return self._pause if self.is_pausing and self._pause is not None else self._wait

    def heard(self) -> None:
        """Take note that something has arrived."""
        now = asyncio.get_running_loop().time()
        has_text = self.incoming.begun_at is not None
        if self._pause is not None and (has_text != self.is_pausing or now - self._moved_at > self._pause / 100):
            self._moved_at, self.is_pausing = now, has_text
            self._timer.reschedule(now + self.seconds)


@asynccontextmanager
async def receiver(request: ChatRequest, limit: float | None, provider: str) -> AsyncGenerator[Receiver]:
    """What receives the reply to a request. Raises `ProviderError` if it comes too late.

    `limit` is the time limit of the call in seconds. None: one that depends on the length of the reply, until its first
    text, or until its end if it isn't streamed; and then one for each pause.
    """
    seconds = call_seconds(limit, request.max_output_tokens)
    pause = IDLE_SECONDS if limit is None else None
    timer = asyncio.timeout(seconds)
    incoming = Receiver(request.incoming, timer, seconds, pause)
    try:
        async with timer:
            yield incoming
    except TimeoutError:
        what = "the reply stopped for" if incoming.is_pausing else "no answer within"
        text = f"{provider}: {what} {incoming.seconds:g} s"
        raise ProviderError("timeout", text, provider=provider) from None


class Stream:
    """One reply that is received as events. `read` converts its body."""

    def __init__(self, assembly: Assembly, read: ReadReply, receiver: Receiver, provider: str) -> None:
        self._assembly = assembly
        self._read = read
        self._receiver = receiver
        self._incoming = receiver.incoming
        self._incoming.so_far = self._so_far
        self._provider = provider
        self._unread = bytearray()
        self._received = 0
        self.has_begun = False
        """Whether anything has come that isn't an error."""

    def hear(self, chunk: bytes) -> None:
        """Take in what was received. Raises `ProviderError` if that is too long, or not in the API's format."""
        self._received += len(chunk)
        if self._received > MAX_STREAM_BYTES:
            text = f"{self._provider}: the reply has more than {MAX_STREAM_BYTES:,} bytes"
            raise ProviderError("bad_reply", text, provider=self._provider)
        self._unread += chunk
        is_awaited = self._incoming.begun_at is None or self._incoming.on_text is not None
        if is_awaited or len(self._unread) > BATCH_BYTES:
            self._parse()
        self._receiver.heard()

    def body(self) -> JsonObject:
        """The body of the reply, or that of an error. Raises `ProviderError` if the reply broke off."""
        self._parse()
        if self._unread and (rest := parse_object(_data(self._unread))):  # some servers end without an empty line
            self._add(rest)
        if self._assembly.error is not None:
            return {"error": self._assembly.error}
        if not self._assembly.is_whole:
            text = f"{self._provider}: the reply broke off"
            raise ProviderError("connection", text, provider=self._provider, status=200, outcome="broken_off")
        return self._assembly.body()

    def _parse(self) -> None:
        """Add the events that have arrived whole."""
        if b"\r" in self._unread:
            self._unread = self._unread.replace(b"\r\n", b"\n")
        blocks, _, self._unread = self._unread.rpartition(b"\n\n")
        for event in _events(blocks, self._provider) if blocks else ():
            self._add(event)

    def _add(self, event: JsonObject) -> None:
        try:
            text = self._assembly.add(event)
        except SHAPE_ERRORS as error:
            raise unknown_format(self._provider, error) from error
        self.has_begun = self.has_begun or self._assembly.error is None
        if text is not None and self._incoming.begun_at is None:
            self._incoming.begun_at = time.monotonic()
        if text and self._incoming.on_text is not None:
            self._incoming.on_text(text)

    def _so_far(self) -> ChatReply | None:
        """What has come of the reply; None if that is nothing, or unreadable."""
        try:
            self._parse()
            return self._read(self._assembly.body()) if self.has_begun else None
        except (ProviderError, *SHAPE_ERRORS):
            return None


def body_of(content: bytes, content_type: str, stream: Stream, provider: str) -> JsonObject:
    """The body of a response, which `stream` has received if it is empty. Raises `ProviderError`."""
    if content.startswith((b"data:", b"event:")):  # whatever its header says
        stream.hear(content)
    elif content or EVENT_STREAM not in content_type:
        return parse_body(content, provider)
    return stream.body()


_REFUSES_STREAMS = re.compile(r"\bstream(?:ing|_options|GenerateContent)?\b", re.IGNORECASE)


def refuses_streams(error: ProviderError) -> bool:
    """Whether a server refused a request because its reply was to be streamed."""
    return error.status in (400, 404, 405, 422, 501) and bool(_REFUSES_STREAMS.search(str(error)))


def _events(blocks: bytearray, provider: str) -> list[JsonObject]:
    """The JSON objects in these blocks of lines."""
    data = [event for block in blocks.split(b"\n\n") if (event := _data(block))]
    try:
        return cast("list[JsonObject]", from_json(b"[%b]" % b",".join(data), allow_inf_nan=False))
    except ValueError:
        events = [parse_object(event) for event in data]
        if None in events:
            text = f"{provider}: an event of the reply isn't a JSON object"
            raise ProviderError("bad_reply", text, provider=provider) from None
        return [event for event in events if event is not None]


def _data(block: bytearray) -> bytes:
    """The data of one event, which may have several lines."""
    data = b"\n".join([line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]).strip()
    return _DONE if data == b"[DONE]" else data


_DONE = b'{"[DONE]":true}'
