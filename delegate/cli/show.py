"""`delegate show`: prints the record of a task, or the tasks of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from delegate.delegator import Delegator
    from delegate.records.history import TaskSummary
    from delegate.types import JsonObject, Receipt


def show(
    handle: Annotated[str, typer.Argument(help="The handle of a task, such as 1f2e3d4c5b6a-0, or the id of a run.")],
    transcript: Annotated[
        bool,
        typer.Option("--transcript", help="Also print every model reply, tool call, check and verdict."),
    ] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """Print the record of a task with its verdict, full report and tool calls, or the tasks of a run.

    For a task that is running, or whose process was lost (outcome_unknown), it
    prints what is recorded so far. The JSON formats always contain the
    transcript.
    """
    from delegate.cli.output import print_as_json, refusals_as
    from delegate.cli.work import work
    from delegate.delegator import Delegator

    delegator = Delegator()
    with refusals_as(format):
        record, tasks = work(delegator, lambda _: _find(delegator, handle))
    rows = [task._asdict() for task in tasks]
    if print_as_json(format, record or rows, None if record else rows):
        return
    if record:
        _print_task(record, transcript=transcript)
    else:
        _print_run(tasks)


async def _find(delegator: "Delegator", handle: str) -> "tuple[JsonObject | None, Sequence[TaskSummary]]":
    """The record of a task, or the tasks of a run. Raises CallError if there is neither."""
    from delegate.errors import CallError

    record = await delegator.read(handle)
    tasks = [] if record else await delegator.tasks(handle)
    if not record and not tasks:
        hint = "use a handle or run id from `delegate runs`; records are stored in DELEGATE_HOME"
        raise CallError("unknown_handle", f"there is no record {handle!r}", hint=hint)
    return record, tasks


def _print_task(record: "JsonObject", *, transcript: bool) -> None:
    from rich.text import Text

    from delegate.cli.output import console, slim_table, task_text
    from delegate.cli.transcript import receipts, transcript_lines
    from delegate.types import ChildRun, TaskResult

    out = console()
    if record["result"]:
        run, result = ChildRun.model_validate(record["run"]), TaskResult.model_validate(record["result"])
        out.print(task_text(result, record["task"]["goal"], full_report=run.output), soft_wrap=True)
    else:
        out.print(_unfinished(record), soft_wrap=True)
    if transcript:
        out.print(Text("\n").join(transcript_lines(record)), soft_wrap=True)
    elif calls := receipts(record):
        out.print(_receipts(calls, slim_table(out)))


def _unfinished(record: "JsonObject") -> "Text":
    """What is recorded of a task without a result."""
    from rich.text import Text

    from delegate._util.fencing import one_line
    from delegate.cli.transcript import latest_text, when

    running = record["state"] == "running"
    head = Text("RUNNING" if running else "OUTCOME UNKNOWN", "bold yellow")
    lines = [head.append("  ").append(one_line(record["task"]["goal"], 100), "bold")]
    if running:
        lines.append(Text(f"  running since {when(record['began_at'])}"))
    else:
        lines.append(
            Text(f"  started {when(record['began_at'])} by a process that was lost, and may have done anything")
        )
        lines.append(Text("  it is not run again automatically"))
    if record["workspace"]:
        lines.append(Text("  workspace ").append(one_line(record["workspace"], 400)))
    if text := latest_text(record):
        lines.append(Text("  last text: ", "dim").append(one_line(text, 400)))
    return Text("\n").join(lines).append("\n")


def _receipts(calls: "Sequence[Receipt]", table: "Table") -> "Table":
    import json

    from rich.text import Text

    from delegate._util.fencing import one_line

    for name in ("n", "tool", "status", "arguments", "answer", "bytes", "sec"):
        table.add_column(name, no_wrap=name in ("n", "bytes", "sec"), overflow="fold")
    for one in calls:
        args = one_line(json.dumps(one.args, ensure_ascii=False), 60)
        cells = (str(one.n), one.tool, one.status, args, one_line(one.output, 60), str(one.output_bytes))
        table.add_row(*(Text(one_line(cell, 60)) for cell in cells), f"{one.seconds:.2f}")
    return table


def _print_run(tasks: "Sequence[TaskSummary]") -> None:
    from rich.text import Text

    from delegate._util.fencing import one_line
    from delegate.cli.output import console, slim_table
    from delegate.cli.transcript import when
    from delegate.contract.amounts import usd

    out = console()
    table = slim_table(out)
    for name in ("handle", "started", "state", "verdict", "cost", "goal"):
        table.add_column(name, no_wrap=name != "goal", overflow="fold", justify="right" if name == "cost" else "left")
    for task in tasks:
        indent = "  " * (task.depth - tasks[0].depth)
        state = task.status if task.state == "ended" and task.status else task.state
        cells = (indent + task.handle, when(task.began_at), state, task.verdict or "-", usd(task.cost_usd))
        table.add_row(*map(Text, cells), Text(one_line(task.goal, 200)))
    out.print(table)
