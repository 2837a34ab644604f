"""A process is killed while a child works: its task is resumed when somebody asks for it, and nothing is repeated."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Job, RunResult
from delegate.models.providers.scripted import Scripted
from delegate.records.history import Records
from delegate.types import JsonObject
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.cli.command import delegate, openai_at
from tests.killed.lost import killed, running
from tests.killed.tasks import tools
from tests.support.git import git
from tests.support.model_server import ModelServer, Reply
from tests.support.samples import sampled
from tests.support.words import is_judge, met_by

WRITE = ["write_file", {"path": "a.txt", "content": "hello"}]
WRITES = Scripted.call("write_file", path="a.txt", content="hello")
FILE = {"kind": "file", "path": "a.txt", "contains": "hello"}
CHECK = {"kind": "shell", "command": "sh tests/check.sh"}


def child(*replies: ChatReply | str) -> Scripted:
    given = iter(replies)
    return Scripted(lambda request: met_by("I wrote hello")(request) if is_judge(request) else next(given))


def asked(client: Scripted) -> list[ChatRequest]:
    return [request for request in client.requests if not is_judge(request)]


async def resumed(home: Path, handle: str, client: Scripted, **options: Any) -> tuple[RunResult, JsonObject]:
    async with Delegator(client=client, home=home, **options) as delegator:
        result = await delegator.resume(handle)
        record = await delegator.records.read(handle)
    assert record
    return result, record


async def refused(home: Path, handle: str, why: str, **options: Any) -> None:
    """It can't be resumed, and stays as it is."""
    async with Delegator(client=child(), home=home, **options) as delegator:
        with pytest.raises(CallError) as error:
            await delegator.resume(handle)
        record = await delegator.records.read(handle)
    assert (error.value.code, why in error.value.message) == ("cannot_resume", True), error.value.message
    assert record
    assert (record["state"], record["result"]) == ("outcome_unknown", None)


def told(client: Scripted) -> str:
    return asked(client)[0].messages[0].text


async def test_a_task_goes_on_with_its_files_its_receipts_and_a_verdict_of_its_own(tmp_path: Path) -> None:
    handle = killed(tmp_path, {"acceptance_criteria": [FILE, {"kind": "file", "path": "b.txt"}]}, [[WRITE]])
    client = child(Scripted.call("write_file", path="b.txt", content="x"), "I wrote both.")
    run, record = await resumed(tmp_path, handle, client)
    (result,) = run.results
    assert (result.handle, result.good, result.report) == (handle, True, "I wrote both.")
    assert [artifact.path for artifact in result.artifacts] == ["a.txt", "b.txt"], "also what it wrote before"
    assert [(one["n"], one["args"]["path"], one["status"]) for one in record["run"]["receipts"]] == [
        (1, "a.txt", "ok"),
        (2, "b.txt", "ok"),
    ]
    assert result.usage.model_calls == 3, "one before, two now"
    assert "You were interrupted while you worked on this" in told(client)
    assert "You called write_file" in told(client)
    with pytest.raises(CallError, match=f"{handle} can't be resumed: it has ended"):
        await resumed(tmp_path, handle, child())


async def test_a_call_whose_end_is_not_known_is_named_and_never_made_again(tmp_path: Path) -> None:
    log, home = tmp_path / "log", tmp_path / "home"
    criteria = [{"kind": "receipt", "mode": "none", "calls": [{"tool": "hang", "args": {"what": "pay"}}]}]
    turns = [[["act", {"what": "look"}]], [["act", {"what": "ask"}], ["hang", {"what": "pay"}], ["act", {"what": "x"}]]]
    handle = killed(home, {"acceptance_criteria": criteria}, turns, log=str(log))
    client = child("I did what I could.")
    run, record = await resumed(home, handle, client, tools=tools(str(log)))
    (result,) = run.results
    done = log.read_text().split()
    assert len(set(done)) == len(done)
    assert {"look", "ask", "pay"} <= set(done)
    receipts = [(one["tool"], one["args"]["what"], one["status"]) for one in record["run"]["receipts"]]
    assert receipts[0] == ("act", "look", "ok")
    assert ("hang", "pay", "unknown") in receipts
    assert "hang (outcome unknown): The process was lost before this call ended" in told(client)
    assert '"what": "pay"' in told(client)
    assert result.receipts.unknown >= 1
    assert result.verdict
    assert result.verdict.verdict == "FAIL", "it may have been called"


