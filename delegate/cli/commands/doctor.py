"""`delegate doctor`: checks the setup and says how to fix problems."""

import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from delegate.cli.doctor.diagnostics import Diagnostics, examine, without_settings
from delegate.cli.doctor.endpoint import find_target, measure
from delegate.cli.doctor.security.report import report_security
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.errors import ConfigError
from delegate.types import JsonObject

HANG = 2
"""Columns by which the rest of a long line is indented."""
SecurityOption = Annotated[
    bool,
    typer.Option(
        "--security", help="Run harmless attacks on the confinement of this machine and show which are stopped."
    ),
]


EndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Measure an endpoint of the settings, or a provider, with a few small calls, and remember what it takes.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The model to measure there; by default the one that would be used."),
]


def doctor(
    security: SecurityOption = False,
    endpoint: EndpointOption = None,
    model: ModelOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Check keys, model servers, sandbox, versions and folders, and say how to fix each problem.

    Keys are never printed. Exits with 0 if a model is available for children
    and their records can be written, else with 1. With --endpoint, exits with
    0 if nothing that was measured is a problem.
    """
    if security:
        report_security(format)
        raise typer.Exit(0)
    if endpoint is not None:
        raise typer.Exit(_measure(endpoint, model, format))
    if model is not None:
        raise typer.BadParameter("it needs --endpoint", param_hint="--model")
    try:
        delegator = Delegator()
    except ConfigError as error:
        diagnostics = without_settings(error)
    else:
        diagnostics = work(delegator, lambda _: examine(delegator))
    _print(diagnostics, diagnostics.document(), format)
    raise typer.Exit(0 if diagnostics.can_call else 1)


def _measure(name: str, model: str | None, format: Format) -> int:
    """Measure an endpoint. Returns the exit code."""
    with refusals_as(format), Delegator() as delegator:
        target = find_target(delegator, name, model)
        print(target.announcement, file=sys.stderr)
        diagnostics, profile = work(delegator, lambda _: measure(delegator, target))
    checks = {"can_call": diagnostics.can_call, "checks": diagnostics.document()["checks"]}
    head = {"endpoint": name, "url": target.endpoint.shown_url, "model": target.model.id}
    _print(diagnostics, {**head, **checks, "profile": profile}, format)
    return 0 if diagnostics.can_call else 1


def _print(diagnostics: Diagnostics, document: JsonObject, format: Format) -> None:
    if print_as_json(format, document, document["checks"]):
        return
    lines, pasted = diagnostics.text().split("\n", allow_blank=True), len(diagnostics.toml.splitlines())
    out, end = console(), -pasted or None
    if out.is_terminal or "COLUMNS" in os.environ:  # else paths stay whole, for programs that search for them
        out.print(Prose(Text("\n").join(lines[:end]), hang=HANG))
        lines = lines[end:] if pasted else []
    if lines:
        out.print(Text("\n").join(lines), soft_wrap=True)  # lines to paste must stay as they are
