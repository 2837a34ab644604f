"""The record of every run, written as it goes, so that what a parent reads can be short and a crash loses nothing.

    task begun ──▶ events (model calls, tool calls, checks, verdict) ──▶ result

A task's row is committed before its child starts, and its result before anybody gets it. What began in a process that
is gone, and has no result, reads `outcome_unknown`: it may have done anything, and is never run again by itself.
"""

import contextlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from delegate._util.processes import is_alive, this_process
from delegate._util.redaction import Redactor, logger
from delegate.errors import DelegateError
from delegate.records.sqlite import Statement, Store
from delegate.types import ChildRun, JsonObject, Task, TaskResult

T = TypeVar("T")
_log = logger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    handle TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    task_index INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    process TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL,
    status TEXT,
    verdict TEXT,
    cost_usd REAL,
    workspace TEXT,
    task TEXT NOT NULL,
    run TEXT,
    result TEXT
);
CREATE INDEX IF NOT EXISTS tasks_by_run ON tasks (run_id, began_at);
CREATE INDEX IF NOT EXISTS tasks_by_time ON tasks (began_at);
CREATE INDEX IF NOT EXISTS tasks_by_workspace ON tasks (workspace) WHERE workspace IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_open ON tasks (process) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS events (handle TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_handle ON events (handle);
"""

_BEGIN = "INSERT INTO tasks (handle, run_id, task_index, depth, process, began_at, task) VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM tasks WHERE handle = ?"
_FORGET_EVENTS = "DELETE FROM events WHERE handle = ?"
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?)"
_WORKSPACE = "UPDATE tasks SET workspace = ? WHERE handle = ?"
_END = (
    "UPDATE tasks SET ended_at = ?, status = ?, verdict = ?, cost_usd = ?, workspace = ?, run = ?, result = ? "
    "WHERE handle = ?"
)
_TASKS = """
SELECT handle, run_id, depth, process, began_at, ended_at, status, verdict, cost_usd, task FROM tasks
WHERE run_id = ? ORDER BY rowid
"""
_COSTS = """
SELECT cost_usd FROM (SELECT * FROM tasks ORDER BY began_at DESC LIMIT 2000)
WHERE status = 'completed' AND cost_usd IS NOT NULL AND json_extract(result, '$.requested_model') = ? LIMIT 200
"""
_LATEST_RUNS = "SELECT run_id FROM tasks GROUP BY run_id ORDER BY MIN(began_at) DESC LIMIT ?"
_RECORD = "SELECT run_id, process, began_at, ended_at, workspace, task, run, result FROM tasks WHERE handle = ?"
_OPEN_PROCESSES = "SELECT DISTINCT process FROM tasks WHERE ended_at IS NULL"
_REMOVABLE = """
SELECT handle, workspace FROM tasks WHERE (ended_at IS NOT NULL OR process IN ({dead})) AND began_at < ?
ORDER BY began_at LIMIT ?
"""
_ELSEWHERE_IN_USE = "SELECT 1 FROM tasks WHERE workspace = ? AND handle <> ? LIMIT 1"
_REMOVED_AT_ONCE = 20
_BETWEEN_LOOKS = 3600.0
DAY = 86_400.0

TaskState = Literal["running", "ended", "outcome_unknown"]


class TaskSummary(NamedTuple):
    """One task in a line. Times are seconds since the epoch; `cost_usd` is None where it isn't known."""

    handle: str
    run_id: str
    depth: int
    """0 for what the root delegated, 1 for what its children did."""
    state: TaskState
    began_at: float
    ended_at: float | None
    status: str | None
    verdict: str | None
    cost_usd: float | None
    goal: str


class RunSummary(NamedTuple):
    """One run in a line: what its root delegated, with the costs of all below. Times are seconds since the epoch."""

    run_id: str
    state: TaskState
    began_at: float
    ended_at: float | None
    """When its last task ended; None while one is open."""
    tasks: int
    passed: int
    failed: int
    other: int
    """Without verdict: no criteria, or no result."""
    cost_usd: float | None
    """None where a part of it isn't known."""
    goal: str
    """Of its first task."""


class Records:
    """Writes tasks as they go and reads them back by handle (`<run id>-<number>`).

    A store that can't be written costs the handle, never the result. What is older than `keep_days`, and the oldest
    beyond `keep_mb` megabytes, is removed between other writes, at first use and every hour after: the record, and
    through `discard` the workspace that was kept in `home/workspaces`. Tasks that still run are kept.
    """

    def __init__(
        self,
        home: Path,
        *,
        keep_days: float | None = None,
        keep_mb: float | None = None,
        discard: Callable[[Path], None] | None = None,
    ) -> None:
        self._path = home / "records.sqlite3"
        self._store = Store(self._path, SCHEMA)
        self._retention = _Retention(home / "workspaces", keep_days, keep_mb, discard)
        self._next_look = -_BETWEEN_LOOKS

    async def begin(
        self,
        run_id: str,
        tasks: Sequence[tuple[str, Task]],
        *,
        first: int = 0,
        depth: int = 0,
        redactor: Redactor | None = None,
    ) -> None:
        """Write that tasks begin, by handle and numbered from `first`.

        When this returns, a crash can no longer hide that they did.
        """
        now, process, redacted = time.time(), this_process(), (redactor or Redactor()).json
        rows = [
            (handle, run_id, index, depth, process, now, redacted(task.model_dump_json(exclude_defaults=True)))
            for index, (handle, task) in enumerate(tasks, first)
        ]
        try:
            await self._store.write(*((_BEGIN, row) for row in rows))
        except (sqlite3.Error, OSError, ValueError):  # the store has said so
            return
        self._look_for_old_ones()

    def event(self, handle: str, kind: str, data: str | Mapping[str, Any]) -> None:
        """Write what just happened to a task: it is stored a tenth of a second later, with all that comes till then.

        `data` is a JSON object, or the text of one.
        """
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        self._store.post((_EVENT, (handle, time.time(), kind, text)))

    def opened(self, handle: str, workspace: Path) -> None:
        """Write where a child works."""
        self._store.post((_WORKSPACE, (str(workspace), handle)))

    async def save(self, run: ChildRun, result: TaskResult, *, redactor: Redactor | None = None) -> TaskResult:
        """Write how a task ended, and give its result back: redacted, and without a handle where it can't be stored."""
        redactor = redactor or Redactor()
        run_text, as_given = run.model_dump_json(), result.model_dump_json()
        text = redactor.json(as_given)
        if text is not as_given:
            result = TaskResult.model_validate_json(text)
            run_text = redactor.json(run_text)
        verdict = result.verdict.verdict if result.verdict else None
        ended = (time.time(), result.status, verdict, result.cost_usd, result.workspace)
        row = (*ended, run_text, text, result.handle)
        with contextlib.suppress(sqlite3.Error, OSError, ValueError):  # the store has said so
            if await self._store.write((_END, row)):
                if result.handle is None or result.summary == run.output:
                    return result
                return result.with_report(partial(_read_report, self._path, result.handle))
        result = result.model_copy(update={"handle": None})
        return result.with_report(partial(redactor.text, run.output))

    async def read(self, handle: str) -> JsonObject | None:
        """All that is known of a task; None where nothing is.

        `state`, `run_id`, `began_at`, `ended_at`, `workspace`, `task`, `run` (with full output and receipts), `result`
        and `events`. `run` and `result` are None until it has ended; events are there as they happen.

        Raises DelegateError where they can't be read.
        """
        return await self._query(lambda connection: _read(connection, handle))

    async def runs(self, limit: int = 20) -> list[RunSummary]:
        """The latest runs, the newest first. Raises DelegateError where they can't be read."""
        return await self._query(lambda connection: list(_latest(connection, limit))) or []

    async def costs(self, model: str) -> list[float]:
        """What the latest completed tasks came to, in US dollars, that were asked of the model; where it is known."""
        return await self._query(lambda connection: [cost for (cost,) in connection.execute(_COSTS, (model,))]) or []

    async def tasks(self, run_id: str) -> list[TaskSummary]:
        """The tasks of a run, in the order in which they began. Raises DelegateError where they can't be read."""
        return await self._query(lambda connection: _tasks(connection, run_id)) or []

    async def aclose(self) -> None:
        """Finish what is being written and close the file; a later use opens it again."""
        await self._store.aclose()

    async def _query(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            return await self._store.read(query)
        except (sqlite3.Error, OSError) as error:
            raise DelegateError(f"the records can't be read: {error}") from error

    def _look_for_old_ones(self) -> None:
        if time.monotonic() >= self._next_look and self._retention.limits:
            self._next_look = time.monotonic() + _BETWEEN_LOOKS
            self._store.maintain(self._retention.step)


# ------------------------------------------------------------------------------------------------------------ reading


def _read_report(path: Path, handle: str) -> str:
    """The output of a task on record. Blocks for the time of one query."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT run FROM tasks WHERE handle = ? AND run IS NOT NULL", (handle,)).fetchone()
    except sqlite3.Error as error:
        raise DelegateError(f"the record of {handle} can't be read: {error}") from error
    if row is None:
        raise DelegateError(f"the record of {handle} was removed; keep_days and keep_mb set how long records are kept")
    return str(json.loads(row[0])["output"])


def _read(connection: sqlite3.Connection, handle: str) -> JsonObject | None:
    row = connection.execute(_RECORD, (handle,)).fetchone()
    if row is None:
        return None
    run_id, process, began_at, ended_at, workspace, task, run, result = row
    events = connection.execute("SELECT at, kind, data FROM events WHERE handle = ? ORDER BY rowid", (handle,))
    return {
        "handle": handle,
        "run_id": run_id,
        "state": _state(process, ended_at),
        "began_at": began_at,
        "ended_at": ended_at,
        "workspace": workspace,
        "task": json.loads(task),
        "run": json.loads(run) if run else None,
        "result": json.loads(result) if result else None,
        "events": [{"at": at, "kind": kind, **json.loads(data)} for at, kind, data in events],
    }


def _tasks(connection: sqlite3.Connection, run_id: str) -> list[TaskSummary]:
    return [_task(row) for row in connection.execute(_TASKS, (run_id,))]


def _task(row: tuple[Any, ...]) -> TaskSummary:
    handle, run_id, depth, process, began_at, ended_at, status, verdict, cost_usd, task = row
    state, goal = _state(process, ended_at), str(json.loads(task).get("goal", ""))
    return TaskSummary(handle, run_id, depth, state, began_at, ended_at, status, verdict, cost_usd, goal)


def _latest(connection: sqlite3.Connection, limit: int) -> Iterator[RunSummary]:
    for (run_id,) in connection.execute(_LATEST_RUNS, (limit,)).fetchall():
        yield _run(run_id, _tasks(connection, run_id))


def _run(run_id: str, tasks: Sequence[TaskSummary]) -> RunSummary:
    """A run, of which the first task is the root's."""
    top = [task for task in tasks if task.depth == tasks[0].depth]
    ends = [task.ended_at for task in tasks if task.ended_at is not None]
    costs = [task.cost_usd for task in top if task.cost_usd is not None]
    passed, failed = (sum(task.verdict == word for task in top) for word in ("PASS", "FAIL"))
    states = {task.state for task in tasks}
    return RunSummary(
        run_id,
        "running" if "running" in states else "outcome_unknown" if "outcome_unknown" in states else "ended",
        tasks[0].began_at,
        max(ends) if len(ends) == len(tasks) else None,
        len(top),
        passed,
        failed,
        len(top) - passed - failed,
        round(sum(costs), 9) if len(costs) == len(top) else None,
        tasks[0].goal,
    )


def _state(process: str, ended_at: float | None) -> TaskState:
    if ended_at is not None:
        return "ended"
    return "running" if is_alive(process) else "outcome_unknown"


# ---------------------------------------------------------------------------------------------------------- retention


class _Retention:
    """What is removed: by age, and by size."""

    def __init__(
        self, workspaces: Path, keep_days: float | None, keep_mb: float | None, discard: Callable[[Path], None] | None
    ) -> None:
        self._workspaces = workspaces
        self._days = math.inf if keep_days is None else keep_days
        self._mb = math.inf if keep_mb is None else keep_mb
        self._discard = discard

    @property
    def limits(self) -> bool:
        """Whether anything is ever removed."""
        return min(self._days, self._mb) < math.inf

    def step(self, connection: sqlite3.Connection) -> list[Statement]:
        """Remove a few workspaces, and give what removes their records: in this order, so that no crash parts them."""
        now = time.time()
        old = self._removable(connection, now - self._days * DAY)
        if not old and _megabytes(connection) > self._mb:
            old = self._removable(connection, now)
        for handle, workspace in old:
            if workspace and not connection.execute(_ELSEWHERE_IN_USE, (workspace, handle)).fetchone():
                self._remove(Path(workspace))
        return [(sql, (handle,)) for handle, _ in old for sql in (_FORGET, _FORGET_EVENTS)]

    def _removable(self, connection: sqlite3.Connection, before: float) -> list[tuple[str, str | None]]:
        dead = [process for (process,) in connection.execute(_OPEN_PROCESSES) if not is_alive(process)]
        sql = _REMOVABLE.format(dead=", ".join("?" * len(dead)))
        return connection.execute(sql, (*dead, before, _REMOVED_AT_ONCE)).fetchall()

    def _remove(self, workspace: Path) -> None:
        """Only what lies where workspaces are made is ours to remove."""
        ours = Path(os.path.realpath(workspace)).parent == Path(os.path.realpath(self._workspaces))
        if self._discard is None or not ours or workspace.is_symlink():
            return
        try:
            self._discard(workspace)
        except FileNotFoundError:  # somebody did so before
            pass
        except OSError as error:
            _log.warning("the workspace %s can't be removed: %s", workspace, error)


def _megabytes(connection: sqlite3.Connection) -> float:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return (pages - free) * size / 1e6
