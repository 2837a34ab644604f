"""Programs of a child that start delegate again: real processes, which share a run by its file."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from delegate.budget import shared
from delegate.budget.ledger import Window
from delegate.budget.nested import PARENT, child_environment, joined
from delegate.budget.runs import Run, RunContext, current_context, use_context
from delegate.policy.settings import Settings, load_settings
from delegate.types.errors import BudgetExceeded, ConfigError
from tests.support import warm

ROOT = Path(__file__).parents[2]
SPEND = """
import os, sys
from delegate.budget.ledger import Window
from delegate.budget.nested import joined
from delegate.budget.runs import current_context
with joined(os.environ):
    context = current_context()
    reservation = context.ledger.reserve({"children": 2, "tokens": 1_000})
    if "die" in sys.argv:
        os._exit(9)
    reservation.settle({"children": 2, "tokens": 100})
    print(context.depth, context.tier, context.run.id, context.run.next_handle(), context.run.settings.max_depth)
"""


def child(max_run_tokens: int | None = None) -> RunContext:
    """A child at depth 1 of a new run."""
    run = Run(load_settings(max_depth=3, max_children=5, max_run_tokens=max_run_tokens))
    run.next_handle()
    return RunContext(run, run.ledger, depth=1, tier="standard")


def marked(context: RunContext) -> dict[str, str]:
    with use_context(context):
        return child_environment()


def spend(mark: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that a child's program started, which joins the run and spends from it."""
    command = [*warm.python(), "-c", SPEND, *arguments]
    return subprocess.run(command, env={**os.environ, **mark}, capture_output=True, text=True)


def test_what_another_process_spends_counts_in_the_run() -> None:
    context = child(max_run_tokens=2_000)
    mark = marked(context)
    context.ledger.reserve({"tokens": 50}).settle({"tokens": 50})
    ended = spend(mark)
    assert ended.stdout.split() == ["1", "standard", context.run.id, f"{context.run.id}-1", "3"], ended.stderr
    assert context.ledger.left("children") == 3
    assert context.ledger.left("tokens") == 1_850
    assert context.run.next_handle() == f"{context.run.id}-2"


def test_what_another_process_spent_is_free_again_after_the_window() -> None:
    now = 0.0
    context = child(max_run_tokens=2_000)
    context.run.ledger.window = Window(60, lambda: now)
    mark = marked(context)
    assert spend(mark).returncode == 0
    assert context.ledger.left("tokens") == 1_900
    now = 61.0
    assert (context.ledger.left("tokens"), context.ledger.left("children")) == (2_000, 5)
    assert spend(mark).returncode == 0
    assert (context.ledger.left("tokens"), context.ledger.left("children")) == (1_900, 3)


def test_what_the_run_has_spent_is_used_up_in_the_other_process() -> None:
    context = child()
    mark = marked(context)
    context.ledger.reserve({"children": 4}).settle({"children": 4})
    ended = spend(mark)
    assert "BudgetExceeded: the next step exceeds the limit children: 4 of 5 spent" in ended.stderr


def test_a_limit_that_nobody_has_set_holds_in_the_other_process_too() -> None:
    context = child()
    context.run.limit_calls_of_models()
    context.ledger.reserve({"cost_usd": 1.5}).settle({"cost_usd": 1.5})
    program = SPEND.partition("    reservation")[0] + (
        "    print(context.ledger.left('cost_usd'), context.ledger.is_limited('cost_usd'), context.run.ledger.defaults)"
    )
    ended = subprocess.run(
        [*warm.python(), "-c", program], env={**os.environ, **marked(context)}, capture_output=True, text=True
    )
    assert ended.stdout == "3.5 False {'cost_usd': 'default_max_cost_usd'}\n", ended.stderr


def test_what_a_killed_process_had_reserved_stays_used_up() -> None:
    context = child(max_run_tokens=2_000)
    assert spend(marked(context), "die").returncode == 9
    assert context.ledger.left("tokens") == 1_000


