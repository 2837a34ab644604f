"""Keeps what couldn't be written to a store in files next to it, until it can be.

A store that is locked, damaged or full loses nothing: statements wait in a side file, in their order, and are executed
before anything that is written later, or by the next process that opens the store. The store notes which files it has
taken in, so that a crash before a file is removed doesn't execute it twice.
"""

import contextlib
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

Statement = tuple[str, Sequence[object]]
"""SQL and its parameters."""
SCHEMA = "CREATE TABLE IF NOT EXISTS taken_in (name TEXT PRIMARY KEY);"
REJECTED = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""What SQLite raises for one statement, which it would refuse again."""


class SideFiles:
    """The side files of one process next to one store. Safe to use from several threads."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._files: list[FileIO] = []
        """Oldest first. Each is locked as long as it is open, so that no other process takes it in."""
        self._is_sealed = True
        """Whether the last one is being taken in, so that nothing is added to it."""
        self._kept: list[Statement] = []
        """What couldn't be written to a side file either, such as on a full disk."""

    def __bool__(self) -> bool:
        return bool(self._files or self._kept)

    def add(self, statements: Iterable[Statement]) -> Path | None:
        """Keep some statements. Returns the file that they wait in, or None if they wait in memory."""
        with self._lock:
            self._kept += statements
            try:
                if self._is_sealed:
                    self._files.append(self._create())
                    self._is_sealed = False
                file = self._files[-1]
                _append(file, "".join(f"{json.dumps(statement)}\n" for statement in self._kept).encode())
            except (OSError, TypeError):
                return None
            self._kept.clear()
            return Path(str(file.name))

    def take_in(self, connection: sqlite3.Connection) -> list[FileIO]:
        """Execute all of this process, inside a transaction. Returns what to `remove` after it is committed."""
        with self._lock:
            files, statements, self._is_sealed = list(self._files), list(self._kept), True
        for file in files:
            self._execute(connection, Path(str(file.name)))
        for statement in statements:
            self._execute_one(connection, statement)
        return files

    def remove(self, files: Sequence[FileIO]) -> None:
        """Forget what was taken in and committed."""
        with self._lock:
            for file in files:
                self._files.remove(file)
                Path(str(file.name)).unlink(missing_ok=True)
                file.close()
            self._kept.clear()

    def take_in_lost(self, connection: sqlite3.Connection) -> None:
        """Execute what processes that are gone have left, each file in a transaction of its own."""
        for path in sorted(self._store.parent.glob(f"{self._store.name}-waiting-*")):
            if any(file.name == str(path) for file in self._files):
                continue
            with contextlib.suppress(OSError), path.open("r+", encoding="utf-8") as file:
                _lock(file)  # fails where its process is alive
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._execute(connection, path)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                path.unlink(missing_ok=True)

    def refuse(self, statement: Statement) -> None:
        """Keep a statement that SQLite rejects in a file that isn't taken in."""
        with contextlib.suppress(OSError, TypeError), open(f"{self._store}-refused", "a", opener=_private) as file:
            file.write(f"{json.dumps(statement)}\n")

    def abandon(self) -> None:
        """Leave everything to the process that this one was forked from."""
        self._lock, self._files, self._kept, self._is_sealed = threading.Lock(), [], [], True

    def close(self) -> int:
        """Let the next process take in what is left. Returns how many statements are lost."""
        if self._kept:  # there may be room by now
            self.add(())
        with self._lock:
            count = len(self._kept)
            self._kept.clear()
            for file in self._files:
                file.close()
            self._files.clear()
            self._is_sealed = True
        return count

    def _create(self) -> FileIO:
        name = f"{self._store}-waiting-{os.urandom(8).hex()}"
        file = FileIO(name, "x", opener=_private)
        with contextlib.suppress(OSError):  # a file system without locks
            _lock(file)
        return file

    def _execute(self, connection: sqlite3.Connection, path: Path) -> None:
        if not connection.execute("INSERT OR IGNORE INTO taken_in VALUES (?)", (path.name,)).rowcount:
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                sql, values = json.loads(line)
            except ValueError:  # the process was killed while it wrote this
                continue
            self._execute_one(connection, (sql, values))

    def _execute_one(self, connection: sqlite3.Connection, statement: Statement) -> None:
        try:
            connection.execute(*statement)
        except (*REJECTED, ValueError, OverflowError):
            self.refuse(statement)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _append(file: FileIO, data: bytes) -> None:
    """Write all of it to the disk, or none."""
    size = os.fstat(file.fileno()).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), size)
        file.seek(size)
        raise


def _lock(file: IO[Any]) -> None:
    if sys.platform != "win32":  # where an open file can't be removed
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