async def test_what_was_lost_in_one_crash_is_still_known_after_the_next(tmp_path: Path) -> None:
    log, home = tmp_path / "log", tmp_path / "home"
    handle = killed(home, {}, [[["hang", {"what": "first"}]]], log=str(log))
    with running_again(home, handle, log) as process:
        assert process.stdout
        assert process.stdout.readline().strip() == handle
    client = child("I looked.")
    _, record = await resumed(home, handle, client, tools=tools(str(log)))
    receipts = [(one["n"], one["args"]["what"], one["status"]) for one in record["run"]["receipts"]]
    assert receipts == [(1, "first", "unknown"), (2, "second", "unknown")]
    assert told(client).count("(outcome unknown)") == 2
    assert log.read_text().split() == ["first", "second"]


AGAIN = """
import asyncio, sys
from delegate import CallError, Delegator
from delegate.models.providers.scripted import Scripted
from tests.killed.lost import killed, owner, running
from tests.killed.tasks import tools
from tests.killed.lost import until

home, handle, log = sys.argv[1:]

async def main():
    client = Scripted([Scripted.call("hang", what="second")])
    async with Delegator(client=client, home=home, tools=tools(log, lambda: handle)) as delegator:
        try:
            print((await delegator.resume(handle)).results, flush=True)
        except CallError as error:
            print(error, flush=True)

asyncio.run(main())
"""


@contextmanager
def running_again(home: Path, handle: str, log: Path) -> "Generator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", AGAIN, str(home), handle, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        yield process
        process.kill()


async def test_a_task_is_resumed_neither_while_it_runs_nor_by_two_processes_at_once(tmp_path: Path) -> None:
    log, home = tmp_path / "log", tmp_path / "home"
    with running(home, {}, [[["act", {"what": "x"}]]], log=str(log)) as handle:
        async with Delegator(client=child(), home=home, tools=tools(str(log))) as delegator:
            with pytest.raises(CallError, match=f"{handle} can't be resumed: it is running"):
                await delegator.resume(handle)
    with running_again(home, handle, log) as one, running_again(home, handle, log) as other:
        assert one.stdout
        assert other.stdout
        lines = [await asyncio.to_thread(process.stdout.readline) for process in (one, other) if process.stdout]
        assert sorted(line.strip() == handle for line in lines) == [False, True], lines
        assert any("resumed it first" in line or "it is running" in line for line in lines), lines
    assert log.read_text().split() == ["x", "second"]


async def test_a_command_ends_with_its_process_and_is_not_run_again(tmp_path: Path) -> None:
    command = "echo begun >> begun; sleep 1; echo ended >> ended"
    turns = [[["run_shell", {"command": command}]]]
    home, settings = tmp_path / "home", {"commands": "allow"}
    with running(home, {}, turns, settings=settings, until="run_shell") as handle:
        async with Delegator(home=home, client=child()) as delegator, asyncio.timeout(20):
            while not (workspace := ((await delegator.records.read(handle)) or {})["workspace"]):  # noqa: ASYNC110
                await asyncio.sleep(0)
            while not (Path(workspace) / "begun").exists():  # noqa: ASYNC110
                await asyncio.sleep(0)
    client = child(Scripted.call("run_shell", command="sleep 1.2; ls"), "I looked.")
    _, record = await resumed(home, handle, client, **settings)
    assert [(one["tool"], one["status"]) for one in record["run"]["receipts"]] == [
        ("run_shell", "unknown"),
        ("run_shell", "ok"),
    ]
    assert "run_shell (outcome unknown)" in told(client)
    assert record["run"]["receipts"][1]["output"].split()[-1] == "begun", record["run"]["receipts"][1]["output"]


def project(folder: Path, *, repository: bool) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/check.sh").write_text("grep -q hello a.txt\n")
    (folder / "old.txt").write_text("old")
    if repository:
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "x")
    return folder


