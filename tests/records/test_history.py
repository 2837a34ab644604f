"""The record of a task: before it starts, while it runs, after it has ended, and after its process has died."""

import asyncio
import json
import math
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import ChildRun, Delegator, Job, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import Parent
from delegate.types.errors import DelegateError
from delegate.types.ports import ChatRequest, ToolOutput
from tests.support import warm
from tests.support.words import goal_of, met_by, words

DAYS = 86_400


class Runner:
    """A custom runner that does `work` and reports."""

    needs_model = False
    records_tools = True

    def __init__(self, work: Callable[[Job], Awaitable[None]] | None = None, report: str = "did my part") -> None:
        self._work = work
        self._report = report

    async def run(self, job: Job) -> ChildRun:
        if self._work is not None:
            await self._work(job)
        return job.recorder.finish("completed", report=self._report)


async def known(delegator: Delegator, handle: str | None) -> dict[str, Any]:
    record = await delegator.records.read(handle or "")
    assert record is not None
    return record


def database(home: Path) -> sqlite3.Connection:
    return sqlite3.connect(home / "records.sqlite3", isolation_level=None)


def change(home: Path, sql: str, *values: object) -> None:
    connection = database(home)
    assert connection.execute(sql, values).rowcount
    connection.close()


# -------------------------------------------------------------------------------------------------------- as it goes


