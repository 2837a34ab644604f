"""What is said of errors in a value: those that pydantic finds, in one line, and where an error is."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate.types.criteria import AnyCriterion
from delegate.types.errors import CallError

_KINDS = [get_args(model.model_fields["kind"].annotation)[0] for model in get_args(AnyCriterion)]
_CRITERION = f"a string, or an object whose `kind` is one of {', '.join(_KINDS)}"
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "an object",
    "tuple": "a list",
    **dict.fromkeys(("model_attributes_type", "union_tag_not_found", "union_tag_invalid"), _CRITERION),
    "model": "an object",
}
"""What a value should be, by pydantic's code of the error or by the type in it, unless that is what it should be."""
_FORM = re.compile(r"str|constrained-str|AboutFile|Receipt|Rubric|\w+\[.*\]")
"""What pydantic adds to a path for one of several forms of a value, besides the kind of a criterion."""
_PLAIN = {
    "missing": "is missing; add it",
    "string_too_short": "is empty; fill it in",
    "extra_forbidden": "is not an allowed field; remove it",
}


def error_text(error: ValidationError, known: Sequence[str] = ()) -> str:
    """The errors found by pydantic, at most five, each with the path of its field.

    An unknown field of the value itself gets the one of `known` that was meant: a similar one, or one whose last word
    it is, as `criteria` of `acceptance_criteria`.
    """
    details: dict[str, ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        details.setdefault(path_of(detail), detail)
    # Of the errors of several forms, those inside of one say more than that the value has another form.
    telling = [path for path in details if not any(other.startswith((f"{path}.", f"{path}[")) for other in details)]
    return "; ".join(_detail_text(path, details[path], known) for path in telling[:5])


def path_of(detail: ErrorDetails) -> str:
    """The path of the field with the error, such as `tasks[1].goal`; empty for the value itself."""
    path = ""
    for before, part in pairwise((0, *detail["loc"])):
        if isinstance(part, int):
            path += f"[{part}]"
        elif not (_FORM.fullmatch(part) or (isinstance(before, int) and part in _KINDS)):
            path = f"{path}.{part}".lstrip(".")
    return path


def problem_of(detail: ErrorDetails) -> str:
    """What is wrong with a value, such as `should be a number`."""
    kind = detail["type"]
    if kind in _EXPECTED or kind.endswith(("_type", "_parsing", "_from_float")):
        name = kind.partition("_")[0]
        return f"should be {_EXPECTED.get(kind) or _EXPECTED.get(name, f'a {name}')}"
    return detail["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")


def _detail_text(path: str, detail: ErrorDetails, known: Sequence[str]) -> str:
    kind = detail["type"]
    problem = _PLAIN.get(kind) or problem_of(detail)
    if kind == "extra_forbidden" and len(detail["loc"]) == 1:
        ends = (name for name in known if name.endswith(f"_{path}"))
        similar = next(iter([*get_close_matches(path, known, 1), *ends]), None)
        problem = f"is not a field; did you mean `{similar}`?" if similar else problem
    elif kind not in (*_PLAIN, "value_error"):
        problem = f"{problem}, got {detail['input']!r:.60}"
    return f"`{path}` {problem}" if path else problem


@contextmanager
def located(where: str) -> Generator[None]:
    """Let a CallError of the block begin with where it is, such as `tasks.yaml: task 2`. Empty: leave it as it is."""
    try:
        yield
    except CallError as error:
        message = f"{where}: {error.message}" if where else error.message
        raise CallError(error.code, message, field=error.field, hint=error.hint) from None
