"""`delegate show`: the whole record of one result."""

from typing import TYPE_CHECKING, Annotated

import typer

from delegate.cli.formats import Format, FormatOption

if TYPE_CHECKING:
    from rich.table import Table

    from delegate.types import ChildRun, JsonObject


def show(
    handle: Annotated[str, typer.Argument(help="The handle of a result, such as 1f2e3d4c5b6a-0.")],
    format: FormatOption = Format.pretty,
) -> None:
    """Print the whole record of a result: its task, verdict, full report and every tool call."""
    from delegate.cli.output import print_json, print_jsonl
    from delegate.cli.work import work
    from delegate.delegator import Delegator
    from delegate.errors import CallError

    delegator = Delegator()
    record = work(delegator, lambda _: delegator.read(handle))
    if record is None:
        raise CallError("unknown_handle", f"there is no record {handle!r}", hint="records lie in DELEGATE_HOME")
    if format is Format.pretty:
        _print(record)
    elif format is Format.json:
        print_json(record)
    else:
        print_jsonl([record])


def _print(record: "JsonObject") -> None:
    from delegate.cli.output import console, slim_table, task_text
    from delegate.types import ChildRun, TaskResult

    run, result = ChildRun.model_validate(record["run"]), TaskResult.model_validate(record["result"])
    out = console()
    out.print(task_text(result, record["task"]["goal"], whole=run.output), soft_wrap=True)
    if run.receipts:
        out.print(_receipts(run, slim_table(out)))


def _receipts(run: "ChildRun", table: "Table") -> "Table":
    import json

    from rich.text import Text

    from delegate.fencing import one_line

    for name in ("n", "tool", "status", "arguments", "answer", "bytes", "sec"):
        table.add_column(name, no_wrap=name in ("n", "bytes", "sec"), overflow="fold")
    for one in run.receipts:
        args = one_line(json.dumps(one.args, ensure_ascii=False), 60)
        cells = (str(one.n), one.tool, one.status, args, one_line(one.output, 60), str(one.output_bytes))
        table.add_row(*(Text(one_line(cell, 60)) for cell in cells), f"{one.seconds:.2f}")
    return table
