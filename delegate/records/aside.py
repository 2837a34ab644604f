"""Keeps what couldn't be written to a store in a file next to it, until it can be.

A store that is locked, damaged or full loses nothing: statements wait in a side file, in their order, and are executed
before anything that is written later, or by the next process that opens the store. The store notes which files it has
taken in, so that a crash before a file is removed doesn't execute it twice.
"""

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
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


class SideFile:
    """The side file of one process next to one store."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file: FileIO | None = None
        """Locked as long as it is open, so that no other process takes it in."""
        self._kept: list[Statement] = []
        """What couldn't be written to it either, such as on a full disk."""

    def __bool__(self) -> bool:
        return bool(self._file or self._kept)

    def add(self, statements: Sequence[Statement]) -> Path | None:
        """Keep some statements. Returns the file that they wait in, or None if they wait in memory."""
        self._kept += statements
        try:
            if self._file is None:
                self._file = FileIO(f"{self._store}-waiting-{os.urandom(8).hex()}", "x", opener=_private)
                with contextlib.suppress(OSError):  # a file system without locks
                    _lock(self._file)
            _append(self._file, "".join(f"{json.dumps(statement)}\n" for statement in self._kept).encode())
        except (OSError, TypeError):
            return None
        self._kept.clear()
        return Path(str(self._file.name))

    def take_in(self, connection: sqlite3.Connection) -> None:
        """Execute all of it, inside a transaction, after whose commit it is to be `removed`."""
        if self._file is not None:
            self._execute_file(connection, Path(str(self._file.name)))
        for statement in self._kept:
            self._execute(connection, statement)

    def remove(self) -> None:
        """Forget what was taken in and committed."""
        if self._file is not None:
            Path(str(self._file.name)).unlink(missing_ok=True)
        self._kept.clear()
        self.close()

    def take_in_lost(self, connection: sqlite3.Connection) -> None:
        """Execute what processes that are gone have left, each file in a transaction of its own."""
        for path in sorted(self._store.parent.glob(f"{self._store.name}-waiting-*")):
            if self._file is not None and self._file.name == str(path):
                continue
            with contextlib.suppress(OSError), path.open("r+", encoding="utf-8") as file:
                _lock(file)  # fails where its process is alive
                with connection:  # commits, or rolls back
                    connection.execute("BEGIN IMMEDIATE")
                    self._execute_file(connection, path)
                path.unlink(missing_ok=True)

    def refuse(self, statement: Statement) -> None:
        """Keep a statement that SQLite rejects in a file that isn't taken in."""
        with contextlib.suppress(OSError, TypeError), open(f"{self._store}-refused", "a", opener=_private) as file:
            file.write(f"{json.dumps(statement)}\n")

    def close(self) -> int:
        """Let the next process take in what is left. Returns how many statements are lost."""
        if self._kept:  # there may be room by now
            self.add(())
        lost = len(self._kept)
        self._kept.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
        return lost

    def _execute_file(self, connection: sqlite3.Connection, path: Path) -> None:
        if not connection.execute("INSERT OR IGNORE INTO taken_in VALUES (?)", (path.name,)).rowcount:
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # the process was killed while it wrote this
                sql, values = json.loads(line)
                self._execute(connection, (sql, values))

    def _execute(self, connection: sqlite3.Connection, statement: Statement) -> None:
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
