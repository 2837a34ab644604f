"""A call as a stream of what happens in it, with its answer last, for hosts whose tools yield while they work."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from delegate.hosts.host_tool import ToolAnswer
from delegate.ports import Event, EventSink


async def steps(call: Callable[[EventSink], Coroutine[Any, Any, ToolAnswer]]) -> AsyncGenerator[Event | ToolAnswer]:
    """Make the call, in a task of its own, and yield its events as they come, then its answer.

    Who closes the stream before that, or is cancelled in it, stops the call and waits for its end.
    """
    told: asyncio.Queue[Event | None] = asyncio.Queue()
    calling = asyncio.create_task(call(told.put_nowait))
    calling.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (event := await told.get()) is not None:
            yield event
    finally:
        if not calling.done():
            calling.cancel()
            await asyncio.wait([calling])
    yield calling.result()
