"""Parses a parent model's tool call into tasks, or raises one error that tells the model how to fix the call.

Common mistakes of form are accepted if the meaning is clear:

* Optional fields with null, "", [] or {} count as omitted.
* The whole call, `tasks`, one task, `acceptance_criteria`, one criterion, `output_schema` or any other object can be
  JSON text.
* A single task or criterion is accepted in place of a list. A text is never split into several criteria.
* A task that is a plain string is its goal.
* A tier can be in capitals.
* A criterion can be a short form such as `shell: make test`, in any case. One that looks mistyped is refused.

Ambiguous calls are refused with a `CallError`, whose codes docs/verdicts.md lists.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from pydantic import ValidationError

from delegate._util.fencing import one_line
from delegate._util.patterns import pattern_fault
from delegate.contract.matchers import criterion_faults
from delegate.contract.problems import KINDS, TASK_FIELDS, Problems, kind_fields, with_hint
from delegate.contract.reading import (
    MAX_CRITERIA,
    Arguments,
    check_size,
    decode,
    is_blank,
    join,
    kind_of,
    read_object,
    show,
)
from delegate.types import TIERS, JsonObject, Task
from delegate.types.criteria import parse_text
from delegate.types.errors import CallError
from delegate.types.short_forms import LOOKS_LIKE_JSON, expand

CheckSchema = Callable[[JsonObject], str | None]
"""Returns what is wrong with a JSON Schema, or None."""


def parse_call(
    arguments: Arguments, *, check_schema: CheckSchema, max_tasks: int = 3, has_roles: bool = False
) -> tuple[Task, ...]:
    """Parse a call into its tasks: at least one and at most `max_tasks`, in the given order.

    `check_schema` validates JSON Schemas. Only if the tool `has_roles`, a task may have the field `role`.

    Raises:
        CallError: The call is invalid. The message lists all problems, so that one
            more attempt is enough, and the hint says how to fix the first one.
    """
    try:
        call = read_object(arguments)
        parser = _Parser(check_schema, (*TASK_FIELDS, "role") if has_roles else TASK_FIELDS)
        split = _split(call, max_tasks, parser.problems, parser.task_fields)
        tasks = [parser.task(given, path) for path, given in split]
        parser.problems.raise_first()
    except CallError as error:
        raise with_hint(error) from None
    return tuple(task for task in tasks if task is not None)


def take_flag(arguments: Arguments, flag: Literal["background", "scratch"]) -> tuple[Arguments, bool]:
    """Return the arguments without this one, which is about a call as a whole, and whether it is true.

    Arguments that can't be read are returned as they are, and so is a text in its place, as models send for
    `background` when they mean the context: `parse_call` refuses it.
    """
    try:
        call = read_object(arguments)
    except CallError:
        return arguments, False
    wanted = call.get(flag)
    if not isinstance(wanted, bool) and not is_blank(wanted):
        return arguments, False
    return {name: value for name, value in call.items() if name != flag}, bool(wanted)


def _split(
    call: Mapping[str, object], max_tasks: int, problems: Problems, known: tuple[str, ...]
) -> list[tuple[str, object]]:
    """Return the call's unparsed tasks, each with its path in the call."""
    problems.unknown_fields(call, (*known, "tasks"), "")
    tasks = _decode_nested(call.get("tasks"), "tasks")
    task_fields = [name for name in known if not is_blank(call.get(name))]
    if is_blank(tasks):
        if task_fields or isinstance(call.get("goal"), str):
            return [("", {name: call[name] for name in known if name in call})]
        problems.raise_first()
        raise CallError("no_task", "the call has no task", field="goal", hint="send `goal`, or `tasks` with 1 or more")
    if task_fields:
        name = task_fields[0]
        message = f"`{name}` can't be combined with `tasks`"
        raise CallError("goal_and_tasks", message, field=name, hint=f"put `{name}` into each of the `tasks`")
    if isinstance(tasks, (str, Mapping)):
        tasks = [cast("object", tasks)]
    if not isinstance(tasks, (list, tuple)):
        raise CallError("wrong_type", f"`tasks` is {kind_of(tasks)}, not a list of tasks", field="tasks")
    items = cast("list[object]", tasks)
    if len(items) > max_tasks:
        message = f"`tasks` has {len(items)} tasks, but at most {max_tasks} are allowed in one call"
        raise CallError("too_many_tasks", message, field="tasks", hint="send the others in further calls")
    return [(f"tasks[{n}]", task) for n, task in enumerate(items)]


