"""Hosts that live long, start event loops as they like, fork, or close nothing."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate import Delegator, Task
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.samples import sampled
from tests.support.words import verdicts

linux = pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
TURNS = 60
DONE = "did my part as asked"
TASK = Task.model_validate({"goal": "x", "acceptance_criteria": ["report: the report says that it was done"]})


def answer(call: Call) -> Reply:
    return Reply(verdicts(c1=("met", DONE)) if call.wants_json else DONE)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer, record=False) as server:
        yield server


def environment(server: ModelServer, wire: str) -> dict[str, str]:
    """The variables with which `wire` leads to the server, and a model of it."""
    url, model = {
        "OPENAI": (("OPENAI_BASE_URL", server.openai_url), "gpt-5.4-mini"),
        "ANTHROPIC": (("ANTHROPIC_BASE_URL", server.anthropic_url), "claude-haiku-5-5"),
        "GEMINI": (("GOOGLE_GEMINI_BASE_URL", server.url), "gemini-3.8-flash"),
    }[wire]
    return {url[0]: url[1], f"{wire}_API_KEY": "dummy", "DELEGATE_MODEL": model, "DELEGATE_JUDGE_MODEL": model}


WIRES = ("OPENAI", "ANTHROPIC", "GEMINI")


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@linux
@pytest.mark.parametrize("wire", WIRES)
def test_an_event_loop_per_turn_leaves_no_files_open(
    wire: str, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(server, wire).items():
        monkeypatch.setenv(name, value)
    with Delegator() as delegator:

        def turns(count: int) -> tuple[int, float]:
            for _ in range(count):
                (result,) = asyncio.run(delegator.run(TASK)).results
                assert result.verdict
                assert result.verdict.verdict == "PASS", result.verdict
            gc.collect()
            return len(os.listdir("/proc/self/fd")), resident_mb()

        files, memory = turns(10)
        files_after, memory_after = turns(TURNS if wire == "OPENAI" else 20)
    assert files_after <= files
    assert memory_after < memory + 4


HOSTS = {
    "an event loop per turn": "print(asyncio.run(turn())); print(asyncio.run(turn()))",
    "both": "print(delegator.run_sync(task).results[0].status); print(asyncio.run(turn()))",
    "its loop stays open": "print(asyncio.new_event_loop().run_until_complete(turn()))",
    "closes inside of its loop": """
        async def main():
            status = await turn()
            delegator.close()
            return status
        print(asyncio.run(main()))
    """,
    "drops the delegator": """
        print(delegator.run_sync(task).results[0].status)
        del delegator
        gc.collect()
    """,
    "forks": """
        print(delegator.run_sync(task).results[0].status, flush=True)
        child = os.fork()
        print(delegator.run_sync(task).results[0].status, flush=True)
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """,
}
HEAD = """
import asyncio, gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from delegate import Delegator, Task
delegator = Delegator()
task = Task.model_validate({"goal": "x", "acceptance_criteria": ["report: the report says that it was done"]})
async def turn():
    return (await delegator.run(task)).results[0].status
"""


@pytest.mark.parametrize("kind", sampled(HOSTS, 3))
@pytest.mark.parametrize("wire", sampled(WIRES, 1))
def test_a_process_that_closes_nothing_ends_without_a_word(
    wire: str, kind: str, server: ModelServer, tmp_path: Path
) -> None:
    if kind == "forks" and sys.platform != "linux":
        pytest.skip("forks only on Linux")
    command = [*warm.python(), "-Xdev", "-c", HEAD + textwrap.dedent(HOSTS[kind])]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment(server, wire)}
    )
    slow = "Executing <"  # the development mode of asyncio reports slow steps
    assert [line for line in found.stderr.splitlines() if not line.startswith(slow)] == []
    assert found.returncode == 0
    assert set(found.stdout.split()) == {"completed"}


FORKS_AT_WORK = """
import json, os, signal, sys, threading
from delegate import Delegator
delegator = Delegator()
call = lambda: delegator.call_sync({"goal": "x"}).results[0]
outcomes = [call().status]
for _ in range(8):
    busy = [threading.Thread(target=call) for _ in range(3)]
    for thread in busy:
        thread.start()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        results = call(), call()
        os._exit(0 if all(one.status == "completed" and one.handle for one in results) else 1)
    outcomes.append(os.waitpid(child, 0)[1])
    for thread in busy:
        thread.join()
outcomes.append(call().status)
print(json.dumps(outcomes))
"""


@pytest.mark.slow
@linux
def test_synchronous_calls_work_in_a_process_forked_during_calls(server: ModelServer) -> None:
    env = {**os.environ, **environment(server, "OPENAI")}
    found = subprocess.run([*warm.python(), "-c", FORKS_AT_WORK], capture_output=True, text=True, timeout=100, env=env)
    assert json.loads(found.stdout) == ["completed", *[0] * 8, "completed"], found.stderr


async def test_a_delegator_may_be_closed_inside_a_loop_and_used_again(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(server, "OPENAI").items():
        monkeypatch.setenv(name, value)
    delegator = Delegator()
    assert (await delegator.run(TASK)).totals.passed == 1
    delegator.close()
    await asyncio.sleep(0)
    assert (await delegator.run(TASK)).totals.passed == 1
    delegator.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("delegate")]
    for _ in range(10):
        await asyncio.sleep(0)
