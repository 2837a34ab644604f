"""`delegate show`: prints the record of a task, or the tasks of a run."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.cli import PROGRAM
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.recorded import RunArgument, attempts_of, find, numbers, short_ids
from delegate.cli.screen.layout import Prose, Screen, Trimmed, row
from delegate.cli.screen.output import (
    VERY_ROOMY,
    add_title_column,
    console,
    print_as_json,
    refusals_as,
    slim_table,
    title,
)
from delegate.cli.screen.screens import record_screen, task_screen
from delegate.cli.screen.transcript import approvals, transcript_lines
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.pages.amounts import when
from delegate.pages.reading import paged
from delegate.pages.tasks import latest_text, recorded_calls
from delegate.records.history import TaskSummary
from delegate.types import ChildRun, JsonObject, Receipt, TaskResult
from delegate.types.money import rough_usd

ROWS, SCREENS = 100, 20
"""How many tasks a page has: in a table, and with the reasons of each."""
_ROW_CHARS = 20


def show(
    run: RunArgument,
    number: Annotated[int | None, typer.Argument(metavar="N", min=1, help="The number of a task of the run.")] = None,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Also print every model reply, tool call, check and verdict.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only the tasks of the run that didn't pass, with the reasons.")
    ] = False,
    attempts: Annotated[
        bool,
        typer.Option(
            "--attempts", help="Also attempts that weren't chosen, and rows of a batch that were run again since."
        ),
    ] = False,
    page: Annotated[
        int | None, typer.Option("--page", min=1, metavar="N", help="Which page of a run with many tasks. [default: 1]")
    ] = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Print the record of a task with its verdict, full report and tool calls, or the tasks of a run.

    `delegate show last` shows the latest run, `delegate show last 2` its second
    task. For a task that is running, or whose process was lost
    (outcome_unknown), it prints what is recorded so far. The JSON formats
    always contain the transcript, and all tasks of a run unless a --page is
    given.
    """
    delegator, pretty = Delegator(), format is Format.pretty

    async def printer() -> Callable[[], object]:
        """What prints that which is named. For people, a run of one task is this task, and one of many is a page of
        them.
        """
        record, tasks = await find(delegator, run, number, attempts=attempts)
        positions = numbers(tasks)
        if record is None and pretty and not failed and len(tasks) == 1:
            record = await delegator.records.read(tasks[0].handle)
        if record is not None:
            n = positions.get(record["handle"]) if len(positions) > 1 else None
            printed = partial(_print_task, record, n, transcript=transcript)
            return printed if pretty else partial(print_as_json, format, record)
        if failed:
            ended = (task for task in tasks if task.handle in positions and task.state != "running")
            tasks = [task for task in ended if task.verdict == "FAIL" or task.status != "completed"]
        if failed or len(positions) == len(tasks):
            tasks = sorted(tasks, key=lambda task: positions[task.handle])
        rest = ""
        if pretty or page is not None:
            more = f"{PROGRAM} show {run}{' --failed' if failed else ''}{' --attempts' if attempts else ''}"
            tasks, rest = _page(tasks, page or 1, SCREENS if failed else ROWS, more)
        if not pretty:
            documents = [task._asdict() for task in tasks]
            return partial(print_as_json, format, documents, documents)
        if failed:
            records = {positions[task.handle]: await delegator.records.read(task.handle) or {} for task in tasks}
            return partial(_print_failed, records, run, rest)
        rows, others = await attempts_of(delegator, tasks)
        return partial(_print_run, tasks, positions, rows | others, rest)

    with refusals_as(format):
        work(delegator, lambda _: printer())()


def _page(tasks: Sequence[TaskSummary], page: int, length: int, command: str) -> tuple[Sequence[TaskSummary], str]:
    """The tasks of a page, and what to say below them."""
    shown, pages = paged(tasks, page, length)
    if pages.of == 1:
        return shown, ""
    passes = sum(task.verdict == "PASS" for task in tasks)
    passed = f", {passes:,} of them PASS" if passes else ""
    rest = f"{pages.first:,} to {pages.last:,} of {pages.tasks:,} tasks{passed}"
    return shown, rest + (f"; the next: {command} --page {page + 1}" if page < pages.of else "")


