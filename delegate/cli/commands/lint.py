"""`delegate lint`: tries whether criteria can fail, and says what criteria in words are about."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from delegate._util.fencing import clean
from delegate.batch.item import BadRow
from delegate.batch.sources import TaskFile
from delegate.cli.input.documents import STDIN, is_document, read_document, read_text
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.task_trust import refuse_untrusted
from delegate.cli.input.taskfile import read_task, read_tasks
from delegate.cli.input.workfile import at_criteria, read_criteria, to_task
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.judging.checks.can_fail import Trial, try_out
from delegate.judging.reading.statements import declared, in_words
from delegate.judging.validate import refuse_undecidable
from delegate.policy.settings import load_settings
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.folder import existing
from delegate.types import ShellCriterion, Task, Workspace
from delegate.types.errors import CallError

_LABELS = {True: "can fail", False: "can't fail", None: "not known"}


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
        bool, typer.Option("--files", help="The arguments are files of criteria or of tasks, any number of them.")
    ] = False,
    workspace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder as it is before the work. A task's own is used without this."),
    ] = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Find criteria that can't fail, such as the command `pytest || true`.

    Commands run in an empty folder, in a copy of the workspace, if there is
    one, and in a folder with the files and words that they name, each for at
    most 10 seconds and in a sandbox, unless the settings allow them anywhere. A
    command that succeeds in each of them can't fail. Schemas, expressions and
    patterns are tried on reports that say nothing.

    With --criteria, show whether each criterion of a file can fail, and what
    each criterion in words says it is about: `report: …`, `file PATH: …`,
    `deed: …` or `absence: …`. Where it doesn't, a model reads it when its task
    runs. With --files, do the same for each file that is given: criteria, or
    tasks as for `delegate run --file` and `delegate batch`. Only what was
    found is shown.

    No model is called, and no key is needed. Exits with 1 if something can't
    fail, 2 if there is no command or a criterion is invalid, and else 0.
    """
    with refusals_as(format):
        if files:
            tasks = [task for name in command or [] for task in _tasks_of(Path(name), workspace)]
        elif criteria is None:
            tasks = [("", "", _task_of_command(command or [], exit_code, workspace))]
        elif command:
            raise CallError("two_inputs", "give a command or --criteria, not both", hint="leave out one of them")
        else:
            tasks = [(str(criteria), "", _task_of(criteria, workspace))]
        rows = _rows(tasks)
    if files or criteria is not None:
        document: dict[str, Any] = {"criteria": rows}
    else:
        (row,), (_, _, task) = rows, tasks[0]
        found = {name: row[name] for name in ("can_fail", "how", "findings", "warnings")}
        document = {"command": cast("ShellCriterion", task.criteria[0]).command, "exit_code": exit_code, **found}
    if not print_as_json(format, document, document.get("criteria", [document])):
        for line in _lines(rows, only_found=files, with_text=criteria is not None):
            console().print(line, soft_wrap=True, markup=False)
    raise typer.Exit(1 if any(row["findings"] for row in rows) else 0)


def _lines(rows: list[dict[str, Any]], *, only_found: bool, with_text: bool) -> Iterator[str]:
    """What is printed of each criterion: what was found, or whether it can fail."""
    for row in rows:
        outcome = _clean(f"{_LABELS[row['can_fail']]}: {row['how']}")
        if only_found:
            notes = (*row["findings"], *(f"warning: {warning}" for warning in row["warnings"]))
            yield from (f"{row['file']}: {row['id']}: {_clean(note)}" for note in notes)
        elif with_text:
            about = f" [about: {row['about']}]" if row["about"] else ""
            yield f"{row['id']} {row['text']}{about}\n  {outcome}"
        else:
            yield outcome


