"""Soak test: 2,000 delegations, 50 at a time, in which a tenth of the model calls fail and a tenth are cancelled.

It takes half a minute and doesn't measure speed, so it runs only if it is named: `python -m scripts.bench soak`. The
faults are those of real servers, with all three providers; randomness is seeded. `tests/test_soak.py` runs a short
version.
"""

import asyncio
import gc
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegate import Cancellation, Delegator, Event, Settings, Task, TaskResult
from scripts.bench.arena import Arena, Row
from tests.support import leaks
from tests.support.model_server import Call, Fault, ModelServer, Reply

DELEGATIONS, CONCURRENCY, WARM_UP = 2_000, 50, 500
FAULTY = CANCELLED = 0.1
WITH_COMMAND = 0.05
SEED = 20_261
MODELS = ("gpt-6-luna", "claude-haiku-4-5", "gemini-3.8-flash")
_SOON = {"retry-after-ms": "10", "retry-after": "0"}
FAULTS = (
    Fault(400), Fault(401), Fault(404), Fault(408), Fault(409), Fault(500), Fault(kind="hang"), Fault(kind="reset"),
    Fault(200, {"text": "half of this"}, kind="truncate"), Fault(502, kind="html"), Fault(200, {"choices": []}),
    Reply(""), Reply("cut", stop="length"), Reply(refusal="no"), Reply(tool_calls=(("no_such_tool", {}),)),
)  # fmt: skip
REFUSALS = tuple(Fault(status, headers=_SOON) for status in (429, 503, 529))
REFUSED = 0.02
"""Share of the faults. Refusals slow down all callers by design: with eight times as many, the test takes eight times
as long."""


def environment(server: ModelServer) -> dict[str, str]:
    """Return the variables that point all three providers to `server`."""
    return {
        "OPENAI_API_KEY": "dummy-openai", "OPENAI_BASE_URL": server.openai_url,
        "ANTHROPIC_API_KEY": "dummy-anthropic", "ANTHROPIC_BASE_URL": server.anthropic_url,
        "GEMINI_API_KEY": "dummy-gemini", "GOOGLE_GEMINI_BASE_URL": server.google_url,
    }  # fmt: skip


class Script:
    """The models' replies: a child writes one file and reports on it, unless a fault occurs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._written = 0
        self._followed: defaultdict[str, set[str]] = defaultdict(set)
        self.faults = 0

    def __call__(self, call: Call) -> Reply | Fault:
        if self._random.random() < FAULTY:
            self.faults += 1
            return self._random.choice(REFUSALS if self._random.random() < REFUSED else FAULTS)
        if call.wants_json:
            return Reply(_JUDGMENT, input_tokens=500, output_tokens=50)
        if done := call.tool_results:
            self._followed[call.texts[0].split("\n")[0]].add(done[0])
            return Reply("I wrote one file, as asked", input_tokens=400, output_tokens=20)
        self._written += 1  # a retried call gets another number, but only one of its replies is continued
        return Reply(tool_calls=(("write_file", {"path": f"note-{self._written}.md", "content": "noted"}),))

    @property
    def twice(self) -> int:
        """Number of children that were run twice: two different first turns were continued."""
        return sum(len(first_turns) > 1 for first_turns in self._followed.values())


_JUDGMENT = (
    '{"answers": [{"id": "c1", "source": "report", "evidence": "I wrote one file", "reason": "It says so.",'
    ' "verdict": "met"}]}'
)


@dataclass(frozen=True)
class Found:
    """The outcome of a soak test."""

    ends: Counter[str]
    """Number of results by verdict, or by status if the child didn't complete."""
    without_one_result: int
    """Number of delegations without a result, or with more than one."""
    run_twice: int
    growth: float
    """Growth of resident memory since the warm-up, as a fraction."""
    left: list[str]
    faults: int
    seconds: float


