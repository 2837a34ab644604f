import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.judging.checks import worker
from delegate.judging.checks.worker import MAX_REQUEST_BYTES, WorkerError, WorkerPool

SERVED = """
import os, sys, time

def prepare():
    sys.stderr.write("ignored")

def answer(request):
    word = request.decode().strip()
    if word == "sleep":
        time.sleep(60)
    if word == "die":
        os.kill(os.getpid(), 9)
    if word == "memory":
        bytearray(4 << 30)
    return {"pid": os.getpid(), "word": word, "environment": sorted(os.environ), "delegate": "delegate" in sys.modules}
"""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    module = tmp_path / "served.py"
    module.write_text(SERVED)
    pool = WorkerPool(str(module))
    yield pool
    pool.close()


async def test_one_worker_answers_one_request_after_the_other(pool: WorkerPool) -> None:
    answers = await asyncio.gather(*(pool.ask(f"{n}".encode(), 10) for n in range(20)))
    assert [answer["word"] for answer in answers] == [str(n) for n in range(20)]
    assert len({answer["pid"] for answer in answers}) == 1


def test_a_worker_outlives_the_event_loop_that_started_it(pool: WorkerPool) -> None:
    first = asyncio.run(pool.ask(b"a", 10))
    assert asyncio.run(pool.ask(b"b", 10))["pid"] == first["pid"]


async def test_a_worker_has_no_keys_and_nothing_of_delegate(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-test")
    answer = await pool.ask(b"a", 10)
    assert set(answer["environment"]) <= {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH"}
    assert not answer["delegate"]


async def test_a_late_worker_is_killed_and_replaced(pool: WorkerPool) -> None:
    first = await pool.ask(b"a", 10)
    with pytest.raises(TimeoutError):
        await pool.ask(b"sleep", 0.2)
    assert not Path(f"/proc/{first['pid']}").exists()
    assert (await pool.ask(b"b", 10))["word"] == "b"


async def test_a_cancelled_request_leaves_no_answer_for_the_next(pool: WorkerPool) -> None:
    await pool.ask(b"a", 10)
    slow = asyncio.create_task(pool.ask(b"sleep", 30))
    await asyncio.sleep(0)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert (await pool.ask(b"b", 10))["word"] == "b"


@pytest.mark.parametrize("word", [b"die", b"memory"])
async def test_a_worker_that_dies_over_a_request_is_an_error(pool: WorkerPool, word: bytes) -> None:
    with pytest.raises(WorkerError, match="more than the worker may use"):
        await pool.ask(word, 10)
    assert (await pool.ask(b"b", 10))["word"] == "b"


async def test_a_worker_that_died_while_idle_is_replaced(pool: WorkerPool) -> None:
    first = await pool.ask(b"a", 10)
    os.kill(first["pid"], signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, first["pid"], os.WEXITED | os.WNOWAIT)
    assert (await pool.ask(b"b", 10))["pid"] != first["pid"]


async def test_a_worker_is_replaced_before_its_cpu_time_is_used_up(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await pool.ask(b"a", 10)
    assert (await pool.ask(b"a", 10))["pid"] == first["pid"]
    monkeypatch.setattr(worker, "RETIRE_SECONDS", 0)
    await pool.ask(b"b", 10)
    assert (await pool.ask(b"c", 10))["pid"] != first["pid"]


async def test_a_request_that_is_too_large_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(WorkerError, match="larger than 20,000,000 bytes"):
        await pool.ask(b"x" * (MAX_REQUEST_BYTES + 1), 10)


async def test_a_module_that_cannot_be_served_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="doesn't start"):
        await WorkerPool(str(tmp_path / "missing.py")).ask(b"a", 10)
