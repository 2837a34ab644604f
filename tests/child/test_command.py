"""Command line programs as children, with real processes: input, environment, output and termination."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest

from delegate import Cancellation, ConfigError, Delegator, RunResult, Task
from delegate.child.command import CommandRunner
from delegate.types import TaskResult
from tests.support.words import met_by, words


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Writes a Python program and returns its command line."""

    def write(source: str, *arguments: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text("import json, os, pathlib, subprocess, sys\n" + source)
        return [sys.executable, "-BIS", str(path), *arguments]

    return write


async def result_of(runner: CommandRunner, *tasks: Task) -> RunResult:
    async with Delegator(runner=runner, commands="allow") as delegator:
        result = await delegator.run(*tasks)
    assert result.error is None
    return result


async def done(command: Any, task: dict[str, Any] | None = None, **options: Any) -> TaskResult:
    given = Task.model_validate({"goal": "Count the files.", **(task or {})})
    return (await result_of(CommandRunner(command, **options), given)).results[0]


ECHO = "print(json.dumps({'arguments': sys.argv[1:], 'stdin': sys.stdin.read()}))"


async def received(command: list[str], goal: str = "Count the files.") -> Any:
    criteria = [{"kind": "regex", "pattern": "stdin"}]
    result = await done(command, {"goal": goal, "context": "Only *.py.", "acceptance_criteria": criteria})
    return json.loads(result.report)


async def test_the_program_reads_all_that_a_child_must_know_on_stdin(program: Any) -> None:
    said = await received(program(ECHO, "-p"))
    assert said["arguments"] == ["-p"]
    for told in ("Count the files.", "Only *.py.", "- c1: report matches /stdin/", "Your workspace: "):
        assert told in said["stdin"]


async def test_the_prompt_may_be_an_argument_and_stdin_is_empty_then(program: Any) -> None:
    said = await received(program(ECHO, "--ask={prompt}", "{goal}"))
    assert said["stdin"] == ""
    whole, goal = said["arguments"]
    assert whole.startswith("--ask=You are")
    assert "Only *.py." in whole
    assert goal == "Count the files."


@pytest.mark.parametrize("goal", ["--yolo", "$(touch x); `touch x` 'a' \"b\"", "line\nline", "{prompt}"])
async def test_a_goal_is_one_argument_and_never_an_option_or_code(program: Any, goal: str) -> None:
    said = await received(program(ECHO, "{goal}"), goal)
    assert [argument.strip() for argument in said["arguments"]] == [goal]
    assert not said["arguments"][0].startswith("-")


async def test_a_long_prompt_is_passed_on_stdin_even_if_it_is_not_read(program: Any) -> None:
    goal = "x" * 400_000
    read = await done(program("print(len(sys.stdin.read()))"), {"goal": goal})
    assert int(read.report) > 400_000
    assert (await done(program("print('unread')"), {"goal": goal})).report == "unread"


async def test_the_programs_output_is_the_report_and_its_files_are_artifacts(program: Any) -> None:
    source = "pathlib.Path('a.txt').write_text('hello')\nprint('I wrote `a.txt`.')\nprint('noise', file=sys.stderr)"
    result = await done(program(source), {"acceptance_criteria": [{"kind": "shell", "command": "grep -q hello a.txt"}]})
    assert (result.status, result.report) == ("completed", "I wrote `a.txt`.")
    assert [artifact.path for artifact in result.artifacts] == ["a.txt"]
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.judge, result.verdict.receipts) == ("PASS", None, "unavailable")
    assert result.cost_usd is None, "the program's cost is unknown"


async def test_another_exit_code_is_a_failed_run_with_the_end_of_stderr(program: Any) -> None:
    source = "print('half of it')\nprint('x' * 5_000 + ' no credit', file=sys.stderr)\nsys.exit(3)"
    result = await done(program(source), {"acceptance_criteria": [{"kind": "file", "path": "a"}]})
    assert (result.status, result.report.strip()) == ("failed", "half of it")
    assert result.error
    assert result.error.code == "exit_code"
    assert "ended with exit code 3" in result.error.message
    assert result.error.message.endswith("no credit")
    assert len(result.error.message) < 1_200
    assert result.verdict
    assert result.verdict.code == "run_failed"


