"""From a parent model's tool call to tasks, or to one error that tells the model how to mend the call.

What models get wrong in form but not in meaning is taken as it was meant:

* optional fields filled with null, "", [] or {} are absent ones;
* the whole call, `tasks`, one task, `acceptance_criteria`, one criterion, `output_schema` or any other object may come
  as JSON text;
* one task or one criterion where a list is meant is a list of one. A text is never split into several criteria;
* a task that is plain text is its goal;
* a tier may be in capitals.

Whatever could mean two things is refused, with `CallError` and nothing else:

| code | when |
|---|---|
| `invalid_json` | JSON text that can't be read, here or in a field |
| `not_an_object` | the call is JSON, but no object |
| `no_task` | neither `goal` nor `tasks` |
| `goal_and_tasks` | `tasks`, and beside it fields that belong to one task |
| `too_many_tasks` | more than one call may hold |
| `unknown_field` | a key that isn't one of ours, or is not for parents to set |
| `empty` | a goal, a criterion or one of its texts is missing or blank |
| `wrong_type` | a value of another JSON type than wanted |
| `unknown_tier` | a tier other than deep, standard, fast |
| `unknown_criterion_kind` | a `kind` that doesn't exist |
| `invalid_criterion` | a criterion that lacks a field, or has a value out of range, or a bad pattern |
| `invalid_schema` | an `output_schema` or a criterion's schema that isn't one |
| `duplicate_id` | two criteria of one task with the same id |
| `too_large` | too long, too deep, too many (the limits are in `reading`) |
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from delegate._util.fencing import one_line
from delegate.contract.patterns import pattern_fault
from delegate.contract.problems import KINDS, TASK_FIELDS, Problems, kind_fields, with_hint
from delegate.contract.reading import (
    MAX_CRITERIA,
    decode,
    is_blank,
    join,
    kind_of,
    read_object,
    show,
    weigh,
)
from delegate.contract.schema_shape import schema_fault
from delegate.errors import CallError
from delegate.types import TIERS, JsonObject, Task

CheckSchema = Callable[[JsonObject], str | None]
"""Says what is wrong with a JSON Schema, or None."""


def parse_call(
    arguments: Mapping[str, Any] | str | bytes,
    *,
    max_tasks: int = 3,
    check_schema: CheckSchema | None = None,
) -> tuple[Task, ...]:
    """The tasks of one call, at least one and at most `max_tasks`, in the order given.

    Raises `CallError`, whose code is in the table above. Its message names every problem that was found, not only
    the first, so that one more attempt is enough; its hint says how to mend the first.

    `check_schema` looks at JSON Schemas; by default their mere shape is looked at, without a schema library.
    """
    try:
        call = read_object(arguments)
        reader = _Reader(check_schema or schema_fault)
        tasks = [reader.task(given, path) for path, given in _split(call, max_tasks, reader.problems)]
        reader.problems.raise_first()
    except CallError as error:
        raise with_hint(error) from None
    return tuple(task for task in tasks if task is not None)


def _split(call: Mapping[str, object], max_tasks: int, problems: Problems) -> list[tuple[str, object]]:
    """The call's tasks as given, each with its path in the call."""
    problems.unknown_fields(call, (*TASK_FIELDS, "tasks"), "")
    tasks = _unpacked(call.get("tasks"), "tasks")
    beside = [name for name in TASK_FIELDS if not is_blank(call.get(name))]
    if is_blank(tasks):
        if beside or isinstance(call.get("goal"), str):
            return [("", {name: call[name] for name in TASK_FIELDS if name in call})]
        problems.raise_first()
        raise CallError("no_task", "the call has no task", field="goal", hint="give `goal`, or `tasks` with 1 or more")
    if beside:
        message = f"`{beside[0]}` stands beside `tasks`, so it belongs to no task"
        raise CallError("goal_and_tasks", message, field=beside[0], hint=f"put `{beside[0]}` into each of the `tasks`")
    if isinstance(tasks, (str, Mapping)):
        tasks = [cast("object", tasks)]
    return _listed(tasks, max_tasks)


def _listed(tasks: object, max_tasks: int) -> list[tuple[str, object]]:
    if not isinstance(tasks, (list, tuple)):
        raise CallError("wrong_type", f"`tasks` is {kind_of(tasks)}; a list of tasks is wanted", field="tasks")
    listed = cast("list[object]", tasks)
    if len(listed) > max_tasks:
        message = f"`tasks` holds {len(listed)} tasks, at most {max_tasks} fit in one call"
        raise CallError("too_many_tasks", message, field="tasks", hint="make further calls for the others")
    return [(f"tasks[{n}]", task) for n, task in enumerate(listed)]


