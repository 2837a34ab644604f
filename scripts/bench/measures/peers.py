"""CPU time of the client process per judged delegation, relative to agent frameworks that do the same work.

Needs openai-agents and pydantic-ai. The ratio is ours over theirs; the goal is a quarter.
"""

from collections.abc import Iterator
from statistics import median

from scripts.bench.arena import Arena, Row
from scripts.bench.measures.cpu import CONCURRENCY

LIMIT = 0.25
PEERS = ("openai_agents", "pydantic_ai")


def measure(arena: Arena) -> list[Row]:
    return [row for count in CONCURRENCY for row in _at(arena, count)]


def _at(arena: Arena, count: int) -> Iterator[Row]:
    names = ("ours", *PEERS)
    figures = arena.figures(names, "cpu", rounds=7, count=count, repeat=CONCURRENCY[count])
    for peer in PEERS:
        ratio = median(one / other for one, other in zip(figures["ours"], figures[peer], strict=True))
        note = "ms: " + ", ".join(f"{name} {median(figures[name]):.2f}" for name in ("ours", peer))
        yield Row(f"CPU over {peer}'s, {count} at once", ratio, LIMIT, note)
