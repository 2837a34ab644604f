"""What is loaded in a thread before it is needed: nobody waits for more than they need, and nothing hangs on it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from delegate._util.preparation import Preparation
from tests.support import warm

PATIENCE = 10


def blocked_by(event: threading.Event) -> Callable[[], object]:
    return lambda: event.wait(PATIENCE)


async def test_who_needs_a_phase_waits_for_it_and_not_for_the_next() -> None:
    done, go = list[str](), threading.Event()
    preparation = Preparation(2)
    preparation.start((lambda: done.append("first"),), (blocked_by(go), lambda: done.append("second")))
    await asyncio.wait_for(preparation.wait(0), PATIENCE)
    assert done == ["first"]
    go.set()
    await asyncio.wait_for(preparation.wait(1), PATIENCE)
    assert done == ["first", "second"]


async def test_what_is_prepared_is_not_prepared_again() -> None:
    done = list[str]()
    for _ in range(2):
        preparation = Preparation(1)
        preparation.start((lambda: done.append("once"),), key=test_what_is_prepared_is_not_prepared_again)
        await asyncio.wait_for(preparation.wait(0), PATIENCE)
    assert done == ["once"]


async def test_a_step_that_fails_is_left_to_who_needs_it() -> None:
    done = list[str]()

    def fail() -> None:
        raise ModuleNotFoundError("no such SDK")

    preparation = Preparation(1)
    preparation.start((fail, lambda: done.append("next")))
    await asyncio.wait_for(preparation.wait(0), PATIENCE)
    assert done == ["next"]


async def test_a_waiter_that_is_canceled_stops_nothing_for_the_others() -> None:
    go, preparation = threading.Event(), Preparation(1)
    preparation.start((blocked_by(go),))
    impatient = asyncio.create_task(preparation.wait(0))
    patient = asyncio.create_task(preparation.wait(0))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await asyncio.wait([impatient]) == ({impatient}, set())
    go.set()
    await asyncio.wait_for(patient, PATIENCE)


async def test_stopped_steps_are_skipped_and_nobody_waits_for_them() -> None:
    done, go, entered = list[str](), threading.Event(), threading.Event()

    def first() -> None:
        entered.set()
        go.wait(PATIENCE)

    preparation = Preparation(1)
    preparation.start((first, lambda: done.append("second")))
    waiting = asyncio.create_task(preparation.wait(0))
    await asyncio.to_thread(entered.wait, PATIENCE)
    preparation.stop()
    go.set()
    await asyncio.wait_for(waiting, PATIENCE)
    assert done == []


@pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")
async def test_a_fork_waits_for_the_step_in_progress_and_is_never_stuck() -> None:
    done, entered, go = list[str](), threading.Event(), threading.Event()

    def step() -> None:
        entered.set()
        go.wait(PATIENCE)
        done.append("whole")

    preparation, never_started = Preparation(1), Preparation(1)
    preparation.start((step,))
    waiting = asyncio.create_task(preparation.wait(0))
    await asyncio.to_thread(entered.wait, PATIENCE)
    threading.Timer(0.02, go.set).start()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            never_started.wait(0).send(None)
        except StopIteration:
            os._exit(0 if done == ["whole"] else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
    await asyncio.wait_for(waiting, PATIENCE)


@pytest.mark.parametrize("seconds", [0, 0.15])
def test_a_delegator_that_is_never_used_lets_the_process_end(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "dummy")
    program = f"import time; from delegate import Delegator; kept = Delegator(); time.sleep({seconds}); print('ended')"
    ended = subprocess.run([*warm.python(), "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")
