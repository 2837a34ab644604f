"""The live tree that events build."""

import pytest
from rich.cells import cell_len
from rich.console import Console

from delegate.cli.screen.progress import RunProgress, live
from delegate.types.events import (
    CheckDone,
    ChildDone,
    ChildStarted,
    ChildTool,
    ChildToolStarted,
    ChildUsage,
    JudgeAsked,
    VerdictGiven,
)


def _shown(progress: RunProgress, width: int = 120) -> list[str]:
    console = Console(record=True, width=width, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(progress.tree())
    console.file.close()
    return console.export_text().splitlines()


def test_each_task_shows_what_it_is_doing_and_what_it_has_done() -> None:
    now = 100.0
    progress = RunProgress(["Fix the bug", "Write the notes"], clock=lambda: now)
    progress.show(ChildStarted(model="gpt-6-luna"))
    progress.show(ChildUsage())
    progress.show(ChildTool(tool="run_shell", status="denied"))
    now = 102.5
    head, first, second = _shown(progress)
    assert head == "delegate · 0 of 2 done"
    assert "1. Fix the bug  gpt-6-luna  1 call · 1 tool  2.5 s  run_shell (denied)" in first
    assert "2. Write the notes" in second
    assert "waiting" in second


def test_a_judged_task_shows_its_verdict_and_its_clock_stops() -> None:
    now = 0.0
    progress = RunProgress(["Fix the bug"], clock=lambda: now)
    progress.show(ChildStarted(model="gpt-6-luna"))
    progress.show(ChildDone(status="completed"))
    progress.show(CheckDone(id="c1", text="make", outcome="met"))
    progress.show(JudgeAsked(model="gpt-6-luna"))
    assert "asking gpt-6-luna to judge" in _shown(progress)[1]
    now = 3.0
    progress.show(VerdictGiven(verdict="FAIL"))
    now = 60.0
    head, only = _shown(progress)
    assert head == "delegate · 1 of 1 done"
    assert "✗ FAIL  1. Fix the bug" in only
    assert "checks 1/1  3.0 s" in only


def test_unannounced_tasks_get_a_branch_when_they_start() -> None:
    progress = RunProgress([])
    progress.show(ChildStarted(task_index=1, model="gpt-6-luna"))
    assert "2. task 2" in _shown(progress)[1]


def test_text_of_a_child_cannot_break_the_line_or_control_the_terminal() -> None:
    progress = RunProgress(["Fix\nthe bug"])
    progress.show(ChildStarted(model="gpt-6-luna"))
    progress.show(ChildUsage(text="one\ntwo \x1b[31m[bold]three[/bold]" + "x" * 300))
    head, only = _shown(progress, width=100)
    assert head == "delegate · 0 of 1 done"
    assert "1. Fix the bug" in only
    assert "one two [bold]three" in only
    assert len(only) <= 100


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("title", ["x" * 300, "word " * 60, "日本語" * 40, "👨‍👩‍👧 " * 60])
def test_the_step_and_the_seconds_are_never_cut(title: str, width: int) -> None:
    now = 0.0
    progress = RunProgress([title], clock=lambda: now)
    progress.show(ChildStarted(model="a-model-with-a-long-name-2026-11-22"))
    progress.show(ChildToolStarted(tool="run_tests", text="run_tests"))
    now = 1234.5
    _, only = _shown(progress, width)
    assert only.rstrip().endswith("  1234.5 s  run_tests")
    assert cell_len(only) <= width


def test_nothing_is_shown_if_stderr_is_not_a_terminal() -> None:
    with live(["a"]) as sink:
        assert sink is None