def _rows(tasks: list[tuple[str, str, Task]]) -> list[dict[str, Any]]:
    """What was found on each criterion of these tasks, which have a file and a prefix for ids. Raises CallError."""
    settings = load_settings()
    commands = Commands(
        sandbox=settings.sandbox, commands=settings.commands, network=settings.network, hidden=(settings.home,)
    )

    async def tried() -> list[list[Trial]]:
        return [
            await try_out(task, commands, author="person", folder=task.workspace.path if task.workspace else None)
            for _, _, task in tasks
        ]

    rows = list[dict[str, Any]]()
    for (file, prefix, task), trials in zip(tasks, asyncio.run(tried()), strict=True):
        statements = in_words(task)
        for criterion, trial in zip(task.criteria, trials, strict=True):
            text, about = statements.get(criterion.id or "", ("", None))
            read_as = str(declared(text, about).parts[0]) if about is not None else "read by a model" if text else None
            undecided = trial.can_fail is None and isinstance(criterion, ShellCriterion)
            rows.append(
                {
                    "file": file,
                    "id": f"{prefix}{criterion.id}",
                    "text": criterion.describe(),
                    "about": read_as,
                    "can_fail": trial.can_fail,
                    "how": trial.how,
                    "findings": [f"it can't fail: {trial.how}"] if trial.can_fail is False else [],
                    "warnings": [trial.how] if trial.held_before or undecided else [],
                }
            )
    return rows


def _tasks_of(file: Path, workspace: Path | None) -> list[tuple[str, str, Task]]:
    """The tasks of a file of tasks, or one with the criteria of a file. Raises CallError."""
    if (tasks := tasks_in(file)) is None:
        return [(str(file), "", _task_of(file, workspace))]
    # In place of a workspace that the operator names, what the file says doesn't count.
    counts = {"workspace": None} if workspace is not None else {}
    requests = ((f"task {id}", task.model_copy(update=counts)) for id, task in tasks)
    refuse_untrusted(file, requests, load_settings())
    return [(str(file), f"task {id}, ", _in(task, workspace)) for id, task in tasks]


def _task_of(criteria: Path, workspace: Path | None) -> Task:
    """A task with the criteria of a file. Raises CallError."""
    located = read_criteria(criteria)
    task = _in(to_task("lint", located), workspace)
    with at_criteria(located):
        refuse_undecidable(task, folder=workspace)
    return task


def _task_of_command(command: list[str], exit_code: int, workspace: Path | None) -> Task:
    """A task with this command as its check. Raises CallError."""
    if len(command) > 1:
        hint = "write it in quotes, or add --files to check files of criteria or tasks"
        raise CallError("two_inputs", "give one command", hint=hint)
    text = (read_text(STDIN) if command == [str(STDIN)] else "".join(command)).rstrip()
    if not text:
        hint = "pass it in quotes, or `-` to read it from stdin"
        raise CallError("empty", "there is no command to check", hint=hint)
    criterion = ShellCriterion(kind="shell", command=text, exit_code=exit_code)
    return _in(Task(goal="lint", acceptance_criteria=(criterion,)), workspace)


def _in(task: Task, workspace: Path | None) -> Task:
    """The task with this workspace, if there is one. Raises CallError."""
    if workspace is None:
        return task
    return task.model_copy(update={"workspace": Workspace(mode="shared", path=existing(workspace))})


def tasks_in(file: Path) -> list[tuple[str, Task]] | None:
    """The tasks of a file with their ids; None if it is a file of criteria. Raises CallError."""
    if is_document(file):
        document = read_document(file)
        entries = cast("list[object]", document) if isinstance(document, list) else []
        has_tasks = any(isinstance(entry, dict) and "goal" in entry for entry in entries)
        if not has_tasks and not (isinstance(document, dict) and "tasks" in document):
            return None
    if file.suffix.lower() == ".toml":
        return [(str(n), task) for n, task in enumerate(read_tasks(file), start=1)]
    if not is_document(file) and file.suffix.lower() not in (".jsonl", ".ndjson"):
        return None
    tasks: list[tuple[str, Task]] = []
    for item in TaskFile(file, read_task):
        if isinstance(item, BadRow):
            error = item.error
            raise CallError(error.code, f"{file}: row {item.row}: {error.message}", field=error.field, hint=error.hint)
        tasks.append((item.id, item.task))
    return tasks


def _clean(text: str) -> str:
    return clean(text).text.replace("\n", " ")
