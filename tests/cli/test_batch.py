"""`delegate batch` on the command line."""

import asyncio
import csv
import json
import os
import pty
import re
import signal
import subprocess
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest
from rich.console import Console

from delegate import Cancellation, Delegator, Task
from delegate.batch.batch import Batch
from delegate.batch.item import ItemOutcome
from delegate.cli.screen.batch_progress import BatchProgress, Failures
from delegate.cli.work import STOPPING
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest
from tests.batch.rows import DONE, Children, ids, lines, tasks
from tests.cli.command import delegate, openai_at, output_of
from tests.support import warm
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import is_judge, met_by

PATIENCE = 20


def _model(call: Call) -> Reply | Fault:
    """Children act as their goal says, and judges confirm it."""
    if call.wants_json:
        answer = {"id": "c1", "evidence": "did my part", "reason": "It says so.", "verdict": "met"}
        return Reply(json.dumps({"answers": [answer]}), input_tokens=100, output_tokens=10)
    goal = _goal(call)
    if "hang" in goal:
        return Fault(kind="hang")
    return Reply("nothing was done" if "fail" in goal else f"{DONE}: {goal}", input_tokens=100, output_tokens=10)


def _goal(call: Call) -> str:
    return call.texts[0].split("\n")[0]


def _starts(server: ModelServer) -> Counter[str]:
    """How often each child was started."""
    return Counter(_goal(call) for call in server.calls if not call.wants_json)


def _companies(*names: str) -> str:
    Path("companies.csv").write_text("company\n" + "".join(f"{name}\n" for name in names))
    return "companies.csv"


GOAL = ("--goal", "Look at {company}", "-c", "regex: part as asked: .*{company}")


def test_each_row_of_a_csv_has_a_result_and_counts_in_the_summary() -> None:
    with ModelServer(_model) as server:
        done = delegate("batch", _companies("A", "fail B", "C"), "-o", "r.jsonl", *GOAL, **openai_at(server))
        assert _starts(server) == {"Look at A": 1, "Look at fail B": 1, "Look at C": 1}
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("3 of 3 done: 2 PASS, 1 FAIL · cost $")
    assert "results in r.jsonl" in done.stdout
    rows = {row["id"]: row for row in lines(Path("r.jsonl"))}
    assert {id: row["verdict"] for id, row in rows.items()} == {"1": "PASS", "2": "FAIL", "3": "PASS"}
    assert rows["1"]["report"] == f"{DONE}: Look at A"
    shown = delegate("show", rows["2"]["handle"])
    assert shown.stdout.startswith("FAIL  2. Look at fail B")


