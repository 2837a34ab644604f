"""What is wrong with a call, said so that a model can mend all of it in its next attempt."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate.contract.reading import join, show
from delegate.errors import CallError
from delegate.types import AnyCriterion, CriterionBase, Task

TASK_FIELDS = ("goal", "context", "acceptance_criteria", "tier", "output_schema")
"""What a parent may say about a task. The other fields of `Task` are for the person who runs delegate."""
KINDS: dict[str, type[CriterionBase]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(AnyCriterion)
}

_MOST_UNKNOWN = 8
"""Unknown keys that are looked at: finding what was meant takes time, and a call may hold any number of them."""
_MOST_TOLD = 8
"""Problems that are told beside the first."""
_FOR_PEOPLE = frozenset(Task.model_fields) - frozenset(TASK_FIELDS)
_MEANT = {
    **dict.fromkeys(("prompt", "task", "description", "objective", "instruction", "instructions", "message"), "goal"),
    **dict.fromkeys(("background", "notes", "input"), "context"),
    **dict.fromkeys(("criteria", "acceptance", "success_criteria", "checks"), "acceptance_criteria"),
    **dict.fromkeys(("schema", "response_schema", "response_format", "json_schema"), "output_schema"),
    **dict.fromkeys(("type", "check"), "kind"),
    **dict.fromkeys(("cmd", "shell", "run"), "command"),
    **dict.fromkeys(("file", "filename", "file_path"), "path"),
    **dict.fromkeys(("expression", "predicate"), "expr"),
    **dict.fromkeys(("regex", "regexp"), "pattern"),
    **dict.fromkeys(("criterion", "statement"), "text"),
}
_HINTS = {
    "invalid_json": "send one JSON object in double quotes, with nothing around it",
    "empty": "write what is wanted there, or leave out what is not needed",
    "invalid_criterion": "mend this criterion, or write it as a plain text for the judge",
    "invalid_schema": 'send a JSON Schema such as {"type": "object", "properties": {...}}, or leave it out',
    "duplicate_id": "give each criterion of a task another `id`, or none: they are then c1, c2, ...",
    "too_large": "send less: write long material to a file and name its path",
}
_MEANT_KIND = {
    **dict.fromkeys(("command", "bash", "sh", "exec", "test"), "shell"),
    **dict.fromkeys(("string", "judge", "llm"), "text"),
    **dict.fromkeys(("tool", "tool_call", "tools"), "receipt"),
    **dict.fromkeys(("schema",), "json_schema"),
    **dict.fromkeys(("human",), "manual"),
}


class Problems:
    """Collects problems in the order found. The first is the error; the others are named in its message."""

    def __init__(self) -> None:
        self._found: list[CallError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, code: str, field: str, message: str, hint: str | None = None) -> None:
        """`message` goes on from the field's name: "is empty"."""
        self._found.append(CallError(code, f"`{field}` {message}", field=field, hint=hint))

    def take(self, error: CallError) -> None:
        """Add a problem that was raised."""
        self._found.append(error)

    def raise_first(self) -> None:
        """Raise what was found, if anything was."""
        if not self._found:
            return
        first, *others = self._found
        told = [f"{error.message}{f' ({error.hint})' if error.hint else ''}" for error in others[:_MOST_TOLD]]
        told += [f"and {len(others) - _MOST_TOLD} more"] if len(others) > _MOST_TOLD else []
        message = f"{first.message}. Also: {'; '.join(told)}" if told else first.message
        raise with_hint(CallError(first.code, message, field=first.field, hint=first.hint))

    # ------------------------------------------------------------------------------------------- common problems

    def unknown_fields(self, given: Mapping[str, object], known: Sequence[str], path: str) -> None:
        """One problem for each key that isn't known there."""
        for name in [str(key) for key in given if key not in known][:_MOST_UNKNOWN]:
            self.add("unknown_field", join(path, name), "is not a field here", _mend(name, known))

    def unknown_kind(self, kind: object, path: str) -> None:
        """The criterion's `kind` is none of ours."""
        name = kind.lower() if isinstance(kind, str) else ""
        near = _MEANT_KIND.get(name) or _nearest(name, tuple(KINDS))
        hint = f"the kinds are {', '.join(KINDS)}" + (f"; did you mean `{near}`?" if near else "")
        self.add("unknown_criterion_kind", join(path, "kind"), f"is {show(kind)}, which is no kind of criterion", hint)

    def missing_kind(self, given: Mapping[str, object], path: str) -> None:
        """A criterion given as an object says no `kind`; its other fields often tell which was meant."""
        meant = next((kind for kind, model in KINDS.items() if given.keys() & _required(model)), None)
        hint = (
            f'add "kind": "{meant}"' if meant else f"the kinds are {', '.join(KINDS)}; or write the criterion as text"
        )
        self.add("invalid_criterion", join(path, "kind"), "is missing", hint)

    def from_pydantic(self, error: ValidationError, given: Mapping[str, object], path: str) -> None:
        """The same for what only the models themselves find, one problem per place."""
        details: dict[str, ErrorDetails] = {}
        for detail in error.errors(include_url=False, include_context=False):
            details.setdefault(_place(detail, given, path), detail)
        for place, detail in details.items():
            # Of a union's errors, those within the value tell more than that it is no text.
            if not any(other.startswith(f"{place}.") for other in details):
                self._found.append(_from_detail(detail, place))


