"""`delegate run` and `delegate show` on the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import ModelServer


def test_a_pass_names_its_evidence_and_the_record_can_be_shown() -> None:
    with ModelServer(worker()) as server:
        done = delegate("run", "Write note.md", "-c", "file note.md: the note greets the reader", "-c", "file: note.md",
                        **openai_at(server))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("PASS (seen)  Write note.md  ")
    judged = (
        "  ✓ judge  the note greets the reader  seen: “hello reader” (note.md) (the criterion is about file: note.md)"
    )
    assert judged in rest
    assert "  ✓ check  file note.md exists         proven: 13 bytes" in rest
    assert "more: delegate show last" in done.stdout
    shown = delegate("show", "last")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == first
    assert "  report   I wrote `note.md`, which greets the reader." in shown.stdout
    assert "write_file" in shown.stdout


def test_a_shell_criterion_decides_and_a_fail_exits_with_1() -> None:
    with ModelServer(worker()) as server:
        anywhere = openai_at(server) | {"DELEGATE_COMMANDS": "allow"}  # also on machines without a sandbox
        done = delegate("run", "Write note.md", "-c", "shell: grep -q goodbye note.md", **anywhere)
        assert [call.wants_json for call in server.calls] == [False, False]
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  Write note.md  ")
    assert "✗ check  `grep -q goodbye note.md` exits with 0" in done.stdout
    assert "exit code 1, wanted 0" in done.stdout


def test_a_file_of_tasks_gives_one_json_line_per_task(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    tasks = tmp_path / "tasks.yaml"
    tasks.write_text(
        "- goal: Write note.md\n  workspace: project\n  acceptance_criteria:\n    - {kind: file, path: note.md}\n"
        "- goal: Write note.md elsewhere\n"
    )
    with ModelServer(worker()) as server:
        done = delegate("run", "--file", str(tasks), "--format", "jsonl", **openai_at(server))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["task_index"] for line in lines] == [0, 1]
    assert lines[1]["verdict"] is None
    assert (folder / "note.md").read_text() == "hello reader\n"


@pytest.mark.parametrize(
    ("criterion", "complaint"),
    [
        ("called: run_comand", "there is no tool 'run_comand' for the child (The tools are: read_file, "),
        (
            "never called: run_shel",
            "there is no tool 'run_shel' for the child (did you mean `run_shell`? The tools are",
        ),
        ("regex: (", "not a regular expression: missing ) at position 1 (fix this criterion, or leave it out)\n"),
        ("regex: .*", "it can't fail: "),
        ('{"kind": "file"}', "`path` is missing; add it\n"),
    ],
)
@pytest.mark.parametrize("plan", [(), ("--plan",)], ids=["run", "plan"])
def test_a_refused_criterion_is_named_as_it_was_typed(criterion: str, complaint: str, plan: tuple[str, ...]) -> None:
    with ModelServer(worker()) as server:
        done = delegate("run", "x", "-c", "file: note.md", "-c", criterion, *plan, **openai_at(server))
        assert not server.calls
    if plan and criterion == "regex: .*":  # a plan tries nothing
        return
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"delegate: -c (number 2): {complaint}")


def test_an_invalid_task_file_is_one_line_with_task_and_field(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    tasks.write_text('[{"goal": "a"}, {"goal": "b", "acceptance_criteria": [{"kind": "shell", "comand": "make"}]}]')
    done = delegate("run", "--file", str(tasks))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"{tasks}: task 2: `acceptance_criteria[0].comand`" in done.stderr
    assert "did you mean `command`?" in done.stderr
