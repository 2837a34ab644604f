"""CPU of the client process per judged delegation, over the bare SDK's, at three concurrencies."""

import gc
import time

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 0.7
WARM_UP = 100
"""Connections that are open before the clock starts, at most: as many as the bare SDK's pool keeps."""
CONCURRENCY = {3: 40, 30: 4, 300: 1}
"""How many delegations at once, and how often in a row for one figure."""


async def inside(contender: Contender, count: int, repeat: int) -> float:
    """Milliseconds per delegation."""
    await contender.delegate(min(count, WARM_UP))
    gc.collect()
    began = time.process_time()
    for _ in range(repeat):
        await contender.delegate(count)
    return (time.process_time() - began) * 1000 / (count * repeat)


def measure(arena: Arena) -> list[Row]:
    return [_at(arena, count, repeat) for count, repeat in CONCURRENCY.items()]


def _at(arena: Arena, count: int, repeat: int) -> Row:
    medians = arena.rounds(("ours", "openai_sdk", "floor"), "cpu", rounds=3, count=count, repeat=repeat)
    return Row(
        f"CPU per delegation over the bare SDK's, {count} at once",
        medians["ours"] / medians["openai_sdk"],
        LIMIT,
        "ms: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items()),
    )
