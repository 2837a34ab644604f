"""CPU time of the client process per judged delegation, relative to the leanest use of the SDK, at three
levels of concurrency.
"""

import gc
import time
from statistics import median

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 1.4
READING_LIMIT = 1.3
"""Over delegations whose criteria say themselves what they are about."""
WARM_UP = 100
"""Maximum number of connections opened before the measurement: as many as the bare SDK's pool keeps."""
CONCURRENCY = {3: 40, 30: 4, 300: 1}
"""Repetitions per figure, by the number of concurrent delegations."""


async def inside(contender: Contender, count: int, repeat: int) -> float:
    """Return the milliseconds per delegation."""
    await contender.delegate(min(count, WARM_UP))
    gc.collect()
    started = time.process_time()
    for _ in range(repeat):
        await contender.delegate(count)
    return (time.process_time() - started) * 1000 / (count * repeat)


def measure(arena: Arena) -> list[Row]:
    return [*(_at(arena, count, repeat) for count, repeat in CONCURRENCY.items()), _reading(arena)]


def _reading(arena: Arena) -> Row:
    """What it costs that a model reads the criteria of a call: one more model call for three tasks."""
    compared = arena.figures(("ours_reading", "ours"), "cpu", rounds=15, count=3, repeat=CONCURRENCY[3])
    ratios = [read / said for read, said in zip(compared["ours_reading"], compared["ours"], strict=True)]
    note = "ms: " + ", ".join(f"{name} {median(values):.2f}" for name, values in compared.items())
    return Row("CPU per delegation, 3 at once, with criteria to be read", median(ratios), READING_LIMIT, note)


def _at(arena: Arena, count: int, repeat: int) -> Row:
    compared = arena.figures(("ours", "openai_lean"), "cpu", rounds=15, count=count, repeat=repeat)
    others = arena.rounds(("openai_sdk", "floor"), "cpu", rounds=3, count=count, repeat=repeat)
    medians = {name: median(values) for name, values in compared.items()} | others
    return Row(
        f"CPU per delegation over the leanest SDK's, {count} at once",
        # Round by round: what slows the machine down for a while doesn't change the ratio then.
        median(ours / lean for ours, lean in zip(compared["ours"], compared["openai_lean"], strict=True)),
        LIMIT,
        "ms: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items()),
    )
