"""CPU time per model call with 100 messages in the conversation, relative to a call with 4."""

import gc
import time

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 1.3
SHORT, LONG = 4, 100


async def inside(contender: Contender, messages: int, repeat: int) -> float:
    """Return the microseconds per call, for sequential calls."""
    await contender.converse(messages)
    gc.collect()
    started = time.process_time()
    for _ in range(repeat):
        await contender.converse(messages)
    return (time.process_time() - started) * 1e6 / repeat


def measure(arena: Arena) -> list[Row]:
    names = ("ours", "openai_lean", "openai_sdk", "floor")
    short = arena.rounds(names, "conversation", rounds=7, messages=SHORT, repeat=100)
    long = arena.rounds(names, "conversation", rounds=7, messages=LONG, repeat=100)
    ratios = ", ".join(f"{name} {long[name] / short[name]:.1f}" for name in names[1:])
    cost = f"{ratios}; ours {short['ours']:.0f} → {long['ours']:.0f} µs"
    return [Row(f"CPU per call with {LONG} messages over {SHORT}", long["ours"] / short["ours"], LIMIT, cost)]
