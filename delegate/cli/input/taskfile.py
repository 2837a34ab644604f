"""Makes tasks from command line options and task files; errors name the file, the task and the field.

A criterion is a sentence for the judge, one of the short forms such as `shell: …`, or a JSON object.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from delegate.batch.item import Item
from delegate.batch.sources import TaskFile, no_tasks, tasks_in
from delegate.cli.input.documents import read_document
from delegate.contract.problems import KINDS, Problems, kind_fields
from delegate.judging.validate import refuse_undecidable
from delegate.types import AnyCriterion, Criterion, JsonObject, Task
from delegate.types.errors import CallError
from delegate.types.faults import error_text, located
from delegate.types.short_forms import criterion_of


def read_criterion(data: object) -> AnyCriterion:
    """Validate a single criterion in the form that `Task` accepts. Raises CallError."""
    if isinstance(data, Mapping):
        problems = Problems()
        _refuse_unknown_in(cast("Mapping[str, object]", data), "", problems)
        problems.raise_first()
    try:
        return TypeAdapter[AnyCriterion](Criterion).validate_python(data)
    except ValidationError as error:
        raise _bad(error_text(error), "acceptance_criteria") from None


def read_task(data: object, *, where: str = "", base: Path | None = None) -> Task:
    """Validate one task. `where` precedes every error message; a relative workspace is resolved against `base`.

    Raises CallError.
    """
    with located(where):
        if not isinstance(data, Mapping):
            raise _bad("not a task; write an object with at least `goal`")
        fields = dict(cast("Mapping[str, object]", data))
        if isinstance(criteria := fields.get("acceptance_criteria"), list):
            listed = cast("list[object]", criteria)
            fields["acceptance_criteria"] = [criterion_of(one) if isinstance(one, str) else one for one in listed]
        _refuse_unknown(fields)
        try:
            task = Task.model_validate(fields)
        except ValidationError as error:
            raise _bad(error_text(error)) from None
        task = _resolve_workspace(task, base) if base else task
        _refuse_undecidable(task)
        return task


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Read the tasks of a file: a list, or an object with the list as `tasks`. Raises CallError."""
    if not (tasks := tasks_in(read_document(path), str(path))):
        raise no_tasks(str(path))
    return tuple(read_task(task, where=f"{path}: task {n}", base=path.parent) for n, task in enumerate(tasks, start=1))


def located_tasks(source: TaskFile) -> Iterator[tuple[str, Task]]:
    """The valid tasks of a file for a batch, each with where it is."""
    return ((f"row {item.row}", item.task) for item in source if isinstance(item, Item))


def read_schema(path: Path) -> JsonObject:
    """Read a JSON Schema from a file. Raises CallError."""
    schema = read_document(path)
    if not isinstance(schema, dict):
        raise _bad(f"{path}: not a JSON Schema; write a JSON object", "output_schema")
    return cast("JsonObject", schema)


def _refuse_unknown(fields: Mapping[str, object]) -> None:
    """Raise CallError for unknown fields and kinds, with suggestions."""
    problems = Problems()
    problems.unknown_fields(fields, tuple(Task.model_fields), "")
    criteria = fields.get("acceptance_criteria")
    for n, criterion in enumerate(cast("Sequence[object]", criteria) if isinstance(criteria, list) else ()):
        if isinstance(criterion, Mapping):
            _refuse_unknown_in(cast("Mapping[str, object]", criterion), f"acceptance_criteria[{n}]", problems)
    problems.raise_first()


def _refuse_unknown_in(criterion: Mapping[str, object], path: str, problems: Problems) -> None:
    kind = criterion.get("kind")
    if kind is None:
        problems.missing_kind(criterion, path)
    elif not isinstance(kind, str) or kind not in KINDS:
        problems.unknown_kind(kind, path)
    else:
        problems.unknown_fields(criterion, kind_fields(KINDS[kind]), path)


def _refuse_undecidable(task: Task) -> None:
    """Raise CallError now for a criterion that no check could use, rather than after a task was run."""
    try:
        refuse_undecidable(task)
    except CallError as error:
        error.message = f"`{error.field}` is invalid: {error.message}"
        raise


def _resolve_workspace(task: Task, base: Path) -> Task:
    if task.workspace is None or task.workspace.path is None:
        return task
    try:
        path = base / task.workspace.path.expanduser()
        os.path.realpath(path)
    except (ValueError, RuntimeError, OSError) as error:  # such as a NUL, or the home of an unknown user
        raise _bad(f"`workspace.path` can't be a path: {error}", "workspace") from None
    return task.model_copy(update={"workspace": task.workspace.model_copy(update={"path": path})})


def _bad(message: str, field: str | None = None) -> CallError:
    return CallError("bad_task", message, field=field)
