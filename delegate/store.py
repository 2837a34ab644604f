"""One SQLite file, written by one thread of this process, beside other processes that do the same.

Writes that wait are committed together. In WAL mode a commit survives any crash of a process without waiting for the
disk. SQLite before 3.51.3 can lose pages when one connection resets the log while another writes to it (its WAL-reset
bug), so here the log is only reset under an exclusive file lock, of which every writer holds a share.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
Statement = tuple[str, Sequence[object]]
"""SQL and its values."""

BUSY_SECONDS = 30
"""How long another process's write is waited for."""
LOG_BYTES = 4 << 20
"""The log is emptied into the database when it is longer than this."""

_log = logging.getLogger(__name__)


class Store:
    """Opened when first used, and again after `aclose`. `schema` is executed each time."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock_file = -1
        self._pending: deque[Statement] = deque()
        self._starting = threading.Lock()

    def post(self, statement: Statement) -> None:
        """Write soon, and in order; a write that fails is logged. For what may be lost with the process."""
        self._pending.append(statement)
        if len(self._pending) == 1:
            self._executor().submit(self._flush_or_log)

    async def write(self, *statements: Statement) -> None:
        """Write, after all that was posted before, and return when it is committed. Raises sqlite3.Error, OSError."""
        self._pending.extend(statements)
        await self._run(lambda: self._flush_these(statements))

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """What `query` makes of the database, with all that was posted before."""

        def work() -> T:
            self._flush_or_log()
            return query(self._open())

        return await self._run(work)

    async def maintain(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives back, which writes by itself: alone, with no other process writing beside it."""

        def alone() -> T:
            connection = self._open()
            with self._locked("exclusive"):
                return work(connection)

        return await self._run(alone)

    async def aclose(self) -> None:
        """Finish what is being written and close the file."""
        if self._thread is not None:
            await self._run(self._close)
            self._thread.shutdown(wait=False)
            self._thread = None

    # -------------------------------------------------------------------------------------- in the store's thread

    def _flush_or_log(self) -> None:
        try:
            self._flush()
        except (sqlite3.Error, OSError) as error:
            _log.warning("events were not stored: %s", error)

    def _flush_these(self, statements: Sequence[Statement]) -> None:
        refused = self._flush()
        for one in statements:
            if id(one) in refused:
                raise refused[id(one)]

    def _flush(self) -> dict[int, Exception]:
        """Commit all that waits, at once. Gives back what SQLite refused, by the statement's identity."""
        statements: list[Statement] = []
        while self._pending:
            statements.append(self._pending.popleft())
        if not statements:
            return {}
        connection = self._open()
        with self._locked("shared"):
            connection.execute("BEGIN IMMEDIATE")  # a transaction that begins by reading would not wait for its turn
            try:
                refused = _execute(connection, statements)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        self._empty_the_log()
        return refused

    def _empty_the_log(self) -> None:
        with contextlib.suppress(OSError):
            if os.stat(f"{self._path}-wal").st_size > LOG_BYTES:
                with self._locked("exclusive"):
                    self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock_file = os.open(f"{self._path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with self._locked("exclusive"):
                self._connection = self._connected()
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        # Rows are written once and seldom read: SQLite's own 2 MB of cache would only hold memory.
        connection.execute("PRAGMA cache_size=-256")
        connection.executescript(self._schema)
        return connection

    @contextlib.contextmanager
    def _locked(self, how: str) -> Generator[None]:
        if sys.platform == "win32":
            yield
            return
        fcntl.flock(self._lock_file, fcntl.LOCK_EX if how == "exclusive" else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _close(self) -> None:
        self._flush_or_log()
        if self._connection is not None:
            with self._locked("exclusive"):  # the last one to close resets the log
                self._connection.close()
            os.close(self._lock_file)
            self._connection = None

    # ------------------------------------------------------------------------------------------------ the thread

    def _executor(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delegate-records")
            return self._thread

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor(), work)


def _execute(connection: sqlite3.Connection, statements: Sequence[Statement]) -> dict[int, Exception]:
    """Execute all; one that is refused doesn't cost the others."""
    refused: dict[int, Exception] = {}
    for one in statements:
        try:
            connection.execute(*one)
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, ValueError) as error:
            _log.warning("a record was refused: %s", error)
            refused[id(one)] = error
    return refused
