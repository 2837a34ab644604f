"""An SQLite file with one writer per process, shared by several processes.

A thread commits pending writes together. What can't be written waits in a side file (see `aside`), and is written
before anything later.

In WAL mode a commit survives a crash of any process without waiting for the disk. SQLite before 3.51.3 can lose pages
if one connection resets the write-ahead log while another one writes to it (the WAL-reset bug), and concurrent writers
poll. A lock file next to the database therefore admits one writer at a time.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from delegate._util import forking
from delegate.records import aside
from delegate.records.aside import REJECTED, SideFiles, Statement
from delegate.records.trouble import trouble_of

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long a write waits for other processes."""
LINGER_SECONDS = 0.1
"""How long a posted write waits for more writes, to commit them together."""
LOG_BYTES = 16 << 20
"""The write-ahead log is checkpointed when it is longer than this."""
PAUSE_SECONDS = 60.0
"""How long nothing waits for other processes after one was waited for in vain, unless a write succeeds before."""
FORK_SECONDS = 1.0
"""How long a fork waits for a write to end."""

_log = logging.getLogger(__name__)
_open_writers: "weakref.WeakSet[_Writer]" = weakref.WeakSet()
_abandoned: list[sqlite3.Connection] = []
"""Connections that are never closed, because closing them could damage a database: those of the process that this one
was forked from, and those whose file was removed and possibly replaced."""


