"""Wall time of three concurrent judged delegations at 50 ms per model call, over the ideal of four calls.

The limit is the same ratio of the leanest use of the SDK, and a little more.
"""

import time

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

ALLOWANCE = 0.02
DELAY_MS = 50
CALLS = 4


async def inside(contender: Contender, repeat: int) -> float:
    """Return the average seconds per batch of three, over `repeat` sequential batches."""
    await contender.delegate(3)
    started = time.perf_counter()
    for _ in range(repeat):
        await contender.delegate(3)
    return (time.perf_counter() - started) / repeat


def measure(arena: Arena) -> list[Row]:
    names = ("ours", "ours_reading", "openai_lean", "openai_sdk", "floor")
    medians = arena.rounds(names, "wall", rounds=3, delay_ms=DELAY_MS, repeat=4)
    ratios = {name: seconds * 1000 / (CALLS * DELAY_MS) for name, seconds in medians.items()}
    others = ", ".join(f"{name} {ratios[name]:.3f}" for name in names[1:])
    limit = ratios["openai_lean"] + ALLOWANCE
    return [Row(f"wall of a batch of three at {DELAY_MS} ms per call over the ideal", ratios["ours"], limit, others)]
