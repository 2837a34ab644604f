"""`delegate doctor --security`: runs attacks on this machine and prints their outcomes."""

import asyncio
from collections.abc import Sequence

from rich.table import Table

from delegate.cli.doctor.security.commands import Row, shell_attacks
from delegate.cli.doctor.security.criteria import criterion_attacks
from delegate.cli.doctor.security.injection import injection_attacks
from delegate.cli.doctor.security.paths import path_attacks
from delegate.cli.doctor.security.urls import url_attacks
from delegate.cli.input.options import Format
from delegate.cli.screen.output import console, plain, print_as_json, slim_table

_STYLES = {"stopped": "green", "possible": "bold yellow", "n/a": "dim"}
_LEGEND = "stopped: the attack failed. possible: the attack succeeded. n/a: the attack can't be run on this machine."


def report_security(format: Format) -> None:
    """Run attacks by commands, paths, URLs, criteria and prompts, and print their outcomes."""
    print_attacks(format, asyncio.run(_run_attacks()))


async def _run_attacks() -> list[Row]:
    shell, paths, urls = await shell_attacks(), path_attacks(), await url_attacks()
    return [*shell, *paths, *urls, *await criterion_attacks(), *await injection_attacks()]


def print_attacks(format: Format, rows: Sequence[Row]) -> None:
    """Print the outcomes of attacks, as one table per kind."""
    attacks = [row._asdict() for row in rows]
    if print_as_json(format, {"attacks": attacks}, attacks):
        return
    out = console()
    for kind in dict.fromkeys(row.kind for row in rows):
        out.print(_table([row for row in rows if row.kind == kind], slim_table(out), kind))
        out.print()
    out.print(_LEGEND)


def _table(rows: Sequence[Row], table: Table, kind: str) -> Table:
    """One line per attack, one column per mechanism; the reason is that of a mechanism where it succeeded, if any."""
    mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
    for name in (kind, *mechanisms, "reason"):
        table.add_column(name)
    for attack in dict.fromkeys(row.attack for row in rows):
        results = {row.mechanism: row for row in rows if row.attack == attack}
        outcomes = [results[name].outcome if name in results else "" for name in mechanisms]
        first = next(iter(results.values()))
        reason = next((row.note for row in results.values() if row.outcome == "possible"), first.note)
        table.add_row(plain(attack), *(plain(word, _STYLES.get(word, "")) for word in outcomes), plain(reason))
    return table
