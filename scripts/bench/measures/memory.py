"""Peak memory per concurrent child at 300, over the idle client. Each figure comes from a fresh process.

One round is enough: from process to process the figures differ by about 1 %.
"""

import gc
from pathlib import Path

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 80
CHILDREN = 300
DELAY_MS = 100
"""Long enough for all children to be in the middle of their work together."""


async def inside(contender: Contender, count: int) -> float:
    """Kilobytes per child: the peak of resident memory during the run, less what the idle client holds."""
    gc.collect()
    idle = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of the imports
    await contender.delegate(count)
    return (_status("VmHWM") - idle) / count


def measure(arena: Arena) -> list[Row]:
    names = ("ours",) if arena.quick else ("ours", "openai_sdk", "floor")
    figures = arena.rounds(names, "memory", rounds=1, delay_ms=DELAY_MS, fresh=True, count=CHILDREN)
    others = ", ".join(f"{name} {figures[name]:.0f}" for name in names[1:])
    return [Row(f"peak memory per child at {CHILDREN}, kB", figures["ours"], LIMIT, others)]


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
