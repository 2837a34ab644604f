"""Tasks that were lost with their process, which was killed while their child worked."""

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from delegate._util.processes import is_alive
from delegate.types import JsonObject
from tests.support import warm


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)  # other processes can be watched only so


@contextmanager
def running(home: Path, task: JsonObject, turns: Sequence[Any], **plan: Any) -> Generator[str]:
    """A process whose child has come to its last turn, and the handle of its task. It is killed at the end."""
    plan = {"task": {"goal": "Write hello.", **task}, "turns": turns, **plan}
    command = [*warm.python(), "-m", "tests.killed.tasks", str(home), json.dumps(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            kill(process, home)


def kill(process: "subprocess.Popen[Any]", home: Path) -> None:
    """Kill a process, and wait until the one forked for it is gone, which is a moment after its output ends."""
    process.kill()
    assert process.stdout
    process.stdout.read()
    until(lambda: not is_alive(owner(home)))


def owner(home: Path) -> str:
    """The process that works on the last task on record; empty if there is none."""
    try:
        with closing(sqlite3.connect(f"file:{home / 'records.sqlite3'}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT process FROM tasks ORDER BY rowid DESC").fetchone()
    except sqlite3.OperationalError:  # it was killed before there was a store
        row = None
    return row[0] if row else ""


def killed(home: Path, task: JsonObject, turns: Sequence[Any], **plan: Any) -> str:
    with running(home, task, turns, **plan) as handle:
        assert handle
    return handle
