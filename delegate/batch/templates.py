"""Fills templates with `{column}` placeholders from the row of a table, escaping each value for its context.

A column name in braces is replaced. Any other identifier in braces is an error, so that typos are reported; all other
text in braces (`{2,3}`, `{print $1}`, `${HOME}`, `{{ id.report }}`) is left as it is.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, cast

from delegate.judging.reading.statements import Template
from delegate.types import JsonObject
from delegate.types.errors import CallError
from delegate.types.short_forms import criterion_of

Escape = Callable[[str], str]
_BRACES = re.compile(r"(?<![{$])\{([^{}\n]+)\}(?!\})")
_LEAST_LETTERS = 12
_NAME = re.compile(r"[A-Za-z_]\w*")
_QUOTED = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`)""")
_CONSTANT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|true|false|null")
_SHELL_NAME = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Templates:
    """The templates that turn each row of a table into a task."""

    goal: str = "{goal}"
    criteria: tuple[object, ...] = ()
    """Each is a sentence or a short form, or the mapping of a typed criterion. Rows don't change what kind it is."""
    output_schema: JsonObject | None = None
    fields: Mapping[str, Any] | None = None
    """Further fields of every task, used as they are."""

    def __post_init__(self) -> None:
        parsed = tuple(criterion_of(one) if isinstance(one, str) else one for one in self.criteria)
        object.__setattr__(self, "criteria", parsed)

    def task(self, columns: Mapping[str, str]) -> JsonObject:
        """The fields of the task for a row. Raises CallError naming a column that doesn't exist."""
        task = {**(self.fields or {}), "goal": fill(self.goal, columns)}
        if self.criteria:
            task["acceptance_criteria"] = [_criterion(criterion, columns) for criterion in self.criteria]
        if self.output_schema is not None:
            task["output_schema"] = _filled(self.output_schema, columns, _ESCAPES)
        return task

    def to_read(self, columns: Mapping[str, str]) -> Template | None:
        """What a model reads once for all rows; None if the goal has too few words of its own."""
        if sum(map(str.isalpha, _BRACES.sub("", self.goal))) < _LEAST_LETTERS:
            return None
        statements: dict[str, str] = {}
        for n, criterion in enumerate(self.criteria, start=1):
            if isinstance(criterion, Mapping):
                fields = cast("Mapping[str, object]", criterion)
                text = fields.get("text" if fields.get("kind") == "text" else "question")
                if isinstance(text, str):
                    statements[str(fields.get("id") or f"c{n}")] = text
        return Template(self.goal, statements, partial(fill, columns=columns))


def fill(text: str, columns: Mapping[str, str], escape: Escape = str) -> str:
    """Replace each `{column}` in `text` by its escaped value. Raises CallError naming a column that doesn't exist."""

    def value(match: re.Match[str]) -> str:
        name = match[1].strip()
        if name in columns:
            return escape(columns[name])
        if not _NAME.fullmatch(name):
            return match[0]
        similar = get_close_matches(name, columns, n=1)
        names = ", ".join(columns) or "none"
        hint = f"did you mean {{{similar[0]}}}?" if similar else f"the columns are: {names:.400}"
        raise CallError("unknown_column", f"there is no column {name!r}", field=name, hint=hint)

    return _BRACES.sub(value, text)


def _criterion(criterion: object, columns: Mapping[str, str]) -> object:
    if not isinstance(criterion, Mapping):
        return criterion
    table = dict(cast("Mapping[str, object]", criterion))
    if isinstance(about := table.get("about"), str) and _BRACES.search(about):
        table["about"] = {"file": about}  # even if the value is `report`
    filled = cast("JsonObject", _filled(table, columns, _ESCAPES))
    return filled | {"kind": table["kind"]} if "kind" in table else filled


def _filled(value: object, columns: Mapping[str, str], escapes: "Mapping[str, _Fill]", key: str = "") -> object:
    if isinstance(value, str):
        return escapes.get(key, fill)(value, columns)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value).items()
        return {name: _filled(inner, columns, _IN_CALLS.get(name, escapes), name) for name, inner in table}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, columns, escapes) for inner in cast("list[object]", value)]
    return value


def _command(text: str, columns: Mapping[str, str]) -> str:
    """Pass values as shell variables, because no way of quoting is right everywhere in a command."""
    variables: dict[str, str] = {}

    def variable(name: str) -> str:
        shell_name = variables.setdefault(name, f"column_{_SHELL_NAME.sub('_', name)}_{len(variables)}")
        return f'"${{{shell_name}}}"'

    command = fill(text, {name: name for name in columns}, variable)
    assignments = " ".join(f"{shell_name}={shlex.quote(columns[name])}" for name, shell_name in variables.items())
    return f"{assignments}; {command}" if variables else command


def _expression(text: str, columns: Mapping[str, str]) -> str:
    """Escape values inside quotes of any kind. Elsewhere a value is a number, true, false or null, or else a text."""

    def quoted(value: str) -> str:
        return json.dumps(value)[1:-1].replace("'", "\\u0027").replace("`", "\\u0060")

    def bare(value: str) -> str:
        return value if _CONSTANT.fullmatch(value) else f'"{quoted(value)}"'

    return "".join(fill(part, columns, quoted if n % 2 else bare) for n, part in enumerate(_QUOTED.split(text)))


_Fill = Callable[[str, Mapping[str, str]], str]
_ESCAPES: Mapping[str, _Fill] = {"command": _command, "pattern": partial(fill, escape=re.escape), "expr": _expression}
"""The functions that fill fields of criteria and schemas whose values need escaping."""
_IN_CALLS: Mapping[str, Mapping[str, _Fill]] = {key: {"matches": _ESCAPES["pattern"]} for key in ("args", "result")}
