"""Measures this checkout relative to another one, in alternating rounds: wall time of a batch, CPU time and memory."""

from statistics import median

from scripts.bench.arena import Arena, Row
from scripts.bench.measures import cpu, memory, wall

NAMES = ("ours", "before:ours")
WALL_LIMIT = 0.02
CPU_LIMIT = 1.05
MEMORY_LIMIT_KB = 75


def measure(arena: Arena) -> list[Row]:
    return [_wall(arena), *(_cpu(arena, count) for count in cpu.CONCURRENCY), _memory(arena)]


def _wall(arena: Arena) -> Row:
    now, before = arena.rounds(NAMES, "wall", rounds=9, delay_ms=wall.DELAY_MS, repeat=4).values()
    ideal = wall.CALLS * wall.DELAY_MS / 1000
    note = f"over the ideal: {now / ideal:.3f}, before {before / ideal:.3f}"
    return Row("wall of a batch of three, the difference", (now - before) / ideal, WALL_LIMIT, note)


def _cpu(arena: Arena, count: int) -> Row:
    figures = arena.figures(NAMES, "cpu", rounds=15, count=count, repeat=cpu.CONCURRENCY[count])
    pairs = list(zip(*figures.values(), strict=True))  # round by round, as in cpu
    now, before = (median(values) for values in figures.values())
    ratio = median(one / other for one, other in pairs)
    note = f"ms: {now:.2f}, before {before:.2f}"
    return Row(f"CPU per delegation, {count} at once, the ratio", ratio, CPU_LIMIT, note)


def _memory(arena: Arena) -> Row:
    now, before = arena.rounds(
        NAMES, "memory", rounds=3, delay_ms=memory.DELAY_MS, fresh=True, count=memory.CHILDREN
    ).values()
    return Row(f"peak memory per child at {memory.CHILDREN}, kB", now, MEMORY_LIMIT_KB, f"before {before:.0f}")
