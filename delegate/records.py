"""The record of every run, written as it goes, so that what a parent reads can be short and a crash loses nothing.

    task begun ──▶ events (model calls, tool calls, checks, verdict) ──▶ result

A task's row is committed before its child starts. What began in a process that is gone, and has no result, reads
`outcome_unknown`: it may have done anything, and is never run again by itself.
"""

import json
import logging
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from delegate.store import Store
from delegate.types import ChildRun, JsonObject, Task, TaskResult

_log = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    handle TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    task_index INTEGER NOT NULL,
    process TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL,
    status TEXT,
    verdict TEXT,
    cost_usd REAL,
    task TEXT NOT NULL,
    run TEXT,
    result TEXT
);
CREATE INDEX IF NOT EXISTS tasks_by_run ON tasks (run_id);
CREATE INDEX IF NOT EXISTS tasks_by_time ON tasks (began_at);
CREATE TABLE IF NOT EXISTS events (
    handle TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_handle ON events (handle);
"""

_BEGIN = "INSERT INTO tasks (handle, run_id, task_index, process, began_at, task) VALUES (?, ?, ?, ?, ?, ?)"
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?)"
_END = "UPDATE tasks SET ended_at = ?, status = ?, verdict = ?, cost_usd = ?, run = ?, result = ? WHERE handle = ?"
_RUNS = """
SELECT run_id, MIN(began_at), MAX(ended_at), COUNT(*), SUM(verdict = 'PASS'), SUM(verdict = 'FAIL'),
    CASE WHEN COUNT(cost_usd) = COUNT(*) THEN SUM(cost_usd) END,
    GROUP_CONCAT(DISTINCT CASE WHEN status IS NULL THEN process END), MIN(task)
FROM tasks GROUP BY run_id ORDER BY MIN(began_at) DESC LIMIT ?
"""
_REMOVE_OLDER = """
DELETE FROM tasks WHERE result IS NOT NULL AND began_at < ?
RETURNING handle, coalesce(json_extract(result, '$.workspace'), '')
"""
_REMOVE_OLDEST = """
DELETE FROM tasks WHERE rowid IN (SELECT rowid FROM tasks WHERE result IS NOT NULL ORDER BY began_at LIMIT ?)
RETURNING handle, coalesce(json_extract(result, '$.workspace'), '')
"""
DAY = 86_400.0

State = Literal["running", "ended", "outcome_unknown"]


def new_run_id() -> str:
    """An id for one run: 12 hexadecimal digits."""
    return secrets.token_hex(6)


class RunSummary(NamedTuple):
    """One run in a line. `cost_usd` is None where a part of it is unknown; times are seconds since the epoch."""

    run_id: str
    began_at: float
    ended_at: float | None
    tasks: int
    passed: int
    failed: int
    cost_usd: float | None
    state: State
    goal: str
    """Of its first task."""


class Records:
    """Writes tasks as they go and reads them back by handle (`<run id>-<number>`).

    A store that can't be written costs the handle, never the result. Records older than `keep_days`, and the oldest
    beyond `keep_mb` megabytes, are removed when the store is opened, with the workspaces that were kept for them.
    """

    def __init__(self, home: Path, *, keep_days: float | None = None, keep_mb: float | None = None) -> None:
        self._home = home
        self._store = Store(home / "records.sqlite3", SCHEMA)
        self._keep = (keep_days, keep_mb)
        self._pruned = False

    async def begin(self, run_id: str, tasks: Sequence[tuple[str, Task]]) -> None:
        """Write that tasks begin, by handle. When this returns, a crash can no longer hide that they did."""
        now, process = time.time(), _this_process()
        rows = [
            (handle, run_id, index, process, now, task.model_dump_json(exclude_defaults=True))
            for index, (handle, task) in enumerate(tasks)
        ]
        try:
            await self._prune()
            await self._store.write(*((_BEGIN, row) for row in rows))
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.warning("the begin of run %s was not stored: %s", run_id, error)

    def event(self, handle: str, kind: str, data: Mapping[str, Any]) -> None:
        """Write what just happened to a task; it is on its way when this returns."""
        self._store.post((_EVENT, (handle, time.time(), kind, json.dumps(data, ensure_ascii=False, default=str))))

    async def save(self, run: ChildRun, result: TaskResult) -> TaskResult:
        """Write how a task ended; where that can't be, the result comes back without its handle."""
        verdict = result.verdict.verdict if result.verdict else None
        texts = (run.model_dump_json(), result.model_dump_json())
        row = (time.time(), result.status, verdict, result.cost_usd, *texts, result.handle)
        try:
            await self._store.write((_END, row))
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.warning("result %s was not stored: %s", result.handle, error)
            return result.model_copy(update={"handle": None})
        return result

    async def read(self, handle: str) -> JsonObject | None:
        """All that is known of a task: `state`, `task`, `run` (with full output and receipts), `result` and `events`.

        `run` and `result` are None until it ended; the events are there as they happen.
        """
        return await self._store.read(lambda connection: _read(connection, handle))

    async def runs(self, limit: int = 20) -> list[RunSummary]:
        """The latest runs, the newest first."""
        return await self._store.read(lambda connection: [_summary(row) for row in connection.execute(_RUNS, (limit,))])

    async def aclose(self) -> None:
        """Finish what is being written and close the file; a later use opens it again."""
        await self._store.aclose()

    async def _prune(self) -> None:
        if not self._pruned:
            self._pruned = True
            folders = await self._store.maintain(lambda connection: _prune(connection, *self._keep))
            for folder in folders:
                path = Path(folder)
                if path.parent == self._home / "workspaces":  # only what was made for a child is ours to remove
                    shutil.rmtree(path, ignore_errors=True)


def _read(connection: sqlite3.Connection, handle: str) -> JsonObject | None:
    query = "SELECT process, task, run, result FROM tasks WHERE handle = ?"
    row = connection.execute(query, (handle,)).fetchone()
    if row is None:
        return None
    process, task, run, result = row
    events = connection.execute("SELECT at, kind, data FROM events WHERE handle = ? ORDER BY rowid", (handle,))
    return {
        "state": _state(process if result is None else None),
        "task": json.loads(task),
        "run": json.loads(run) if run else None,
        "result": json.loads(result) if result else None,
        "events": [{"at": at, "kind": kind, **json.loads(data)} for at, kind, data in events],
    }


def _summary(row: tuple[Any, ...]) -> RunSummary:
    run_id, began, ended, tasks, passed, failed, cost, processes, task = row
    goal = str(json.loads(task).get("goal", ""))
    return RunSummary(run_id, began, ended, tasks, passed or 0, failed or 0, cost, _state(processes), goal)


def _state(processes: str | None) -> State:
    """Of a task, or a run, whose open tasks belong to these processes (None: none is open)."""
    if not processes:
        return "ended"
    return "running" if any(_is_alive(one) for one in processes.split(",")) else "outcome_unknown"


def _prune(connection: sqlite3.Connection, keep_days: float | None, keep_mb: float | None) -> list[str]:
    """Remove what is too old or too much; the workspaces of what was removed."""
    gone: list[str] = []
    if keep_days is not None:
        gone += _remove(connection, _REMOVE_OLDER, time.time() - keep_days * DAY)
    while keep_mb is not None and _megabytes(connection) > keep_mb:
        removed = _remove(connection, _REMOVE_OLDEST, 500)
        if not removed:
            break
        gone += removed
    return [folder for folder in gone if folder]


def _remove(connection: sqlite3.Connection, sql: str, value: float) -> list[str]:
    """The workspaces of what was removed, empty for tasks that left none."""
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(sql, (value,)).fetchall()
    connection.executemany("DELETE FROM events WHERE handle = ?", [(handle,) for handle, _ in rows])
    connection.execute("COMMIT")
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    return [folder for _, folder in rows]


def _megabytes(connection: sqlite3.Connection) -> float:
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return pages * size / 1e6


# ---------------------------------------------------------------------------------------------------------- processes


def _this_process() -> str:
    return _own(os.getpid())  # asked each time, since a fork goes on with another number


@cache
def _own(pid: int) -> str:
    return _process(pid)


def _process(pid: int) -> str:
    """A process by number and start, since numbers are given again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return f"{pid}/{stat.rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):  # not Linux
        return f"{pid}/"


def _is_alive(process: str) -> bool:
    pid = int(process.partition("/")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _process(pid) == process
