"""Turns a call into a stream of its events and its answer, for hosts whose tools yield while they run."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from delegate.hosts.progress import is_news
from delegate.types.events import Event, EventSink

T = TypeVar("T")


async def steps(call: Callable[[EventSink], Coroutine[Any, Any, T]]) -> AsyncGenerator[Event | T]:
    """Run the call in a task of its own, yield what happens (see `is_news`), and then its answer.

    Closing or cancelling the stream before the answer cancels the call and waits until it has ended.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    running = asyncio.create_task(call(events.put_nowait))
    running.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            if is_news(event):
                yield event
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
    yield running.result()
