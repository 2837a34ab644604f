"""Texts with `{column}` in them, filled from a row. What a value is put into decides how it is written there.

A name in braces that is a column is replaced. One that only looks like a column is an error, so that a typo is no
silence; whatever else stands in braces (`{2,3}`, `{print $1}`, `${HOME}`, `{{ id.output }}`) is left alone.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from delegate.errors import CallError
from delegate.types import JsonObject

Write = Callable[[str], str]
_BRACES = re.compile(r"(?<![{$])\{([^{}\n]+)\}(?!\})")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SHELL_NAME = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Templates:
    """What every row of a table becomes a task by."""

    goal: str = "{goal}"
    criteria: tuple[object, ...] = ()
    """Each a text, or a criterion's table."""
    output_schema: JsonObject | None = None
    fields: Mapping[str, Any] | None = None
    """Further fields of every task, as they are."""

    def task(self, columns: Mapping[str, str]) -> JsonObject:
        """The fields of a row's task. Raises CallError naming the column that there isn't."""
        task = {**(self.fields or {}), "goal": fill(self.goal, columns)}
        if self.criteria:
            task["acceptance_criteria"] = [_criterion(one, columns) for one in self.criteria]
        if self.output_schema is not None:
            task["output_schema"] = _filled(self.output_schema, columns)
        return task


def fill(text: str, columns: Mapping[str, str], write: Write = str) -> str:
    """`text` with each `{column}` replaced by its value, as `write` puts it. Raises CallError naming the column."""

    def value(found: re.Match[str]) -> str:
        name = found[1].strip()
        if name in columns:
            return write(columns[name])
        if not _NAME.fullmatch(name):
            return found[0]
        raise _unknown(name, columns)

    return _BRACES.sub(value, text)


def _unknown(name: str, columns: Mapping[str, str]) -> CallError:
    near = get_close_matches(name, columns, n=1)
    there = ", ".join(columns) or "none"
    hint = f"did you mean {{{near[0]}}}?" if near else f"the columns are: {there:.400}"
    return CallError("unknown_column", f"there is no column {name!r}", field=name, hint=hint)


def _criterion(one: object, columns: Mapping[str, str]) -> object:
    if not isinstance(one, Mapping):
        return _filled(one, columns)
    table = dict(cast("Mapping[str, object]", one))
    special = _SPECIAL.get(str(table.get("kind")))
    if special is not None and isinstance(text := table.get(special[0]), str):
        rest = {key: _filled(value, columns) for key, value in table.items() if key != special[0]}
        return {**rest, special[0]: special[1](text, columns)}
    return _filled(table, columns)


def _filled(value: object, columns: Mapping[str, str]) -> object:
    """The same with every text in it filled."""
    if isinstance(value, str):
        return fill(value, columns)
    if isinstance(value, Mapping):
        return {key: _filled(inner, columns) for key, inner in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, columns) for inner in cast("list[object]", value)]
    return value


def _command(text: str, columns: Mapping[str, str]) -> str:
    """Values reach a command as variables, since no quoting of them would be right at every place of it."""
    used: dict[str, str] = {}

    def variable(name: str) -> str:
        used[name] = f"column_{_SHELL_NAME.sub('_', name)}_{len(used)}" if name not in used else used[name]
        return f'"${{{used[name]}}}"'

    filled = fill(text, {name: name for name in columns}, variable)
    given = " ".join(f"{of}={shlex.quote(columns[name])}" for name, of in used.items())
    return f"{given}; {filled}" if used else filled


def _pattern(text: str, columns: Mapping[str, str]) -> str:
    return fill(text, columns, re.escape)


def _expression(text: str, columns: Mapping[str, str]) -> str:
    """Values are written as they stand inside quotes of any kind."""
    return fill(text, columns, lambda value: json.dumps(value)[1:-1].replace("'", "\\u0027").replace("`", "\\u0060"))


_SPECIAL: Mapping[str, tuple[str, Callable[[str, Mapping[str, str]], str]]] = {
    "shell": ("command", _command),
    "regex": ("pattern", _pattern),
    "json_predicate": ("expr", _expression),
}
"""Criteria whose text is a language of its own: which field, and how it is filled."""
