"""Work in a thread that is over when the caller goes on, cancelled or not: a thread left behind still writes files."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: Callable[[], T], *, stop: threading.Event | None = None) -> T:
    """Run `work` in a thread and wait for it. A cancelled caller sets `stop`, and still waits for its end, once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        running.add_done_callback(_look)
        await asyncio.wait([running])
        raise


def _look(done: "asyncio.Future[T]") -> None:
    """How it ended interests nobody any more; without a look, asyncio would complain."""
    if not done.cancelled():
        done.exception()
