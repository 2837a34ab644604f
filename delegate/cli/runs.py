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
    --resume RUN`. `delegate show RUN` lists the tasks of a run.
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

    from delegate._util.fencing import one_line
    from delegate.cli.output import console, slim_table
    from delegate.cli.transcript import when
    from delegate.contract.amounts import usd

    out = console()
    if not lines:
        out.print("no runs are on record")
        return
    table = slim_table(out)
    for name in ("run", "started", "state", "tasks", "PASS", "FAIL", "other", "cost", "first goal"):
        justify = "right" if name in ("tasks", "PASS", "FAIL", "other", "cost") else "left"
        table.add_column(name, no_wrap=name != "first goal", overflow="fold", justify=justify)
    for run in lines:
        counts = map(str, (run.tasks, run.passed, run.failed, run.other))
        cells = (run.run_id, when(run.began_at), run.state, *counts, usd(run.cost_usd))
        table.add_row(*map(Text, cells), Text(one_line(run.goal, 200)))
    out.print(table)
