"""Ctrl-C and SIGTERM: the first one cancels the work and prints its report, the second one exits."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from delegate import TaskResult
from delegate.cli.work import STOPPING
from tests.cli.command import openai_at, output_of
from tests.support import warm
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.trees import Tree

PATIENCE = 20
"""Seconds until a test gives up."""
DONE = "did my part as asked"


def _model(tree: Tree) -> Callable[[Call], Reply | Fault]:
    """One goal finishes at once, one runs a command that never ends, and one gets no reply."""

    def answer(call: Call) -> Reply | Fault:
        goal = call.texts[0].split()[0]
        if goal == "command":
            turns = [
                Reply("half-way there", tool_calls=(("write_file", {"path": "half.txt", "content": "half"}),)),
                Reply("now the tests", tool_calls=(("run_shell", {"command": tree.command}),)),
            ]
            return turns[len(call.tool_results)]
        return Reply(DONE) if goal == "quick" else Fault(kind="hang")

    return answer


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with Tree(tmp_path / "shared") as tree:
        yield tree


@pytest.fixture
def server(tree: Tree) -> Iterator[ModelServer]:
    with ModelServer(_model(tree)) as server:
        yield server


@pytest.fixture
def tasks(tree: Tree, tmp_path: Path) -> str:
    """A file of three tasks."""
    path = tmp_path / "tasks.json"
    quick = {"goal": "quick", "acceptance_criteria": [{"kind": "regex", "pattern": "did my part"}]}
    command = {"goal": "command", "workspace": str(tree.folder), "acceptance_criteria": ["report: the tests pass"]}
    path.write_text(json.dumps([quick, command, {"goal": "hangs"}]))
    return str(path)


@contextmanager
def running(server: ModelServer, *arguments: str, stderr: Any = subprocess.PIPE) -> Generator["subprocess.Popen[str]"]:
    environment = {**os.environ, **openai_at(server), "DELEGATE_COMMANDS": "allow", "DELEGATE_MODEL": "gpt-6-luna"}
    with subprocess.Popen(
        [*warm.delegate(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
        env=environment,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def _wait_until_running(server: ModelServer, tree: Tree) -> None:
    """Wait until one task has finished, a command runs and a model call hangs."""
    server.wait_for_calls(4, PATIENCE)
    tree.wait_until_up()


def test_the_first_signal_stops_all_children_and_prints_the_report(server: ModelServer, tree: Tree, tasks: str) -> None:
    with running(server, "run", "--file", tasks) as process:
        _wait_until_running(server, tree)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        assert tree.left() == []
    assert process.returncode == 3
    assert err == f"{STOPPING}\n"
    first, second, third = out.split("\n\n")[:3]
    assert first.startswith("PASS (seen)  1. quick  "), "a finished task keeps its verdict"
    assert second.startswith("FAIL  2. command  ")
    assert "now the tests" in second
    assert "half.txt" in second
    assert third.startswith("UNJUDGED  3. hangs  ")
    assert not any(call.wants_json for call in server.calls), "no judge is asked"


def test_the_report_of_a_canceled_run_is_complete_as_json_and_on_record(
    server: ModelServer, tree: Tree, tasks: str
) -> None:
    with running(server, "run", "--file", tasks, "--format", "json") as process:
        _wait_until_running(server, tree)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    results = [TaskResult.model_validate(result) for result in json.loads(out)["results"]]
    assert [result.status for result in results] == ["completed", "cancelled", "cancelled"]
    assert (results[1].receipts.ok, results[1].receipts.timeout) == (1, 1)
    shown = subprocess.run([*warm.delegate(), "show", results[1].handle or ""], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "half-way there" in shown.stdout or "now the tests" in shown.stdout


def test_canceled_judging_is_a_fail_and_its_check_is_killed(server: ModelServer, tree: Tree) -> None:
    Path("report.txt").write_text(DONE)
    options = ["--goal", "x", "--report", "report.txt", "--workspace", str(tree.folder), "-c", f"shell: {tree.command}"]
    with running(server, "judge", *options) as process:
        tree.wait_until_up()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert tree.left() == []
    assert (process.returncode, err) == (3, f"{STOPPING}\n")
    assert out.startswith("FAIL  x\n")
    assert "  basis     cancelled, decided by nobody" in out


def test_the_second_signal_exits_at_once(server: ModelServer, tree: Tree, tasks: str, home: Path) -> None:
    with running(server, "run", "--file", tasks) as process:
        _wait_until_running(server, tree)
        with _locked(home / "records.sqlite3-lock"):  # so that the records can't be written
            process.send_signal(signal.SIGINT)
            assert _line(process.stderr) == STOPPING
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
            seconds = time.monotonic() - started
    assert (process.returncode, out) == (130, "")
    assert seconds < PATIENCE / 2
    assert tree.soon_gone()


def test_two_signals_at_once_leave_nothing_running(server: ModelServer, tree: Tree, tasks: str) -> None:
    with running(server, "run", "--file", tasks) as process:
        _wait_until_running(server, tree)
        # However long this test has to wait for a core between them, they are there at once.
        for sent in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(sent)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.endswith("delegate: interrupted\n")
    assert tree.soon_gone()


def test_a_live_display_restores_the_cursor_and_shows_every_result(
    server: ModelServer, tree: Tree, tasks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    try:
        with running(server, "run", "--file", tasks, stderr=theirs) as process:
            os.close(theirs)
            _wait_until_running(server, tree)
            process.send_signal(signal.SIGINT)
            shown = output_of(ours)
            out, _ = process.communicate(timeout=PATIENCE)
    finally:
        os.close(ours)
    assert process.returncode == 3
    assert out.startswith("PASS (seen)  1. quick  ")
    assert "stopping, and waiting" in shown
    assert "3 of 3 done" in shown
    assert "✗ cancelled" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"


def _line(stream: IO[str] | None) -> str:
    assert stream
    return stream.readline().rstrip("\n")


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_server_ends_by_a_signal_that_an_import_turns_into_an_error(home: Path, tmp_path: Path) -> None:
    # pydantic does so while it builds a model, and a server that goes on would never end.
    package = tmp_path / "packages"
    (package / "mcp-2.0.0.dist-info").mkdir(parents=True)
    (package / "mcp-2.0.0.dist-info" / "METADATA").write_text("Name: mcp\nVersion: 2.0.0\n")
    (package / "mcp.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    raise ValueError('no model can be built') from None\n"
    )
    path = os.pathsep.join((str(package), str(Path(__file__).parents[2])))
    command = [sys.executable, "-m", "delegate", "mcp"]
    with subprocess.Popen(
        command, stdin=-1, stdout=-1, stderr=-1, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as it:
        assert it.stderr
        assert it.wait(30) == 130
        assert it.stderr.read().endswith("delegate: interrupted\n")
