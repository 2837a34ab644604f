"""An SQLite file with one writer per process, shared by several processes.

A thread commits pending writes together. What can't be written waits in a side file (see `aside`), and is written
before anything later.

In WAL mode a commit survives a crash of any process without waiting for the disk. SQLite before 3.51.3 can lose pages
if one connection resets the write-ahead log while another one writes to it (the WAL-reset bug), and concurrent writers
poll. A lock file next to the database therefore admits one writer at a time.

What is wrong with a store that can't be written or read, and what helps, is a `Trouble`.
"""

import asyncio
import atexit
import contextlib
import errno
import logging
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from delegate._util import forking
from delegate.records import aside
from delegate.records.aside import REJECTED, SideFile, Statement
from delegate.types.errors import DelegateError

if sys.platform != "win32":
    from delegate._util.file_lock import lock_file

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
_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


Kind = Literal["full", "locked", "damaged", "not_writable", "failing", "other"]

_OF_SQLITE: dict[Kind, set[int]] = {
    "full": {sqlite3.SQLITE_FULL},
    "locked": {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL},
    "damaged": {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB},
    "not_writable": {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM},
    "failing": {sqlite3.SQLITE_IOERR},
}
_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
"""There can't be such a folder."""
_OF_SYSTEM: dict[Kind, set[int]] = {
    "full": {errno.ENOSPC, errno.EDQUOT},
    "not_writable": {errno.EROFS, errno.EACCES, errno.EPERM, *_NO_FOLDER},
    "failing": {errno.EIO, errno.EFBIG},
}
_FIXES: dict[Kind, str] = {
    "full": "free some space there, or set `home` (DELEGATE_HOME) to a folder on another disk",
    "locked": "another process keeps it locked: find it with `fuser -v {path}*`, and wait for its end or stop it",
    "damaged": "the file is damaged: `delegate runs --recover` saves what can be read of it",
    "not_writable": "set `home` (DELEGATE_HOME) to a writable folder",
    "failing": "its disk fails, or a limit on the size of files is reached: set `home` (DELEGATE_HOME) to another disk",
    "other": "set `home` (DELEGATE_HOME) to another folder",
}


class Trouble(NamedTuple):
    """An error of a store."""

    kind: Kind
    why: str
    """The error, in the words of SQLite or of the system."""
    fix: str

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}"


