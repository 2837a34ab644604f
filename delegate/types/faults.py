"""What is said of errors in a value: those that pydantic finds, in one line, and where an error is."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate.types.criteria import AnyCriterion
from delegate.types.errors import CallError

_KINDS = {get_args(model.model_fields["kind"].annotation)[0] for model in get_args(AnyCriterion)}
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
    return "; ".join(_detail_text(detail, known) for detail in error.errors(include_url=False)[:5])


def _detail_text(detail: ErrorDetails, known: Sequence[str]) -> str:
    kind, path = detail["type"], ""
    for before, part in pairwise((0, *detail["loc"])):
        if isinstance(part, int):
            path += f"[{part}]"
        elif not (isinstance(before, int) and part in _KINDS):  # pydantic adds a criterion's kind to its path
            path = f"{path}.{part}".lstrip(".")
    problem = _PLAIN.get(kind) or detail["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden" and len(detail["loc"]) == 1:
        ends = (name for name in known if name.endswith(f"_{path}"))
        similar = next(iter([*get_close_matches(path, known, 1), *ends]), None)
        problem = f"is not a field; did you mean `{similar}`?" if similar else problem
    elif kind not in (*_PLAIN, "value_error"):
        problem = f"{'should be a list' if kind == 'tuple_type' else problem}, got {detail['input']!r:.60}"
    return f"`{path}` {problem}" if path else problem


@contextmanager
def located(where: str) -> Generator[None]:
    """Let a CallError of the block begin with where it is, such as `tasks.yaml: task 2`. Empty: leave it as it is."""
    try:
        yield
    except CallError as error:
        message = f"{where}: {error.message}" if where else error.message
        raise CallError(error.code, message, field=error.field, hint=error.hint) from None