def _print_task(record: JsonObject, number: int | None, *, transcript: bool) -> None:
    out = console()
    if record["result"]:
        run, result = ChildRun.model_validate(record["run"]), TaskResult.model_validate(record["result"])
        out.print(record_screen(result, record["task"]["goal"], number=number, report=run.report))
    else:
        out.print(_unfinished(record))
    answered = {event["n"]: event["outcome"] for event in record["events"] if event["kind"] == "question.answered"}
    for one in (event for event in record["events"] if event["kind"] == "question.asked"):
        outcome = answered.get(one["n"], "open").replace("_", " ")
        out.print(Text.assemble(("question ", "dim"), outcome, ": ", one_line(one["text"], 400)))
    for one in record["messages"]:
        kind = "answer " if one["is_answer"] else "message "
        out.print(Text.assemble((kind, "dim"), one["state"].replace("_", " "), ": ", one_line(one["text"], 400)))
    if lines := approvals(record):
        out.print()
        out.print(Text("\n").join((Text("approvals:", "dim"), *lines)), soft_wrap=True)
    if transcript:
        out.print()
        out.print(Text("\n").join(transcript_lines(record)), soft_wrap=True)
    elif calls := recorded_calls(record):
        out.print("", Trimmed(_receipts(calls, slim_table(out))), sep="\n")


def _print_failed(records: Mapping[int, JsonObject], run: str, rest: str) -> None:
    """The short screen of each failed task, given with its number in the run. `rest` says how to see the others."""
    out = console()
    if not records:
        out.print("no task of this run failed")
    for n, record in records.items():
        if n != min(records):
            out.print()
        if record.get("result"):
            result, more = TaskResult.model_validate(record["result"]), f"{PROGRAM} show {run} {n}"
            out.print(task_screen(result, record["task"]["goal"], number=n, more=more))
        else:
            out.print(_unfinished(record))
    _print_rest(rest)


def _print_rest(rest: str) -> None:
    if rest:
        console().print("", Prose(Text(rest, "dim")), sep="\n")


def _unfinished(record: JsonObject) -> Screen:
    """What is recorded of a task without a result."""
    running = record["state"] == "running"
    head = Text.assemble(("RUNNING" if running else "OUTCOME UNKNOWN", "bold yellow"))
    if running:
        rows = [row("since", when(record["began_at"]))]
    else:
        start = f"{when(record['began_at'])} by a process that was lost, and may have done anything"
        rows = [row("started", start), row("", "it is not run again automatically")]
        if record["workspace"]:
            rows.append(row("go on", f"{PROGRAM} run --resume {one_line(record['handle'], 80)}"))
    if record["workspace"]:
        rows.append(row("folder", one_line(record["workspace"], 400)))
    for claim in (event for event in record["events"] if event["kind"] == "claim.judged"):
        how = "verified" if claim["verdict"] == "PASS" else f"refused: {claim['code']}"
        rows.append(row(f"claim {claim['n']}", one_line(claim["rationale"], 400), how))
    if text := latest_text(record["events"]):
        rows.append(row("said", one_line(text, 400)))
    return Screen(head.append("  ").append(one_line(record["task"]["goal"], 200), "bold"), "", rows)


def _receipts(calls: Sequence[Receipt], table: Table) -> Table:
    for name in ("n", "tool", "status"):
        table.add_column(name, no_wrap=True, justify="right" if name == "n" else "left")
    for name in ("arguments", "answer"):
        add_title_column(table, name)
    for name in ("bytes", "sec"):
        table.add_column(name, no_wrap=True, justify="right")
    for call in calls:
        cells = (str(call.n), one_line(call.tool, 30), call.status)
        args = title(json.dumps(call.args, ensure_ascii=False))
        table.add_row(*map(Text, cells), args, title(call.output), str(call.output_bytes), f"{call.seconds:.2f}")
    return table


def _print_run(tasks: Sequence[TaskSummary], positions: Mapping[str, int], ids: Mapping[str, str], rest: str) -> None:
    """A table of the tasks, those that children delegated indented and without a number. `ids` are those of a batch's
    rows, by the handles of the attempts at them, and `run again` for earlier ones.
    """
    out = console()
    table, full = slim_table(out), out.width >= VERY_ROOMY
    run = tasks[0].run_id if full else short_ids([tasks[0].run_id])[tasks[0].run_id]
    rows = ["row"] if ids else []
    for name in ("n", "handle", *rows, *(["started"] if full else []), "state", "verdict", "cost"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("n", "cost") else "left")
    add_title_column(table, "goal")
    top = min(task.depth for task in tasks)
    for task in tasks:
        handle = "  " * (task.depth - top) + run + task.handle.removeprefix(task.run_id)
        state = task.status if task.state == "ended" and task.status else task.state
        cells = [str(positions.get(task.handle, "")), handle]
        cells += [one_line(ids.get(task.handle, ""), _ROW_CHARS)] if rows else []
        cells += [when(task.began_at)] if full else []
        cells += [state, task.verdict or "-", rough_usd(task.cost_usd, estimated=task.estimated)]
        table.add_row(*map(Text, cells), title(task.goal))
    out.print(Trimmed(table))
    _print_rest(rest)
