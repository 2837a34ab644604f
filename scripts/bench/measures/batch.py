"""`Delegator.batches.run`: wall time of 400 rows, 50 at a time at 50 ms per call, and constant time and memory over
10,000.

The wall time is compared to the ideal, and to the bare SDK making the same calls, since no machine reaches the ideal.
The long part takes minutes, so this benchmark runs only if it is named: `python -m scripts.bench batch`.
"""

import asyncio
import gc
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openai import AsyncOpenAI, DefaultAioHttpClient

from delegate import Delegator, Settings
from delegate.batch.sources import TaskFile
from delegate.batch.templates import Templates
from delegate.cli.input.taskfile import read_task
from scripts.bench.arena import Arena, Row
from scripts.bench.contenders import ours
from scripts.bench.contenders.openai_sdk import OpenAISdk
from scripts.bench.workload import Workload

ROWS, CONCURRENCY, DELAY_MS = 400, 50, 50
CALLS_PER_ROW = 4
WALL_LIMIT = 1.15
TASKS, STEP = 10_000, 1_000
MEMORY_LIMIT_MB = 300
FLAT = 1.1
TEMPLATES = Templates(
    "Read the logs of {service} and write what you find to notes.md.",
    ("report: The report names the file that was written.", "report: The report says how many findings there are."),
)


@dataclass(frozen=True)
class Mark:
    """Time and memory of a batch after a number of tasks."""

    done: int
    seconds: float
    megabytes: float
    """Resident memory."""


async def _marks(source: TaskFile, home: Path, step: int) -> tuple[list[Mark], float]:
    """Run a whole file. Returns its marks and the seconds from the first start to the last result."""
    marks: list[Mark] = []
    async with Delegator(Settings(home=home)) as delegator:
        await _warm_up(delegator, home)
        started, done = time.perf_counter(), 0
        batch = delegator.batches.run(source, concurrency=CONCURRENCY, results=home / "results.jsonl")
        async for outcome in batch:
            assert outcome.passed, outcome
            done += 1
            if done % step == 0:
                marks.append(Mark(done, time.perf_counter() - started, _megabytes()))
        seconds = time.monotonic() - batch.began
    rows = [json.loads(line)["id"] for line in (home / "results.jsonl").open()]
    assert len(rows) == len(set(rows)) == done
    return marks, seconds


async def _warm_up(delegator: Delegator, home: Path) -> None:
    """Open the connections and load lazily imported modules."""
    async for _ in delegator.batches.run(_table(home / "warm.csv", CONCURRENCY), concurrency=CONCURRENCY):
        pass


def _table(path: Path, rows: int) -> TaskFile:
    path.write_text("service\n" + "".join(f"{path.stem} {n:06}\n" for n in range(rows)))
    return TaskFile(path, read_task, TEMPLATES)


def _megabytes() -> float:
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000


def measure(arena: Arena) -> Iterator[Row]:
    """Measure both parts in this process, against the arena's server."""
    yield from _wall(arena)
    yield from _flat(arena)


def _run(arena: Arena, rows: int, delay_ms: int, step: int) -> tuple[list[Mark], float]:
    os.environ |= {"OPENAI_API_KEY": "sk-bench", "OPENAI_BASE_URL": f"{arena.url}/{delay_ms}ms/v1"}
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder:
        home = Path(folder)
        return asyncio.run(_marks(_table(home / "services.csv", rows), home, step))


def _wall(arena: Arena) -> Iterator[Row]:
    ideal = ROWS * CALLS_PER_ROW * DELAY_MS / 1000 / CONCURRENCY
    work, times, bare = asyncio.run(ours.capture()), list[float](), list[float]()
    for _ in range(1 if arena.quick else 3):
        times.append(_run(arena, ROWS, DELAY_MS, ROWS)[1])
        bare.append(asyncio.run(_bare_sdk(f"{arena.url}/{DELAY_MS}ms/v1", work)))
    note = f"ideal {ideal:.2f} s; measured {_seconds(times)}"
    what = f"wall of {ROWS} rows, {CONCURRENCY} at a time at {DELAY_MS} ms, over"
    yield Row(f"{what} the ideal", min(times) / ideal, WALL_LIMIT, note)
    note = f"bare SDK on aiohttp {_seconds(bare)}, {min(bare) / ideal:.3g} of the ideal"
    yield Row(f"{what} the bare SDK's", min(times) / min(bare), math.inf, note)


async def _bare_sdk(url: str, work: Workload) -> float:
    """Return the seconds for the same calls at the same concurrency, with the transport that delegate uses."""
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder:
        async with AsyncOpenAI(base_url=url, api_key="dummy", http_client=DefaultAioHttpClient()) as client:
            sdk, rows = OpenAISdk(client, work, Path(folder)), iter(range(ROWS))

            async def row_by_row() -> None:
                for _ in rows:
                    await sdk.delegate(1)

            await sdk.delegate(CONCURRENCY)  # opens the connections
            started = time.perf_counter()
            await asyncio.gather(*(row_by_row() for _ in range(CONCURRENCY)))
            return time.perf_counter() - started


def _seconds(times: list[float]) -> str:
    return ", ".join(f"{seconds:.2f}" for seconds in times) + " s"


def _flat(arena: Arena) -> Iterator[Row]:
    tasks, step = (1_000, 100) if arena.quick else (TASKS, STEP)
    marks, seconds = _run(arena, tasks, 0, step)
    first, last = marks[0], marks[-1]
    late = last.seconds - marks[-2].seconds
    each = f"{first.seconds / step * 1000:.2f} ms per task in the first {step}, {late / step * 1000:.2f} in the last"
    yield Row(f"time of the last {step} of {tasks} tasks over the first", late / first.seconds, FLAT, each)
    grown = f"{first.megabytes:.0f} MB after the first {step}, {last.megabytes:.0f} after the last; {seconds:.0f} s"
    yield Row(f"resident memory after {tasks} tasks, MB", last.megabytes, MEMORY_LIMIT_MB, grown)
    yield Row(f"memory after {tasks} tasks over that after {step}", last.megabytes / first.megabytes, FLAT, "")
