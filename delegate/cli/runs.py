"""`delegate runs`: the latest runs on record."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from delegate.batch.journal import BatchSummary
    from delegate.delegator import Delegator


def runs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many, the newest first.")] = 20,
    format: FormatOption = Format.pretty,
) -> None:
    """List the latest runs: when, how many tasks passed and failed, what they cost, and the first one's goal.

    A run is `running`, `ended`, or `outcome_unknown`: then the process that ran it is gone, and a task of it has no
    result. A batch may also be `stopped`, or `interrupted` when its process is gone: `delegate batch --resume RUN`
    goes on with it. `delegate show RUN` lists its tasks.
    """
    from delegate.cli.output import print_json, print_jsonl, refusals_as
    from delegate.cli.work import work
    from delegate.delegator import Delegator

    delegator = Delegator()
    with refusals_as(format):
        found = work(delegator, lambda _: _latest(delegator, limit))
    if format is Format.json:
        print_json([run._asdict() for run in found])
    elif format is Format.jsonl:
        print_jsonl(run._asdict() for run in found)
    else:
        _print(found)


async def _latest(delegator: "Delegator", limit: int) -> "list[_Line]":
    """Runs and batches. A batch is one run, of which the journal knows more: also what hasn't started."""
    batches = {batch.run_id: _of_batch(batch) for batch in await delegator.batches(limit)}
    runs = {run.run_id: _Line(*run) for run in await delegator.runs(limit)}
    return sorted((runs | batches).values(), key=lambda run: -run.began_at)[:limit]


class _Line(NamedTuple):
    """A run or a batch: see `records.RunSummary`."""

    run_id: str
    state: str
    began_at: float
    ended_at: float | None
    tasks: int
    passed: int
    failed: int
    other: int
    cost_usd: float | None
    goal: str


def _of_batch(batch: "BatchSummary") -> _Line:
    return _Line(
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


def _print(found: "Sequence[_Line]") -> None:
    from rich.text import Text

    from delegate._util.fencing import one_line
    from delegate.cli.output import console, slim_table
    from delegate.cli.transcript import when
    from delegate.contract.amounts import usd

    out = console()
    if not found:
        out.print("no runs are on record")
        return
    table = slim_table(out)
    for name in ("run", "began", "state", "tasks", "PASS", "FAIL", "other", "cost", "first goal"):
        justify = "right" if name in ("tasks", "PASS", "FAIL", "other", "cost") else "left"
        table.add_column(name, no_wrap=name != "first goal", overflow="fold", justify=justify)
    for run in found:
        counts = map(str, (run.tasks, run.passed, run.failed, run.other))
        cells = (run.run_id, when(run.began_at), run.state, *counts, usd(run.cost_usd))
        table.add_row(*map(Text, cells), Text(one_line(run.goal, 200)))
    out.print(table)
