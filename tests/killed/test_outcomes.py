"""What became of the tasks of a batch that was killed is what their records say, at every moment of a task.

The other process is stopped at a known moment by holding the lock of one of its files, as another process does that
writes to it, and is killed there.
"""

import asyncio
import fcntl
import json
import os
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest
from tests.batch.rows import DONE, lines
from tests.cli.command import delegate, openai_at
from tests.killed.lost import kill, until
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

TASKS, AT_ONCE = 6, 3
OPTIONS = ("-o", "r.jsonl", "--goal", "task {n} of many", "-c", "regex: did my part")


@contextmanager
def locked(home: Path, name: str) -> Generator[None]:
    """Keep every process from writing to a file of the home."""
    with (home / f"{name}-lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def on_record(home: Path, sql: str) -> float:
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
        return connection.execute(sql).fetchone()[0]


@contextmanager
def started(server: ModelServer) -> Generator["subprocess.Popen[bytes]"]:
    """A batch in another process, which is killed at the end."""
    Path("t.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(TASKS)))
    command = [*warm.delegate(), "batch", "t.csv", *OPTIONS, "--concurrency", str(AT_ONCE)]
    environment = {**os.environ, **openai_at(server)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            yield process
        finally:
            kill(process, Path(os.environ["DELEGATE_HOME"]))


@contextmanager
def answering_when_told() -> Generator[tuple[ModelServer, threading.Event]]:
    """A server whose replies wait for an event."""
    may_answer = threading.Event()

    async def model(call: Call) -> Reply:
        await asyncio.to_thread(may_answer.wait, 20)
        return Reply(DONE)

    with ModelServer(model) as server:
        yield server, may_answer


def calls_per_task(server: ModelServer) -> Counter[str]:
    return Counter(call.texts[0].split("\n")[0] for call in server.calls)


def test_a_pass_on_record_is_the_outcome_though_the_process_was_killed_before_the_journal_had_it(home: Path) -> None:
    with answering_when_told() as (server, may_answer):
        with started(server) as process:
            server.wait_for_calls(AT_ONCE, timeout=20)
            with locked(home, "batches.sqlite3"):
                may_answer.set()
                until(lambda: on_record(home, "SELECT COUNT(*) FROM tasks WHERE verdict = 'PASS'") == AT_ONCE)
                kill(process, home)  # with the lock, or it would begin the next tasks
        (run,) = json.loads(delegate("runs", "--format", "json").stdout)
        assert (run["state"], run["passed"], run["other"]) == ("interrupted", 3, 3)
        done = delegate("batch", "--resume", "last", "--rerun", "unknown", **openai_at(server))
        assert done.returncode == 0, done.stdout + done.stderr
        assert calls_per_task(server) == {f"task {n} of many": 1 for n in range(TASKS)}, "nothing was paid twice"
    assert [row["verdict"] for row in lines(Path("r.jsonl"))] == ["PASS"] * TASKS
    assert all(row["handle"] for row in lines(Path("r.jsonl")))


def test_a_task_whose_child_had_not_started_runs_after_the_kill(home: Path) -> None:
    with answering_when_told() as (server, may_answer):
        with started(server):
            server.wait_for_calls(AT_ONCE, timeout=20)
            begun = "SELECT COUNT(*) FROM tasks WHERE ended_at IS NULL AND workspace IS NOT NULL"
            assert on_record(home, begun) == AT_ONCE, "each was on record before its model was asked"
        may_answer.set()
        with closing(sqlite3.connect(home / "records.sqlite3", isolation_level=None)) as connection:
            # As if it had been killed while this one waited for its turn.
            connection.execute("UPDATE tasks SET workspace = NULL WHERE task_index = 1")
        done = delegate("batch", "--resume", "last", **openai_at(server))
        assert done.returncode == 3, done.stdout + done.stderr
    states = {row["id"]: row["state"] for row in lines(Path("r.jsonl"))}
    assert states == {str(n): "outcome_unknown" if n in (1, 3) else "done" for n in range(1, TASKS + 1)}


async def test_what_a_lost_task_is_known_to_have_cost_stays_in_the_sum_of_the_batch(home: Path) -> None:
    may_answer = threading.Event()

    async def model(call: Call) -> Reply:
        if not call.tool_results:
            return Reply(tool_calls=(("list_files", {}),), input_tokens=1_000, output_tokens=1_000)
        await asyncio.to_thread(may_answer.wait, 20)
        return Reply(DONE, input_tokens=1, output_tokens=1)

    with ModelServer(model) as server:
        with started(server):
            server.wait_for_calls(2 * AT_ONCE, timeout=20)
            until(lambda: on_record(home, "SELECT COUNT(*) FROM events WHERE kind = 'child.usage'") == AT_ONCE)
        may_answer.set()
        spent = on_record(home, "SELECT SUM(json_extract(data, '$.cost_usd')) FROM events WHERE kind = 'child.usage'")
        assert spent > 0
        async with Delegator(home=home) as delegator:
            (lost,) = await delegator.batches.latest()
            assert (lost.state, lost.cost_known_usd, lost.unpriced) == ("interrupted", pytest.approx(spent), True)
        assert delegate("batch", "--resume", "last", **openai_at(server)).returncode == 3
        async with Delegator(home=home) as delegator:
            (unknown,) = await delegator.batches.latest()
            assert (unknown.unknown, unknown.cost_known_usd > spent) == (AT_ONCE, True)
        done = delegate("batch", "--resume", "last", "--rerun", "unknown", **openai_at(server))
        assert (done.returncode, "cost unknown, known part $" in done.stdout) == (0, True), done.stdout
    async with Delegator(home=home) as delegator:
        (batch,) = await delegator.batches.latest()
        assert batch.cost_known_usd == pytest.approx(3 * spent, rel=0.01), (
            "each of the six was asked, three of them twice"
        )
        assert batch.unpriced


@pytest.mark.parametrize("mode", ["once", "goal"])
async def test_a_start_is_on_record_before_the_first_model_call(home: Path, mode: str) -> None:
    found: list[tuple[object, ...]] = []

    def look(request: ChatRequest) -> ChatReply | str:
        with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
            sql = "SELECT workspace IS NOT NULL, kind FROM tasks JOIN events USING (handle)"
            found.extend(connection.execute(sql).fetchall() if not found else ())
        return Scripted.call("claim_complete", rationale=DONE) if mode == "goal" else DONE

    task = Task.model_validate({"goal": "x", "mode": mode, "acceptance_criteria": ["regex: did my part"]})
    async with Delegator(client=Scripted(look), home=home) as delegator:
        await delegator.run(task)
    assert found == [(1, "child.started")]