class Store:
    """An SQLite file that is opened on first use, and again after `aclose`, after a fork, or if the file was removed.

    Safe to use from several threads and event loops. `schema` is executed whenever the file is opened.
    """

    def __init__(
        self, path: Path, schema: str, *, log_bytes: int = LOG_BYTES, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._new_writer = lambda: _Writer(path, schema, log_bytes, busy_seconds)
        self._writer: _Writer | None = None
        self._lock = threading.Lock()
        forking.watch(self)

    def post(self, statement: Statement) -> None:
        """Write soon, in order, without waiting. A failed write waits in a side file. A crash loses pending writes."""
        with self._lock:
            writer = self._open()
            writer.pending.append(statement)
            writer.flush_soon()

    async def write(self, *statements: Statement, now: bool = True) -> int:
        """Write after everything posted before, wait for the commit, and return the number of changed rows.

        If it needn't be `now`, others are awaited as for `post`. The write is made even if the caller is canceled in
        the meantime. Raises sqlite3.Error, OSError, ValueError, after which nothing was written: see `set_aside`.
        """
        result = asyncio.get_running_loop().create_future()
        with self._lock:
            writer = self._open()
            writer.pending.append(_Write(statements, result))
            writer.flush_soon(now=now)
        return await result

    def set_aside(self, error: Exception, *statements: Statement) -> None:
        """Let statements that `write` couldn't write wait until it can. The same error is logged only once."""
        with self._lock:
            self._open().set_aside(error, statements)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `query` after everything posted before and return its result; None if there is no file yet.

        Raises sqlite3.Error, OSError, and what `query` raises.
        """
        with self._lock:
            result = self._open().query(query)
        return await asyncio.wrap_future(result)

    def maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        """Execute the statements that `step` returns, between other writes, until it returns none. Frees disk space."""
        with self._lock:
            self._open().maintain(step)

    async def aclose(self) -> None:
        """Finish pending writes, close the file, and end the writer's thread."""
        with self._lock:
            writer, self._writer = self._writer, None
            closed = writer.close() if writer else None
        if writer is not None and closed is not None:
            await asyncio.wrap_future(closed)
            writer.join()

    def _open(self) -> "_Writer":
        """The writer. The caller holds the lock, so that it can't be closed meanwhile."""
        if self._writer is None:
            self._writer = self._new_writer()
        return self._writer

    def after_fork(self) -> None:
        """Start over: the writer thread and the holder of the lock don't exist in this process."""
        self._lock = threading.Lock()
        self._writer = None


class _Write(NamedTuple):
    """Statements whose caller waits. One without a waiting caller is pending as it is."""

    statements: Sequence[Statement]
    done: "asyncio.Future[int]"
    """Receives the number of changed rows or the error."""


_Pending = Statement | _Write
_Outcomes = list[tuple["asyncio.Future[int]", "int | Exception"]]


def _wake(outcomes: _Outcomes) -> None:
    """Wake those who wait, each on its loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, _Outcomes] = defaultdict(list)
    for outcome in outcomes:
        by_loop[outcome[0].get_loop()].append(outcome)
    for loop, waiting in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(outcomes: _Outcomes) -> None:
    for waiter, outcome in outcomes:
        if waiter.done():  # canceled
            continue
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


class _Writer:
    """The writer thread, its connection, and the pending writes."""

    def __init__(self, path: Path, schema: str, log_bytes: int, busy_seconds: float) -> None:
        self._path = path
        self._schema = schema
        self._log_bytes = log_bytes
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delegate-records")
        self.pending: deque[_Pending] = deque()
        """What isn't committed yet, in order."""
        self._flushing = False
        """Whether `_keep_flushing` runs, or is about to."""
        self._flush_now = threading.Event()
        self._has_other_work = False
        """Whether the thread is needed for something else."""
        self._closing = False
        self.in_use = threading.RLock()
        """Held while SQLite runs, so that a fork doesn't inherit its locks."""
        self._connection: sqlite3.Connection | None = None
        self._waits = True
        """Whether the connection waits for other processes."""
        self._dropped: weakref.finalize[[], _Writer] | None = None
        """Closes the connection if that wasn't done before this object is collected."""
        self._file_id: tuple[int, int] | None = None
        self._lock = FileLock(Path(f"{path}-lock"), busy_seconds)
        self._aside = SideFiles(path)
        self._locked_until = 0.0
        """Until then, nothing waits for other processes."""
        self._last_error = ""
        _open_writers.add(self)
        forking.watch(self)

    def after_fork(self) -> None:
        """Leave the connection and what isn't written yet to the parent process."""
        self.in_use = threading.RLock()
        self.pending.clear()
        self._aside.abandon()
        self.abandon()

    # ------------------------------------------------------------------------------------------ for other threads

    def flush_soon(self, *, now: bool = False) -> None:
        """Let the thread commit what is pending. The caller holds the store's lock."""
        if now:
            self._flush_now.set()
        # The thread resets this before it takes the pending writes. If it is closed, it has taken them.
        if not (self._flushing or self._closing):
            self._flushing = True
            self._thread.submit(self._keep_flushing)

    def query(self, query: Callable[[sqlite3.Connection], T]) -> "Future[T | None]":
        return self._submit(partial(self._query, query))

    def maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        self._submit(partial(self._maintain, step))

    def close(self) -> "Future[None]":
        self._closing = True
        closed = self._submit(self._close)
        self._thread.shutdown(wait=False)
        return closed

    def join(self) -> None:
        """Wait for the thread to end, which has nothing left to do after `close`."""
        self._thread.shutdown()

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        """Do some other work in the thread, after everything posted before."""
        self._has_other_work = True
        self._flush_now.set()
        return self._thread.submit(work)

    def close_directly(self) -> None:
        """Close the file from this thread, after the writer's own thread has ended."""
        with contextlib.suppress(sqlite3.Error):
            self._close()

    def __del__(self) -> None:
        # It wasn't closed. Its thread has nothing left to do, since each of its tasks refers to this object.
        self._lock.close()

    def abandon(self) -> None:
        """Stop using the connection without closing it: after a fork, or because the file was removed."""
        if self._connection is not None:
            _abandoned.append(self._connection)
            self._connection = None
        if self._dropped is not None:
            self._dropped.detach()
        self._lock.close()

    # ---------------------------------------------------------------------------------------------- in the thread

    def _keep_flushing(self) -> None:
        """Commit what is pending, until nothing was written for a while. A waiting thread needn't be woken for a post,
        which would take the interpreter's lock from the thread that posts.
        """
        while True:
            is_asked = self._flush_now.wait(LINGER_SECONDS)
            self._flush_now.clear()
            if self._has_other_work or not (is_asked or self.pending):
                break
            self._flush()
        self._has_other_work = self._flushing = False
        self._flush()

    def _flush(self) -> None:
        """Commit all pending writes in one transaction."""
        with self.in_use:  # also while taking them, so that nothing that was written later is committed before
            if not (pending := list(self.pending)):
                return
            try:
                outcomes = self._commit_soon(pending)
            except Exception as error:
                if posted := [item for item in pending if not isinstance(item, _Write)]:  # who waits gets the error
                    self.set_aside(error, posted)
                outcomes = [error] * len(pending)
            else:
                self._last_error = ""
            for _ in pending:
                self.pending.popleft()
        results = zip(pending, outcomes, strict=True)
        _wake([(item.done, outcome) for item, outcome in results if isinstance(item, _Write)])

    @contextlib.contextmanager
    def _waiting(self) -> Generator[bool]:
        """Yields whether to wait for other processes, which a call pays for only once while the store is locked."""
        wait = time.monotonic() >= self._locked_until
        try:
            yield wait
        except Exception as error:
            if wait and _is_busy(error):
                self._locked_until = time.monotonic() + PAUSE_SECONDS
            raise

    def _commit_soon(self, pending: Sequence[_Pending]) -> "list[int | Exception]":
        """Commit, and checkpoint the log if it is long."""
        with self._waiting() as wait:
            outcomes = self._commit(pending, wait=wait)
        self._locked_until = 0.0
        if self._log_is_long():
            with contextlib.suppress(sqlite3.Error, OSError), self._lock.held():  # later then; all is committed
                self._open(wait=True).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return outcomes

    def _commit(self, pending: Sequence[_Pending], *, wait: bool) -> "list[int | Exception]":
        """The number of rows that each changed, or its error if SQLite rejected it. Others are still committed."""
        connection = self._open(wait=wait)
        with self._lock.held(wait=wait):
            connection.execute("BEGIN IMMEDIATE")  # a transaction that starts with a read would fail instead of waiting
            try:
                taken_in = self._aside.take_in(connection) if self._aside else []
                outcomes = [self._execute(connection, item) for item in pending]
                connection.execute("COMMIT")
                self._aside.remove(taken_in)
            except BaseException:
                if connection.in_transaction:  # some errors roll back by themselves
                    connection.execute("ROLLBACK")
                raise
        return outcomes

    def _execute(self, connection: sqlite3.Connection, pending: _Pending) -> int | Exception:
        rows = 0
        for statement in pending.statements if isinstance(pending, _Write) else (pending,):
            try:
                rows += max(0, connection.execute(*statement).rowcount)
            except (*REJECTED, ValueError, OverflowError) as error:
                if not isinstance(pending, _Write):
                    self._aside.refuse(statement)
                    self._log_error(error, f"the row is kept in {self._path}-refused")
                return error
        return rows

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        self._flush()
        if self._connection is None and not self._path.exists():
            return None
        with self.in_use, self._waiting() as wait:
            return query(self._open(wait=wait))

    def _maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        if self._closing:
            return
        try:
            with self.in_use, self._waiting() as wait:
                connection = self._open(wait=wait)
                statements = step(connection)
                if not statements:
                    return
                self._commit(statements, wait=wait)
                with self._lock.held(wait=wait):
                    connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
        except Exception as error:  # what expires is removed the next time
            self._log_error(error)
            return
        with contextlib.suppress(RuntimeError):  # the writer is being closed
            self._submit(partial(self._maintain, step))

    def _log_is_long(self) -> bool:
        # Without lock files, the log is left to the last connection that is closed; SQLite ensures that.
        with contextlib.suppress(OSError):
            return self._lock.supported and os.stat(f"{self._path}-wal").st_size > self._log_bytes
        return False

    def _open(self, *, wait: bool) -> sqlite3.Connection:
        """The connection, which waits for other processes or not."""
        connection = self._connection
        if connection is None or _file_identity(self._path) != self._file_id:
            connection = self._reopen(wait=wait)
        if wait != self._waits:
            connection.execute(f"PRAGMA busy_timeout={int(1000 * self._busy_seconds) if wait else 0}")
            self._waits = wait
        return connection

    def _reopen(self, *, wait: bool) -> sqlite3.Connection:
        if self._connection is not None:  # to a file that was removed
            self.abandon()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock.held(wait=wait):
            self._connection, self._waits = self._connect(self._busy_seconds if wait else 0), wait
            self._file_id = _file_identity(self._path)
            with contextlib.suppress(sqlite3.Error):  # later then
                self._aside.take_in_lost(self._connection)
        # Not in `__del__`: in a cycle, the connection may be finalized first, and would warn that it is open.
        self._dropped = weakref.finalize(self, self._connection.close)
        self._dropped.atexit = False
        return self._connection

    def _connect(self, busy_seconds: float) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):  # readable by this user only, whatever the permissions of the folder
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(self._path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        connection.text_factory = _text
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")
            # Rows are written once and seldom read, so SQLite's default cache of 2 MB would be wasted.
            connection.execute("PRAGMA cache_size=-256")
            connection.executescript(aside.SCHEMA + self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        self._flush()
        if self._aside and self._connection is not None:
            with contextlib.suppress(sqlite3.Error, OSError):  # left to the next process then
                self._commit([], wait=False)
        connection, self._connection = self._connection, None
        if connection is not None:
            assert self._dropped is not None
            self._dropped.detach()
            try:
                # The last connection to close checkpoints the log.
                with self.in_use, self._waiting() as wait, self._lock.held(wait=wait):
                    connection.close()
            except OSError as error:
                self._log_error(error)
                connection.close()
        if lost := self._aside.close():
            _log.error(
                "%s: %d statements that no file could take are lost; results have been returned", self._path, lost
            )
        self._lock.close()

    def set_aside(self, error: Exception, statements: Iterable[Statement]) -> None:
        """Let statements wait until the store can be written, and log why."""
        file = self._aside.add(statements)
        where = (
            f"in {file}, and is written at the next start" if file else "in memory, for as long as this process runs"
        )
        self._log_error(error, f"results are returned all the same; what couldn't be written waits {where}")

    def _log_error(self, error: Exception, consequence: str = "") -> None:
        """Log an error once, not for every write that fails for the same reason."""
        if str(error) != self._last_error:
            self._last_error = str(error)
            more = f"; {consequence}" if consequence else ""
            _log.warning("%s can't be written: %s%s", self._path, trouble_of(error, self._path), more)


def _text(data: bytes) -> str:
    """A stored text. One that isn't UTF-8 is damaged, and would otherwise make the whole query fail."""
    return data.decode(errors="replace")


def _is_busy(error: Exception) -> bool:
    """Whether another process or thread is writing."""
    code = getattr(error, "sqlite_errorcode", None)
    is_busy = code is not None and code & 0xFF == sqlite3.SQLITE_BUSY
    return is_busy or isinstance(error, BlockingIOError | TimeoutError)


_paused: "list[_Writer]" = []


def _pause() -> None:
    """Before a fork, wait until no writer uses SQLite, but not for long: one may wait for another process."""
    _paused.extend(writer for writer in tuple(_open_writers) if writer.in_use.acquire(timeout=FORK_SECONDS))


def _resume() -> None:
    while _paused:
        _paused.pop().in_use.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_paused.clear)


def _close_all() -> None:
    """At the end of the process, close what was left open. The threads have ended by then, and written everything."""
    for writer in tuple(_open_writers):
        writer.close_directly()


atexit.register(_close_all)


def _file_identity(path: Path) -> tuple[int, int] | None:
    """The device and inode of the file, or None if there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


class FileLock:
    """An exclusive lock between processes, and between the writers of one process. Released when its process ends."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._fd: int | None = None
        self.supported = sys.platform != "win32"
        """False if the system or this file system has no such locks. SQLite's own locks still exclude other writers."""

    @contextlib.contextmanager
    def held(self, *, wait: bool = True) -> Generator[None]:
        """Wait for the lock and hold it inside the block.

        Raises OSError, and TimeoutError if another process holds the lock for too long. Without `wait`, raises
        BlockingIOError if it can't be had at once, or there are no locks.
        """
        if not (wait or self.supported):
            raise BlockingIOError
        if sys.platform == "win32":
            yield
            return
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fd = self._fd
        self._acquire(fd, wait=wait)
        try:
            yield
        finally:
            if self.supported:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _acquire(self, fd: int, *, wait: bool) -> None:
        """Poll for the lock, since a blocking `flock` could not time out."""
        pause, give_up_at = 0.0005, time.monotonic() + self._busy_seconds
        while self.supported and sys.platform != "win32":
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not wait:
                    raise
                if time.monotonic() > give_up_at:
                    reason = f"another process has held {self._path} for {self._busy_seconds:g} s"
                    raise TimeoutError(reason) from None
            except OSError:
                self.supported = False
            time.sleep(pause)
            pause = min(0.02, pause * 2)
