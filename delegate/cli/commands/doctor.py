"""`delegate doctor`: checks the setup and says how to fix problems."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from delegate.cli.doctor.diagnostics import Diagnostics, examine, without_settings
from delegate.cli.doctor.endpoint import find_target, measure
from delegate.cli.doctor.security.commands import Row, shell_attacks
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.output import console, plain, print_as_json, refusals_as, slim_table
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.types import JsonObject
from delegate.types.errors import ConfigError

HANG = 2
"""Columns by which the rest of a long line is indented."""
_STYLES = {"stopped": "green", "possible": "bold yellow", "n/a": "dim"}
_LEGEND = "stopped: the attack failed. possible: the attack succeeded. n/a: the attack can't be run on this machine."


def doctor(
    security: Annotated[
        bool,
        typer.Option("--security", help="Run harmless attacks by commands on this machine and show which are stopped."),
    ] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Measure an endpoint of the settings, or a provider, with a few small calls, and remember what it "
            "takes.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The model to measure there; by default the one that would be used."),
    ] = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Check keys, model servers, sandbox, versions and folders, and say how to fix each problem.

    Keys are never printed. Exits with 0 if a model is available for children
    and their records can be written, else with 1. With --endpoint, exits with
    0 if nothing that was measured is a problem.
    """
    if security:
        print_attacks(format, asyncio.run(shell_attacks()))
        raise typer.Exit
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


def print_attacks(format: Format, rows: Sequence[Row]) -> None:
    """A line per attack, a column per mechanism; the reason is that of a mechanism where it succeeded, if any."""
    attacks = [row._asdict() for row in rows]
    if print_as_json(format, {"attacks": attacks}, attacks):
        return
    out = console()
    table, mechanisms = slim_table(out), list(dict.fromkeys(row.mechanism for row in rows))
    for name in ("attack", *mechanisms, "reason"):
        table.add_column(name)
    for attack in dict.fromkeys(row.attack for row in rows):
        results = {row.mechanism: row for row in rows if row.attack == attack}
        outcomes = [results[name].outcome if name in results else "" for name in mechanisms]
        first = next(iter(results.values()))
        reason = next((row.note for row in results.values() if row.outcome == "possible"), first.note)
        table.add_row(plain(attack), *(plain(word, _STYLES.get(word, "")) for word in outcomes), plain(reason))
    out.print(table, "", _LEGEND, sep="\n")