def with_hint(error: CallError) -> CallError:
    """The error, with the mend that usually fits its code where it names none of its own."""
    error.hint = error.hint or _HINTS.get(error.code, "mend this field and send the call again")
    return error


def kind_fields(model: type[CriterionBase]) -> tuple[str, ...]:
    """The names of a criterion's fields as a call spells them."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _required(model: type[CriterionBase]) -> set[str]:
    return {f.alias or name for name, f in model.model_fields.items() if name != "kind" and f.is_required()}


def _mend(name: str, known: Sequence[str]) -> str:
    others = [other for other, meant in _MEANT.items() if meant in known]
    if near := _MEANT.get(name.lower()) if name.lower() in others else _nearest(name, known):
        return f"did you mean `{near}`?"
    if name in _FOR_PEOPLE:
        instead = "; ask for a `tier` instead" if name == "model" else ""
        return f"`{name}` is set by the person who runs this, not in a call{instead}"
    if near := _MEANT.get(_nearest(name, others) or ""):
        return f"did you mean `{near}`?"
    return f"the fields are {', '.join(known)}"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(name[:60].lower(), known, n=1, cutoff=0.7)), None)


def _place(detail: ErrorDetails, given: object, path: str) -> str:
    """The place in the call that pydantic's location means: the tags it puts in for unions are no part of the call."""
    here: Any = given
    missing = detail["loc"][-1] if detail["type"] == "missing" else None
    for part in detail["loc"]:
        if isinstance(part, int):
            path = f"{path}[{part}]"
            here = cast("Sequence[object]", here)[part] if isinstance(here, (list, tuple)) else None
        elif isinstance(here, Mapping) and (part in here or part == missing):
            path = join(path, part)
            here = cast("Mapping[str, object]", here).get(part)
    return path


def _from_detail(detail: ErrorDetails, place: str) -> CallError:
    in_criterion = "acceptance_criteria" in place
    kind = detail["type"]
    if kind == "missing":
        return CallError("invalid_criterion" if in_criterion else "empty", f"`{place}` is missing", field=place)
    if kind == "string_too_short":
        return CallError("empty", f"`{place}` is empty", field=place)
    if kind == "extra_forbidden":
        return CallError("unknown_field", f"`{place}` is not a field here", field=place)
    said = detail["msg"][:1].lower() + detail["msg"][1:]
    if kind == "value_error":
        place = join(place, "acceptance_criteria")
        return CallError("duplicate_id", f"`{place}`: {said.removeprefix('value error, ')}", field=place)
    code = "wrong_type" if kind.endswith(("_type", "_parsing")) or not in_criterion else "invalid_criterion"
    return CallError(code, f"`{place}`: {said}, got {show(detail['input'])}", field=place)
