"""Collects the problems of a call in one error, so that a model can fix all of them in its next attempt."""

from collections.abc import Collection, Mapping, Sequence
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegate._util.fencing import one_line
from delegate._util.redaction import redactor
from delegate._util.similar import most_similar
from delegate.contract.reading import join, show
from delegate.types import AnyCriterion, CriterionBase, Task
from delegate.types.codes import CallErrorCode
from delegate.types.errors import CallError
from delegate.types.faults import path_of, problem_of

TASK_FIELDS = ("goal", "context", "acceptance_criteria", "tier", "output_schema", "id", "needs", "attempts")
"""The fields of a task that a parent may set. The other fields of `Task` are reserved for the operator."""
KINDS: dict[str, type[CriterionBase]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(AnyCriterion)
}

_MAX_UNKNOWN = 8
"""Maximum number of reported unknown keys: a call can have any number of them, and finding similar names takes time."""
_MAX_OTHERS = 8
"""Maximum number of problems listed in addition to the first."""
_OPERATOR_FIELDS = frozenset(Task.model_fields) - frozenset(TASK_FIELDS)
_FIELD_SYNONYMS = {
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
    **dict.fromkeys(("depends_on", "dependencies", "after"), "needs"),
}
_HINTS = {
    "invalid_json": "send a single JSON object, with double quotes and no text around it",
    "empty": "fill in this field, or leave it out if it is optional",
    "invalid_criterion": "fix this criterion, or write it as plain text for the judge",
    "invalid_schema": 'send a JSON Schema such as {"type": "object", "properties": {...}}, or leave it out',
    "duplicate_id": "give each criterion of a task a different `id`, or none; they are then named c1, c2, ...",
    "too_large": "send less: write long material to a file and name its path",
}
_KIND_SYNONYMS = {
    **dict.fromkeys(("command", "bash", "sh", "exec", "test"), "shell"),
    **dict.fromkeys(("string", "judge", "llm"), "text"),
    **dict.fromkeys(("tool", "tool_call", "tools"), "receipt"),
    **dict.fromkeys(("schema",), "json_schema"),
    **dict.fromkeys(("human",), "manual"),
}


class Problems:
    """Collects problems in the order in which they are found.

    The first one is raised, and the others are listed in its message.
    """

    def __init__(self) -> None:
        self._found: list[CallError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, code: CallErrorCode, field: str, message: str, hint: str | None = None) -> None:
        """Add a problem. `message` continues a sentence that starts with the field's name, such as "is empty"."""
        self._found.append(CallError(code, f"`{field}` {message}", field=field, hint=hint))

    def add_error(self, error: CallError) -> None:
        """Add a problem that was raised as an error."""
        self._found.append(error)

    def raise_first(self) -> None:
        """Raise the first problem, with all others in its message. Does nothing if there are no problems."""
        if not self._found:
            return
        first, *others = self._found
        lines = [f"{error.message}{f' ({error.hint})' if error.hint else ''}" for error in others[:_MAX_OTHERS]]
        lines += [f"and {len(others) - _MAX_OTHERS} more"] if len(others) > _MAX_OTHERS else []
        message = f"{first.message}. Also: {'; '.join(lines)}" if lines else first.message
        raise with_hint(CallError(first.code, message, field=first.field, hint=first.hint))

    def unknown_fields(self, given: Mapping[str, object], known: Sequence[str], path: str) -> None:
        """Add a problem for each unknown key."""
        for name in [str(key) for key in given if key not in known][:_MAX_UNKNOWN]:
            self.add("unknown_field", join(path, name), "is not a valid field", _unknown_field_hint(name, known))

    def unknown_kind(self, kind: object, path: str) -> None:
        """Add the problem that a criterion's `kind` doesn't exist."""
        name = kind.lower() if isinstance(kind, str) else ""
        similar = _KIND_SYNONYMS.get(name) or most_similar(name, tuple(KINDS))
        hint = f"the kinds are {', '.join(KINDS)}" + (f"; did you mean `{similar}`?" if similar else "")
        self.add("unknown_criterion_kind", join(path, "kind"), f"is {show(kind)}, which is not a valid kind", hint)

    def missing_kind(self, given: Mapping[str, object], path: str) -> None:
        """Add the problem that a criterion has no `kind`. Its other fields often tell which one was meant."""
        required = {
            kind: {f.alias or name for name, f in model.model_fields.items() if name != "kind" and f.is_required()}
            for kind, model in KINDS.items()
        }
        likely = next((kind for kind, fields in required.items() if given.keys() & fields), None)
        hint = (
            f'add "kind": "{likely}"' if likely else f"the kinds are {', '.join(KINDS)}; or write the criterion as text"
        )
        if not likely and len(given) == 1:  # YAML reads an unquoted `- report: …` so
            ((name, value),) = given.items()
            hint = f"put it in quotes if it is a text: {show(f'{name}: {value}')}"
        self.add("invalid_criterion", join(path, "kind"), "is missing", hint)

    def from_pydantic(self, error: ValidationError, path: str) -> None:
        """Add the problems that validation by pydantic found, at most one per field."""
        details: dict[str, ErrorDetails] = {}
        for detail in error.errors(include_url=False, include_context=False):
            inner = one_line(path_of(detail), 200)
            details.setdefault(f"{path}.{inner}" if path and inner else path or inner, detail)
        for field, detail in details.items():
            # Of a union's errors, those of nested fields say more than that the value is not a string.
            if not any(other.startswith(f"{field}.") for other in details):
                self._found.append(_from_detail(detail, field))