class _Parser:
    """Parses tasks, and continues after a problem to find the next one."""

    def __init__(self, check_schema: CheckSchema, task_fields: tuple[str, ...]) -> None:
        self.problems = Problems()
        self.task_fields = task_fields
        self._check_schema = check_schema

    def task(self, given: object, path: str) -> Task | None:
        """Parse one task. Returns None if there was a problem."""
        fields: dict[str, object] = {}
        try:
            fields = self._task_fields(given, path)
            task = Task.model_validate(fields)
            for n, criterion in enumerate(task.acceptance_criteria):
                for fault in criterion_faults(criterion):
                    field = join(path, f"acceptance_criteria[{n}]") + f".{fault.field}"
                    self.problems.add("invalid_criterion", field, fault.message)
            return task
        except CallError as error:
            self.problems.add_error(error)
        except ValidationError as error:
            self.problems.from_pydantic(error, path)
        return None

    def _task_fields(self, given: object, path: str) -> dict[str, object]:
        check_size(given, path)
        given = _decode_nested(given, path)
        if isinstance(given, str):
            given = {"goal": given}
        if not isinstance(given, Mapping):
            message = f'`{path}` is {kind_of(given)}, not a task such as {{"goal": "..."}}'
            raise CallError("wrong_type", message, field=path)
        task = cast("Mapping[str, object]", given)
        self.problems.unknown_fields(task, self.task_fields, path)
        fields = {name: task[name] for name in self.task_fields if not is_blank(task.get(name))}
        if "goal" not in fields:
            self.problems.add("empty", join(path, "goal"), "is empty" if "goal" in task else "is missing")
            fields["goal"] = "?"  # so that validation reports only problems of the other fields
        self._parse_field(fields, "tier", path, _tier)
        self._parse_field(fields, "output_schema", path, self._schema)
        self._parse_field(fields, "acceptance_criteria", path, self._criteria)
        self._parse_field(fields, "needs", path, _decode_nested)
        return fields

    def _parse_field(
        self, fields: dict[str, object], name: str, path: str, parse: Callable[[object, str], object | None]
    ) -> None:
        """Replace a field's value with the parsed one. A field with a problem is removed."""
        if name in fields:
            try:
                fields[name] = parse(fields[name], join(path, name))
            except CallError as error:
                self.problems.add_error(error)
                del fields[name]

    def _schema(self, value: object, path: str) -> JsonObject:
        schema = _decode_nested(value, path)
        if not isinstance(schema, Mapping):
            message = f"`{path}` is {kind_of(schema)}, not a JSON Schema as an object"
            raise CallError("invalid_schema", message, field=path)
        as_object = dict(cast("Mapping[str, Any]", schema))
        if fault := self._check_schema(as_object):
            raise CallError("invalid_schema", f"`{path}` is not a JSON Schema: {one_line(fault, 300)}", field=path)
        return as_object

    def _criteria(self, value: object, path: str) -> list[object]:
        value = _decode_nested(value, path)
        if isinstance(value, (str, Mapping)):
            value = [cast("object", value)]
        if not isinstance(value, (list, tuple)):
            message = f"`{path}` is {kind_of(value)}, not a list of criteria"
            raise CallError("wrong_type", message, field=path)
        given = cast("list[object]", value)
        if len(given) > MAX_CRITERIA:
            message = f"`{path}` has {len(given)} criteria, but at most {MAX_CRITERIA} are allowed"
            raise CallError("too_large", message, field=path)
        return [self._criterion(criterion, f"{path}[{n}]") for n, criterion in enumerate(given)]

    def _criterion(self, value: object, path: str) -> object:
        if is_blank(value):
            self.problems.add("empty", path, "is empty", "remove it, or write a fact that can be checked")
        elif isinstance(value, str) and LOOKS_LIKE_JSON.match(value):
            return self._criterion(decode(value, path), path)
        elif isinstance(value, str):
            try:
                typed = expand(value)
                return value if typed is None else self._typed(typed, path)
            except CallError as error:
                self.problems.add(error.code, path, f"can't be used: {error.message}", error.hint)
        elif isinstance(value, Mapping):
            return self._typed(cast("Mapping[str, object]", parse_text(cast("object", value))), path)
        else:
            self.problems.add("wrong_type", path, f"is {kind_of(value)}, not a string or an object with `kind`")
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
            self._parse_field(fields, name, path, self._schema)
        self._parse_field(fields, "calls", path, _calls)
        self._parse_field(fields, "args", path, _decode_nested)
        self._parse_field(fields, "about", path, _decode_nested)
        self._parse_field(fields, "pattern", path, _pattern)
        return fields if len(self.problems) == before else _PLACEHOLDER


_PLACEHOLDER = "?"
"""Replaces a criterion with a problem, so that the others keep their positions."""
_JSON_TEXT = re.compile(r"""\s*(?:\{\s*["'}]|\[\s*["'{\[\]])""")


def _decode_nested(value: object, path: str) -> object:
    """Decode a string that is a JSON object or list. Other values are returned unchanged."""
    if not (isinstance(value, str) and _JSON_TEXT.match(value)):
        return value
    value = decode(value, path)
    check_size(value, path)
    return value


def _calls(value: object, path: str) -> object:
    """Parse the expected calls of a receipt criterion, whose arguments may be JSON text."""
    calls = _decode_nested(value, path)
    if not isinstance(calls, (list, tuple)):
        return calls
    read: list[object] = []
    for n, call in enumerate(cast("list[object]", calls)):
        parts = cast("Mapping[str, object]", call).items() if isinstance(call, Mapping) else ()
        fields = {name: _decode_nested(part, join(f"{path}[{n}]", name)) for name, part in parts if not is_blank(part)}
        read.append(fields if isinstance(call, Mapping) else call)
    return read


def _tier(value: object, path: str) -> object:
    tier = value.strip().lower() if isinstance(value, str) else value
    if tier not in TIERS:
        hint = f"the tiers are {', '.join(TIERS)}"
        raise CallError("unknown_tier", f"`{path}` is {show(value)}, which is not a tier", field=path, hint=hint)
    return tier


def _pattern(value: object, path: str) -> object:
    if isinstance(value, str) and (fault := pattern_fault(value)):
        raise CallError("invalid_criterion", f"`{path}` is not a valid regular expression: {fault}", field=path)
    return value
