"""Saves what can be read of a damaged store into a new file, and keeps the damaged one.

Tables are read row by row, in the order of their numbers and without indexes, going on behind rows that can't be read.
A damaged header is replaced, in a copy, by that of a new file. Where the list of tables can't be read even so, SQLite's
own recovery reads the pages whatever leads to them. Python's SQLite doesn't have it, but the `sqlite3` command does. If
there is none, nothing is saved, and the damaged file is kept for it.
"""

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from delegate.records import aside
from delegate.records.sqlite import BUSY_SECONDS, locked, trouble_of

_SEARCHED = 100_000
"""How many row numbers are tried behind one that can't be read, before the rest of a table is given up."""
_HEADER_BYTES = 100
_RECOVER_SECONDS = 600
_FROM = "SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid"
_ONE = "SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid = ?"


class Recovery(NamedTuple):
    """What became of one store."""

    path: Path
    damage: str
    """What was found; empty if the file is whole."""
    rows: int = 0
    """Rows that were saved."""
    lost: int = 0
    """Rows that couldn't be read, at most: some of their numbers may not have been in use."""
    tables_cut: tuple[str, ...] = ()
    """Tables of which an unknown number of rows is lost."""
    kept_as: Path | None = None
    """The damaged file."""


def recover(path: Path, schema: str, *, busy_seconds: float = BUSY_SECONDS) -> Recovery | None:
    """Check a store, and replace a damaged one by what can be read of it. None if there is no such file.

    Other processes wait meanwhile. Raises sqlite3.Error and OSError if the store is locked, or can't be written.
    """
    if not path.exists():
        return None
    with locked(path, busy_seconds):
        damage = _damage(path, busy_seconds)
        return _replaced(path, schema, damage) if damage else Recovery(path, "")


def _damage(path: Path, busy_seconds: float) -> str:
    with closing(sqlite3.connect(path, timeout=busy_seconds)) as connection:
        try:
            (report,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            if trouble_of(error, path).kind != "damaged":
                raise
            return str(error)
    return "" if report == "ok" else str(report)


def _replaced(path: Path, schema: str, damage: str) -> Recovery:
    new = path.with_name(f"{path.name}-new")
    kept_as = path.with_name(f"{path.name}-damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(new)) as target:
        target.execute("PRAGMA auto_vacuum=INCREMENTAL")
        target.executescript(aside.SCHEMA + schema)
    with _readable(path, new) as source, closing(sqlite3.connect(new)) as target:
        copies = {table: _copy(source, target, table) for table in sorted(_tables(target) or ())}
        target.commit()
    for suffix in ("-wal", "-shm", ""):  # in this order: a log without its database would be taken for the new one's
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{kept_as}{suffix}")
    os.replace(new, path)
    rows, lost = sum(rows for rows, _, _ in copies.values()), sum(lost for _, lost, _ in copies.values())
    return Recovery(path, damage, rows, lost, tuple(table for table, (*_, cut) in copies.items() if cut), kept_as)


@contextmanager
def _readable(path: Path, new: Path) -> Generator[sqlite3.Connection]:
    """The damaged store, or what can be read in its place if its list of tables can't be read."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for source in (path, _with_header(path, new, Path(folder)), _by_sqlite(path, Path(folder))):
            if source is None:
                continue
            with closing(sqlite3.connect(source)) as connection:
                if _tables(connection):
                    yield connection
                    return
        with closing(sqlite3.connect(path)) as connection:
            yield connection


def _with_header(path: Path, new: Path, folder: Path) -> Path:
    """A copy with the header of a new file, which has the same settings. A write-ahead log has a header of its own."""
    copy = folder / "header"
    shutil.copyfile(path, copy)
    with copy.open("r+b") as file, new.open("rb") as whole:
        header = bytearray(whole.read(_HEADER_BYTES))
        page_bytes = int.from_bytes(header[16:18], "big")
        header[28:32] = (path.stat().st_size // page_bytes).to_bytes(4, "big")
        file.write(header)
    return copy


def _by_sqlite(path: Path, folder: Path) -> Path | None:
    """What the `sqlite3` command recovers; None if there is no such command, or it fails."""
    command = shutil.which("sqlite3")
    if command is None:
        return None
    with suppress(OSError, subprocess.SubprocessError, sqlite3.Error):
        process = subprocess.run([command, path, ".recover"], capture_output=True, timeout=_RECOVER_SECONDS, check=True)
        with closing(sqlite3.connect(folder / "recovered")) as connection:
            connection.executescript(process.stdout.decode(errors="replace"))
        return folder / "recovered"
    return None


def _tables(connection: sqlite3.Connection) -> set[str] | None:
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return None


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, int, bool]:
    """Copy all rows that can be read, going on behind those that can't.

    Returns how many were saved and lost, and whether the rest of the table can't be read.
    """
    if (names := _tables(source)) is None or table not in names:
        return 0, 0, names is None
    rows = lost = 0
    start = 1
    while True:
        try:
            for row in source.execute(_FROM.format(table=table), (start,)):
                is_saved = _insert(target, table, row)
                rows, lost, start = rows + is_saved, lost + (not is_saved), row[0] + 1
            return rows, lost, False
        except sqlite3.DatabaseError:
            row = _next_readable(source, table, start)  # may be `start`: Python reads one row ahead
        if row is None:
            return rows, lost, True
        is_saved = _insert(target, table, row)
        rows, lost, start = rows + is_saved, lost + row[0] - start + (not is_saved), row[0] + 1


def _next_readable(source: sqlite3.Connection, table: str, start: int) -> tuple[Any, ...] | None:
    for number in range(start, start + _SEARCHED):
        with suppress(sqlite3.DatabaseError):
            if row := source.execute(_ONE.format(table=table), (number,)).fetchone():
                return row
    return None


def _insert(target: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> bool:
    with suppress(sqlite3.DatabaseError):
        columns = ", ".join(("rowid", *(name for _, name, *_ in target.execute(f"PRAGMA table_info({table})"))))
        sql = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
        return target.execute(sql, row).rowcount > 0
    return False
