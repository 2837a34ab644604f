"""`delegate demo`: three tasks that show what a verdict is worth."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from delegate.cli.demo_script import DemoTask
    from delegate.delegator import Delegator
    from delegate.types import Report, TaskResult

_RULES = re.compile(r"[-=]{4,}")
"""Lines drawn by test runners: no use in a table's cell."""
SCRIPTED = (
    "The models' words alone come from a script (delegate's `scripted` provider): no key, no network. Tools, files, "
    "checks, routing and verdicts are real; tokens and costs are what these words would cost at catalog prices."
)


def demo(
    live: Annotated[bool, typer.Option("--live", help="Run the tasks on your own model, which costs money.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --live: don't ask before spending.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep records and workspaces, in DELEGATE_HOME.")] = False,
) -> None:
    """Run a batch of three small tasks on shipped files, side by side, with real tools, checks and verdicts.

    Without --live no model is called: the words are scripted, everything else is real. Exits with 0 when the verdicts
    are PASS, FAIL, FAIL, as they must be; with --live, when all three children completed.
    """
    from delegate.cli.demo_script import demo_tasks, find_python_by_name

    find_python_by_name()
    with _home(keep) as home:
        good = _live(demo_tasks(), home, yes) if live else _scripted(demo_tasks(), home)
    raise typer.Exit(0 if good else 1)


@contextmanager
def _home(keep: bool) -> "Generator[Path]":
    """Where the demo's records and workspaces lie; by default a folder that is gone afterwards."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from delegate.settings import load_settings

    if keep:
        yield load_settings().home
        return
    with TemporaryDirectory(prefix="delegate-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _scripted(demo_tasks: "Sequence[DemoTask]", home: "Path") -> bool:
    """Play the scenes, with the default settings whatever is set here, so that they end alike everywhere."""
    from delegate.cli.demo_script import scripted
    from delegate.delegator import Delegator
    from delegate.settings import Settings

    print(SCRIPTED, flush=True)
    report = _run(demo_tasks, Delegator(Settings(home=home), client=scripted(demo_tasks)))
    _print_table(demo_tasks, report)
    print(
        'Shown: a claim is no proof. Child 2 said "all tests pass" and a check proved otherwise; the judge of task 3 '
        "quoted evidence that isn't there, so its word didn't count."
    )
    print("Next: `delegate demo --live` on your own model, or `delegate run 'your goal' -c 'shell: your check'`.")
    return _as_expected(demo_tasks, report)


def _live(demo_tasks: "Sequence[DemoTask]", home: "Path", yes: bool) -> bool:
    from delegate.cli.demo_live import announce, own_model
    from delegate.delegator import Delegator

    delegator = Delegator(own_model(home))
    announce(delegator, len(demo_tasks), sure=yes)
    report = _run(demo_tasks, delegator)
    _print_table(demo_tasks, report)
    print("Shown: what your model did, and what a check or a judge with evidence says of it.")
    print("Next: `delegate run 'your goal' -c 'shell: your check'`.")
    return all(result.status == "completed" for result in report.results)


def _run(demo_tasks: "Sequence[DemoTask]", delegator: "Delegator") -> "Report":
    """One batch. It goes through `run` and not through `call`, the door for parent models, because those can neither
    name folders of this machine nor, where there is no sandbox, write shell criteria.
    """
    from delegate.cli.work import work

    titles = [scene.title for scene in demo_tasks]
    tasks = [scene.task for scene in demo_tasks]
    return work(delegator, lambda sink: delegator.run(*tasks, on_event=sink), titles=titles)


def _as_expected(demo_tasks: "Sequence[DemoTask]", report: "Report") -> bool:
    good = True
    for scene, result in zip(demo_tasks, report.results, strict=True):
        verdict = result.verdict
        got = (verdict.verdict, verdict.code) if verdict else ("no verdict", "")
        if got != scene.expected:
            good = False
            print(f"Not as expected: {scene.title} ended as {' '.join(got)}, not as {' '.join(scene.expected)}.")
    return good


def _print_table(demo_tasks: "Sequence[DemoTask]", report: "Report") -> None:
    from delegate.cli.output import ROOMY, console, slim_table
    from delegate.contract.amounts import percent, usd

    out = console()
    table = slim_table(out)
    narrow = out.width < ROOMY
    table.add_column("task", max_width=10 if narrow else None)
    for name in ("status", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    table.add_column("judge", max_width=12 if narrow else None, overflow="fold")
    for name in ("tokens", "cost", "sec"):
        table.add_column(name, justify="right", no_wrap=True)
    for scene, result in zip(demo_tasks, report.results, strict=True):
        _add_row(table, scene.title, result)
    table.add_section()
    totals = report.totals
    tokens = totals.child_usage.total_tokens + totals.judge_usage.total_tokens
    share = totals.verification_share
    headline = f"verification {percent(share)} of the cost" if share is not None else ""
    table.add_row("together", "", "", headline, "", f"{tokens:,}", usd(totals.cost_usd), f"{totals.seconds:.1f}")
    out.print("", table, "", sep="\n")


def _add_row(table: "Table", title: str, result: "TaskResult") -> None:
    from rich.text import Text

    from delegate.cli.output import word
    from delegate.contract.amounts import usd

    judge = result.verdict.judge if result.verdict else None
    tokens = result.usage.total_tokens + (judge.usage.total_tokens if judge else 0)
    table.add_row(
        Text(f"{result.task_index + 1}. {title}"),
        Text(result.status),
        word(result.verdict),
        Text(_why(result)),
        Text(judge.model if judge and judge.model else "none asked"),
        f"{tokens:,}",
        usd(result.cost_usd),
        f"{result.seconds:.1f}",
    )


def _why(result: "TaskResult") -> str:
    """The verdict's code, and the reason of the criterion that decided."""
    from delegate._util.fencing import one_line

    verdict = result.verdict
    if verdict is None:
        return "no criteria"
    deciding = [one.reason for one in verdict.criteria if one.code == verdict.code and verdict.verdict == "FAIL"]
    reason = deciding[0] if deciding else verdict.reasoning
    return f"{verdict.code}\n{one_line(_RULES.sub('', reason), 200)}"
