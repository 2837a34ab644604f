"""The store that keeps each result whole, so that what a parent reads can be short.

One SQLite file under `home`; every write goes through one thread with one connection. A store that can't be written
costs the handle, never the result.
"""

import asyncio
import json
import logging
import secrets
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from delegate.types import ChildRun, Task, TaskResult

_log = logging.getLogger(__name__)

_TABLE = """
CREATE TABLE IF NOT EXISTS results (
    handle TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    task_index INTEGER NOT NULL,
    ended_at REAL NOT NULL,
    task TEXT NOT NULL,
    run TEXT NOT NULL,
    result TEXT NOT NULL
)
"""


def new_run_id() -> str:
    """An id for one run: 12 hexadecimal digits."""
    return secrets.token_hex(6)


class Records:
    """Writes results as they come and reads them back by handle (`<run id>-<task index>`)."""

    def __init__(self, home: Path) -> None:
        self._path = home / "records.sqlite3"
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def save(self, run_id: str, task: Task, run: ChildRun, result: TaskResult) -> TaskResult:
        """Store one result under its handle; where that can't be, the result comes back without one."""
        try:
            await self._do(self._insert, run_id, task, run, result)
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.warning("result %s was not stored: %s", result.handle, error)
            return result.model_copy(update={"handle": None})
        return result

    async def read(self, handle: str) -> dict[str, Any] | None:
        """The whole record as plain data: `task`, `run` (with the full output and receipts) and `result`."""
        return await self._do(self._select, handle)

    async def aclose(self) -> None:
        """Finish what is being written and close the file; a later use opens it again."""
        if self._thread is not None:
            await self._do(self._close)
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _do(self, function: Any, *args: object) -> Any:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delegate-records")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
            # In this mode a commit survives any crash of a process, and needs no wait for the disk.
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            # Rows are written once and seldom read: SQLite's own 2 MB of cache would only hold memory.
            self._connection.execute("PRAGMA cache_size=-256")
            self._connection.execute(_TABLE)
        return self._connection

    def _insert(self, run_id: str, task: Task, run: ChildRun, result: TaskResult) -> None:
        row = (result.handle, run_id, result.task_index, time.time())
        texts = (task.model_dump_json(exclude_defaults=True), run.model_dump_json(), result.model_dump_json())
        self._open().execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row + texts)

    def _select(self, handle: str) -> dict[str, Any] | None:
        query = "SELECT task, run, result FROM results WHERE handle = ?"
        row = self._open().execute(query, (handle,)).fetchone()
        return None if row is None else dict(zip(("task", "run", "result"), map(json.loads, row), strict=True))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
