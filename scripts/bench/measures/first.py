"""Wall time until the first three verdicts, in new processes, relative to the bare SDK.

Twice: from the start of the process, for programs that run once, and from the call, for a host that was open for a
while before it.
"""

import asyncio
import time

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 1.2
ROUNDS = 7
IDLE_SECONDS = 1.5
"""For how long a host is open before its first call."""


async def inside(contender: Contender, process_started: float, idle: float) -> float:
    """Return the seconds until the first three verdicts: from the start of the process, or from the end of `idle`."""
    await asyncio.sleep(idle)
    started = time.monotonic() if idle else process_started
    await contender.delegate(3)
    return time.monotonic() - started


def measure(arena: Arena) -> list[Row]:
    return [
        _row(arena, "process start to the first three verdicts", 0),
        _row(arena, "the first call of an open host", IDLE_SECONDS),
    ]


def _row(arena: Arena, what: str, idle: float) -> Row:
    medians = arena.rounds(("ours", "openai_sdk", "openai_lean"), "first", rounds=ROUNDS, cold=True, idle=idle)
    others = ", ".join(f"{name} {value:.3f}" for name, value in medians.items())
    return Row(f"{what} over the bare SDK's", medians["ours"] / medians["openai_sdk"], LIMIT, f"s: {others}")
