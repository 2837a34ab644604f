"""`delegate doctor --security`: attacks tried out on this machine, and how they ended."""

import asyncio
from collections.abc import Sequence

from rich.table import Table

from delegate.cli.options import Format
from delegate.cli.output import console, plain, print_json, print_jsonl, slim_table
from delegate.cli.security.commands import Row, shell_attacks
from delegate.cli.security.criteria import criterion_attacks
from delegate.cli.security.injection import injection_attacks
from delegate.cli.security.paths import path_attacks
from delegate.cli.security.urls import url_attacks

_STYLES = {"stopped": "green", "possible": "bold yellow", "n/a": "dim"}
_MEANING = "stopped: the attack failed here. possible: it got what it was after. n/a: it can't be tried here."


def report_security(format: Format) -> None:
    """Try what a hostile command, path, address or text may do, under what works here, and print how it ended."""
    print_attacks(format, asyncio.run(_tried()))


async def _tried() -> list[Row]:
    shell, paths, urls = await shell_attacks(), path_attacks(), await url_attacks()
    return [*shell, *paths, *urls, *await criterion_attacks(), *await injection_attacks()]


def print_attacks(format: Format, rows: Sequence[Row]) -> None:
    """Attacks and how they ended, one table for each kind."""
    if format is Format.json:
        print_json({"attacks": [row._asdict() for row in rows]})
    elif format is Format.jsonl:
        print_jsonl(row._asdict() for row in rows)
    else:
        _print_tables(rows)


def _print_tables(rows: Sequence[Row]) -> None:
    out = console()
    for kind in dict.fromkeys(row.kind for row in rows):
        out.print(_table([row for row in rows if row.kind == kind], slim_table(out), kind))
        out.print()
    out.print(_MEANING)


def _table(rows: Sequence[Row], table: Table, kind: str) -> Table:
    """An attack per line, a mechanism per column, and why it ended so: first of all why it got through."""
    mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
    for name in (kind, *mechanisms, "because"):
        table.add_column(name)
    for attack in dict.fromkeys(row.attack for row in rows):
        tried = {row.mechanism: row for row in rows if row.attack == attack}
        outcomes = [tried[name].outcome if name in tried else "" for name in mechanisms]
        why = next((row.note for row in tried.values() if row.outcome == "possible"), next(iter(tried.values())).note)
        table.add_row(plain(attack), *(plain(word, _STYLES.get(word, "")) for word in outcomes), plain(why))
    return table
