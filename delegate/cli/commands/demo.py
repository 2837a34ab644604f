"""`delegate demo`: runs three small tasks that show what verdicts are for."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.cli.demo.script import DemoTask, demo_tasks, find_python_by_name, scripted
from delegate.cli.screen.layout import Prose, Trimmed
from delegate.cli.screen.output import NARROW, ROOMY, console, slim_table
from delegate.cli.screen.screens import word
from delegate.cli.work import work
from delegate.contract.amounts import percent
from delegate.delegator import Delegator
from delegate.policy.settings import Settings, load_settings
from delegate.types import RunResult, TaskResult
from delegate.types.money import usd

WIDTH = 100
"""Maximum width of the texts, and of the table if stdout isn't a terminal."""
SCRIPTED = (
    "The model replies in this demo are scripted, so it needs no API key and no network. Tools, files, checks, model "
    "selection and verdicts are real. Costs are those of the scripted texts at catalog prices."
)
SCRIPTED_SUMMARY = (
    "What this shows: the child of task 2 reported that all tests pass, but a check ran them and one failed. The judge "
    "of task 3 quoted text that is not in the evidence, so its decision did not count."
)
SCRIPTED_NEXT = "Next: `delegate demo --live`, or `delegate run 'your goal' -c 'shell: your check'`."
LIVE_SUMMARY = "What this shows: what your model reported, and what checks and a judge with evidence found."
LIVE_NEXT = "Next: `delegate run 'your goal' -c 'shell: your check'`."


def demo(
    live: Annotated[bool, typer.Option("--live", help="Run the tasks on your own model, which costs money.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --live: don't ask before spending.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep records and workspaces in DELEGATE_HOME.")] = False,
) -> None:
    """Run three small tasks on example files, with real tools, checks and verdicts.

    Without --live no model is called: the replies are scripted and everything
    else is real. Exits with 0 if the verdicts are PASS, FAIL and FAIL, as
    expected; with --live, if all three children completed.
    """
    find_python_by_name()
    with (
        nullcontext(load_settings().home)
        if keep
        else TemporaryDirectory(prefix="delegate-demo-", ignore_cleanup_errors=True) as folder
    ):
        home = Path(folder)
        good = _live(demo_tasks(), home, yes) if live else _scripted(demo_tasks(), home)
    raise typer.Exit(0 if good else 1)


def _scripted(demo_tasks: Sequence[DemoTask], home: Path) -> bool:
    """Run the tasks with scripted replies and the same settings everywhere, so that the verdicts are the same too.

    Also without a sandbox: no model wrote these commands, nor the files that they run.
    """
    _print_texts(SCRIPTED)
    run = _run(demo_tasks, Delegator(Settings(home=home, commands="allow"), client=scripted(demo_tasks)))
    _print_table(demo_tasks, run)
    _print_texts(SCRIPTED_SUMMARY, SCRIPTED_NEXT)
    good = True
    for demo_task, result in zip(demo_tasks, run.results, strict=True):
        actual = (result.verdict.verdict, result.verdict.code) if result.verdict else ("no verdict", "")
        if actual != demo_task.expected:
            good = False
            print(f"Unexpected: {demo_task.title} is {' '.join(actual)} instead of {' '.join(demo_task.expected)}.")
    return good


def _live(demo_tasks: Sequence[DemoTask], home: Path, yes: bool) -> bool:
    from delegate.cli.demo.live import announce, own_model  # loads an HTTP client

    delegator = Delegator(own_model(home))
    announce(delegator, len(demo_tasks), sure=yes)
    run = _run(demo_tasks, delegator)
    _print_table(demo_tasks, run)
    _print_texts(LIVE_SUMMARY, LIVE_NEXT)
    return all(result.status == "completed" for result in run.results)


def _run(demo_tasks: Sequence[DemoTask], delegator: Delegator) -> RunResult:
    """Run the tasks through `run`. `call` is for parent models, which can't name folders of this machine and, without
    a sandbox, can't use shell criteria.
    """
    titles, tasks = [one.title for one in demo_tasks], [one.task for one in demo_tasks]
    return work(delegator, lambda sink: delegator.run(*tasks, on_event=sink), titles=titles)


def _print_texts(*texts: str) -> None:
    out = console(pipe_width=WIDTH)
    for text in texts:
        out.print(Prose(Text(text)), width=min(out.width, WIDTH))


def _print_table(demo_tasks: Sequence[DemoTask], run: RunResult) -> None:
    out = console(pipe_width=WIDTH)
    table, roomy, narrow = slim_table(out), out.width >= ROOMY, out.width < NARROW
    table.add_column("task", max_width=None if roomy else 10)
    table.add_column("verdict", no_wrap=True)
    table.add_column("reason", overflow="fold")
    if not narrow:
        table.add_column("judge", no_wrap=True)
    for name in ("tokens", "cost", "sec") if roomy else ("cost",):
        table.add_column(name, justify="right", no_wrap=True)

    def numbers(tokens: int, cost: float | None, seconds: float) -> list[str]:
        return [f"{tokens:,}", usd(cost), f"{seconds:.1f}"] if roomy else [usd(cost)]

    for demo_task, result in zip(demo_tasks, run.results, strict=True):
        judge = result.verdict.judge if result.verdict else None
        tokens = result.usage.total_tokens + (judge.usage.total_tokens if judge else 0)
        table.add_row(
            Text(f"{result.task_index + 1}. {demo_task.title}"),
            word(result.verdict),
            Text(_reason(result)),
            *([] if narrow else [judge.model if judge and judge.model else "none"]),
            *numbers(tokens, result.cost_usd, result.seconds),
        )
    totals = run.totals
    tokens = totals.child_usage.total_tokens + totals.judge_usage.total_tokens
    share = totals.verification_share
    headline = f"verification {percent(share)} of the cost" if share is not None else ""
    table.add_section()
    table.add_row("total", "", headline, *([] if narrow else [""]), *numbers(tokens, totals.cost_usd, totals.seconds))
    out.print("", Trimmed(table), "", sep="\n")


def _reason(result: TaskResult) -> str:
    """The code of the verdict and the reason for it, preceded by the status if the child didn't complete."""
    verdict, status = result.verdict, "" if result.status == "completed" else f"{result.status}, "
    if verdict is None:
        return f"{status}no criteria"
    failed = [one.reason for one in verdict.criteria if one.code == verdict.code and verdict.verdict == "FAIL"]
    reason = failed[0] if failed else verdict.reasoning
    label = "" if verdict.code in ("met", "not_met") else f"{verdict.code}: "
    return f"{status}{label}{one_line(reason, 200)}"
