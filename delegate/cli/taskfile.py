"""From what a person typed, or wrote into a file, to tasks; what is wrong is named with its place.

A criterion is a sentence for the judge, or `kind: …` for the kinds that have one main field, or a JSON object.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate.contract.problems import KINDS, Problems, join, kind_fields
from delegate.errors import CallError
from delegate.judging.json_schema import check_schema
from delegate.types import JsonObject, JsonSchemaCriterion, RegexCriterion, Task

SHORT_FORMS = {
    "shell": "command",
    "file": "path",
    "regex": "pattern",
    "question": "question",
    "manual": "text",
    "text": "text",
}
"""The kinds that can be typed as `kind: …`, and the field that the rest of the line is for."""
_SHORT = re.compile(rf"\s*({'|'.join(SHORT_FORMS)})\s*:\s*(.*)", re.DOTALL)
_SUFFIXES = (".json", ".yaml", ".yml", ".toml")


def typed_criterion(text: str) -> object:
    """A criterion as typed on the command line, in the form that `Task` takes. Raises CallError."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise _bad(f"criterion {text!r:.60} begins like JSON but isn't: {error}", "acceptance_criteria") from None
    if short := _SHORT.fullmatch(text):
        kind, rest = short.groups()
        return {"kind": kind, SHORT_FORMS[kind]: rest}
    return text


def read_task(given: object, *, where: str = "", base: Path | None = None) -> Task:
    """One task. `where` goes before every problem; a relative workspace is meant from `base`. Raises CallError."""
    prefix = f"{where}: " if where else ""
    if not isinstance(given, Mapping):
        raise _bad(f"{prefix}not a task; write a table with at least `goal`")
    fields = dict(cast("Mapping[str, object]", given))
    try:
        _refuse_unknown(fields)
        task = Task.model_validate(fields)
    except ValidationError as error:
        raise _bad(prefix + "; ".join(_in_words(detail) for detail in error.errors(include_url=False)[:5])) from None
    except CallError as error:
        raise CallError(error.code, prefix + error.message, field=error.field, hint=error.hint) from None
    if fault := _unusable(task):
        raise _bad(prefix + fault)
    return _anchored(task, base) if base else task


def read_tasks(path: Path) -> tuple[Task, ...]:
    """All tasks of a file: a list, or a table whose `tasks` is one. Raises CallError naming file, task and field."""
    document = _parse(path)
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
    schema = _parse(path)
    if not isinstance(schema, dict):
        raise _bad(f"{path}: not a JSON Schema: it must be an object", "output_schema")
    return cast("JsonObject", schema)


def _parse(path: Path) -> Any:
    if path.suffix.lower() not in _SUFFIXES:
        raise _bad(f"{path}: can't tell its format; the name must end in {', '.join(_SUFFIXES)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise _bad(f"{path} can't be read: {reason}") from None
    try:
        return _loads(path.suffix.lower(), text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from None


def _loads(suffix: str, text: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return tomllib.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


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


def _unusable(task: Task) -> str | None:
    """Patterns and schemas that no check could use: better said now than when the work is done."""
    import regex

    for n, criterion in enumerate(task.criteria):
        place = f"`acceptance_criteria[{n}]`" if n < len(task.acceptance_criteria) else "`output_schema`"
        if isinstance(criterion, JsonSchemaCriterion) and (fault := check_schema(criterion.schema_)):
            return f"{place} is not a JSON Schema: {fault}"
        if isinstance(criterion, RegexCriterion):
            try:
                regex.compile(criterion.pattern)
            except regex.error as error:
                return f"{place} is no regular expression: {error}"
    return None


def _anchored(task: Task, base: Path) -> Task:
    if task.workspace is None or task.workspace.path is None:
        return task
    path = base / task.workspace.path.expanduser()
    return task.model_copy(update={"workspace": task.workspace.model_copy(update={"path": path})})


def _in_words(detail: ErrorDetails) -> str:
    place = ""
    for n, part in enumerate(detail["loc"]):
        is_tag = n > 0 and isinstance(detail["loc"][n - 1], int) and part in KINDS
        if not is_tag:
            place = f"{place}[{part}]" if isinstance(part, int) else join(place, part)
    said = {"missing": "is missing", "string_too_short": "is empty"}.get(detail["type"])
    said = said or f"{detail['msg'].removeprefix('Value error, ')}, got {detail['input']!r:.60}"
    return f"`{place}` {said}" if place else said


def _bad(message: str, field: str | None = None) -> CallError:
    return CallError("bad_task", message, field=field)