class Soak:
    """Runs many delegations through one delegator."""

    def __init__(self, delegator: Delegator, seed: int) -> None:
        self._delegator = delegator
        self._random = random.Random(seed)
        self.ends: list[list[str]] = []
        """The outcomes of each delegation's results. The results themselves would take up most of the memory."""

    async def delegate(self, numbers: range, concurrency: int) -> None:
        """Run one delegation for each number, up to `concurrency` at a time."""
        left = iter([self._plan(n) for n in numbers])
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._work(left))

    def _plan(self, number: int) -> "_Plan":
        criteria: list[Any] = [
            "report: the report says that one file was written",
            {"kind": "regex", "pattern": "file"},
        ]
        if self._random.random() < WITH_COMMAND:
            criteria.append({"kind": "shell", "command": "ls note-*.md"})
        fields = {"goal": f"Delegation {number}", "acceptance_criteria": criteria}
        task = Task.model_validate({**fields, "model": self._random.choice(MODELS)})
        cancel = self._random.choice(["task", "call"]) if self._random.random() < CANCELLED else None
        return _Plan(task, cancel, self._random.uniform(0, 0.1))

    async def _work(self, left: "Iterator[_Plan]") -> None:
        for plan in left:
            self.ends.append([_end(result) for result in await self._one(plan)])

    async def _one(self, plan: "_Plan") -> list[TaskResult]:
        """Run one delegation. Returns its results, which are read from the record if the call was cancelled."""
        loop, cancellation = asyncio.get_running_loop(), Cancellation()

        def watch(event: Event) -> None:
            if event.kind == "child.started" and plan.cancel:
                loop.call_later(plan.after, call.cancel if plan.cancel == "task" else cancellation.cancel)

        with self._delegator.root_run() as run_id:
            call = asyncio.create_task(self._delegator.run(plan.task, on_event=watch, cancellation=cancellation))
        (ended,) = await asyncio.gather(call, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            assert not isinstance(ended, BaseException), ended
            return list(ended.results)
        record = await self._delegator.records.read(f"{run_id}-0")
        return [TaskResult.model_validate(record["result"])] if record and record["result"] else []


@dataclass(frozen=True)
class _Plan:
    task: Task
    cancel: str | None
    """What to cancel: the awaiting `task`, or the `call`."""
    after: float
    """Seconds after the child's start."""


def soak(home: Path, script: Script, *, delegations: int, warm_up: int, seed: int = SEED) -> Found:
    """Run delegations against the server given in the environment. `delegations` include those of the warm-up."""
    started, watch = time.monotonic(), leaks.Watch(home, Path(tempfile.gettempdir()))
    run, growth, tasks = asyncio.run(_delegated(home, delegations, warm_up, seed))
    return Found(
        ends=Counter(end for ends in run.ends for end in ends),
        without_one_result=sum(len(ends) != 1 for ends in run.ends) + abs(delegations - _stored(home)),
        run_twice=script.twice,
        growth=growth,
        left=tasks + watch.left(),
        faults=script.faults,
        seconds=time.monotonic() - started,
    )


async def _delegated(home: Path, delegations: int, warm_up: int, seed: int) -> tuple[Soak, float, list[str]]:
    settings = Settings(home=home, call_timeout_seconds=1, timeout_seconds=8, parent_tier="deep", max_steps=4)
    async with Delegator(settings) as delegator:
        run = Soak(delegator, seed)
        await run.delegate(range(warm_up), CONCURRENCY)
        before = _resident()
        await run.delegate(range(warm_up, delegations), CONCURRENCY)
        growth = _resident() / before - 1
    return run, growth, await leaks.left_tasks()


def _end(result: TaskResult) -> str:
    return result.verdict.verdict if result.verdict and result.status == "completed" else result.status


def _stored(home: Path) -> int:
    """Return the number of tasks with exactly one started child and a result."""
    query = """SELECT COUNT(*) FROM tasks WHERE result IS NOT NULL AND 1 =
        (SELECT COUNT(*) FROM events WHERE events.handle = tasks.handle AND kind = 'child.started')"""
    with closing(sqlite3.connect(home / "records.sqlite3")) as records:
        return records.execute(query).fetchone()[0]


def _resident() -> int:
    """Return the resident memory in kilobytes, after a garbage collection."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def measure(arena: Arena) -> list[Row]:
    """Run the long version, in a process that also observes grandchild processes."""
    sys.addaudithook(lambda event, args: leaks.note(event))
    leaks.adopt_orphans()
    delegations = 600 if arena.quick else DELEGATIONS
    script = Script(SEED)
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder, ModelServer(script, record=False) as server:
        os.environ |= environment(server)
        (scratch := Path(folder) / "tmp").mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
        found = soak(Path(folder) / "home", script, delegations=delegations, warm_up=WARM_UP)
    ends = ", ".join(f"{end} {count}" for end, count in found.ends.most_common())
    return [
        Row(f"of {delegations} delegations, those without one result", found.without_one_result, 0, ends),
        Row("children that were run twice", found.run_twice, 0, f"{found.faults} model calls failed"),
        Row(f"memory after the first {WARM_UP}, growth in %", found.growth * 100, 10, f"{found.seconds:.0f} s in all"),
        Row("tasks, threads, processes, files, sockets, folders left", len(found.left), 0, "; ".join(found.left)[:200]),
    ]