@pytest.mark.parametrize(
    ("said", "criteria", "verdict"),
    [
        ("", ["file: a"], "PASS"),
        ("...", ["shell: test -s a"], "PASS"),
        ("", ["file: b"], "FAIL"),
        ("", ["regex: done"], "FAIL"),
        ("", [{"kind": "text", "text": "It says what a is.", "about": "report"}], "FAIL"),
    ],
)
async def test_a_program_may_do_without_a_word_what_code_can_see(
    said: str, criteria: list[Any], verdict: str, program: Any
) -> None:
    command = program(f"pathlib.Path('a').write_text('x'); print({said!r})")
    result = await done(command, {"acceptance_criteria": criteria})
    assert result.verdict
    assert result.verdict.verdict == verdict


@pytest.mark.parametrize(
    ("criterion", "quote", "code"),
    [
        ("deed: the mail was sent to ann", "I sent n.md to ann", "self_report_only"),
        ("deed: n.md was sent to ann", "created n.md (1 bytes)", "self_report_only"),
        ("file n.md: n.md was created", "created n.md (1 bytes)", "met"),
        ("file n.md: n.md was created", "I sent n.md to ann", "self_report_only"),
    ],
)
async def test_without_receipts_a_deed_needs_a_file_or_a_check_as_proof(
    program: Any, criterion: str, quote: str, code: str
) -> None:
    runner = CommandRunner(program("pathlib.Path('n.md').write_text('x'); print('I sent n.md to ann by mail.')"))
    async with Delegator(runner=runner, client=words([], met_by(quote))) as delegator:
        result = await delegator.run(Task.model_validate({"goal": "x", "acceptance_criteria": [criterion]}))
    assert result.results[0].verdict
    assert result.results[0].verdict.code == code


# ---------------------------------------------------------------------------------------------------------- JSON


async def test_report_usage_and_cost_are_taken_from_json(program: Any) -> None:
    said = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "Three files.",
            "total_cost_usd": 0.25, "usage": {"input_tokens": 90, "output_tokens": 10}}  # fmt: skip
    result = await done(program(f"print({json.dumps(said)!r})"), output="json")
    assert result.report == "Three files."
    assert (result.usage.total_tokens, result.cost_usd, result.cost_provenance) == (100, 0.25, "estimated")


async def test_a_failure_told_in_json_is_a_failed_run(program: Any) -> None:
    said = {"type": "result", "subtype": "success", "is_error": True, "result": "Please log in"}
    result = await done(program(f"print({json.dumps(said)!r})"), output="json")
    assert result.error
    assert (result.status, result.error.code) == ("failed", "reported_failure")
    assert "Please log in" in result.error.message


async def test_output_that_was_to_be_json_and_is_not_is_a_failed_run(program: Any) -> None:
    result = await done(program("print('All done!')"), output="json")
    assert result.error
    assert (result.status, result.error.code, result.report.strip()) == ("failed", "unreadable_output", "All done!")


# ------------------------------------------------------------------------------------------- environment