def test_judged_rows_all_pass_and_the_exit_code_is_0() -> None:
    with ModelServer(_model) as server:
        done = delegate(
            "batch", _companies("A", "B"), "-o", "r.csv", "--goal", "Look at {company}",
            "-c", "report: the report says that it looked",
            "--format", "json", **openai_at(server),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["passed"], found["settled"], found["stopped"]) == (2, 2, "")
    with Path("r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["verdict"], row["state"]) for row in rows] == [("PASS", "done")] * 2


def test_a_hundred_rows_25_at_a_time_have_one_result_each() -> None:
    def slow(call: Call) -> Reply | Fault:
        reply = _model(call)
        assert isinstance(reply, Reply)
        return Reply(reply.text, input_tokens=100, output_tokens=10, delay=0.05)

    names = [f"company number {n}" for n in range(100)]
    with ModelServer(slow) as server:
        done = delegate("batch", _companies(*names), "-o", "r.jsonl", *GOAL, "--concurrency", "25", **openai_at(server))
        assert set(_starts(server).values()) == {1}
        assert len(_starts(server)) == 100
        assert 12 < server.peak <= 25
    assert done.returncode == 0, done.stdout + done.stderr
    rows = lines(Path("r.jsonl"))
    assert len(set(ids(rows))) == len(rows) == 100
    assert all(row["report"].endswith(f"company number {row['row'] - 1}") for row in rows)


def test_the_same_tasks_are_refused_unless_again_is_given() -> None:
    with ModelServer(_model) as server:
        first = delegate("batch", _companies("A", "B"), "-o", "r.jsonl", *GOAL, **openai_at(server))
        run = first.stdout.partition("run ")[2].split()[0]
        again = delegate("batch", "companies.csv", "-o", "s.jsonl", *GOAL, **openai_at(server))
        assert set(_starts(server).values()) == {1}
        anew = delegate("batch", "companies.csv", "-o", "t.jsonl", *GOAL, "--again", **openai_at(server))
    assert (again.returncode, again.stdout) == (2, "")
    assert not Path("s.jsonl").exists()
    assert f"batch {run} (ended: 2 of 2, 2 PASS, 0 FAIL)" in again.stderr
    assert "r.jsonl" in again.stderr
    assert "--again" in again.stderr
    assert len(again.stderr.splitlines()) == 1
    assert anew.returncode == 0
    assert ids(lines(Path("t.jsonl"))) == ["1", "2"]


def test_an_invalid_row_is_one_error_line_unless_it_is_skipped() -> None:
    rows = [f"C{n}" for n in range(1, 401)]
    rows[316] = "C317,too many"
    with ModelServer(_model) as server:
        refused = delegate("batch", _companies(*rows), "-o", "r.jsonl", *GOAL, **openai_at(server))
        assert server.calls == []
        assert not Path("r.jsonl").exists()
        _companies("A", "B,too many", "C")
        skipped = delegate("batch", "companies.csv", "-o", "r.jsonl", *GOAL, "--skip-bad", **openai_at(server))
    assert refused.returncode == 2
    assert refused.stderr == (
        "delegate: companies.csv: row 317: the row has 2 fields, but the header has 1 (line 318) "
        "(fix the row, or skip bad rows with --skip-bad)\n"
    )
    assert skipped.returncode == 3
    assert {row["id"]: row["state"] for row in lines(Path("r.jsonl"))} == {"1": "done", "row 2": "bad_row", "3": "done"}


@pytest.mark.parametrize(
    ("criterion", "settings"),
    [("regex: .", {}), ("json: true", {}), ("shell: echo {company}", {"DELEGATE_STRICT_CHECKS": "true"})],
)
def test_a_criterion_that_cannot_fail_refuses_the_file_and_its_plan(criterion: str, settings: dict[str, str]) -> None:
    task = {"goal": "Look at A", "acceptance_criteria": [criterion.format(company="A")]}
    Path("tasks.yaml").write_text(json.dumps([{"goal": "Look at B"}, task]))
    with ModelServer(_model) as server:
        environment = {**openai_at(server), **settings}
        of_rows = (_companies("A", "B"), "--goal", "Look at {company}", "-c", criterion)
        for arguments, row in ((of_rows, "companies.csv: row 1"), (("tasks.yaml",), "tasks.yaml: row 2")):
            for output in (("-o", "r.jsonl"), ("--plan",)):
                done = delegate("batch", *arguments, *output, **environment)
                assert (done.returncode, done.stdout) == (2, "")
                assert done.stderr.startswith(f"delegate: {row}: it can't fail: ")
        plan = delegate("run", "Look at A", "-c", criterion.format(company="A"), "--plan", **environment)
        assert (plan.returncode, plan.stdout) == (2, "")
        assert not server.calls
    assert not Path("r.jsonl").exists()
    assert "no runs" in delegate("runs").stdout


def test_a_batch_of_which_no_task_began_is_shown_as_one_without_records() -> None:
    async def stopped() -> str:
        cancellation = Cancellation()
        cancellation.cancel()
        async with Delegator(client=Children()) as delegator:
            batch = delegator.batches.run(tasks("a"), cancellation=cancellation)
            assert [outcome async for outcome in batch] == []
        return batch.run_id

    run_id = asyncio.run(stopped())
    for name in ("last", run_id, run_id[:8]):
        shown = delegate("show", name)
        assert shown.returncode == 2
        assert shown.stderr.startswith(f"delegate: no task of batch {run_id} is on record (none has started, or ")


def test_a_workflow_blocks_tasks_whose_needs_have_no_pass() -> None:
    did = {"kind": "regex", "pattern": "did my part"}
    tasks = [
        {"id": "a", "goal": "start", "acceptance_criteria": [did]},
        {"id": "b", "goal": "fail left", "needs": ["a"], "acceptance_criteria": [did]},
        {"id": "c", "goal": "right of {{ a.report }}", "needs": ["a"], "acceptance_criteria": [did]},
        {"id": "d", "goal": "join", "needs": ["b", "c"], "acceptance_criteria": [did]},
        {"id": "e", "goal": "clean up", "needs": ["d"], "when": "always", "acceptance_criteria": [did]},
        {"id": "f", "goal": "after c", "needs": ["c"], "acceptance_criteria": [did]},
    ]
    Path("flow.json").write_text(json.dumps(tasks))
    with ModelServer(_model) as server:
        done = delegate("batch", "flow.json", "-o", "r.jsonl", **openai_at(server))
        goals = _starts(server)
    assert done.returncode == 1
    rows = {row["id"]: row for row in lines(Path("r.jsonl"))}
    assert {id: row["verdict"] or row["state"] for id, row in sorted(rows.items())} == {
        "a": "PASS", "b": "FAIL", "c": "PASS", "d": "blocked", "e": "PASS", "f": "PASS",
    }  # fmt: skip
    assert "'b'" in rows["d"]["why"]
    assert "join" not in goals


def test_a_plan_is_printed_and_nothing_is_run_or_recorded() -> None:
    with ModelServer(_model) as server:
        done = delegate("batch", _companies("A", "B"), *GOAL, "--plan", **openai_at(server))
        assert server.calls == []
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 tasks in companies.csv\n")
    assert delegate("runs").stdout == "no runs are on record\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a file of tasks, or a batch with --resume RUN"),
        (("companies.csv",), "give a .jsonl or .csv file for the results"),
        (("companies.csv", "-o", "r.txt"), "can't tell the format of the results"),
        (("nothing.csv", "-o", "r.csv"), "nothing.csv can't be read"),
        (("companies.csv", "-o", "r.csv", "--rerun", "fail"), "can only be used with --resume RUN"),
        (("companies.csv", "--resume", "abc"), "can't be used with TASKS; remove TASKS"),
        (("--resume", "abc"), "there is no batch 'abc'"),
        (("companies.csv", "-o", "r.csv", "--address", "x"), "can only be used with --engine ray"),
        (("companies.csv", "-o", "r.csv", "--goal", "{compny}"), "there is no column 'compny'"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(arguments: tuple[str, ...], said: str) -> None:
    _companies("A")
    done = delegate("batch", *arguments, OPENAI_API_KEY="sk-dummy-1234")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_ctrl_c_records_all_outcomes_and_resume_needs_only_the_run_id() -> None:
    with ModelServer(_model) as server:
        arguments = ["batch", _companies("A", "hang", "C", "D"), "-o", "r.jsonl", *GOAL, "--concurrency", "1"]
        environment = {**os.environ, **openai_at(server)}
        with subprocess.Popen(
            [*warm.delegate(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            server.wait_for_calls(2, PATIENCE)
            # The second child starts when the first has ended, which may be before that one is judged.
            assert any(re.search(r"running +4 +1 ", delegate("runs").stdout) for _ in range(100))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err.splitlines()[-1]) == (3, STOPPING)
        assert out.startswith("1 of 4 done: 1 PASS, 0 FAIL · 1 outcome_unknown · cost $")
        run = out.partition("run ")[2].split()[0]
        assert f"2 not started (cancelled)\nresume with: delegate batch --resume {run}\n" in out
        listed = delegate("runs").stdout
        assert f"{run}" in listed
        assert "stopped" in listed
        assert ids(lines(Path("r.jsonl"))) == ["1", "2"]
        on = delegate("batch", "--resume", run, **openai_at(server))
        assert on.stdout.startswith("3 of 4 done: 3 PASS, 0 FAIL · 1 outcome_unknown · cost $")
        rows = {row["id"]: row for row in lines(Path("r.jsonl"))}
        assert sorted(rows) == ["1", "2", "3", "4"]
        assert (rows["2"]["state"], rows["2"]["verdict"]) == ("outcome_unknown", None)
        assert rows["2"]["input"] == {"company": "hang"}
        assert set(_starts(server).values()) == {1}
        assert delegate("batch", "--resume", run, "--rerun", "fail", **openai_at(server)).returncode == 3
        assert set(_starts(server).values()) == {1}, "what was stopped has not failed"
    assert "ended" in delegate("runs").stdout


def test_runs_shows_a_batch_as_one_line_with_its_file_and_counts() -> None:
    with ModelServer(_model) as server:
        delegate("batch", _companies("A", "fail B", "C"), "-o", "r.jsonl", *GOAL, **openai_at(server))
    (found,) = json.loads(delegate("runs", "--format", "json").stdout)
    assert (found["tasks"], found["passed"], found["failed"], found["other"]) == (3, 2, 1, 0)
    assert found["state"] == "ended"
    assert found["goal"] == "batch companies.csv: Look at A"


def test_a_terminal_shows_the_counts_and_the_last_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    ours, theirs = pty.openpty()
    try:
        with ModelServer(_model) as server:
            command = [*warm.delegate(), "batch", _companies("A", "fail B"), "-o", "r.jsonl", *GOAL]
            environment = {**os.environ, **openai_at(server)}
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
                os.close(theirs)
                shown = output_of(ours)
                process.wait(PATIENCE)
    finally:
        os.close(ours)
    assert "2 of 2 · 1 PASS, 1 FAIL" in shown
    assert "━━━" in shown
    said = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)
    assert "✗ FAIL  2: c1 " in said


async def test_a_progress_line_has_the_counts_and_the_remaining_time() -> None:
    """The third child never ends: it could otherwise be counted before the second outcome is read."""
    async with Delegator(client=Children()) as delegator:
        batch = delegator.batches.run(tasks("a", "fail b", "hang c", "d"), concurrency=1)
        progress = BatchProgress(batch, lambda: batch.began + 10)
        assert progress.line() == "reading the tasks"
        async with aclosing(batch.outcomes()) as found:
            await anext(found)
            await anext(found)
            said = progress.line()
    assert said.startswith("2 of 4 · 1 PASS, 1 FAIL · ")
    assert " · 0:10, 0:10 left · $" in said


async def test_children_at_work_and_judging_are_counted_apart() -> None:
    judging, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        if is_judge(request):
            judging.set()
            await go_on.wait()
            return str(met_by(DONE)(request))
        return DONE

    one = Task(goal="Do it", acceptance_criteria=["report: the report says that it was done"])
    async with Delegator(client=Scripted(answer)) as delegator:
        batch = delegator.batches.run([one, one], concurrency=1)
        progress = BatchProgress(batch, lambda: batch.began + 10)
        ended = asyncio.create_task(_drain(batch))
        await asyncio.wait_for(judging.wait(), PATIENCE)
        assert "1 judging" in progress.line()
        go_on.set()
        await asyncio.wait_for(ended, PATIENCE)
        assert "judging" not in progress.line()


async def test_the_progress_line_says_what_calls_wait_for() -> None:
    fails = asyncio.Event()

    def answer(request: ChatRequest) -> str:
        fails.set()
        raise ProviderError("connection", "the server is down", provider="scripted")

    async with Delegator(client=Scripted(answer)) as delegator:
        batch = delegator.batches.run(tasks("a", "b"), concurrency=2)
        progress = BatchProgress(batch, lambda: batch.began + 10)
        ended = asyncio.create_task(_drain(batch))
        await asyncio.wait_for(fails.wait(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while "2 working (waits for the retry of a failed model call: 2) · 0:10" not in progress.line():  # noqa: ASYNC110 - nothing else says so
                await asyncio.sleep(0.01)
        ended.cancel()
        await asyncio.wait([ended])
    assert not +batch.waits


async def _drain(batch: Batch) -> None:
    async for _ in batch:
        pass


@pytest.mark.parametrize("width", [40, 60, 80, 120])
async def test_the_progress_line_has_a_bar_and_never_wraps(width: int) -> None:
    async with Delegator(client=Children()) as delegator:
        batch = delegator.batches.run(tasks("a", "fail b", "hang c", "d"), concurrency=1)
        progress = BatchProgress(batch, lambda: batch.began + 100_000)
        console = Console(width=width)
        async with aclosing(batch.outcomes()) as found:
            (bad,) = [one for one in [await anext(found), await anext(found)] if not one.good]
            with console.capture() as shown:
                console.print(progress)
            with console.capture() as failed:
                console.print(Failures().line(bad))
    (line,) = shown.get().splitlines()
    assert line.startswith("━" * 4)
    assert "2 of 4 · 1 PASS, 1 FAIL" in line
    assert all(len(one) <= width for one in [line, *failed.get().splitlines()])
    assert failed.get().startswith("✗ FAIL  ")


async def test_equal_failures_are_shown_once_and_counted_at_the_end() -> None:
    outcomes = [ItemOutcome(f"t{n}", "blocked", why="`a` failed" if n % 4 else f"`b{n}` failed") for n in range(40)]
    failures = Failures()
    shown = [text for outcome in outcomes if (text := failures.line(outcome))]
    assert len(shown) == 11
    console = Console(width=80)
    with console.capture() as printed:
        for line in failures.repeated():
            console.print(line)
    assert printed.get().strip() == "✗ blocked  30 × `a` failed"


def test_a_batch_whose_models_cannot_be_reached_stops_and_can_be_resumed(home: Path) -> None:
    refuses = [True]

    def script(call: Call) -> Reply | Fault:
        return Fault(401) if refuses else Reply("Looked.")

    with ModelServer(script) as server:
        command = ("batch", _companies(*map(str, range(30))), "-o", "r.jsonl", "--goal", "Look at {company}")
        done = delegate(*command, "--model", "gpt-6-luna", "--concurrency", "2", **openai_at(server))
        refused = len(server.calls)
        refuses.clear()
        assert done.returncode == 3
        assert re.search(r"[5-9] tasks in a row failed as `auth`; see `--rerun fail`", " ".join(done.stdout.split()))
        assert 5 <= refused <= 9
        run = re.search(r"^resume with: delegate batch --resume (\S+)$", done.stdout, re.MULTILINE)
        assert run
        again = delegate("batch", "--resume", run[1], "--rerun", "fail", **openai_at(server))
    assert "30 of 30 done" in again.stdout
    assert len(server.calls) == refused + 30


def test_the_latest_attempt_at_a_row_counts_and_the_others_are_shown_on_request(home: Path) -> None:
    answers = iter(["no", "no", *["as asked"] * 10])

    def script(call: Call) -> Reply:
        return Reply(f"{_goal(call)}: part {next(answers)}")

    with ModelServer(script) as server:
        command = ("batch", _companies("A", "B", "C"), "-o", "r.jsonl", "--goal", "Look at {company}")
        first = delegate(*command, "-c", "regex: part as asked", "--concurrency", "1", **openai_at(server))
        run = re.search(r"^run (\S+)", first.stdout, re.MULTILINE)
        assert run
        again = delegate("batch", "--resume", run[1], "--rerun", "fail", **openai_at(server))
    assert "3 of 3 done: 3 PASS" in again.stdout
    assert delegate("show", run[1], "--failed").stdout == "no task of this run failed\n"
    lines = [line for line in delegate("show", run[1], COLUMNS="200").stdout.splitlines() if "Look at" in line]
    assert [line.split()[2] for line in lines] == ["1", "2", "3"]
    assert all(" PASS " in line for line in lines)
    assert delegate("show", run[1], "1", "--format", "json").stdout.count("part as asked") >= 1
    everything = delegate("show", run[1], "--attempts", COLUMNS="200").stdout
    assert (everything.count("Look at"), everything.count("run again")) == (5, 2)
    assert delegate("show", run[1], "--failed", "--attempts").stdout.count("✗") >= 2
    exported = {flag: delegate("export", run[1], "--format", "atif", *flag).stdout for flag in ((), ("--attempts",))}
    assert [len(text.splitlines()) for text in exported.values()] == [3, 5]