async def test_a_task_is_on_disk_before_its_child_starts(home: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    async def look(job: Job) -> None:
        connection = database(home)
        seen.extend(connection.execute("SELECT run_id, task, result FROM tasks").fetchall())
        connection.close()

    async with Delegator(runner=Runner(look)) as delegator:
        run = await delegator.run(Task(goal="look at yourself"))
    assert [(run_id, json.loads(task)["goal"], result) for run_id, task, result in seen] == [
        (run.run_id, "look at yourself", None)
    ]


async def test_what_a_child_did_can_be_read_while_it_runs() -> None:
    async def look(job: Job) -> None:
        n = job.recorder.next_receipt()
        job.recorder.tool_called(n, "send", {"to": "a"}, ToolOutput("sent"), 0.1)
        seen.append(await known(delegator, f"{job.run_id}-0"))

    seen: list[dict[str, Any]] = []
    async with Delegator(runner=Runner(look)) as delegator:
        result = await delegator.run(Task(goal="send it"))
        seen.append(await known(delegator, result.results[0].handle))
    while_running, ended = seen
    assert (while_running["state"], while_running["run"], while_running["result"]) == ("running", None, None)
    assert [event["kind"] for event in while_running["events"]] == ["child.started", "child.tool"]
    assert while_running["events"][1]["args"] == {"to": "a"}
    assert while_running["began_at"] <= while_running["events"][0]["at"]
    assert while_running["workspace"]
    assert (ended["state"], ended["run"]["report"]) == ("ended", "did my part")


async def test_the_events_show_the_whole_run_in_order() -> None:
    client = words([Scripted.call("think", thought="hm"), "I thought about it"], met_by("I thought"))
    async with Delegator(client=client) as delegator:
        result = await delegator.run(
            Task.model_validate(
                {
                    "goal": "x",
                    "acceptance_criteria": [{"kind": "regex", "pattern": "I"}, "the report says that it thought"],
                }
            )
        )
        record = await known(delegator, result.results[0].handle)
    assert [event["kind"] for event in record["events"]] == [
        "child.started", "child.usage", "child.tool", "child.usage", "child.done", "check.done", "judge.asked",
        "judge.done", "verdict",
    ]  # fmt: skip
    first, second = (event for event in record["events"] if event["kind"] == "child.usage")
    assert first["calls"] == [{"tool": "think", "args": {"thought": "hm"}}]
    assert second["text"] == "I thought about it"
    assert record["result"]["verdict"]["verdict"] == "PASS"


async def test_an_internal_error_is_a_recorded_result_too() -> None:
    class Broken(Runner):
        async def run(self, job: Job) -> ChildRun:
            return "nonsense"  # pyright: ignore[reportReturnType]

    async with Delegator(runner=Broken()) as delegator:
        result = await delegator.run(Task(goal="x"))
        record = await known(delegator, result.results[0].handle)
    assert (record["state"], record["result"]["error"]["code"]) == ("ended", "internal_error")


async def test_a_cancelled_call_leaves_complete_records() -> None:
    begun = asyncio.Event()

    async def wait(job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Delegator(runner=Runner(wait)) as delegator:
        with delegator.root_run() as run_id:
            call = asyncio.create_task(delegator.run(Task(goal="a"), Task(goal="b")))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        tasks = await delegator.records.tasks(run_id)
    assert [(task.state, task.status) for task in tasks] == [("ended", "cancelled")] * 2


# --------------------------------------------------------------------------------------------------- a process is gone

GONE = """
import asyncio, os
from delegate import Delegator, Task
from delegate.types.ports import ToolOutput

class Runner:
    needs_model = False
    records_tools = True
    async def run(self, job):
        if job.task.goal == "ends":
            return job.recorder.finish("completed", report="did my part")
        n = job.recorder.next_receipt()
        job.recorder.tool_called(n, "send", {}, ToolOutput("sent"), 0.1)
        await delegator.records.read("")  # flushes all posted events
        os._exit(9)

delegator = Delegator(runner=Runner())
async def main():
    with delegator.root_run() as run_id:
        print(run_id, flush=True)
        await delegator.run(Task(goal="ends"))
        await delegator.run(Task(goal="dies"))
asyncio.run(main())
"""


async def test_a_task_of_a_dead_process_is_outcome_unknown_and_not_rerun() -> None:
    ran = subprocess.run([*warm.python(), "-c", GONE], capture_output=True, text=True, timeout=30)
    assert ran.returncode == 9, ran.stderr
    run_id = ran.stdout.strip()
    asked: list[str] = []

    async def note(job: Job) -> None:
        asked.append(job.task.goal)

    async with Delegator(runner=Runner(note)) as delegator:
        await delegator.run(Task(goal="another"))
        ended, lost = await known(delegator, f"{run_id}-0"), await known(delegator, f"{run_id}-1")
        (summary,) = [run for run in await delegator.records.runs() if run.run_id == run_id]
    assert (ended["state"], ended["result"]["status"]) == ("ended", "completed")
    assert (lost["state"], lost["result"], lost["ended_at"]) == ("outcome_unknown", None, None)
    assert [event["kind"] for event in lost["events"]] == ["child.started", "child.tool"]
    assert (summary.state, summary.tasks, summary.other) == ("outcome_unknown", 2, 2)
    assert asked == ["another"]


async def test_a_process_with_a_reused_id_is_not_mistaken_for_the_original(home: Path) -> None:
    seen: list[str] = []

    async def look(job: Job) -> None:
        change(home, "UPDATE tasks SET process = ?", f"{os.getpid()}/1/another-boot")
        seen.append((await known(delegator, f"{job.run_id}-0"))["state"])

    async with Delegator(runner=Runner(look)) as delegator:
        await delegator.run(Task(goal="x"))
    assert seen == ["outcome_unknown"]


# ------------------------------------------------------------------------------------------------------ what goes wrong


async def test_a_start_that_could_not_be_stored_is_stored_before_the_end(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite3").mkdir()

    async def restore(job: Job) -> None:
        (tmp_path / "records.sqlite3").rmdir()

    async with Delegator(runner=Runner(restore), home=tmp_path) as delegator:
        run = await delegator.run(Task(goal="x"))
        second = await delegator.run(Task(goal="y"), Task(goal="z"))
        assert await delegator.records.read(run.results[0].handle or "")
    assert [result.status for result in run.results] == ["completed"]
    assert all(result.handle for result in second.results)


async def test_records_that_cannot_be_read_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite3").write_text("no database")
    async with Delegator(runner=Runner(), home=tmp_path) as delegator:
        for reading in (delegator.records.read("x"), delegator.records.runs(), delegator.records.tasks("x")):
            with pytest.raises(DelegateError, match="can't be read"):
                await reading
        assert json.loads(await delegator.background.read_answer({"handle": "x"}))["error"]["code"] == "unreadable"


async def test_two_delegators_on_one_home_keep_apart_what_they_write(home: Path) -> None:
    async with Delegator(runner=Runner()) as one, Delegator(runner=Runner(report="mine")) as two:
        tasks = [Task(goal=f"{n}") for n in range(20)]
        first, second = await asyncio.gather(one.run(*tasks), two.run(*tasks))
        of_two = [(await known(one, result.handle))["run"]["report"] for result in second.results]
    assert of_two == ["mine"] * 20
    assert len({result.handle for result in (*first.results, *second.results)}) == 40


def test_a_delegator_can_be_used_from_several_loops_and_after_closing() -> None:
    delegator = Delegator(runner=Runner(), max_concurrent=8)
    results = [delegator.run_sync(Task(goal="a")), asyncio.run(delegator.run(Task(goal="b")))]
    threads = [threading.Thread(target=lambda: results.append(delegator.run_sync(Task(goal="c")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    delegator.close()
    results.append(delegator.run_sync(Task(goal="d")))
    handles = [result.handle for run in results for result in run.results]
    records = [asyncio.run(delegator.records.read(handle or "")) for handle in handles]
    delegator.close()
    assert [record["task"]["goal"] for record in records if record] == ["a", "b", *"cccc", "d"]


# ------------------------------------------------------------------------------------------------------------ retention


class Writer(Runner):
    """Write a file, so that the workspace is kept."""

    async def run(self, job: Job) -> ChildRun:
        job.folder.write("note.md", b"kept")
        return job.recorder.finish("completed", report="x" * 50_000)


async def kept(home: Path, **options: Any) -> list[str]:
    """The goals on record after another use, with the workspaces of all but that one still there."""
    async with Delegator(runner=Runner(), **options) as delegator:
        await delegator.run(Task(goal="new"))
        runs = [run.goal for run in await delegator.records.runs(100)]  # a removal step runs before each
        for _ in range(20):
            runs = [run.goal for run in await delegator.records.runs(100)]
    return sorted(runs)


async def make(goals: Sequence[str]) -> dict[str, Path]:
    """Make one run for each goal, and return the workspaces that were kept."""
    async with Delegator(runner=Writer()) as delegator:
        results = [await delegator.run(Task(goal=goal)) for goal in goals]
    return {goal: Path(result.results[0].workspace or "") for goal, result in zip(goals, results, strict=True)}


def age(home: Path, goal: str, days: float) -> None:
    sql = "UPDATE tasks SET began_at = began_at - ? WHERE json_extract(task, '$.goal') = ?"
    change(home, sql, days * DAYS, goal)


async def test_old_records_are_removed_with_their_workspaces_which_several_tasks_may_have(home: Path) -> None:
    folders = await make(["old", "older", "young"])
    shutil.rmtree(folders["older"])
    change(home, "UPDATE tasks SET workspace = ? WHERE workspace = ?", str(folders["old"]), str(folders.pop("older")))
    age(home, "old", 31)
    age(home, "older", 32)
    age(home, "young", 29)
    assert await kept(home) == ["new", "young"]
    assert [folder.exists() for folder in folders.values()] == [False, True]
    connection = database(home)
    strays = connection.execute("SELECT * FROM events WHERE handle NOT IN (SELECT handle FROM tasks)").fetchall()
    connection.close()
    assert strays == []


@pytest.mark.parametrize("for_ever", [None, math.inf])
async def test_records_are_kept_forever_if_configured(home: Path, for_ever: float | None) -> None:
    folders = await make(["old"])
    age(home, "old", 10_000)
    assert await kept(home, keep_days=for_ever, keep_mb=for_ever) == ["new", "old"]
    assert folders["old"].exists()


async def test_the_oldest_records_are_removed_when_there_is_too_much(home: Path) -> None:
    names = [f"{n:02}" for n in range(30)]
    folders = await make(names)
    for n, name in enumerate(names):
        age(home, name, (30 - n) / 24)
    left = await kept(home, keep_mb=0.75)
    assert left[-1] == "new"
    assert left[:-1] == names[len(names) - len(left) + 1 :], "the latest are left"
    assert 3 < len(left) <= 15
    assert {name for name, folder in folders.items() if folder.exists()} == set(left) - {"new"}
    assert (home / "records.sqlite3").stat().st_size < 850_000, "the file has shrunk"


async def test_only_folders_that_were_made_for_a_child_are_removed(home: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    async with Delegator(runner=Writer()) as delegator:
        await delegator.run(Task.model_validate({"goal": "old", "workspace": mine}))
        await delegator.run(Task(goal="pretends"))
        await delegator.run(Task(goal="links"))
    precious = tmp_path / "precious"
    precious.mkdir()
    (home / "workspaces" / "link").symlink_to(precious)
    for goal, folder in (("pretends", home / "workspaces" / ".."), ("links", home / "workspaces" / "link")):
        change(home, "UPDATE tasks SET workspace = ? WHERE json_extract(task, '$.goal') = ?", str(folder), goal)
    for goal in ("old", "pretends", "links"):
        age(home, goal, 50)
    assert await kept(home) == ["new"]
    assert (mine / "note.md").exists()
    assert precious.exists()
    assert home.exists()
    shutil.rmtree(home / "workspaces")


async def test_a_workspace_that_a_younger_task_works_in_is_kept(home: Path) -> None:
    folders = await make(["old"])
    async with Delegator(runner=Runner()) as delegator:
        await delegator.run(Task.model_validate({"goal": "goes on there", "workspace": folders["old"]}))
    age(home, "old", 50)
    assert await kept(home) == ["goes on there", "new"]
    assert (folders["old"] / "note.md").exists()


async def test_running_tasks_are_kept_however_old_and_lost_ones_are_not(home: Path) -> None:
    go_on = asyncio.Event()

    async def wait(job: Job) -> None:
        begun.set()
        await go_on.wait()

    begun = asyncio.Event()
    async with Delegator(runner=Runner(wait)) as delegator:
        running = asyncio.create_task(delegator.run(Task(goal="runs")))
        await begun.wait()
        await make(["lost"])
        change(home, "UPDATE tasks SET ended_at = NULL, result = NULL, process = '1/1/gone' WHERE ended_at IS NOT NULL")
        age(home, "runs", 50)
        age(home, "lost", 50)
        assert await kept(home) == ["new", "runs"]
        go_on.set()
        assert (await running).results[0].handle


# ------------------------------------------------------------------------------------------------------------ summaries


async def test_runs_are_listed_newest_first_with_their_outcome() -> None:
    def answer(request: ChatRequest) -> str:
        return "did my part"

    async with Delegator(client=words(answer, met_by("did my part"))) as delegator:
        first = await delegator.run(Task(goal="one"), Task(goal="two"))
        fails, passes = {"kind": "regex", "pattern": "nothing"}, {"kind": "regex", "pattern": "part"}
        tasks = [{"goal": "three", "acceptance_criteria": [fails]}, {"goal": "four", "acceptance_criteria": [passes]}]
        second = await delegator.run(*map(Task.model_validate, tasks))
        runs = await delegator.records.runs()
        (latest,) = await delegator.records.runs(limit=1)
    assert [run.run_id for run in runs] == [second.run_id, first.run_id]
    assert latest == runs[0]
    assert [(run.goal, run.state, run.tasks, run.passed, run.failed, run.other) for run in runs] == [
        ("three", "ended", 2, 1, 1, 0),
        ("one", "ended", 2, 0, 0, 2),
    ]
    assert [run.cost_usd for run in runs] == [second.totals.cost_usd, first.totals.cost_usd]
    assert all(run.ended_at and run.ended_at >= run.began_at for run in runs)


async def test_what_a_child_delegated_is_listed_below_it_and_counted_once() -> None:
    def answer(request: ChatRequest) -> Any:
        if goal_of(request) == "boss" and len(request.messages) == 1:
            return Scripted.call("delegate_task", goal="helper")
        return "did my part"

    async with Delegator(client=Scripted(answer), max_depth=2) as delegator:
        result = await delegator.run(Task(goal="boss"))
        tasks = await delegator.records.tasks(result.run_id or "")
        (run,) = await delegator.records.runs()
    assert [(task.goal, task.depth, task.state) for task in tasks] == [("boss", 0, "ended"), ("helper", 1, "ended")]
    assert tasks[1].cost_usd
    assert (run.tasks, run.cost_usd) == (1, pytest.approx(result.totals.cost_usd))


# --------------------------------------------------------------------------------------------------------- reading back


async def test_a_parent_reads_a_long_report_back_in_slices() -> None:
    text = "".join(f"line {n:04}\n" for n in range(400))
    async with Delegator(runner=Runner(report=text), result_chars=1_000) as delegator:
        result = await delegator.run(Task(goal="x"))
        handle, offset, read = result.results[0].handle, 0, ""
        for _ in range(4):
            answer = await delegator.background.read_answer(json.dumps({"handle": handle, "offset": offset}))
            head, _, rest = answer.partition("\n<<<")
            assert head.startswith("task 1: no verdict")
            read += rest.partition(">>>\n")[2].rpartition("\n<<<end")[0]
            offset += 1_000
        past = json.loads(await delegator.background.read_answer({"handle": handle, "offset": offset}))
    assert read == text
    assert past["error"]["code"] == "past_the_end"


async def test_an_unknown_handle_is_a_clear_error() -> None:
    codes: list[str] = []

    async def look(job: Job) -> None:
        codes.append(json.loads(await delegator.background.read_answer({"handle": f"{job.run_id}-0"}))["error"]["code"])

    async with Delegator(runner=Runner(look)) as delegator:
        await delegator.run(Task(goal="x"))
        codes.append(json.loads(await delegator.background.read_answer({"handle": "nothing-0"}))["error"]["code"])
    assert codes == ["running", "unknown_handle"]


async def test_a_run_that_its_host_named_reads_only_its_own_reports() -> None:
    async with Delegator(runner=Runner()) as delegator:
        of_a = (await delegator.run(Task(goal="x"), parent=Parent(run_id="a"))).results[0].handle
        await delegator.run(Task(goal="y"), parent=Parent(run_id="b"))
        same = await delegator.background.read_answer({"handle": of_a}, parent=Parent(run_id="a"))
        without_a_parent = await delegator.background.read_answer({"handle": of_a})
        other = await delegator.background.read_answer({"handle": of_a}, parent=Parent(run_id="b"))
    assert "did my part" in same
    assert "did my part" in without_a_parent
    assert json.loads(other)["error"]["code"] == "other_run"
