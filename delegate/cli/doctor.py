"""`delegate doctor`: checks the setup and says how to fix problems."""

import os
from typing import Annotated

import typer

from delegate.cli.options import Format, FormatOption

HANG = 2
"""Columns by which the rest of a long line is indented."""
SecurityOption = Annotated[
    bool,
    typer.Option(
        "--security", help="Run harmless attacks on the confinement of this machine and show which are stopped."
    ),
]


def doctor(security: SecurityOption = False, format: FormatOption = Format.pretty) -> None:
    """Check keys, model servers, sandbox, versions and folders, and say how to fix each problem.

    Keys are never printed. Exits with 0 if a model is available for children
    and their records can be written, else with 1.
    """
    from delegate.cli.diagnostics import examine, without_settings

    if security:
        from delegate.cli.security.report import report_security

        report_security(format)
        raise typer.Exit(0)
    from rich.text import Text

    from delegate.cli.layout import Prose
    from delegate.cli.output import console, print_as_json
    from delegate.cli.work import work
    from delegate.delegator import Delegator
    from delegate.errors import ConfigError

    try:
        delegator = Delegator()
    except ConfigError as error:
        diagnostics = without_settings(error)
    else:
        diagnostics = work(delegator, lambda _: examine(delegator))
    document = diagnostics.document()
    if not print_as_json(format, document, document["checks"]):
        lines, pasted = diagnostics.text().split("\n", allow_blank=True), len(diagnostics.toml.splitlines())
        out, end = console(), -pasted or None
        if out.is_terminal or "COLUMNS" in os.environ:  # else paths stay whole, for programs that search for them
            out.print(Prose(Text("\n").join(lines[:end]), hang=HANG))
            lines = lines[end:] if pasted else []
        if lines:
            out.print(Text("\n").join(lines), soft_wrap=True)  # lines to paste must stay as they are
    raise typer.Exit(0 if diagnostics.can_call else 1)
