"""How slow the machine is at the moment, for limits on what takes micro- or milliseconds; and how long a loop is held.

Limits of seconds detect hangs and exponential growth on any machine. Use `pace` for limits close to the expected time.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

USUAL_SECONDS = 0.0012
"""The time of `_work` on the machine for which the limits were chosen."""


def pace() -> float:
    """Return the factor by which Python is currently slower than on that machine, at least 1.

    The best of several counts, as it should in what is compared with it: others work on the machine too.
    """
    return max(1.0, best_of(5, _work) / USUAL_SECONDS)


def is_within(seconds: float, limit: float) -> bool:
    """Whether something took less than `limit`, at the pace of the machine, which is measured only if it matters."""
    return seconds < limit or seconds < limit * pace()


def best_of(times: int, action: Callable[[], object]) -> float:
    """Return the shortest time of the action, in seconds."""
    return min(_seconds(action) for _ in range(times))


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _work() -> int:
    counts: dict[str, int] = {}
    for n in range(8_000):
        word = f"w{n % 97}"
        counts[word] = counts.get(word, 0) + len(word)
    return sum(counts.values())


@dataclass
class Held:
    """`seconds`: the longest that the event loop worked without a pause, however busy the machine is."""

    seconds: float = 0.0


@asynccontextmanager
async def watched_loop() -> AsyncGenerator[Held]:
    """Measure, until the block ends, how long the event loop is held."""
    held = Held()

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            held.seconds = max(held.seconds, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # it watches from now on
    try:
        yield held
        await asyncio.sleep(0.002)  # it has seen the last of the block
    finally:
        watching.cancel()