def trouble_of(error: Exception, path: Path) -> Trouble:
    """What an error of the store in the file `path` means."""
    number = error.errno if isinstance(error, OSError) else (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    numbers = _OF_SYSTEM if isinstance(error, OSError) else _OF_SQLITE
    kinds: list[Kind] = [kind for kind, known in numbers.items() if number in known]
    kind = "locked" if isinstance(error, TimeoutError) else kinds[0] if kinds else "other"
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    why = "it is not a folder" if isinstance(error, FileExistsError) else why
    return Trouble(kind, why, _FIXES[kind].format(path=path))


@contextlib.contextmanager
def explained(problem: str, path: Path) -> Generator[None]:
    """Raise what goes wrong with the store in the file `path` as a DelegateError that begins with the problem."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise DelegateError(f"{problem}: {trouble_of(error, path)}") from error
    except ValueError as error:  # text that isn't JSON, or can't be stored
        raise DelegateError(f"{problem}: {error}") from error


class _Item(NamedTuple):
    """What the thread does: it writes statements, or calls `work`, between two commits."""

    statements: Sequence[Statement] = ()
    is_kept: bool = False
    """Whether these wait in a side file if they can't be written."""
    work: Callable[[], object] | None = None
    done: "Future[Any] | None" = None
    """Receives the number of changed rows or what `work` returns, or the error, if somebody waits for it."""


class Store:
    """An SQLite file that is opened on first use, and again after `aclose`, after a fork, or if the file was removed.

    Safe to use from several threads and event loops. `schema` is executed whenever the file is opened.
    """

    def __init__(
        self, path: Path, schema: str, *, log_bytes: int = LOG_BYTES, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._path = path
        self._schema = schema
        self._log_bytes = log_bytes
        self._busy_seconds = busy_seconds
        self._patience = busy_seconds
        """How long the thread waits for other processes now."""
        self._locked_until = 0.0
        """Until then, it doesn't wait at all."""
        self._last_error = ""
        self._connection: sqlite3.Connection | None = None
        self._closing: weakref.finalize[[], Store] | None = None
        """Closes the connection, at the latest when this object is collected."""
        self._file_id: tuple[int, int] | None = None
        self._start_over()
        _stores.add(self)
        forking.watch(self)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        """Held while a field for other threads is changed: the next ones, up to `_wake`."""
        self._pending: list[_Item] = []
        """What isn't done yet, in order."""
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self.in_use = threading.RLock()
        """Held while SQLite runs, so that a fork doesn't inherit its locks."""
        self._aside = SideFile(self._path)

    def after_fork(self) -> None:
        """Leave the connection and what isn't written yet to the parent process, which has the thread."""
        self._abandon()
        self._start_over()

    # ------------------------------------------------------------------------------------------ for other threads

    def post(self, *statements: Statement) -> None:
        """Write soon, in order, without waiting. A failed write waits in a side file. A crash loses pending writes."""
        self._add(_Item(statements, is_kept=True), now=False)

    async def write(self, *statements: Statement, now: bool = True, keep: bool = False) -> int:
        """Write after everything posted before, wait for the commit, and return the number of changed rows.

        If it needn't be `now`, others are awaited as for `post`. The write is made even if the caller is cancelled in
        the meantime. Raises sqlite3.Error, OSError, ValueError, after which nothing was written, or, to `keep` it, the
        statements wait in a side file.
        """
        return await self._done(_Item(statements, keep), now=now)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `query` after everything posted before and return its result; None if there is no file yet.

        Raises sqlite3.Error, OSError, and what `query` raises.
        """
        return await self._done(_Item(work=partial(self._query, query)))

    def maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        """Execute the statements that `step` returns, between other writes, until it returns none. Frees disk space."""
        self._add(_Item(work=partial(self._maintain, step)))

    async def aclose(self) -> None:
        """Finish pending writes, close the file, and end the writer's thread."""
        await self._done(_Item(work=self._close))
        if thread := self._thread:
            thread.join(LINGER_SECONDS)  # unless somebody else uses the store

    async def _done(self, item: _Item, *, now: bool = True) -> Any:
        """Let the thread do something, and wait until it is done, even if it can't be stopped by a cancel."""
        done = Future[Any]()
        done.set_running_or_notify_cancel()
        self._add(item._replace(done=done), now=now)
        return await asyncio.wrap_future(done)

    def _add(self, item: _Item, *, now: bool = True) -> None:
        """Let the thread do something. A waiting one needn't be woken for a post, which would take the interpreter's
        lock from the thread that posts.
        """
        with self._lock:
            self._pending.append(item)
            if now:
                self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="delegate-records")
                self._thread.start()

    def close_directly(self) -> None:
        """Write what is pending and close the file from this thread, after the store's own thread has ended."""
        with contextlib.suppress(sqlite3.Error):
            items, self._pending = self._pending, []
            self._do(items)
            self._close()

    def _abandon(self) -> None:
        """Never close the connection, since that could damage a database: that of the process that this one was forked
        from, or one that has replaced the file.
        """
        if self._closing is not None:
            self._closing.detach()
            forking.abandon(self._connection)
        self._connection = self._closing = None

    # ---------------------------------------------------------------------------------------------- in the thread

    def _work(self) -> None:
        while True:
            is_asked = self._wake.wait(LINGER_SECONDS if self._connection is not None else 0)
            with self._lock:
                self._wake.clear()
                items, self._pending = self._pending, []
                if not (items or is_asked):
                    self._thread = None
                    return
            self._do(items)

    def _do(self, items: Sequence[_Item]) -> None:
        for work, group in groupby(items, key=lambda item: item.work):
            together, outcomes = list(group), list[object]()
            try:
                outcomes += self._written(together) if work is None else [work()] * len(together)
            except Exception as error:
                outcomes += [error] * len(together)
            for item, outcome in zip(together, outcomes, strict=True):
                if item.done is not None and isinstance(outcome, Exception):
                    item.done.set_exception(outcome)
                elif item.done is not None:
                    item.done.set_result(outcome)

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        """Use SQLite. That waits for other processes, which a call pays for only once while the store is locked."""
        with self.in_use:
            self._patience = 0 if time.monotonic() < self._locked_until else self._busy_seconds
            try:
                yield
            except Exception as error:
                if self._patience and trouble_of(error, self._path).kind == "locked":
                    self._locked_until = time.monotonic() + PAUSE_SECONDS
                raise

    def _written(self, writes: Sequence[_Item]) -> Sequence[object]:
        """The number of rows that each write changed, or its error. Raises what fails all of them."""
        try:
            with self._turn():
                outcomes = self._commit(writes)
                self._locked_until, self._last_error = 0.0, ""
                return outcomes
        except Exception as error:
            if kept := [statement for write in writes if write.is_kept for statement in write.statements]:
                file = self._aside.add(kept)
                where = f"in {file}, and is written at the next start" if file else "in memory, as long as this process"
                self._log_error(error, f"results are returned all the same; what couldn't be written waits {where}")
            raise

    def _commit(self, writes: Sequence[_Item]) -> Sequence[object]:
        """Write all but what SQLite rejects, after what waits in the side file."""
        connection = self._open()
        with locked(self._path, self._patience), connection:  # which commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")  # a transaction that starts with a read would fail instead of waiting
            self._aside.take_in(connection)
            outcomes = [self._execute(connection, write) for write in writes]
        self._aside.remove()
        with contextlib.suppress(sqlite3.Error, OSError):  # later then
            if os.stat(f"{self._path}-wal").st_size > self._log_bytes:
                with locked(self._path, self._patience) as is_alone:
                    if is_alone:  # else the log is left to the last connection that is closed; SQLite ensures that
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return outcomes

    def _execute(self, connection: sqlite3.Connection, write: _Item) -> int | Exception:
        rows = 0
        for statement in write.statements:
            try:
                rows += max(0, connection.execute(*statement).rowcount)
            except (*REJECTED, ValueError, OverflowError) as error:
                if write.is_kept:
                    self._aside.refuse(statement)
                    self._log_error(error, f"the row is kept in {self._path}-refused")
                return error
        return rows

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._connection is None and not self._path.exists():
            return None
        with self._turn():
            return query(self._open())

    def _maintain(self, step: Callable[[sqlite3.Connection], Sequence[Statement]]) -> None:
        if self._connection is None:  # it was closed
            return
        try:
            with self._turn():
                connection = self._open()
                if statements := step(connection):
                    self._commit([_Item(statements)])
                    with locked(self._path, self._patience):
                        connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
                    self.maintain(step)
        except Exception as error:  # what expires is removed the next time
            self._log_error(error)

    def _open(self) -> sqlite3.Connection:
        """The connection, which waits for other processes as long as the thread does."""
        connection = self._connection
        if connection is None or _file_identity(self._path) != self._file_id:
            self._abandon()  # if the file was removed
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._path, self._patience):
                connection = self._connection = self._connect()
                self._file_id = _file_identity(self._path)
                # Not in `__del__`: in a cycle, the connection may be finalized first, and would warn that it is open.
                self._closing = weakref.finalize(self, connection.close)
                self._closing.atexit = False
                with contextlib.suppress(sqlite3.Error):  # later then
                    self._aside.take_in_lost(connection)
        connection.execute(f"PRAGMA busy_timeout={int(1000 * self._patience)}")
        return connection

    def _connect(self) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):  # readable by this user only, whatever the permissions of the folder
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None, check_same_thread=False)
        # A text that isn't UTF-8 is damaged, and would otherwise make the whole query fail.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
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
        with self.in_use:
            self._patience = 0
            if self._aside and self._connection is not None:
                with contextlib.suppress(sqlite3.Error, OSError):  # left to the next process then
                    self._commit([])
        if self._closing is not None:
            try:
                # The last connection to close checkpoints the log.
                with self._turn(), locked(self._path, self._patience):
                    self._closing()
            except OSError as error:
                self._log_error(error)
                self._closing()
        self._connection = self._closing = None
        if lost := self._aside.close():
            _log.error(
                "%s: %d statements that no file could take are lost; results have been returned", self._path, lost
            )

    def _log_error(self, error: Exception, consequence: str = "") -> None:
        """Log an error once, not for every write that fails for the same reason."""
        if str(error) != self._last_error:
            self._last_error = str(error)
            more = f"; {consequence}" if consequence else ""
            _log.warning("%s can't be written: %s%s", self._path, trouble_of(error, self._path), more)


