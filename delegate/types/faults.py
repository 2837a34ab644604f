"""The errors that pydantic finds in a value, in one line."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate.types.criteria import AnyCriterion

_KINDS = {get_args(model.model_fields["kind"].annotation)[0] for model in get_args(AnyCriterion)}


def error_text(error: ValidationError, known: Sequence[str] = ()) -> str:
    """The errors found by pydantic, each with the path of its field.

    An unknown field of the value itself gets the similar one of `known`.

    At most five are told.
    """
    return "; ".join(_detail_text(detail, known) for detail in error.errors(include_url=False)[:5])


def _detail_text(detail: ErrorDetails, known: Sequence[str]) -> str:
    path, previous = "", 0
    for part in detail["loc"]:
        is_tag = isinstance(previous, int) and part in _KINDS  # pydantic adds the kind of a criterion to its path
        if not is_tag:
            path = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}".lstrip(".")
        previous = part
    is_unknown = detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1
    similar = _meant(path, known) if is_unknown else None
    problem = f"is not a field; did you mean `{similar}`?" if similar else _problem(detail)
    return f"`{path}` {problem}" if path else problem


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The field that was meant: a similar one, or one whose last word it is, as `criteria` of `acceptance_criteria`."""
    close = get_close_matches(name[:60], known, n=1, cutoff=0.7)
    return next(iter([*close, *(field for field in known if field.endswith(f"_{name}"))]), None)


def _problem(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "missing":
            return "is missing; add it"
        case "string_too_short":
            return "is empty; fill it in"
        case "extra_forbidden":
            return "is not an allowed field; remove it"
        case "tuple_type":
            return f"should be a list, got {detail['input']!r:.60}"
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case _:
            return f"{detail['msg']}, got {detail['input']!r:.60}"
