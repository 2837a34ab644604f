"""`delegate lint`: whether a command that is meant as a check can fail at all."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from rich.text import Text

    from delegate.judging.checks.vacuous import VacuousPart

BEFORE, MARKED, AFTER = 60, 80, 40
"""Characters that are shown of a long line: before, within and after what is marked."""


def lint(
    command: Annotated[
        str | None, typer.Argument(metavar="COMMAND|-", help="The command, in quotes. `-` reads it from stdin.")
    ] = None,
    exit_code: Annotated[
        int, typer.Option(metavar="N", min=0, max=255, help="The exit code that is to mean success.")
    ] = 0,
    rules: Annotated[bool, typer.Option("--rules", help="List what is looked for, and nothing else.")] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """Find where a shell command loses the failure that it should report, as in `pytest || true`. It isn't run.

    Exits with 0 when nothing is found, 1 when something is, 2 when there is no command.
    """
    if rules:
        _print_rules(format)
        raise typer.Exit
    from delegate.cli.output import refusals_as
    from delegate.judging.checks.vacuous import find_vacuous

    with refusals_as(format):
        text = _read(command)
    found = find_vacuous(text, exit_code=exit_code)
    _print(text, exit_code, found, format)
    raise typer.Exit(1 if found else 0)


def _read(command: str | None) -> str:
    from delegate.cli.documents import STDIN, read_text
    from delegate.errors import CallError

    text = (read_text(STDIN) if command == str(STDIN) else command or "").rstrip()
    if not text:
        hint = "give one in quotes, or `-` to read it from stdin"
        raise CallError("empty", "there is no command to look at", hint=hint)
    return text


def _print(command: str, exit_code: int, found: "tuple[VacuousPart, ...]", format: Format) -> None:
    from dataclasses import asdict

    from delegate.cli.output import console, print_json, print_jsonl

    findings: list[dict[str, Any]] = [asdict(part) for part in found]
    if format is Format.json:
        print_json({"command": command, "exit_code": exit_code, "findings": findings})
    elif format is Format.jsonl:
        print_jsonl(findings)
    elif not found:
        print("nothing found that keeps this command from failing")
    else:
        for part in found:
            console().print(part_text(command, part), soft_wrap=True)


def part_text(command: str, part: "VacuousPart") -> "Text":
    """The line of the command that a finding is about, with carets below, and what it means."""
    from rich.cells import cell_len
    from rich.text import Text

    line_start = command.rfind("\n", 0, part.start) + 1
    line = command[line_start:].partition("\n")[0]
    start, end = part.start - line_start, min(part.end - line_start, len(line))
    before = _shown(line[:start], BEFORE, keep_end=True)
    marked = _shown(line[start:end], MARKED)
    after = _shown(line[end:], AFTER)
    carets = " " * cell_len(before) + "^" * max(1, cell_len(marked))
    place = f"line {command.count(chr(10), 0, line_start) + 1}, " if "\n" in command else ""
    said = f"  {place}characters {part.start}-{part.end}: {part.why}"
    return Text(f"{before}{marked}{after}\n").append(carets, "bold red").append(f"\n{part.rule}", "bold").append(said)


def _shown(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Safe for a terminal, of one line, and cut visibly where it is long."""
    from delegate._util.fencing import clean

    shown = clean(text).text.replace("\n", " ").expandtabs(1)
    if len(shown) <= limit:
        return shown
    return f"…{shown[1 - limit :]}" if keep_end else f"{shown[: limit - 1]}…"


def _print_rules(format: Format) -> None:
    from delegate.cli.output import console, print_json, print_jsonl
    from delegate.judging.checks.vacuous import RULES

    if format is Format.pretty:
        width = max(map(len, RULES))
        console().print("\n".join(f"{rule:<{width}}  {why}" for rule, why in RULES.items()), soft_wrap=True)
    elif format is Format.json:
        print_json(dict(RULES))
    else:
        print_jsonl({"rule": rule, "why": why} for rule, why in RULES.items())
