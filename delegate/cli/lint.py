"""`delegate lint`: finds shell commands that can't fail, and says what criteria in words are about."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from rich.text import Text

    from delegate.judging.checks.vacuous import VacuousPart
    from delegate.types import Task

BEFORE, MARKED, AFTER = 60, 80, 40
"""Maximum number of characters shown before, within and after the marked part of a line."""


def lint(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND|-", help="The command, in quotes. `-` reads it from stdin.")
    ] = None,
    exit_code: Annotated[int, typer.Option(metavar="N", min=0, max=255, help="The exit code that means success.")] = 0,
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria", metavar="FILE", help="Instead of a command, a file of criteria as for `delegate judge`."
        ),
    ] = None,
    files: Annotated[
        bool,
        typer.Option("--files", help="The arguments are files of criteria or of tasks, any number of them."),
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and exit.")] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """Find parts of a shell command that hide its failure, as in `pytest || true`.

    With --criteria, check the commands of all its shell criteria, and show what
    each criterion in words says it is about: `report: …`, `file PATH: …`,
    `deed: …` or `absence: …`. Where it doesn't, a model reads it when its task
    runs. With --files, do the same for each file that
    is given: criteria, or tasks as for `delegate run --file` and `delegate
    batch`. Only what was found is shown.

    Nothing is run. Exits with 0 if there are no findings, 1 if there
    are, and 2 if there is no command.
    """
    if rules:
        _print_rules(format)
        raise typer.Exit
    from delegate.cli.output import refusals_as
    from delegate.judging.checks.vacuous import find_vacuous

    if files:
        raise typer.Exit(_lint_files(command or [], format))
    if criteria is not None:
        raise typer.Exit(_lint_criteria(criteria, command, format))
    with refusals_as(format):
        text = _read(command or [])
    found = find_vacuous(text, exit_code=exit_code)
    _print(text, exit_code, found, format)
    raise typer.Exit(1 if found else 0)


def _lint_files(names: list[str], format: Format) -> int:
    """Print what was found in files of criteria or tasks; returns the exit code."""
    from delegate.cli.output import console, print_as_json, refusals_as

    with refusals_as(format):
        rows = [row for name in names for row in _rows_of(Path(name))]
    if not print_as_json(format, {"criteria": rows}, rows):
        for row in rows:
            for finding in row["findings"]:
                console().print(f"{row['file']}: {row['id']}: {finding}", soft_wrap=True, markup=False)
    return 1 if any(row["findings"] for row in rows) else 0


def _rows_of(file: Path) -> list[dict[str, Any]]:
    """What was found on each criterion of a file of criteria or tasks. Raises CallError."""
    from delegate.cli.workfile import read_criteria, to_task

    if (tasks := _tasks_in(file)) is None:
        return [{"file": str(file), **row} for row in _criteria_rows(to_task("lint", read_criteria(file)))]
    return [
        {"file": str(file), **row, "id": f"task {id}, {row['id']}"}
        for id, task in tasks
        for row in _criteria_rows(task)
    ]


def _tasks_in(file: Path) -> "list[tuple[str, Task]] | None":
    """The tasks of a file with their ids; None if it is a file of criteria. Raises CallError."""
    from delegate.batch.item import BadRow
    from delegate.batch.sources import TaskFile
    from delegate.cli.documents import is_document, read_document
    from delegate.cli.taskfile import read_task, read_tasks
    from delegate.errors import CallError

    if is_document(file) and not _holds_tasks(read_document(file)):
        return None
    if file.suffix.lower() == ".toml":
        return [(str(n), task) for n, task in enumerate(read_tasks(file), start=1)]
    if not is_document(file) and file.suffix.lower() not in (".jsonl", ".ndjson"):
        return None
    found: list[tuple[str, Task]] = []
    for one in TaskFile(file, read_task):
        if isinstance(one, BadRow):
            error = one.error
            raise CallError(error.code, f"{file}: row {one.row}: {error.message}", field=error.field, hint=error.hint)
        found.append((one.id, one.task))
    return found


def _holds_tasks(document: object) -> bool:
    """Whether a document is a list of tasks, which have a goal, and not of criteria."""
    if isinstance(document, dict):
        return "tasks" in document
    return isinstance(document, list) and any(
        isinstance(one, dict) and "goal" in one for one in cast("list[object]", document)
    )


def _lint_criteria(file: Path, command: list[str] | None, format: Format) -> int:
    """Print what was found on each criterion; returns the exit code."""
    from delegate.cli.output import console, print_json, print_jsonl, refusals_as
    from delegate.cli.workfile import read_criteria, to_task
    from delegate.errors import CallError

    with refusals_as(format):
        if command:
            raise CallError("two_inputs", "give a command or --criteria, not both", hint="leave out one of them")
        rows = _criteria_rows(to_task("lint", read_criteria(file)))
    if format is Format.json:
        print_json({"criteria": rows})
    elif format is Format.jsonl:
        print_jsonl(rows)
    else:
        for row in rows:
            about = f" [about: {row['about']}]" if row["about"] else ""
            console().print(
                "\n".join([f"{row['id']} {row['text']}{about}", *(f"  {one}" for one in row["findings"])]),
                soft_wrap=True,
                markup=False,
            )
    return 1 if any(row["findings"] for row in rows) else 0


def _criteria_rows(task: "Task") -> list[dict[str, Any]]:
    from delegate.judging.reading.statements import declared, in_words
    from delegate.judging.validate import vacuous_parts
    from delegate.types import ShellCriterion

    rows, statements = list[dict[str, Any]](), in_words(task)
    for criterion in task.criteria:
        text, about = statements.get(criterion.id or "", ("", None))
        read_as = "read by a model" if text else None
        read_as = str(declared(text, about).parts[0]) if about is not None else read_as
        found = vacuous_parts(criterion) if isinstance(criterion, ShellCriterion) else []
        rows.append({"id": criterion.id, "text": criterion.describe(), "about": read_as, "findings": found})
    return rows


def _read(command: list[str]) -> str:
    from delegate.cli.documents import STDIN, read_text
    from delegate.errors import CallError

    if len(command) > 1:
        hint = "write it in quotes, or add --files to check files of criteria or tasks"
        raise CallError("two_inputs", "give one command", hint=hint)
    text = (read_text(STDIN) if command == [str(STDIN)] else "".join(command)).rstrip()
    if not text:
        hint = "pass it in quotes, or `-` to read it from stdin"
        raise CallError("empty", "there is no command to check", hint=hint)
    return text


def _print(command: str, exit_code: int, found: "tuple[VacuousPart, ...]", format: Format) -> None:
    from dataclasses import asdict

    from delegate.cli.output import console, print_as_json

    findings: list[dict[str, Any]] = [asdict(part) for part in found]
    if print_as_json(format, {"command": command, "exit_code": exit_code, "findings": findings}, findings):
        return
    if not found:
        print("no findings: the command can fail")
    for part in found:
        console().print(part_text(command, part), soft_wrap=True)


def part_text(command: str, part: "VacuousPart") -> "Text":
    """The line of the command with the finding, carets under it, and the explanation."""
    from rich.cells import cell_len
    from rich.text import Text

    line_start = command.rfind("\n", 0, part.start) + 1
    line = command[line_start:].partition("\n")[0]
    start, end = part.start - line_start, min(part.end - line_start, len(line))
    before = _shown(line[:start], BEFORE, keep_end=True)
    marked = _shown(line[start:end], MARKED)
    after = _shown(line[end:], AFTER)
    carets = " " * cell_len(before) + "^" * max(1, cell_len(marked))
    line_number = f"line {command.count(chr(10), 0, line_start) + 1}, " if "\n" in command else ""
    position = f"  {line_number}characters {part.start}-{part.end}: {part.why}"
    text = Text(f"{before}{marked}{after}\n").append(carets, "bold red").append(f"\n{part.rule}", "bold")
    return text.append(position)


def _shown(text: str, limit: int, *, keep_end: bool = False) -> str:
    """The text as one line that is safe for a terminal, cut with an ellipsis if it is too long."""
    from delegate._util.fencing import clean

    shown = clean(text).text.replace("\n", " ").expandtabs(1)
    if len(shown) <= limit:
        return shown
    return f"…{shown[1 - limit :]}" if keep_end else f"{shown[: limit - 1]}…"


def _print_rules(format: Format) -> None:
    from delegate.cli.output import console, print_as_json
    from delegate.judging.checks.vacuous import RULES

    if not print_as_json(format, dict(RULES), ({"rule": rule, "why": why} for rule, why in RULES.items())):
        width = max(map(len, RULES))
        console().print("\n".join(f"{rule:<{width}}  {why}" for rule, why in RULES.items()), soft_wrap=True)