def with_hint(error: CallError) -> CallError:
    """Return the error, with the default hint of its code if it has none."""
    error.hint = error.hint or _HINTS.get(error.code, "fix this field and resend the call")
    return error


def unknown_name(code: CallErrorCode, name: str, names: Collection[str], field: str) -> CallError:
    """The error for the name of a role or a tool that the child can't have. Those that it can have are `names`."""
    kind, similar = code.removeprefix("unknown_"), most_similar(name, names)
    guess = f"did you mean `{similar}`? " if similar else ""
    hint = f"{guess}The {kind}s are: {', '.join(names) or 'none'}"
    message = f"there is no {kind} {redactor.beginning(name, 100)!r} for the child"
    return CallError(code, message, field=field, hint=hint)


def kind_fields(model: type[CriterionBase]) -> tuple[str, ...]:
    """Return the names of a criterion's fields as used in a call."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _unknown_field_hint(name: str, known: Sequence[str]) -> str:
    synonyms = [synonym for synonym, field in _FIELD_SYNONYMS.items() if field in known]
    if similar := _FIELD_SYNONYMS.get(name.lower()) if name.lower() in synonyms else most_similar(name, known):
        return f"did you mean `{similar}`?"
    if name in _OPERATOR_FIELDS:
        alternative = "; ask for a `tier` instead" if name == "model" else ""
        return f"`{name}` is set by the operator, not in a call{alternative}"
    if similar := _FIELD_SYNONYMS.get(most_similar(name, synonyms) or ""):
        return f"did you mean `{similar}`?"
    return f"the fields are {', '.join(known)}"


def _from_detail(detail: ErrorDetails, field: str) -> CallError:
    in_criterion = "acceptance_criteria" in field
    kind = detail["type"]
    plain: dict[str, tuple[CallErrorCode, str]] = {
        "missing": ("invalid_criterion" if in_criterion else "empty", "is missing"),
        "string_too_short": ("empty", "is empty"),
        "extra_forbidden": ("unknown_field", "is not a valid field"),
    }
    if kind in plain:
        code, problem = plain[kind]
        return CallError(code, f"`{field}` {problem}", field=field)
    if kind == "value_error":
        field = join(field, "acceptance_criteria")
        return CallError("duplicate_id", f"`{field}`: {problem_of(detail)}", field=field)
    code = "wrong_type" if kind.endswith(("_type", "_parsing")) or not in_criterion else "invalid_criterion"
    return CallError(code, f"`{field}` {problem_of(detail)}, got {show(detail['input'])}", field=field)
