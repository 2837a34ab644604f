"""`delegate show` and `delegate runs`: records as text and as JSON."""

import asyncio
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from delegate import Delegator, RunResult, Task
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest
from tests.cli.command import delegate
from tests.support.words import is_judge, met_by

HOSTILE = "\x1b[2J\x1b]0;title\x07PASS\u202e [red]all[/red]"


def _answer(request: ChatRequest) -> ChatReply | str:
    if is_judge(request):
        return met_by("hello reader")(request)
    if len(request.messages) == 1:
        call = ("write_file", {"path": "note.md", "content": f"hello reader {HOSTILE}"})
        return Scripted.calls(call, text=f"I begin.\nAnd I write {HOSTILE}")
    return f"I wrote `note.md`. {HOSTILE}"


async def _result_of(*tasks: dict[str, Any]) -> RunResult:
    async with Delegator(client=Scripted(_answer)) as delegator:
        return await delegator.run(*map(Task.model_validate, tasks))


@pytest.fixture
def returned() -> RunResult:
    criteria = ["file note.md: the note greets the reader", {"kind": "file", "path": "note.md"}]
    return asyncio.run(
        _result_of({"goal": f"Write {HOSTILE}", "acceptance_criteria": criteria}, {"goal": "the second"})
    )


def _reopen(home: Path, handle: str | None, **values: object) -> None:
    """Remove the result of a task, as if it hadn't ended."""
    fields = {"ended_at": None, "status": None, "verdict": None, "cost_usd": None, "run": None, "result": None}
    fields |= values
    connection = sqlite3.connect(home / "records.sqlite3", isolation_level=None)
    sql = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in fields)} WHERE handle = ?"
    assert connection.execute(sql, (*fields.values(), handle)).rowcount == 1
    connection.close()


def _shown(*arguments: str | None) -> str:
    done = delegate(*(argument or "" for argument in arguments))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    return done.stdout


def test_a_record_shows_its_verdict_report_and_tool_calls(returned: RunResult) -> None:
    shown = _shown("show", returned.results[0].handle)
    assert shown.startswith("PASS (seen)  1. Write")
    assert "\n  report   I wrote `note.md`. PASS [red]all[/red]\n" in shown
    assert re.search(r"^ *1 +write_file +ok ", shown, re.MULTILINE)
    assert "transcript:" not in shown


def test_a_transcript_has_all_events_in_order_with_times(returned: RunResult) -> None:
    shown = _shown("show", returned.results[0].handle, "--transcript")
    course = shown.partition("\ntranscript:\n")[2]
    steps = [
        r"\+0\.00 s started: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
        r"the child starts: ",
        r"model: \d+ tokens in, \d+ out, \$",
        r"I begin\.",
        r"And I write PASS \[red\]all",
        r"calls write_file \{\"path\": \"note\.md\"",
        r"tool 1: write_file: ok, \d+ bytes, \d\.\d\d s",
        r"with \{\"path\": \"note\.md\"",
        r"model: ",
        r"I wrote `note\.md`",
        r"the child ended: completed",
        r"check: c2 ",
        r"asking a judge: ",
        r"verdict: PASS",
        r"ended: completed",
    ]
    assert re.search(r"[\s\S]*?".join(steps), course), course
    times = [float(time) for time in re.findall(r"^ *\+([\d.]+) s ", course, re.MULTILINE)]
    assert times == sorted(times)


def test_a_record_as_json_is_complete(returned: RunResult) -> None:
    record = json.loads(_shown("show", returned.results[0].handle, "--format", "json"))
    assert (record["state"], record["run_id"]) == ("ended", returned.run_id)
    assert record["result"]["verdict"]["verdict"] == "PASS"
    assert record["run"]["receipts"][0]["tool"] == "write_file"
    assert [event["kind"] for event in record["events"]][:2] == ["child.started", "child.usage"]


def test_a_task_whose_process_was_lost_shows_what_is_recorded(returned: RunResult, home: Path) -> None:
    handle = returned.results[0].handle
    _reopen(home, handle, process="1/1/gone")
    shown = _shown("show", handle)
    assert shown.startswith("OUTCOME UNKNOWN  Write")
    assert "it is not run again automatically" in shown
    assert f"folder{returned.results[0].workspace}said" in "".join(shown.split())  # a long path is wrapped
    assert "  said     I wrote `note.md`." in shown
    assert re.search(r"^ *1 +write_file +ok ", shown, re.MULTILINE)
    assert "nothing more is recorded" in _shown("show", handle, "--transcript")


def test_a_running_task_shows_what_it_has_done_so_far(returned: RunResult, home: Path) -> None:
    handle = returned.results[1].handle
    _reopen(home, handle)  # by this process, which is alive
    shown = _shown("show", handle)
    assert shown.startswith("RUNNING  the second\n  since   ")
    assert re.search(r"^ *1 +write_file +ok ", shown, re.MULTILINE)
    (run,) = json.loads(_shown("runs", "--format", "json"))
    assert (run["state"], run["passed"], run["other"], run["cost_usd"]) == ("running", 1, 1, None)