class _Reader:
    """Reads tasks, and goes on after a problem to find the next."""

    def __init__(self, check_schema: CheckSchema) -> None:
        self.problems = Problems()
        self._check_schema = check_schema

    def task(self, given: object, path: str) -> Task | None:
        """One task, or None where there was a problem."""
        fields: dict[str, object] = {}
        try:
            fields = self._task_fields(given, path)
            return Task.model_validate(fields)
        except CallError as error:
            self.problems.take(error)
        except ValidationError as error:
            self.problems.from_pydantic(error, fields, path)
        return None

    def _task_fields(self, given: object, path: str) -> dict[str, object]:
        weigh(given, path)
        given = _unpacked(given, path)
        if isinstance(given, str):
            given = {"goal": given}
        if not isinstance(given, Mapping):
            message = f'`{path}` is {kind_of(given)}; a task such as {{"goal": "..."}} is wanted'
            raise CallError("wrong_type", message, field=path)
        task = cast("Mapping[str, object]", given)
        self.problems.unknown_fields(task, TASK_FIELDS, path)
        fields = {name: task[name] for name in TASK_FIELDS if not is_blank(task.get(name))}
        if "goal" not in fields:
            self.problems.add("empty", join(path, "goal"), "is empty" if "goal" in task else "is missing")
            fields["goal"] = "?"  # so that what follows speaks of the other fields only
        self._read(fields, "tier", path, self._tier)
        self._read(fields, "output_schema", path, self._schema)
        self._read(fields, "acceptance_criteria", path, self._criteria)
        return fields

    def _read(
        self, fields: dict[str, object], name: str, path: str, reader: Callable[[object, str], object | None]
    ) -> None:
        """Replace one field by what `reader` makes of it; a field with a problem is dropped."""
        if name in fields:
            try:
                fields[name] = reader(fields[name], join(path, name))
            except CallError as error:
                self.problems.take(error)
                del fields[name]

    def _tier(self, value: object, path: str) -> object:
        tier = value.strip().lower() if isinstance(value, str) else value
        if tier not in TIERS:
            hint = f"the tiers are {', '.join(TIERS)}"
            raise CallError("unknown_tier", f"`{path}` is {show(value)}, which is no tier", field=path, hint=hint)
        return tier

    def _schema(self, value: object, path: str) -> JsonObject:
        schema = _unpacked(value, path)
        if not isinstance(schema, Mapping):
            message = f"`{path}` is {kind_of(schema)}; a JSON Schema as an object is wanted"
            raise CallError("invalid_schema", message, field=path)
        as_object = dict(cast("Mapping[str, Any]", schema))
        if fault := self._check_schema(as_object):
            raise CallError("invalid_schema", f"`{path}` is not a JSON Schema: {one_line(fault, 300)}", field=path)
        return as_object

    def _criteria(self, value: object, path: str) -> list[object]:
        value = _unpacked(value, path)
        if isinstance(value, (str, Mapping)):
            value = [cast("object", value)]
        if not isinstance(value, (list, tuple)):
            message = f"`{path}` is {kind_of(value)}; a list of criteria is wanted"
            raise CallError("wrong_type", message, field=path)
        given = cast("list[object]", value)
        if len(given) > MAX_CRITERIA:
            message = f"`{path}` holds {len(given)} criteria, at most {MAX_CRITERIA} are taken"
            raise CallError("too_large", message, field=path)
        return [self._criterion(criterion, f"{path}[{n}]") for n, criterion in enumerate(given)]

    def _criterion(self, value: object, path: str) -> object:
        if is_blank(value):
            self.problems.add("empty", path, "is empty", "leave it out, or write a fact that can be checked")
        elif isinstance(value, str) and _TYPED_AS_TEXT.match(value):
            return self._criterion(decode(value, path), path)
        elif isinstance(value, Mapping):
            return self._typed(cast("Mapping[str, object]", value), path)
        elif not isinstance(value, str):
            self.problems.add("wrong_type", path, f"is {kind_of(value)}; a text or an object with `kind` is wanted")
        else:
            return value
        return _PLACEHOLDER

    def _typed(self, given: Mapping[str, object], path: str) -> object:
        fields = {name: value for name, value in given.items() if value is not None}
        kind = fields.get("kind")
        if kind is None:
            self.problems.missing_kind(fields, path)
            return _PLACEHOLDER
        if not isinstance(kind, str) or kind not in KINDS:
            self.problems.unknown_kind(kind, path)
            return _PLACEHOLDER
        before, known = len(self.problems), kind_fields(KINDS[kind])
        self.problems.unknown_fields(fields, known, path)
        fields = {name: value for name, value in fields.items() if name in known}
        for name in ("schema", "json_schema"):
            self._read(fields, name, path, self._schema)
        self._read(fields, "calls", path, _calls)
        self._read(fields, "pattern", path, _pattern)
        return fields if len(self.problems) == before else _PLACEHOLDER


_PLACEHOLDER = "?"
"""Stands for a criterion that had a problem, so that the others keep their places."""
_JSON_TEXT = re.compile(r"""\s*(?:\{\s*["'}]|\[\s*["'{\[\]])""")
_TYPED_AS_TEXT = re.compile(r"""\s*\{[\s"']*kind\b""")


def _unpacked(value: object, path: str) -> object:
    """The object or list in a text that is JSON; any other value as it is."""
    if not (isinstance(value, str) and _JSON_TEXT.match(value)):
        return value
    value = decode(value, path)
    weigh(value, path)
    return value


def _calls(value: object, path: str) -> object:
    """The expected calls of a receipt criterion, whose arguments may be JSON text."""
    calls = _unpacked(value, path)
    if not isinstance(calls, (list, tuple)):
        return calls
    return [_expected_call(call, f"{path}[{n}]") for n, call in enumerate(cast("list[object]", calls))]


def _expected_call(value: object, path: str) -> object:
    if not isinstance(value, Mapping):
        return value
    given = cast("Mapping[str, object]", value)
    return {name: _unpacked(part, join(path, name)) for name, part in given.items() if not is_blank(part)}


def _pattern(value: object, path: str) -> object:
    if isinstance(value, str) and (fault := pattern_fault(value)):
        raise CallError("invalid_criterion", f"`{path}` is not a usable regular expression: {fault}", field=path)
    return value