def _file_identity(path: Path) -> tuple[int, int] | None:
    """The device and inode of the file, or None if there is no file."""
    with contextlib.suppress(OSError):
        stat = os.stat(path)
        return stat.st_dev, stat.st_ino
    return None


# ------------------------------------------------------------------------------------- other processes, and the end

_held: set[int] = set()
"""The open lock files."""
_paused: list[Store] = []


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Generator[bool]:
    """Hold the lock of a store, between processes and between the stores of one process, waiting for so long at most.

    False if the system or this file system has no such locks: SQLite's own still exclude other writers. The lock ends
    with its process. Raises OSError, and TimeoutError if another process holds it for too long.
    """
    if sys.platform == "win32":
        yield False
        return
    fd = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT, 0o600)
    _held.add(fd)
    try:
        is_alone = True
        try:
            lock_file(fd, seconds)
        except BlockingIOError:
            raise TimeoutError(f"another process has held {path}-lock for {seconds:g} s") from None
        except OSError:
            is_alone = False
        yield is_alone
    finally:
        _held.discard(fd)
        os.close(fd)


def _pause() -> None:
    """Before a fork, wait until no store uses SQLite, but not for long: one may wait for another process."""
    _paused.extend(store for store in tuple(_stores) if store.in_use.acquire(timeout=FORK_SECONDS))


def _resume() -> None:
    while _paused:
        _paused.pop().in_use.release()


def _after_fork() -> None:
    """In the child, whose stores start over: see `forking`."""
    _paused.clear()
    for fd in _held:  # else the child would go on to hold the parent's locks
        os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    """At the end of the process, close what was left open. The threads have ended by then, and written everything."""
    for store in tuple(_stores):
        store.close_directly()