def test_a_runs_id_lists_its_tasks(returned: RunResult) -> None:
    shown = _shown("show", returned.run_id)
    lines = shown.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        [str(n), result.handle] for n, result in enumerate(returned.results, start=1)
    ]
    assert re.search(r" completed +PASS +\$", lines[2])
    assert lines[3].rstrip().endswith("the second")
    listed = _shown("show", returned.run_id, "--format", "jsonl").splitlines()
    assert [json.loads(line)["handle"] for line in listed] == [result.handle for result in returned.results]


def test_last_a_number_and_the_first_characters_of_an_id_name_a_task(returned: RunResult) -> None:
    run_id = returned.run_id or ""
    second = _shown("show", returned.results[1].handle)
    assert second.startswith("UNJUDGED  2. the second ")
    assert _shown("show", "last", "2") == second
    assert _shown("show", run_id[:6], "2") == second
    assert _shown("show", f"{run_id[:6]}-1") == second
    assert _shown("show", "last") == _shown("show", run_id)
    later = asyncio.run(_result_of({"goal": "a later one"}))
    assert _shown("show", "last").startswith("UNJUDGED  a later one ")
    assert _shown("show", later.run_id) == _shown("show", "last")
    refused = delegate("show", "last", "2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has no task 2 (it has task 1)" in refused.stderr


def test_a_prefix_of_several_ids_is_refused_with_the_ids(returned: RunResult, home: Path) -> None:
    connection = sqlite3.connect(home / "records.sqlite3", isolation_level=None)
    connection.execute("UPDATE tasks SET run_id = 'abc1' WHERE handle = ?", (returned.results[0].handle,))
    connection.execute("UPDATE tasks SET run_id = 'abc2' WHERE handle = ?", (returned.results[1].handle,))
    connection.close()
    done = delegate("show", "abc")
    assert done.returncode == 2
    assert "2 runs begin with 'abc': " in done.stderr
    assert "abc1" in done.stderr
    assert "abc2" in done.stderr


def test_only_the_failed_tasks_of_a_run_are_shown_with_their_reasons() -> None:
    failing = {"goal": "the third", "acceptance_criteria": [{"kind": "file", "path": "missing.md"}]}
    asyncio.run(_result_of({"goal": "the first"}, {"goal": "the second"}, failing))
    shown = _shown("show", "last", "--failed")
    assert shown.startswith("FAIL  3. the third ")
    assert "missing.md does not exist" in shown
    assert "the second" not in shown
    (row,) = json.loads(_shown("show", "last", "--failed", "--format", "json"))
    assert (row["goal"], row["verdict"]) == ("the third", "FAIL")


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_tables_and_records_fit_the_console(returned: RunResult, width: str) -> None:
    for arguments in (("runs",), ("show", returned.run_id), ("show", returned.results[0].handle), ("models",)):
        shown = delegate(*(one or "" for one in arguments), COLUMNS=width).stdout
        assert max(map(cell_len, shown.splitlines())) <= int(width)
        assert all(line == line.rstrip() for line in shown.splitlines())


def test_a_shell_completes_the_ids_of_runs(returned: RunResult) -> None:
    words = {"COMP_WORDS": "delegate show ", "COMP_CWORD": "2", "_DELEGATE_COMPLETE": "complete_bash"}
    offered = delegate(**words).stdout.split()
    assert returned.run_id in offered
    assert "last" in offered


def test_runs_are_listed_newest_first_up_to_a_limit(returned: RunResult) -> None:
    latest = asyncio.run(_result_of({"goal": "a later one"}))
    lines = _shown("runs").splitlines()
    assert lines[0].split() == ["run", "started", "state", "tasks", "PASS", "FAIL", "other", "cost", "first", "goal"]
    assert lines[2].startswith(f"{latest.run_id} ")
    assert lines[2].rstrip().endswith(" a later one")
    assert re.match(rf"{returned.run_id} +\S+ \S+ +ended +2 +1 +0 +1 +\$[\d.]+ +Write PASS", lines[3])
    (only,) = _shown("runs", "--limit", "1", "--format", "jsonl").splitlines()
    assert json.loads(only)["run_id"] == latest.run_id


def test_without_records_runs_says_so_and_creates_no_file(home: Path) -> None:
    assert _shown("runs") == "no runs are on record\n"
    assert not home.exists()


async def test_attempts_at_a_task_are_one_task_unless_all_are_asked_for(home: Path) -> None:
    replies = iter(["No.", Scripted.call("write_file", path="a.txt", content="a"), "I wrote it."])
    client = Scripted(lambda request: "I wrote it." if len(request.messages) > 1 else next(replies))
    tasks = [Task(goal="Write a.txt.", acceptance_criteria=["file: a.txt"], attempts=2), Task(goal="Say something.")]
    async with Delegator(client=client, max_concurrent=1) as delegator:
        returned = await delegator.run(*tasks)
    assert returned.results[0].good
    listed = json.loads(_shown("runs", "--format", "json"))
    assert (listed[0]["tasks"], listed[0]["passed"], listed[0]["other"]) == (2, 1, 1)
    shown, everything = (_shown("show", returned.run_id, *more) for more in ((), ("--attempts",)))
    assert (shown.count("Write a.txt."), everything.count("Write a.txt.")) == (1, 2)
    assert (shown.count("not chosen"), everything.count("not chosen")) == (0, 1)
    assert _shown("show", returned.run_id, "2").startswith("UNJUDGED  2. Say something.")
