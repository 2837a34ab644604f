"""Kills processes at random moments: acknowledged results exist, running tasks are known, and nothing runs twice.

`KILL_ROUNDS=30` runs the long version.
"""

import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from tests.support import warm

ROUNDS = int(os.environ.get("KILL_ROUNDS", "6"))
PROCESSES = 2
"""Processes that write to the same home, each killed at a different moment."""
MAX_CALLS = 12
"""Maximum number of calls that a process acknowledges before the kill. It is random, and so is the moment after it."""
CALL_SECONDS = 0.05
"""About the time of a call."""


@contextmanager
def _started(home: Path, name: str, seed: int) -> Generator["subprocess.Popen[str]"]:
    command = [*warm.python(), "-m", "tests.killed.batches", str(home), name, str(seed)]
    root = Path(__file__).resolve().parent.parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            yield process
        finally:
            process.kill()


def _run_and_kill(home: Path, round: int, chance: random.Random) -> Iterator[str]:
    """Run some processes and kill each at a random moment. Yields the handles that they acknowledged."""
    with ExitStack() as stack:
        names = [f"{round}-{n}" for n in range(PROCESSES)]
        running = [stack.enter_context(_started(home, name, chance.randrange(10**9))) for name in names]
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == "started\n"
        for process in running:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(chance.randrange(MAX_CALLS + 1))]
            time.sleep(chance.random() * CALL_SECONDS)
            process.kill()
            lines += process.stdout.readlines()
            yield from (handle for line in lines if line.endswith("\n") for handle in line.split())


def _goals(home: Path) -> set[str]:
    """The goals of all tasks on record, after an integrity check."""
    connection = sqlite3.connect(home / "records.sqlite3")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    goals = {goal for (goal,) in connection.execute("SELECT json_extract(task, '$.goal') FROM tasks")}
    connection.close()
    return goals


def _starts(home: Path) -> Counter[str]:
    file = home.with_name("starts")
    return Counter(file.read_text().split() if file.exists() else ())


@pytest.mark.slow
async def test_after_a_kill_acknowledged_results_exist_and_nothing_runs_twice(tmp_path: Path) -> None:
    home, chance, acknowledged = tmp_path / "killed", random.Random(20_261_120), set[str]()
    for round in range(ROUNDS):
        acknowledged |= set(_run_and_kill(home, round, chance))
        on_record = _goals(home)
        assert set(_starts(home)) <= on_record, "no child started before its task was on record"
    starts = _starts(home)
    async with Delegator(client=Scripted(lambda request: "did my part"), home=home) as delegator:
        states = Counter[str]()
        for run in await delegator.records.runs(limit=10_000):
            for task in await delegator.records.tasks(run.run_id):
                states[task.state] += 1
                assert (task.state == "ended") or task.handle not in acknowledged
                record = await delegator.records.read(task.handle)
                assert record
                if task.state == "ended":
                    assert record["run"]["report"] == f"I wrote note.md for {task.goal}"
                    assert record["result"]["verdict"]["verdict"] == "PASS"
                else:
                    assert (task.state, record["result"]) == ("outcome_unknown", None)
        await delegator.run(Task(goal="go on"))
    assert len(acknowledged) > 20 * ROUNDS
    assert states["ended"] >= len(acknowledged)
    assert states["outcome_unknown"] > 0, "some tasks were running when they were killed"
    assert set(starts.values()) == {1}, "no child ran twice"
    assert _starts(home) == starts, "and no later process ran one again"
