"""Stores that are locked, damaged or full: the message says what it is and what helps, and nothing is lost."""

import errno
import fcntl
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.records.recovery import recover
from delegate.records.sqlite import Store, trouble_of
from tests.cli.command import delegate

TABLE = "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b TEXT);"
INSERT = "INSERT INTO t (a, b) VALUES (?, ?)"
MANY = 2_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite3"


def on_disk(path: Path, sql: str = "SELECT a FROM t ORDER BY rowid") -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [a for (a,) in connection.execute(sql)]


def waiting(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-waiting-*"))


def damage(path: Path, page: int) -> None:
    """Overwrite a page, as a failing disk does."""
    with path.open("r+b") as file:
        file.seek(4_096 * page)
        file.write(b"\xaa" * 4_096)


# ----------------------------------------------------------------------------------------------------------- messages


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind", "fix"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), "full", "free some space"),
        (OSError(errno.ENOSPC, "No space left on device"), "full", "free some space"),
        (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), "locked", "another process"),
        (TimeoutError("held for 10 s"), "locked", "fuser -v"),
        (sqlite_error(sqlite3.SQLITE_CORRUPT), "damaged", "`delegate runs --recover`"),
        (sqlite_error(sqlite3.SQLITE_NOTADB), "damaged", "`delegate runs --recover`"),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), "failing", "its disk fails"),
        (sqlite_error(sqlite3.SQLITE_READONLY), "not_writable", "a writable folder"),
        (PermissionError(errno.EACCES, "Permission denied"), "not_writable", "a writable folder"),
        (sqlite_error(sqlite3.SQLITE_ERROR), "other", "another folder"),
    ],
)
def test_only_of_a_full_disk_it_is_said_that_it_is_full(error: Exception, kind: str, fix: str, path: Path) -> None:
    trouble = trouble_of(error, path)
    assert trouble.kind == kind
    assert fix in trouble.fix
    assert ("space" in trouble.fix) == (kind == "full")


# ---------------------------------------------------------------------------------------------------------- side files


