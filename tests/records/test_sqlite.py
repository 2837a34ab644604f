"""The store keeps every acknowledged write, whatever other processes do and however a writer ends."""

import asyncio
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from delegate.records.sqlite import BUSY_SECONDS, Store
from tests.support import warm

TABLE = "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b TEXT)"
INSERT = "INSERT INTO t (a, b) VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "records.sqlite3"


async def rows(store: Store) -> list[int]:
    found = await store.read(lambda connection: connection.execute("SELECT a FROM t ORDER BY rowid").fetchall())
    return [a for (a,) in found or []]


def on_disk(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [a for (a,) in connection.execute("SELECT a FROM t ORDER BY a")]
    finally:
        connection.close()


def python(code: str, *arguments: object) -> str:
    """Run code in a new process and return its stdout."""
    prelude = "import asyncio, os, sys\nfrom pathlib import Path\nfrom delegate.records.sqlite import Store\n"
    prelude += f"TABLE, INSERT = {TABLE!r}, {INSERT!r}\npath = Path(sys.argv[1])\n"
    done = subprocess.run(
        [*warm.python(), "-c", prelude + code, *map(str, arguments)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------------------------------- writing


async def test_writes_are_there_after_closing_and_reopening_the_store(path: Path) -> None:
    store = Store(path, TABLE)
    assert await store.write((INSERT, (1, "x")), (INSERT, (2, "y"))) == 2
    await store.aclose()
    assert on_disk(path) == [1, 2]
    await store.write((INSERT, (3, "z")))
    assert await rows(store) == [1, 2, 3]
    await store.aclose()


async def test_a_rejected_row_does_not_affect_others_that_were_posted_with_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path, TABLE)
    for n in range(40):
        store.post((INSERT, (n, "x")))
    for n, rejected in enumerate([(7, "twice"), (40, "half a pair: \ud800"), (2**70, "x")], 100):
        store.post((INSERT, rejected))
        store.post((INSERT, (n, "y")))
    store.post(("UPDATE t SET b = 'z' WHERE a = 3", ()))
    assert await rows(store) == [*range(40), 100, 101, 102]
    changed = await store.read(lambda connection: connection.execute("SELECT a FROM t WHERE b = 'z'").fetchall())
    assert changed == [(3,)]
    assert len(caplog.records) == 3
    await store.aclose()


async def test_posted_writes_reach_the_disk_without_a_read(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    store.post((INSERT, (2, "x")))
    async with asyncio.timeout(20):
        while on_disk(path) != [1, 2]:  # noqa: ASYNC110 waits for another thread
            await asyncio.sleep(0.02)
    await store.aclose()


async def test_a_read_before_the_first_write_makes_no_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(path, TABLE)
    assert await store.read(lambda connection: 1) is None
    await store.aclose()
    assert not path.parent.exists()
    assert caplog.records == []


async def test_a_rejected_write_does_not_affect_others_in_its_transaction(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    outcomes = await asyncio.gather(
        store.write((INSERT, (2, "x"))),
        store.write((INSERT, (1, "twice"))),
        store.write((INSERT, (3, "half a pair: \ud800"))),
        store.write((INSERT, (4, 2**70))),
        store.write((INSERT, (5, "x"))),
        return_exceptions=True,
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [int, sqlite3.IntegrityError, UnicodeEncodeError, OverflowError, int]
    assert await rows(store) == [1, 2, 5]
    await store.aclose()


async def test_a_write_is_made_even_if_its_caller_is_cancelled(path: Path) -> None:
    store = Store(path, TABLE)
    writing = asyncio.create_task(store.write((INSERT, (1, "x"))))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await rows(store) == [1]
    await store.aclose()


async def test_maintenance_repeats_until_it_has_nothing_to_write(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write(*((INSERT, (n, "x")) for n in range(7)))
    done = threading.Event()

    def step(connection: sqlite3.Connection) -> list[tuple[str, tuple[int, ...]]]:
        old = connection.execute("SELECT a FROM t WHERE a < 5 LIMIT 2").fetchall()
        if not old:
            done.set()
        return [("DELETE FROM t WHERE a = ?", one) for one in old]

    store.maintain(step)
    assert await asyncio.to_thread(done.wait, 5)
    assert await rows(store) == [5, 6]
    await store.aclose()


# ------------------------------------------------------------------------------------- several of everything at once


def test_several_threads_and_event_loops_share_one_store(path: Path) -> None:
    store = Store(path, TABLE)
    at_once = threading.Barrier(4)

    async def write(first: int) -> None:
        at_once.wait()
        for n in range(first, first + 40):
            store.post((INSERT, (n, "x")))
            await store.write((INSERT, (n + 1_000, "x")))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(asyncio.run, map(write, range(0, 400, 100))))
    asyncio.run(store.aclose())
    numbers = [100 * thread + n for thread in range(4) for n in range(40)]
    assert on_disk(path) == sorted([*numbers, *(n + 1_000 for n in numbers)])


WRITER = """
async def main():
    store, first = Store(path, TABLE, log_bytes=100_000), int(sys.argv[2])
    for n in range(first, first + 300):
        await store.write((INSERT, (n, "x" * 3_000)))
    # While the file is open, only a checkpoint writes to the file itself. Without any, the log has 10 MB; on a busy
    # machine, the other process can put one off.
    print(os.stat(path).st_size > 500_000, os.stat(f"{path}-wal").st_size < 2_000_000)
    await store.aclose()

asyncio.run(main())
"""


def test_two_processes_lose_no_row_during_repeated_checkpoints(path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        told = list(threads.map(partial(python, WRITER, path), (0, 1_000)))
    assert told == ["True True\n"] * 2
    assert on_disk(path) == [*range(300), *range(1_000, 1_300)]


FORKED = """
async def write(n):
    store.post((INSERT, (n, "posted")))
    await store.write((INSERT, (n + 1, "written")))

store = Store(path, TABLE)
asyncio.run(write(1))
child = os.fork()
if child == 0:
    asyncio.run(write(11))
    asyncio.run(store.aclose())
    os._exit(0)
asyncio.run(write(21))
print(os.waitpid(child, 0)[1])
asyncio.run(write(31))
asyncio.run(store.aclose())
"""


def test_a_forked_process_writes_for_itself(path: Path) -> None:
    assert python(FORKED, path) == "0\n"
    assert on_disk(path) == [1, 2, 11, 12, 21, 22, 31, 32]


def test_posted_writes_survive_a_process_that_does_not_close_the_store(path: Path) -> None:
    python('store = Store(path, TABLE)\nstore.post((INSERT, (1, "x")))', path)
    assert on_disk(path) == [1]


# ------------------------------------------------------------------------------------------------------ what goes wrong

FULL = """
import resource, signal, sqlite3
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    limit(100_000)
    writes = [store.write((INSERT, (n, "x" * 200_000))) for n in (2, 3)]
    print([type(outcome).__name__ for outcome in await asyncio.gather(*writes, return_exceptions=True)])
    limit(resource.RLIM_INFINITY)
    print(await store.write((INSERT, (4, "x"))))
    await store.aclose()

asyncio.run(main())
"""


def test_a_full_disk_fails_every_pending_write_and_later_writes_work(path: Path) -> None:
    assert python(FULL, path) == "['OperationalError', 'OperationalError']\n1\n"
    assert on_disk(path) == [1, 4]


async def test_an_invalid_statement_leaves_no_transaction_open(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    with pytest.raises(sqlite3.OperationalError):
        await store.write((INSERT, (2, "x")), ("INSERT INTO nowhere VALUES (1)", ()))
    await store.write((INSERT, (3, "x")))
    assert await rows(store) == [1, 3]
    await store.aclose()


async def test_a_file_that_is_not_a_database_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, whatever its name says" * 100)
    store = Store(path, TABLE)
    for _ in range(3):
        with pytest.raises(sqlite3.DatabaseError):
            await store.write((INSERT, (1, "x")))
        store.post((INSERT, (1, "x")))
        store.post((INSERT, (1, "x")))
    with pytest.raises(sqlite3.DatabaseError):
        await rows(store)
    await store.aclose()
    assert len(caplog.records) == 1, "the same trouble is told once"


REMOVED = """
import shutil

async def main():
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    shutil.rmtree(path.parent)
    await store.write((INSERT, (2, "x")))
    await store.aclose()

asyncio.run(main())
"""


def test_a_removed_file_is_created_again(path: Path) -> None:
    python(REMOVED, path)
    assert on_disk(path) == [2]


async def turns_during(writing: asyncio.Task[int]) -> int:
    """How often the event loop gets its turn until the write is done."""
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_the_event_loop_runs_while_another_program_writes_to_the_file(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing, started = asyncio.create_task(store.write((INSERT, (2, "x")))), time.monotonic()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not writing.done()
        assert time.monotonic() - started < BUSY_SECONDS / 2
        other.execute("ROLLBACK")
        assert await writing == 1
    await store.aclose()


SLOW = """
INSERT INTO t SELECT ?, x FROM
(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 300000) SELECT x FROM c WHERE x = 7)
"""


async def test_a_slow_commit_leaves_the_event_loop_free(path: Path) -> None:
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    assert await turns_during(asyncio.create_task(store.write((SLOW, (2,))))) > 30
    assert await rows(store) == [1, 2]
    await store.aclose()


async def test_a_lock_held_forever_does_not_block_others_forever(path: Path) -> None:
    store = Store(path, TABLE, busy_seconds=0.2)
    await store.write((INSERT, (1, "x")))
    other = os.open(f"{path}-lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError):
        await store.write((INSERT, (2, "x")))
    os.close(other)
    await store.write((INSERT, (3, "x")))
    assert await rows(store) == [1, 3]
    await store.aclose()


LOCKING = """
import fcntl, os, sqlite3, sys
path, what = sys.argv[1:]
if what == "file":
    connection = sqlite3.connect(path)
    connection.execute("BEGIN EXCLUSIVE")
else:
    fcntl.flock(os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("what", ["file", "lock"])
async def test_a_store_that_another_process_locks_is_waited_for_once(path: Path, what: str, is_open: bool) -> None:
    busy = 0.25
    store = Store(path, TABLE, busy_seconds=busy)
    path.parent.mkdir(exist_ok=True)
    if is_open:
        await store.write((INSERT, (1, "x")))
    locking = subprocess.Popen(
        [sys.executable, "-c", LOCKING, path, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with locking:
        assert locking.stdout
        assert locking.stdout.readline() == "locked\n"
        started = time.monotonic()
        for n in (2, 3):
            with pytest.raises((TimeoutError, BlockingIOError, sqlite3.OperationalError)):
                await store.write((INSERT, (n, "x")))
        store.post((INSERT, (4, "x")))
        store.maintain(lambda connection: [])
        if what == "file" and not is_open:  # else there is no file yet, or its reader needn't wait for a writer
            with pytest.raises((TimeoutError, BlockingIOError, sqlite3.OperationalError)):
                await store.read(lambda connection: connection.execute("SELECT * FROM t").fetchall())
        assert time.monotonic() - started < 2 * busy
        locking.communicate()
    await store.write((INSERT, (5, "x")))
    assert await rows(store) == [*([1] if is_open else []), 4, 5]
    await store.aclose()


async def test_a_file_system_without_locks_can_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    one, two = Store(path, TABLE), Store(path, TABLE)
    await asyncio.gather(*(store.write((INSERT, (n, "x"))) for n, store in enumerate((one, two) * 20)))
    await one.aclose()
    await two.aclose()
    assert on_disk(path) == list(range(40))


WINDOWS = """
from delegate.types import Task
import delegate.records.history
sys.platform, sys.modules["fcntl"], os.kill = "win32", None, None
del sys.modules["delegate.records.sqlite"], sys.modules["delegate.records.history"]
from delegate.records.history import Records

async def main():
    records = Records(path)
    await records.begin("ab", [("ab-0", 0, Task(goal="x"))])
    print((await records.read("ab-0"))["state"])
    await records.aclose()

asyncio.run(main())
"""


def test_it_works_without_file_locks_as_on_windows(path: Path) -> None:
    assert python(WINDOWS, path) == "running\n"


async def test_only_this_user_may_read_the_file(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    store = Store(path, TABLE)
    await store.write((INSERT, (1, "x")))
    modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    await store.aclose()
    assert len(modes) == 4
    assert set(modes) == {0o600}
