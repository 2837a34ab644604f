"""`delegate run --runner …`: a real program as the child, judged by checks alone."""

import json
from pathlib import Path

from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import ModelServer


def test_a_program_runs_the_task_and_checks_decide_without_a_model() -> None:
    with ModelServer(worker()) as server:
        anywhere = openai_at(server) | {"DELEGATE_COMMANDS": "allow"}  # also on machines without a sandbox
        done = delegate("run", "Copy the list.", "--runner", "tee list.txt", "-c", "file: list.txt",
                        "-c", "shell: grep -q 'Copy the list' list.txt", **anywhere)  # fmt: skip
        assert not server.calls
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("PASS (proven)  Copy the list.  ")
    assert "  ! calls  were not recorded, so only checks prove what was done" in lines


def test_no_key_is_needed_if_all_criteria_are_checks() -> None:
    done = delegate("run", "x", "--runner", "echo hello", "-c", "regex: ^hello$", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert (result["verdict"]["verdict"], result["verdict"]["receipts"], result["verdict"]["judge"]) == (
        "PASS", "unavailable", None)  # fmt: skip
    assert (result["receipts"]["recorded"], result["model"]) == (False, None)


def test_a_check_that_fails_and_a_program_that_fails_exit_with_1() -> None:
    failed = delegate("run", "x", "--runner", "echo hello", "-c", "file: none.txt")
    broken = delegate("run", "x", "--runner", "sh -c 'echo no credit >&2; exit 7'")
    assert (failed.returncode, broken.returncode) == (1, 1)
    assert "`sh` ended with exit code 7: no credit" in broken.stdout


def test_runner_output_and_runner_env_are_passed_to_the_program() -> None:
    script = 'sh -c \'echo "{\\"result\\": \\"key of ${#MY_KEY}\\"}"\''
    done = delegate("run", "x", "--runner", script, "--runner-output", "json", "--runner-env", "MY_KEY",
                    "-c", "regex: ^key of 5$", MY_KEY="12345")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_can_run_a_file_of_tasks(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    tasks.write_text('[{"goal": "one"}, {"goal": "two"}]')
    done = delegate("run", "--file", str(tasks), "--runner", "echo {goal}", "--format", "jsonl")
    assert done.returncode == 0
    assert [json.loads(line)["report"] for line in done.stdout.splitlines()] == ["one", "two"]


def test_an_unknown_program_is_named_in_one_line_and_exits_with_2() -> None:
    done = delegate("run", "x", "--runner", "no-such-agent -p")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("delegate: the runner's program 'no-such-agent' was not found")
    assert done.stderr.count("\n") == 1


def test_limits_that_a_program_cannot_keep_are_refused(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    tasks.write_text('[{"goal": "one"}, {"goal": "two", "max_cost_usd": 1}]')
    model = delegate("run", "x", "--runner", "cat", "--model", "gpt-6-luna")
    limit = delegate("run", "--file", str(tasks), "--runner", "cat")
    alone = delegate("run", "x", "--runner-output", "json")
    assert (model.returncode, limit.returncode, alone.returncode) == (2, 2, 2)
    assert "`model` can't be enforced with --runner" in model.stderr
    assert "task 2: `max_cost_usd` can't be enforced" in limit.stderr
    assert "--runner-output" in alone.stderr
