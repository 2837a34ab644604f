"""CPU time of the client process per judged delegation, relative to the leanest use of the SDK, at three
levels of concurrency.
"""

import gc
import time
from collections.abc import Iterator
from itertools import chain
from statistics import median

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMITS = {"files": 1.4, "functions": 1.6}
"""Over the leanest use of the SDK, by what the children's tools are: functions cost the SDK's user almost nothing."""
OWN_LIMIT_MS = 2.5
"""What delegate itself takes of a delegation: what the leanest use of the SDK leaves out."""
READING_LIMIT = 1.3
"""Over delegations whose criteria say themselves what they are about."""
WARM_UP = 100
"""Maximum number of connections opened before the measurement: as many as the bare SDK's pool keeps."""
CONTENDERS = {
    "files": ("ours", "openai_lean", "openai_sdk", "floor"),
    "functions": ("ours_functions", "openai_lean_functions"),
}
"""Those that are compared, first delegate and the leanest use of the SDK, by what the children's tools are."""
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
    rows = [_at(arena, kind, count) for count in CONCURRENCY for kind in CONTENDERS if count < 300 or kind == "files"]
    return [*chain.from_iterable(rows), _reading(arena)]


def _reading(arena: Arena) -> Row:
    """What it costs that a model reads the criteria of a call: one more model call for three tasks."""
    compared = arena.figures(("ours_reading", "ours"), "cpu", rounds=15, count=3, repeat=CONCURRENCY[3])
    ratios = [read / said for read, said in zip(compared["ours_reading"], compared["ours"], strict=True)]
    note = "ms: " + ", ".join(f"{name} {median(values):.2f}" for name, values in compared.items())
    return Row("CPU per delegation, 3 at once, with criteria to be read", median(ratios), READING_LIMIT, note)


def _at(arena: Arena, kind: str, count: int) -> Iterator[Row]:
    (ours, lean, *others), repeat = CONTENDERS[kind], CONCURRENCY[count]
    compared = arena.figures((ours, lean), "cpu", rounds=15, count=count, repeat=repeat)
    # Round by round: what slows the machine down for a while doesn't change the ratio then.
    pairs = list(zip(compared[ours], compared[lean], strict=True))
    medians = {name: median(values) for name, values in compared.items()}
    medians |= arena.rounds(others, "cpu", rounds=3, count=count, repeat=repeat)
    note = "ms: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
    ratio = median(one / other for one, other in pairs)
    yield Row(f"CPU over the leanest SDK's, {kind}, {count} at once", ratio, LIMITS[kind], note)
    own = median(one - other for one, other in pairs)
    yield Row(f"CPU of delegate's own, {kind}, {count} at once, ms", own, OWN_LIMIT_MS, "the difference")
