"""`delegate runs`: lists the latest runs on record."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from delegate.batch.journal import BatchSummary
    from delegate.delegator import Delegator
    from delegate.records.history import RunSummary


def runs(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of runs to list.")
    ] = 20,
    format: FormatOption = Format.pretty,
) -> None:
    """List the latest runs: start, verdicts, cost and the goal of the first task.

    A run is `running`, `ended`, or `outcome_unknown` if its process was lost
    before every task had a result. A batch can also be `stopped`, or
    `interrupted` if its process was lost; resume it with `delegate batch
    --resume RUN`. `delegate show RUN` lists the tasks of a run. Wherever a run
    is named, its first characters are enough, and `last` is the latest one.
    """
    from delegate.cli.output import print_as_json, refusals_as
    from delegate.cli.work import work
    from delegate.delegator import Delegator

    delegator = Delegator()
    with refusals_as(format):
        lines = work(delegator, lambda _: _latest(delegator, limit))
    rows = [line._asdict() for line in lines]
    if not print_as_json(format, rows, rows):
        _print(lines)


async def _latest(delegator: "Delegator", limit: int) -> "list[RunSummary]":
    """The latest runs. The line of a batch comes from the journal, which also counts tasks that haven't started."""
    batches = {batch.run_id: _batch_line(batch) for batch in await delegator.batches(limit)}
    runs = {run.run_id: run for run in await delegator.runs(limit)}
    return sorted((runs | batches).values(), key=lambda run: -run.began_at)[:limit]


def _batch_line(batch: "BatchSummary") -> "RunSummary":
    from delegate.records.history import RunSummary

    return RunSummary(
        batch.run_id,
        batch.state,
        batch.began_at,
        batch.ended_at,
        batch.total,
        batch.passed,
        batch.failed,
        batch.total - batch.passed - batch.failed,
        None if batch.unpriced else batch.cost_known_usd,
        f"batch {batch.source}: {batch.title}",
    )


def _print(lines: "Sequence[RunSummary]") -> None:
    from rich.text import Text

    from delegate.cli.layout import Trimmed
    from delegate.cli.output import NARROW, VERY_ROOMY, add_title_column, console, slim_table, title
    from delegate.cli.recorded import short_ids
    from delegate.cli.transcript import when, when_shortly
    from delegate.contract.amounts import usd

    out = console()
    if not lines:
        out.print("no runs are on record")
        return
    full, narrow = out.width >= VERY_ROOMY, out.width < NARROW
    ids = short_ids([run.run_id for run in lines])
    table, left_out = slim_table(out), {"tasks"} if not full else set[str]()
    left_out |= {"started", "other"} if narrow else set()
    for name in ("run", "started", "state", "tasks", "PASS", "FAIL", "other", "cost"):
        if name not in left_out:
            table.add_column(name, no_wrap=True, justify="left" if name in ("run", "started", "state") else "right")
    add_title_column(table, "first goal")
    for run in lines:
        cells = {"run": run.run_id if full else ids[run.run_id]}
        cells |= {"started": when(run.began_at) if full else when_shortly(run.began_at), "state": run.state}
        cells |= {"tasks": str(run.tasks), "PASS": str(run.passed), "FAIL": str(run.failed), "other": str(run.other)}
        cells |= {"cost": usd(run.cost_usd)}
        table.add_row(*(Text(cell) for name, cell in cells.items() if name not in left_out), title(run.goal))
    out.print(Trimmed(table))
