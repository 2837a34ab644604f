"""From what a person typed, or wrote into a file, to tasks; what is wrong is named with its place.

A criterion is a sentence for the judge, one of the short forms such as `shell: …`, or a JSON object.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from delegate.cli.documents import read_document
from delegate.contract.problems import KINDS, Problems, join, kind_fields
from delegate.errors import CallError
from delegate.judging.validate import refuse_undecidable
from delegate.types import AnyCriterion, Criterion, JsonObject, Task

SHORT_FORMS: dict[str, Callable[[str], JsonObject]] = {
    "shell": lambda rest: {"kind": "shell", "command": rest},
    "file": lambda rest: {"kind": "file", "path": rest},
    "regex": lambda rest: {"kind": "regex", "pattern": rest},
    "json": lambda rest: {"kind": "json_predicate", "expr": rest},
    "called": lambda rest: {"kind": "receipt", "mode": "at_least", "calls": [{"tool": rest}]},
    "never called": lambda rest: {"kind": "receipt", "mode": "none", "calls": [{"tool": rest}]},
    "rubric": lambda rest: {"kind": "rubric", "rubric": rest},
    "question": lambda rest: {"kind": "question", "question": rest},
    "manual": lambda rest: {"kind": "manual", "text": rest},
    "text": lambda rest: {"kind": "text", "text": rest},
}
"""What can be typed as `word: …`, and the criterion that it is short for."""
_SHORT = re.compile(rf"\s*({'|'.join(SHORT_FORMS)})\s*:\s*(.*)", re.DOTALL)


def typed_criterion(text: str) -> object:
    """A criterion as typed on the command line, in the form that `Task` takes. Raises CallError."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(f"criterion {text!r:.60} begins like JSON but isn't: {error}", "acceptance_criteria") from None
    if short := _SHORT.fullmatch(text):
        word, rest = short.groups()
        return SHORT_FORMS[word](rest)
    return text


def read_criterion(given: object) -> AnyCriterion:
    """One criterion by itself, in the form that `Task` takes. Raises CallError."""
    if isinstance(given, Mapping):
        problems = Problems()
        _refuse_unknown_in(cast("Mapping[str, object]", given), "", problems)
        problems.raise_first()
    try:
        return TypeAdapter[AnyCriterion](Criterion).validate_python(given)
    except ValidationError as error:
        raise _bad(in_words(error), "acceptance_criteria") from None


def read_task(given: object, *, where: str = "", base: Path | None = None) -> Task:
    """One task. `where` goes before every problem; a relative workspace is meant from `base`. Raises CallError."""
    prefix = f"{where}: " if where else ""
    if not isinstance(given, Mapping):
        raise _bad(f"{prefix}not a task; write a table with at least `goal`")
    fields = dict(cast("Mapping[str, object]", given))
    try:
        _refuse_unknown(fields)
        task = Task.model_validate(fields)
        _refuse_undecidable(task)
    except ValidationError as error:
        raise _bad(prefix + in_words(error)) from None
    except CallError as error:
        raise CallError(error.code, prefix + error.message, field=error.field, hint=error.hint) from None
    return _anchored(task, base) if base else task


def read_tasks(path: Path) -> tuple[Task, ...]:
    """All tasks of a file: a list, or a table whose `tasks` is one. Raises CallError naming file, task and field."""
    document = read_document(path)
    if isinstance(document, Mapping):
        table = cast("Mapping[str, object]", document)
        if others := sorted(str(key) for key in table if key != "tasks"):
            raise _bad(f"{path}: unknown key {others[0]!r}; the file holds `tasks` and nothing else")
        document = table.get("tasks")
    if not isinstance(document, list) or not document:
        raise _bad(f"{path}: no tasks; write a list of tasks, or `tasks` with one")
    listed = cast("list[object]", document)
    return tuple(read_task(task, where=f"{path}: task {n}", base=path.parent) for n, task in enumerate(listed, start=1))


def read_schema(path: Path) -> JsonObject:
    """A JSON Schema from a file. Raises CallError."""
    schema = read_document(path)
    if not isinstance(schema, dict):
        raise _bad(f"{path}: not a JSON Schema: it must be an object", "output_schema")
    return cast("JsonObject", schema)


def _refuse_unknown(fields: Mapping[str, object]) -> None:
    """Keys and kinds that don't exist, with what was probably meant."""
    problems = Problems()
    problems.unknown_fields(fields, tuple(Task.model_fields), "")
    criteria = fields.get("acceptance_criteria")
    for n, criterion in enumerate(cast("Sequence[object]", criteria) if isinstance(criteria, list) else ()):
        if isinstance(criterion, Mapping):
            _refuse_unknown_in(cast("Mapping[str, object]", criterion), f"acceptance_criteria[{n}]", problems)
    problems.raise_first()


def _refuse_unknown_in(criterion: Mapping[str, object], place: str, problems: Problems) -> None:
    kind = criterion.get("kind")
    if kind is None:
        problems.missing_kind(criterion, place)
    elif not isinstance(kind, str) or kind not in KINDS:
        problems.unknown_kind(kind, place)
    else:
        problems.unknown_fields(criterion, kind_fields(KINDS[kind]), place)


def _refuse_undecidable(task: Task) -> None:
    """What no check could use is better said now, for all tasks, than when one of them is done."""
    try:
        refuse_undecidable(task, strict_checks=False)
    except CallError as error:
        error.message = f"`{error.field}` can't be used: {error.message}"
        raise


def _anchored(task: Task, base: Path) -> Task:
    if task.workspace is None or task.workspace.path is None:
        return task
    path = base / task.workspace.path.expanduser()
    return task.model_copy(update={"workspace": task.workspace.model_copy(update={"path": path})})


def in_words(error: ValidationError) -> str:
    """What pydantic found, in one line with the place of each problem."""
    return "; ".join(_detail_in_words(detail) for detail in error.errors(include_url=False)[:5])


def _detail_in_words(detail: ErrorDetails) -> str:
    place, before = "", 0
    for part in detail["loc"]:
        is_tag = isinstance(before, int) and part in KINDS  # which pydantic puts in to say which kind it took it for
        if not is_tag:
            place = f"{place}[{part}]" if isinstance(part, int) else join(place, part)
        before = part
    said = _said(detail)
    return f"`{place}` {said}" if place else said


def _said(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "missing":
            return "is missing"
        case "string_too_short":
            return "is empty"
        case "extra_forbidden":
            return "is not a field here"
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case _:
            return f"{detail['msg']}, got {detail['input']!r:.60}"


def _bad(message: str, field: str | None = None) -> CallError:
    return CallError("bad_task", message, field=field)