@pytest.mark.parametrize("mode", sampled(["worktree", "copy", "shared"], 2))
async def test_work_in_a_project_is_measured_against_its_start(tmp_path: Path, mode: str) -> None:
    folder, home, settings = project(tmp_path / "project", repository=True), tmp_path / "home", {"commands": "allow"}
    task = {"acceptance_criteria": [CHECK], "workspace": {"mode": mode, "path": str(folder)}}
    bend = ["write_file", {"path": "tests/check.sh", "content": "true"}]
    handle = killed(home, task, [[WRITE]], settings=settings)
    bent = killed(home, task, [[bend]], settings=settings) if mode != "shared" else ""
    run, _ = await resumed(home, handle, child("I wrote hello."), **settings)
    (result,) = run.results
    assert (result.good, [artifact.path for artifact in result.artifacts]) == (True, ["a.txt"])
    if mode == "worktree":
        async with Delegator(home=home, client=child()) as delegator:
            await delegator.merges.merge(handle)
        assert (folder / "a.txt").read_text() == "hello"
    if mode == "shared":
        (folder / "a.txt").unlink()
        bent = killed(home, task, [[bend]], settings=settings)
        (folder / "tests/check.sh").write_text("exit 0")  # somebody else, in the meantime
    run, _ = await resumed(home, bent, child("I wrote hello."), **settings)
    (verdict,) = (result.verdict for result in run.results)
    assert verdict
    assert [one.code for one in verdict.criteria] == ["check_tampered"]


async def test_what_git_was_told_to_run_before_the_crash_is_not_taken_for_what_was_there(tmp_path: Path) -> None:
    folder, home = project(tmp_path / "project", repository=True), tmp_path / "home"
    task = {"workspace": {"mode": "copy", "path": str(folder)}}
    handle = killed(home, task, [[WRITE]])
    async with Delegator(home=home, client=child()) as delegator:
        record = await delegator.records.read(handle)
    assert record
    config = Path(record["workspace"], ".git/config")
    before = config.read_text()
    config.write_text(f"{before}\n[core]\n\tfsmonitor = ./evil.sh\n")
    await refused(home, handle, "what git runs in")
    assert "url" not in json.dumps(stored_start(home)), "no configuration is stored"
    config.write_text(before)
    result, _ = await resumed(home, handle, child("I wrote hello."))
    assert [artifact.path for artifact in result.results[0].artifacts] == ["a.txt"]


def stored_start(home: Path) -> JsonObject:
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
        return json.loads(connection.execute("SELECT state FROM starts").fetchone()[0])


async def test_a_worktree_that_was_deleted_is_missed_before_anything_is_changed(tmp_path: Path) -> None:
    folder, home = project(tmp_path / "project", repository=True), tmp_path / "home"
    handle = killed(home, {"workspace": {"mode": "worktree", "path": str(folder)}}, [[WRITE]])
    async with Delegator(home=home, client=child()) as delegator:
        record = await delegator.records.read(handle)
    assert record
    Path(record["workspace"]).rename(tmp_path / "elsewhere")
    await refused(home, handle, "isn't there any more")
    (tmp_path / "elsewhere").rename(record["workspace"])
    result, _ = await resumed(home, handle, child("I wrote hello."))
    assert [artifact.path for artifact in result.results[0].artifacts] == ["a.txt"]


async def test_a_child_that_had_reported_is_only_judged(tmp_path: Path) -> None:
    criteria = ["report: it says hello"]
    handle = killed(tmp_path, {"acceptance_criteria": criteria, "max_steps": 2}, [[WRITE], "I wrote hello."])
    client = child()
    run, _ = await resumed(tmp_path, handle, client)
    (result,) = run.results
    assert (result.report, result.good, asked(client)) == ("I wrote hello.", True, [])


async def test_what_was_spent_counts_in_the_limits_of_the_task_and_of_the_run(tmp_path: Path) -> None:
    async def ends(n: int, **settings: Any) -> str | None:
        home = tmp_path / str(n)
        handle = killed(home, {"tools": ["write_file"]}, [[WRITE]])
        result, _ = await resumed(home, handle, child("I wrote hello."), **settings)
        return result.results[0].error and result.results[0].error.code

    assert await ends(0) is None
    assert await ends(1, max_run_model_calls=1) == "budget_exceeded"
    assert await ends(2, max_run_tokens=1_400) == "budget_exceeded"
    assert await ends(5, max_run_tokens=1_700, max_tokens=1_700) is None
    assert await ends(3, max_tokens=1_400) == "budget_exceeded"
    assert await ends(4, max_steps=1) == "max_steps"


async def test_what_a_model_asked_for_stays_a_models_and_keeps_to_its_tools(tmp_path: Path) -> None:
    call = {"goal": "Write hello.", "acceptance_criteria": ["shell: grep hello a.txt"]}
    handle = killed(tmp_path, call, [[WRITE]], by_model=True, settings={"commands": "allow", "max_children": 1})
    client = child("I wrote it.")
    run, _ = await resumed(tmp_path, handle, client, commands="deny", max_children=1)
    (result,) = run.results
    assert result.verdict
    assert [one.code for one in result.verdict.criteria] == ["commands_not_allowed"]
    assert {tool.name for tool in asked(client)[0].tools} == {"write_file", "read_earlier_result"}
    handle = killed(tmp_path, call, [[WRITE]], by_model=True, settings={"commands": "allow"})
    run, _ = await resumed(tmp_path, handle, child("I wrote it."), default_max_cost_usd=1e-9)
    assert run.results[0].error
    assert run.results[0].error.code == "budget_exceeded"