async def test_what_a_locked_store_refuses_waits_and_is_written_before_anything_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path, TABLE, busy_seconds=0.1)
    await store.write((INSERT, (1, "x")))
    with open(f"{path}-lock", "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        store.post((INSERT, (2, "x")))
        with pytest.raises(TimeoutError):
            await store.write((INSERT, (3, "x")), keep=True)
        assert len(waiting(path)) == 1
    await store.write(("UPDATE t SET b = 'y' WHERE a >= 2", ()))
    assert on_disk(path) == [1, 2, 3]
    assert on_disk(path, "SELECT a FROM t WHERE b = 'y'") == [2, 3]
    assert waiting(path) == []
    await store.aclose()
    (record,) = caplog.records
    assert "another process keeps it locked" in record.message
    assert f"{path}-waiting-" in record.message


KILLED = """
import asyncio, fcntl, os, signal, sys
from contextlib import suppress
from pathlib import Path
from delegate.records.sqlite import Store

async def main():
    path = Path(sys.argv[1])
    store = Store(path, sys.argv[2], busy_seconds=0.1)
    await store.write((sys.argv[3], (1, "x")))
    other = open(f"{path}-lock", "a")
    fcntl.flock(other, fcntl.LOCK_EX)
    store.post((sys.argv[3], (2, "x")))
    with suppress(TimeoutError):
        await store.write((sys.argv[3], (3, "x")), keep=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_the_next_process_takes_in_what_a_killed_one_left_and_does_so_once(path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path), TABLE, INSERT], timeout=30, check=False)
    assert on_disk(path) == [1]
    (left,) = waiting(path)
    text = left.read_text()
    for _ in range(2):
        store = Store(path, TABLE)
        assert await store.read(lambda connection: connection.execute("SELECT COUNT(*) FROM t").fetchone()) == (3,)
        await store.aclose()
        assert waiting(path) == []
        left.write_text(text)  # as if it had been killed before it removed the file
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE t SET a = a + 10 WHERE a IN (2, 3) AND b = 'x'")
    assert on_disk(path) == [1, 12, 13]


FULL = """
import asyncio, resource, signal, sys
from contextlib import suppress
from pathlib import Path
from delegate.records.sqlite import Store

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = Store(Path(sys.argv[1]), sys.argv[2])
    await store.write((sys.argv[3], (1, "x")))
    limit(0)
    store.post((sys.argv[3], (2, "x")))
    with suppress(Exception):
        await store.write((sys.argv[3], (3, "x")), keep=True)
    limit(resource.RLIM_INFINITY)
    await store.aclose()

asyncio.run(main())
"""


def test_what_no_file_can_take_is_written_at_the_end_if_there_is_room_by_then(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), TABLE, INSERT], timeout=30, check=True, capture_output=True, text=True
    )
    assert on_disk(path) == [1, 2, 3]
    assert waiting(path) == []
    assert "waits in memory" in done.stderr


async def test_a_row_that_sqlite_rejects_is_kept_in_a_file(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    store.post((INSERT, (1, "again")))
    await store.aclose()
    assert [json.loads(line) for line in Path(f"{path}-refused").read_text().splitlines()] == [[INSERT, [1, "again"]]]


# ------------------------------------------------------------------------------------------------------------ recovery


async def test_of_a_damaged_store_all_rows_but_those_of_the_damaged_page_are_saved(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write(*((INSERT, (n, f"row {n} " * 10)) for n in range(1, MANY + 1)))
    await store.aclose()
    damage(path, 20)
    with pytest.raises(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT * FROM t").fetchall()
    found = recover(path, TABLE)
    assert found
    assert found.kept_as
    assert found.kept_as.exists()
    assert (found.rows + found.lost, found.tables_cut) == (MANY, ())
    assert 0 < found.lost < 100, "one page"
    assert len(on_disk(path)) == found.rows
    assert recover(path, TABLE) == (path, "", 0, 0, (), None)


async def test_a_store_with_a_damaged_header_is_saved_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without the `sqlite3` command
    store = Store(path, TABLE)
    await store.write(*((INSERT, (n, f"row {n} " * 10)) for n in range(1, MANY + 1)))
    await store.aclose()
    with path.open("r+b") as file:
        file.write(b"\xaa" * 100)
    assert (found := recover(path, TABLE))
    assert (found.damage, found.rows, found.lost, found.tables_cut) == ("file is not a database", MANY, 0, ())
    assert on_disk(path) == list(range(1, MANY + 1))
    assert not list(path.parent.glob("tmp*"))


@pytest.mark.parametrize("with_command", [True, False])
async def test_of_a_store_without_a_list_of_tables_it_is_said_what_remains(
    path: Path, monkeypatch: pytest.MonkeyPatch, with_command: bool
) -> None:
    if not with_command:
        monkeypatch.setenv("PATH", "")
    elif shutil.which("sqlite3") is None:
        pytest.skip("needs the sqlite3 command")
    store = Store(path, TABLE)
    await store.write(*((INSERT, (n, f"row {n} " * 10)) for n in range(1, MANY + 1)))
    await store.aclose()
    damage(path, 0)
    found = recover(path, TABLE)
    assert found
    assert found.kept_as
    assert found.kept_as.exists()
    # SQLite's recovery finds the rows, but no longer what they belong to.
    assert (found.rows, "t" in found.tables_cut) == (0, True)
    assert on_disk(path) == []


def test_a_store_that_is_locked_is_not_recovered(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLE)
    with closing(sqlite3.connect(path, isolation_level="EXCLUSIVE")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            recover(path, TABLE, busy_seconds=0.1)


async def test_work_goes_on_over_damaged_records_and_is_on_record_after_their_recovery(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Delegator(client=Scripted(lambda request: "I did it"), home=home) as delegator:
        before = (await delegator.run(Task(goal="before"))).results[0].handle
    records = home / "records.sqlite3"
    records.write_bytes(b"no database" * 1_000)
    async with Delegator(client=Scripted(lambda request: "I did it"), home=home) as delegator:
        (result,) = (await delegator.run(Task(goal="over damage"))).results
    assert (result.status, result.report, result.handle) == ("completed", "I did it", None)
    assert "`delegate runs --recover`" in caplog.text
    assert "free some space" not in caplog.text
    refused = delegate("show", "last")
    assert "`delegate runs --recover` saves what can be read of it" in refused.stderr
    recovered = delegate("runs", "--recover")
    assert recovered.returncode == 1
    assert "was damaged (file is not a database): 0 rows were saved" in recovered.stdout
    assert "is kept as" in recovered.stdout
    (shown,) = json.loads(delegate("runs", "--format", "json").stdout)
    assert (shown["goal"], shown["state"]) == ("over damage", "ended")
    assert before
    assert before not in delegate("runs").stdout
    assert delegate("runs", "--recover").stdout == f"{records} is whole\n"