async def test_a_key_is_seen_only_where_it_is_named_and_never_recorded(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_LOGIN", "k3y-5f0e-91ab-77cd")
    monkeypatch.setenv("OTHER_API_KEY", "0th-3r0e-91ab-77cd")
    source = "print([len(os.environ.get(name, '')) for name in sys.argv[1:]], os.environ.get(sys.argv[1]))"
    command = program(source, "AGENT_LOGIN", "OTHER_API_KEY")
    assert (await done(command)).report == "[0, 0] None"
    assert (await done(command, env=["AGENT_LOGIN"])).report == "[18, 0] [redacted]"


# --------------------------------------------------------------------------------------------------- termination

HOLDS = """
keep = ['sh', '-c', 'exec 9>"$0"; exec sleep 600', sys.argv[1]]
subprocess.Popen(keep, start_new_session=sys.argv[2] == 'away')
with open(sys.argv[1], 'w') as fifo:
    print('begun', file=fifo, flush=True)
    os.read(os.pipe()[0], 1)
"""
LEAVES = """
keep = subprocess.Popen(['sh', '-c', 'exec 9>"$0"; echo ready; exec sleep 600', sys.argv[1]], stdout=subprocess.PIPE)
keep.stdout.readline()
print('done')
"""


def has_no_writers(fifo: TextIO) -> bool:
    """Whether all processes that had it open for writing have ended."""
    os.set_blocking(fifo.fileno(), False)
    try:
        return os.read(fifo.fileno(), 1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("where", ["here", pytest.param("away", marks=pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has subreapers"))])  # fmt: skip
async def test_a_cancel_kills_the_program_and_all_that_it_started(program: Any, tmp_path: Path, where: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with Delegator(runner=CommandRunner(program(HOLDS, str(fifo), where))) as delegator:
        cancellation = Cancellation()
        running = asyncio.create_task(delegator.run(Task(goal="wait"), cancellation=cancellation))
        with await asyncio.to_thread(fifo.open) as reader:
            assert await asyncio.to_thread(reader.readline) == "begun\n"
            cancellation.cancel()
            result = await running
            assert has_no_writers(reader)
    assert result.results[0].status == "cancelled"


async def test_the_deadline_of_the_task_ends_the_program(program: Any) -> None:
    result = await done(program("os.read(os.pipe()[0], 1)"), {"timeout_seconds": 0.3})
    assert result.status == "timeout"


async def test_what_a_program_leaves_running_is_ended_with_it(program: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        result = await done(program(LEAVES, str(fifo)))
        assert has_no_writers(reader)
    assert result.report == "done"


# ------------------------------------------------------------------------------------- refused commands


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-agent -p", "'no-such-agent' was not found"),
        ("/nowhere/agent", "'/nowhere/agent' was not found"),
        ("", "is empty"),
        ([], "is empty"),
        ("claude 'unended", "can't be parsed"),
        ("sh -c 'agent {goal}'", "placeholder inside"),
        ("sh --ask={goal}!", "placeholder inside"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_with_its_name(command: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CommandRunner(command)


def test_a_variable_that_is_not_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="'AGENT_KEY' to pass to the runner isn't set"):
        CommandRunner("cat", env=["AGENT_KEY"])


async def test_a_relative_program_is_found_from_the_workspace() -> None:
    Path("agent.sh").write_text("#!/bin/sh\necho found\n")
    Path("agent.sh").chmod(0o755)
    assert (await done("./agent.sh")).report == "found"


async def test_a_relative_file_that_is_not_in_the_folder_is_named() -> None:
    Path("program.sh").write_text("echo found\n")
    path = Path("program.sh").resolve()
    result = await done("sh program.sh --to /dev/null none.txt")
    assert result.error
    assert result.error.message.splitlines()[-1] == (
        f"program.sh is a file here but not in the task's folder, where the program runs: give it as {path}"
    )
    assert (await done(f"sh {path}")).report == "found"


async def test_a_program_deleted_in_the_meantime_is_a_failed_run() -> None:
    Path("agent.sh").write_text("#!/bin/sh\necho found\n")
    Path("agent.sh").chmod(0o755)
    runner = CommandRunner("./agent.sh")
    Path("agent.sh").unlink()
    (result,) = (await result_of(runner, Task(goal="x"))).results
    assert result.error
    assert (result.status, result.error.code) == ("failed", "exit_code")
    assert "exit code 127" in result.error.message


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [("Not logged in · Please run /login", ""), ("", "set the OPENAI_API_KEY variable"), ("", "401 Unauthorized")],
)
async def test_a_program_without_its_key_names_the_option_that_passes_it(
    program: Any, stdout: str, stderr: str
) -> None:
    result = await done(program(f"print({stdout!r}); sys.exit({stderr!r} or 1)"))
    assert result.error
    assert "--runner-env NAME" in result.error.message
    other = await done(program("sys.exit('the login page is broken')"))
    assert other.error
    assert "--runner-env" not in other.error.message
