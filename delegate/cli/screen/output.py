"""Prints to stdout: JSON, and what all texts and tables for people share. See `screens` for results and verdicts.

Text from a child, a judge or a provider is passed through `plain` before it reaches a terminal. That none of it
commands a CI system is up to `ci/logs`.
"""

import getpass
import json
import os
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegate._util.fencing import clean, one_line
from delegate._util.redaction import redactor
from delegate.cli import PROGRAM
from delegate.cli.ci.logs import inert_json, print_as_is
from delegate.cli.input.options import Format
from delegate.cli.screen.costs import totals_line
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.screens import task_screen
from delegate.engine.error_mapping import error_detail
from delegate.types import ErrorDetail, RunResult
from delegate.types.errors import CallError, ConfigError

ROOMY = 100
"""Minimum number of columns for tables with all details."""
VERY_ROOMY = 120
"""Minimum number of columns for tables with whole ids and times."""
NARROW = 72
"""Below this number of columns, tables have only what matters most."""
PIPE_WIDTH = 120
"""Number of columns if stdout isn't a terminal and COLUMNS isn't set."""

_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


# ------------------------------------------------------------------------------------------------------------- JSON


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print_as_is(as_json(value, indent=2))


def print_as_json(format: Format, document: Any, rows: Iterable[Any] | None = None) -> bool:
    """Print the document, or for jsonl its rows. For `pretty`, print nothing and return False."""
    if format is Format.json:
        print_json(document)
    elif format is Format.jsonl:
        for row in [document] if rows is None else rows:
            print_as_is(as_json(row))
    return format is not Format.pretty


def print_result_as(format: Format, result: RunResult) -> None:
    """Print a result as one document, or one result per line. A refused call prints `{"error": …}` in both formats."""
    document = result.model_dump(mode="json")
    print_as_json(format, document, document.get("results", [document]))


@contextmanager
def refusals_as(format: Format) -> Generator[None]:
    """In the JSON formats, print an error as the object `{"error": …}` on stdout and exit with 2."""
    try:
        yield
    except (CallError, ConfigError) as error:
        if format is Format.pretty:
            raise
        is_call = isinstance(error, CallError)
        detail = error_detail(error) if is_call else ErrorDetail(code="config_error", message=str(error))
        print_result_as(format, RunResult(error=detail))
        raise typer.Exit(2) from None


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON without secrets, control or invisible characters, or commands to CI; in ASCII if stdout isn't Unicode."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    plain = json.dumps(value, default=str)
    if (redacted := redactor.json(plain)) is not plain:
        value = json.loads(redacted)
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=str)
    return inert_json(_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


# ------------------------------------------------------------------------------------------------------- for people


def console(pipe_width: int = PIPE_WIDTH) -> Console:
    """A console on stdout, with colors only on a terminal. `pipe_width` is its width if stdout isn't a terminal."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else pipe_width
    return Console(width=width, markup=False, highlight=False, emoji=False)


def slim_table(out: Console) -> Table:
    """A table whose only line is below its header, with less padding on a narrow console."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0) if out.width >= ROOMY else 0)


def add_title_column(table: Table, name: str) -> None:
    """Add a last column for `title`s, which takes the room that the others leave."""
    table.add_column(Text(name, no_wrap=True, overflow="ellipsis"), min_width=8, overflow="ellipsis", ratio=1)


def title(text: str) -> Text:
    """Untrusted text without secrets in one line, cut with `…` where a table has no room for it."""
    return Text(one_line(redactor.text(text), 200), no_wrap=True, overflow="ellipsis")


def plain(text: str, style: str = "") -> Text:
    """Untrusted text that is safe for a terminal: no secrets, and escape sequences and markup in it have no effect."""
    return Text(redactor.text(clean(text).text), style=style)


def user() -> str:
    """The name of this process's user. Empty if it has none, as in some containers."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


def print_result(run: RunResult, goals: Sequence[str]) -> None:
    """Print a screen per task and, if there are several, their totals."""
    out, several = console(), len(run.results) > 1
    for n, result in enumerate(run.results):
        if n:
            out.print()
        number = result.task_index + 1 if several else None
        more = f"{PROGRAM} show last{f' {number}' if number else ''}" if result.handle else ""
        out.print(task_screen(result, goals[result.task_index], number=number, more=more))
    if several:
        out.print("", Prose(Text(totals_line(run), "bold")), sep="\n")
