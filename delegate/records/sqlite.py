"""One SQLite file, written by one thread of this process, beside other processes that do the same.

Writes that wait are committed together. In WAL mode a commit survives any crash of a process without waiting for the
disk. SQLite before 3.51.3 can lose pages when one connection resets the log while another writes to it (its WAL-reset
bug), and writers that meet poll for their turn. So here one writes at a time, whoever holds the lock of a file beside.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
Statement = tuple[str, Sequence[object]]
"""SQL and its values."""

BUSY_SECONDS = 10.0
"""How long other processes are waited for."""
LINGER_SECONDS = 0.1
"""How long a posted write waits for others to be committed with."""
LOG_BYTES = 4 << 20
"""The log is emptied into the database when it is longer than this."""
_REFUSED = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)

_log = logging.getLogger(__name__)
_abandoned: list[sqlite3.Connection] = []
"""Connections that are left open, since closing them would do harm: those of the process that this one was forked from,
and those whose file was removed, in whose place another may lie by now."""


class Store:
    """Opened when first used; again after `aclose`, in a forked process, and where its file was removed.

    Safe to use from several threads and event loops. `schema` is executed at each opening.
    """

    def __init__(
        self, path: Path, schema: str, *, log_bytes: int = LOG_BYTES, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._make = lambda: _Writer(path, schema, log_bytes, busy_seconds)
        self._writer: _Writer | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def post(self, statement: Statement) -> None:
        """Write soon, and in order; a write that fails is logged. For what may be lost with the process."""
        self._notice_fork()
        with self._lock:
            self._open().put(_Write((statement,), None))

    async def write(self, *statements: Statement) -> int:
        """Write, after all that was posted before, and return when it is committed: how many rows changed.

        Written also where the caller is cancelled meanwhile. Raises sqlite3.Error, OSError, ValueError.
        """
        done: Future[int] = Future()
        self._notice_fork()
        with self._lock:
            self._open().put(_Write(statements, done))
        return await asyncio.wrap_future(done)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `query` makes of the database, with all that was posted before; None where there is no file yet.

        Raises sqlite3.Error, OSError, and what `query` does.
        """
        self._notice_fork()
        with self._lock:
            found = self._open().query(query)
        return await asyncio.wrap_future(found)

    def maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        """Write what `step` gives, between other writes, and again until it gives nothing more; and give space back."""
        self._notice_fork()
        with self._lock:
            self._open().maintain(step)

    async def aclose(self) -> None:
        """Finish what is being written and close the file."""
        self._notice_fork()
        with self._lock:
            writer, self._writer = self._writer, None
            closed = writer.close() if writer else None
        if closed is not None:
            await asyncio.wrap_future(closed)

    def _open(self) -> "_Writer":
        """The writer, which can't be closed while the lock is held."""
        if self._writer is None:
            self._writer = self._make()
        return self._writer

    def _notice_fork(self) -> None:
        """The thread stayed behind, and so did whoever held a lock."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
            if self._writer is not None:
                self._writer.abandon()
                self._writer = None


class _Write(NamedTuple):
    statements: Sequence[Statement]
    done: "Future[int] | None"
    """Gets the number of changed rows, or what went wrong. None where nobody waits."""

    def end(self, outcome: "int | Exception") -> None:
        if self.done is None or not self.done.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


class _Writer:
    """The thread, its connection, and what waits to be written."""

    def __init__(self, path: Path, schema: str, log_bytes: int, busy_seconds: float) -> None:
        self._path = path
        self._schema = schema
        self._log_bytes = log_bytes
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delegate-records")
        self._pending: deque[_Write] = deque()
        self._scheduled = False
        self._hurry = threading.Event()
        self._closing = False
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._lock = _FileLock(Path(f"{path}-lock"), busy_seconds)
        self._complained = ""

    # ------------------------------------------------------------------------------------------ for other threads

    def put(self, write: _Write) -> None:
        self._pending.append(write)
        if write.done is not None:
            self._hurry.set()
        if not self._scheduled:  # the thread takes this back before it looks for what waits
            self._scheduled = True
            self._thread.submit(self._flush_soon)

    def query(self, query: Callable[[sqlite3.Connection], T]) -> "Future[T | None]":
        self._hurry.set()
        return self._thread.submit(self._query, query)

    def maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        self._thread.submit(self._maintain, step)

    def close(self) -> "Future[None]":
        self._closing = True
        self._hurry.set()
        closed = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return closed

    def abandon(self) -> None:
        """Let go of a file that isn't ours any more: after a fork, or because it was removed."""
        if self._connection is not None:
            _abandoned.append(self._connection)
            self._connection = None
        self._lock.close()

    # ---------------------------------------------------------------------------------------------- in the thread

    def _flush_soon(self) -> None:
        self._hurry.wait(LINGER_SECONDS)
        self._hurry.clear()
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        """Commit all that waits, at once."""
        writes: list[_Write] = []
        while self._pending:
            writes.append(self._pending.popleft())
        if not writes:
            return
        try:
            outcomes = self._commit(writes)
        except Exception as error:
            self._complain(error)
            outcomes = [error] * len(writes)
        else:
            self._complained = ""
        for write, outcome in zip(writes, outcomes, strict=True):
            write.end(outcome)

    def _commit(self, writes: Sequence[_Write]) -> "list[int | Exception]":
        """Each write's number of changed rows, or why SQLite refused it, which doesn't cost the others."""
        connection = self._open()
        with self._lock.held():
            connection.execute("BEGIN IMMEDIATE")  # a transaction that begins by reading would not wait for its turn
            try:
                outcomes = [self._execute(connection, write.statements) for write in writes]
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # some failures end it by themselves
                    connection.execute("ROLLBACK")
                raise
            self._empty_the_log(connection)
        return outcomes

    def _execute(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> int | Exception:
        rows = 0
        for statement in statements:
            try:
                rows += max(0, connection.execute(*statement).rowcount)
            except (*_REFUSED, ValueError, OverflowError) as error:
                self._complain(error)
                return error
        return rows

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        self._flush()
        if self._connection is None and not self._path.exists():
            return None
        return query(self._open())

    def _maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        if self._closing:
            return
        try:
            connection = self._open()
            statements = step(connection)
            if not statements:
                return
            self._commit([_Write(statements, None)])
            with self._lock.held():
                connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
        except Exception as error:
            self._complain(error)
            return
        with contextlib.suppress(RuntimeError):  # it is being closed
            self._thread.submit(self._maintain, step)

    def _empty_the_log(self, connection: sqlite3.Connection) -> None:
        # Without the lock this is left to whoever closes the file last, which SQLite makes sure of.
        with contextlib.suppress(OSError, sqlite3.Error):
            if self._lock.works and os.stat(f"{self._path}-wal").st_size > self._log_bytes:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _identity(self._path) != self._file:
            self.abandon()
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._lock.held():
                self._connection = self._connect()
                self._file = _identity(self._path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):  # for this user's eyes only, whatever the folder allows
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(
            self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")
            # Rows are written once and seldom read: SQLite's own 2 MB of cache would only hold memory.
            connection.execute("PRAGMA cache_size=-256")
            connection.executescript(self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        self._flush()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with self._lock.held():  # the last one to close empties the log
                    connection.close()
            except OSError as error:
                self._complain(error)
                connection.close()
        self._lock.close()

    def _complain(self, error: Exception) -> None:
        """Once, and not for every write that meets the same."""
        if str(error) != self._complained:
            self._complained = str(error)
            _log.warning("records can't be written to %s: %s", self._path, error)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies there; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _FileLock:
    """An exclusive lock between processes, and between the writers of one process. It ends with its holder."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._file: int | None = None
        self.works = sys.platform != "win32"
        """False where the system or this file system has no such locks: SQLite's own still keep writers apart."""

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Wait for the lock, hold it for the block. Raises OSError: TimeoutError where another holds it too long."""
        if sys.platform == "win32":
            yield
            return
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        file = self._file
        self._acquire(file)
        try:
            yield
        finally:
            if self.works:
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _acquire(self, file: int) -> None:
        """Without waiting in the kernel, where nothing but the holder could end the wait."""
        pause, give_up_at = 0.0005, time.monotonic() + self._busy_seconds
        while self.works and sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    held = f"another process has held {self._path} for {self._busy_seconds:g} s"
                    raise TimeoutError(held) from None
            except OSError:
                self.works = False
            time.sleep(pause)
            pause = min(0.02, pause * 2)