async def test_a_task_is_taken_over_only_from_the_process_that_it_was_lost_with(tmp_path: Path) -> None:
    handle = killed(tmp_path, {}, [[WRITE]])
    one, other = Records(tmp_path), Records(tmp_path)
    process = await one.lost_process(handle)
    assert process == await other.lost_process(handle)
    assert (await one.take_over(handle, process), await other.take_over(handle, process)) == (True, False)
    assert await other.lost_process(handle) == ""
    await one.aclose()
    await other.aclose()


@pytest.mark.parametrize("turns", [[], [[WRITE]]], ids=["before it read", "after"])
async def test_a_continuation_that_was_lost_goes_on_with_its_message(tmp_path: Path, turns: list[Any]) -> None:
    handle = killed(tmp_path, {"acceptance_criteria": [FILE]}, turns, message="Write it now.")
    client = child("I wrote it.") if turns else child(WRITES, "I wrote it.")
    async with Delegator(home=tmp_path, client=child()) as delegator:
        before = [message.state for message in await delegator.background.messages(handle)]
        with pytest.raises(CallError) as lost:
            await delegator.background.message(handle, "And more.")
        assert f"run --resume {handle}" in (lost.value.hint or "")
    run, record = await resumed(tmp_path, handle, client)
    (result,) = run.results
    assert (result.handle, handle.endswith("-00"), result.good) == (handle, True, True)
    assert before == ["delivered"]
    assert [message["state"] for message in record["messages"]] == ["delivered"]
    assert ["Write it now." in message.text for message in asked(client)[0].messages].count(True) == 1
    assert "You said: I did nothing." in told(client)


async def test_a_continuation_whose_child_had_not_started_is_begun(tmp_path: Path) -> None:
    handle = killed(tmp_path, {"acceptance_criteria": [FILE]}, [], message="Write it now.")
    with closing(sqlite3.connect(tmp_path / "records.sqlite3", isolation_level=None)) as connection:
        # As if it had been killed a moment earlier.
        connection.execute("UPDATE tasks SET workspace = NULL WHERE handle = ?", (handle,))
        connection.execute("UPDATE messages SET delivered_at = NULL")
        connection.execute("DELETE FROM events WHERE handle = ?", (handle,))
        connection.execute("DELETE FROM starts WHERE handle = ?", (handle,))
    client = child(WRITES, "I wrote it.")
    async with Delegator(home=tmp_path, client=child()) as delegator:
        assert [message.state for message in await delegator.background.messages(handle)] == ["queued"]
    result, record = await resumed(tmp_path, handle, client)
    assert result.results[0].good
    assert [message["state"] for message in record["messages"]] == ["delivered"]
    assert "Write it now." in asked(client)[0].messages[1].text


async def report(job: Job) -> str:
    return "I did it."


async def test_what_cannot_be_resumed_is_refused_with_the_reason(tmp_path: Path) -> None:
    handle = killed(tmp_path, {}, [[WRITE]])
    database = tmp_path / "records.sqlite3"
    await refused(tmp_path, handle, "can't go on from a record", runner=report)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("UPDATE tasks SET depth = 1")
        await refused(tmp_path, handle, "only a parent's own tasks")
        connection.execute("UPDATE tasks SET depth = 0")
        (start,) = connection.execute("SELECT state FROM starts").fetchone()
        connection.execute("DELETE FROM starts")
        await refused(tmp_path, handle, "isn't on record")
        connection.execute("INSERT INTO starts VALUES (?, ?)", (handle, start))
        connection.execute("UPDATE events SET data = '{}' WHERE kind = 'child.usage'")
        await refused(tmp_path, handle, "its record is damaged")


def test_the_command_shows_how_to_go_on_and_does(home: Path) -> None:
    handle = killed(home, {"acceptance_criteria": [FILE]}, [[WRITE]])
    with ModelServer(lambda call: Reply("I wrote hello.")) as server:
        shown = delegate("show", handle, **openai_at(server))
        done = delegate("run", "--resume", handle, **openai_at(server))
    assert f"run --resume {handle}" in shown.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
