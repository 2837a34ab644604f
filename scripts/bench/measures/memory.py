"""Peak memory per child at 300 concurrent children, in addition to the idle client.

Each figure comes from a new process. One round is enough: the figures vary by about 1 % between processes.
"""

import gc
from pathlib import Path

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders.contender import Contender

LIMIT = 70
CHILDREN = 300
DELAY_MS = 100
"""Long enough for all children to be running at the same time."""


async def inside(contender: Contender, count: int) -> float:
    """Return the kilobytes per child: peak resident memory during the run, minus that of the idle client."""
    gc.collect()
    idle = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, which includes the imports
    await contender.delegate(count)
    return (_status("VmHWM") - idle) / count


def measure(arena: Arena) -> list[Row]:
    names = ("ours",) if arena.quick else ("ours", "openai_lean", "openai_sdk", "floor")
    figures = arena.rounds(names, "memory", rounds=1, delay_ms=DELAY_MS, fresh=True, count=CHILDREN)
    others = ", ".join(f"{name} {figures[name]:.0f}" for name in names[1:])
    return [Row(f"peak memory per child at {CHILDREN}, kB", figures["ours"], LIMIT, others)]


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