def test_two_processes_never_reserve_more_than_the_limit_at_once() -> None:
    context = child()
    env = {**os.environ, **marked(context)}
    started = [
        subprocess.Popen([*warm.python(), "-c", SPEND], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    ended = [(process.communicate()[1], process.returncode) for process in started]
    assert sorted(code for _, code in ended) == [0, 0, 1], ended
    assert context.ledger.left("children") == 1


def test_a_program_that_passes_no_variables_on_is_found_above(home: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    context = child()
    bare = {"PYTHONPATH": str(ROOT)}
    inner = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPEND!r}], env={bare}, check=True)"
    env = {**os.environ, **marked(context)}
    subprocess.run([sys.executable, "-c", inner], env=env, check=True, stdout=subprocess.DEVNULL)
    assert context.ledger.left("children") == 3


def test_outside_of_a_child_nothing_is_marked_or_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(load_settings())
    assert child_environment() == {}
    assert marked(RunContext(run, run.ledger)) == {}
    monkeypatch.setenv(PARENT, "")  # a run of its own, wherever the tests run
    with joined(os.environ):
        assert current_context() is None


@pytest.mark.parametrize("mark", ["1:fast:/nowhere/run.json", "1", ":::", "1:fast:FILE", "one:fast:RUN"])
def test_a_run_that_cannot_be_joined_is_refused(mark: str, tmp_path: Path) -> None:
    context = child()
    (tmp_path / "broken.json").write_text('{"limits": {"max_children": "many"}, "ends_at": null, "batch": false}')
    real = marked(context)[PARENT].rpartition(":")[2]
    mark = mark.replace("FILE", str(tmp_path / "broken.json")).replace("RUN", real)
    with pytest.raises(ConfigError, match=r"run can't be joined: .*; set DELEGATE_PARENT to nothing"):
        joined({PARENT: mark})


@pytest.mark.parametrize("content", ["", "[]", '{"amounts": 1}', '{"amounts": {"children": "x"}}', "\0" * 100])
def test_a_file_that_a_child_has_damaged_does_not_end_the_run(content: str) -> None:
    context = child()
    Path(marked(context)[PARENT].rpartition(":")[2]).write_text(content)
    context.ledger.reserve({"children": 2}).settle({"children": 2})
    assert context.ledger.left("children") == 3
    context.run.next_handle()
    with pytest.raises(BudgetExceeded):
        context.ledger.reserve({"children": 4})


def test_a_file_that_a_child_keeps_locked_holds_the_run_up_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    context = child()
    monkeypatch.setattr(shared, "_LOCK_SECONDS", 0.05)
    with Path(marked(context)[PARENT].rpartition(":")[2]).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        started = time.monotonic()
        for _ in range(100):
            context.ledger.left("children")
        assert time.monotonic() - started < 1


def test_the_file_ends_with_its_run() -> None:
    context = child()
    path = Path(marked(context)[PARENT].rpartition(":")[2])
    assert json.loads(path.read_text())["limits"]["max_depth"] == 3
    del context
    assert not path.exists()


def test_a_batch_gives_each_of_its_tasks_the_children_of_a_run() -> None:
    run = Run(Settings(max_depth=2, max_children=5), concurrent=2)
    mark = marked(RunContext(run, run.ledger, depth=1).for_one_task(run.settings))
    assert [spend(mark).returncode for _ in range(3)] == [0, 0, 0], "of two children each"


@pytest.mark.slow
def test_three_levels_of_the_command_are_one_run_and_the_fourth_is_refused(home: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.sh"
    delegate = f"PYTHONPATH={ROOT} {sys.executable} -m delegate run next --runner 'sh {again}'"
    again.write_text(f"cat > {os.devnull}\n{delegate} 2>&1\ntrue\n")
    env = {**os.environ, "DELEGATE_MAX_DEPTH": "3", "PYTHONPATH": str(ROOT)}
    top = subprocess.run(delegate, shell=True, env=env, capture_output=True, text=True)
    assert "a child at depth 3 can't delegate: the setting max_depth (DELEGATE_MAX_DEPTH)" in " ".join(
        top.stdout.split()
    )
    listed = [sys.executable, "-m", "delegate", "runs", "--format", "json"]
    runs = json.loads(subprocess.run(listed, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(runs) == 1
    assert not list((home / "runs").iterdir())
