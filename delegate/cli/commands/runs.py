"""`delegate runs`: lists the latest runs on record."""

import sqlite3
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from delegate.batch import journal
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.recorded import short_ids
from delegate.cli.screen.layout import Trimmed
from delegate.cli.screen.output import (
    NARROW,
    VERY_ROOMY,
    add_title_column,
    console,
    print_as_json,
    refusals_as,
    slim_table,
    title,
)
from delegate.cli.screen.transcript import when_shortly
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.pages.amounts import when
from delegate.policy.settings import load_settings
from delegate.records import history, recovery
from delegate.records.history import RunSummary
from delegate.records.recovery import Recovery
from delegate.records.sqlite import trouble_of
from delegate.types.errors import ConfigError
from delegate.types.money import rough_usd


def runs(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of runs to list.")
    ] = 20,
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Check the files of all records, and save what can be read of damaged ones."),
    ] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """List the latest runs: start, verdicts, cost and the goal of the first task.

    A run is `running`, `ended`, or `outcome_unknown` if its process was lost
    before every task had a result. A batch can also be `stopped`, or
    `interrupted` if its process was lost; resume it with `delegate batch
    --resume RUN`. It is `damaged` if something on record of it can't be read;
    the command exits with 1 then. `delegate show RUN` lists the tasks of a run. Wherever a run
    is named, its first characters are enough, and `last` is the latest one.

    --recover lists nothing. It replaces a damaged file of records by a new one
    with all that can be read of it, and keeps the damaged one. It exits with 1
    if anything was lost.
    """
    with refusals_as(format):
        if recover:
            _recover(format)
            return
        delegator = Delegator()
        lines = work(delegator, lambda _: _latest(delegator, limit))
    rows = [line._asdict() for line in lines]
    if not print_as_json(format, rows, rows):
        _print(lines)
    if any(line.state == "damaged" for line in lines):
        raise typer.Exit(1)


def _recover(format: Format) -> None:
    home, recoveries = load_settings().home, list[Recovery]()
    for path, schema in ((home / "records.sqlite3", history.SCHEMA), (home / "batches.sqlite3", journal.SCHEMA)):
        try:
            result = recovery.recover(path, schema)
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"{path} can't be recovered: {trouble_of(error, path)}") from error
        recoveries += [] if result is None else [result]
    rows = [row._asdict() for row in recoveries]
    if not print_as_json(format, rows, rows):
        print("\n".join(map(_recovery_line, recoveries)) or f"there are no records in {home}")
    if any(row.lost or row.tables_cut for row in recoveries):
        raise typer.Exit(1)


def _recovery_line(recovery: Recovery) -> str:
    if not recovery.damage:
        return f"{recovery.path} is whole"
    losses = [f"up to {recovery.lost:,} are lost"] if recovery.lost else []
    losses += [f"an unknown number is lost of {', '.join(recovery.tables_cut)}"] if recovery.tables_cut else []
    result = f"{recovery.rows:,} rows were saved, {' and '.join(losses) or 'none is lost'}"
    more = "" if recovery.rows else f"; try `sqlite3 {recovery.kept_as} .recover`, which may show single rows"
    damage = f"{recovery.path} was damaged ({recovery.damage})"
    return f"{damage}: {result}; the damaged file is kept as {recovery.kept_as}{more}"


async def _latest(delegator: Delegator, limit: int) -> list[RunSummary]:
    """The latest runs. The line of a batch comes from the journal, which also counts tasks that haven't started."""
    runs = {run.run_id: run for run in await delegator.records.runs(limit)}
    for batch in await delegator.batches.latest(limit):
        other, cost = batch.total - batch.passed - batch.failed, None if batch.unpriced else batch.cost_known_usd
        counts = (batch.total, batch.passed, batch.failed, other)
        times, goal = (batch.began_at, batch.ended_at), f"batch {batch.source}: {batch.title}"
        runs[batch.run_id] = RunSummary(batch.run_id, batch.state, *times, *counts, cost, goal, batch.estimated)
    return sorted(runs.values(), key=lambda run: -run.began_at)[:limit]


def _print(lines: Sequence[RunSummary]) -> None:
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
        cells |= {"cost": rough_usd(run.cost_usd, estimated=run.estimated)}
        table.add_row(*(Text(cell) for name, cell in cells.items() if name not in left_out), title(run.goal))
    out.print(Trimmed(table))
