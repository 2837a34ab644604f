"""The tool in each host's own words, made from the one definition in `schemas/delegate_task.json`.

Two things vary: the envelope (where name, description and parameters go) and which part of JSON Schema the host's
constrained decoding knows. The parser takes what any of them produces.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, cast, get_args

from delegate._util import resources
from delegate.errors import ConfigError
from delegate.types import JsonObject

Dialect = Literal[
    "openai",  # Chat Completions, and every endpoint compatible with it
    "openai-strict",
    "openai-responses",
    "openai-responses-strict",
    "anthropic",
    "gemini",
    "mcp",
]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
Variant = Literal["compact", "full"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the parent may still do, for the tool's description. None means: no such limit, or not worth saying.

    A stale number costs a refused call, so hosts that can should make the tool anew for every turn.
    """

    max_tasks: int = 3
    """Tasks in one call."""
    max_steps: int | None = None
    """Model calls of one child."""
    timeout_seconds: float | None = None
    """Wall time of one child."""
    tasks_left: int | None = None
    """Tasks in the whole run, over all its calls."""
    usd_left: float | None = None
    depth_left: int | None = None
    """How many more levels may delegate; 0: a child of this call may not."""

    def sentence(self) -> str:
        """The limits in one sentence, as the parent reads them."""
        if self.tasks_left == 0:
            return "No tasks are left in this run: do the work yourself."
        each = [f"{self.max_steps} steps"] if self.max_steps is not None else []
        each += [f"{self.timeout_seconds:g} s"] if self.timeout_seconds is not None else []
        left = [_tasks(self.tasks_left)] if self.tasks_left is not None else []
        left += [f"${self.usd_left:.{2 if self.usd_left >= 0.1 else 4}f}"] if self.usd_left is not None else []
        left += [f"depth {self.depth_left}"] if self.depth_left is not None else []
        call = f"{_tasks(self.max_tasks)} per call"
        call += f", {' and '.join(each)} each" if each else ""
        return f"Now: {call}; {', '.join(left)} left." if left else f"Now: {call}."


def tool(
    dialect: Dialect,
    *,
    name: str = "delegate_task",
    variant: Variant = "compact",
    limits: Limits | None = None,
) -> JsonObject:
    """The tool's definition, ready to be put among a host's tools.

    `compact` offers criteria as text or as the three most used checks; `full` spells out every kind. `name` may be
    changed because some hosts already have a `delegate_task`. Raises `ConfigError` for a name that no host would take.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; there are {', '.join(DIALECTS)}")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the tool's name {name!r} must be 1 to 64 of the characters a-z A-Z 0-9 _ -")
    limits = limits or Limits()
    definition = resources.schema("delegate_task")
    description = cast("str", definition["description"]).replace("{limits}", limits.sentence())
    parameters = _parameters(definition, variant, repeat=dialect.endswith("-strict"))
    parameters["properties"]["tasks"]["maxItems"] = limits.max_tasks
    return _ENVELOPES[dialect](name, description, parameters)


def read_tool(dialect: Dialect) -> JsonObject:
    """The second tool, with which a parent reads a whole report back by its handle."""
    return _harmless(dialect, "read_delegation", title="Read a delegated task's report")


def think_tool(dialect: Dialect) -> JsonObject:
    """The tool with which a parent thinks, and holds a thought against its criteria."""
    return _harmless(dialect, "think", title="Think")


def _harmless(dialect: Dialect, shipped: str, *, title: str) -> JsonObject:
    """A tool that changes nothing, from its definition in `schemas/`."""
    definition = resources.schema(shipped)
    made = _ENVELOPES[dialect](definition["name"], definition["description"], definition["parameters"])
    if dialect == "mcp":
        hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        made |= {"title": title, "annotations": hints}
    return made


def _parameters(definition: JsonObject, variant: Variant, *, repeat: bool) -> JsonObject:
    """The parameters of one variant. The full one spells the criteria out once, and for batches only with `repeat`.

    Without references a second copy would double the tool's length; only constrained decoding needs it.
    """
    parameters = cast("JsonObject", definition["parameters"])
    if variant == "full":
        fields, typed = parameters["properties"], definition["typed_criterion"]
        fields["acceptance_criteria"].update(typed)
        if repeat:
            fields["tasks"]["items"]["properties"]["acceptance_criteria"]["items"] = deepcopy(typed["items"])
    return parameters


# ---------------------------------------------------------------------------------------------------------- envelopes


def _openai(name: str, description: str, parameters: JsonObject) -> JsonObject:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _openai_strict(name: str, description: str, parameters: JsonObject) -> JsonObject:
    envelope = _openai(name, description, _strict(parameters))
    envelope["function"]["strict"] = True
    return envelope


def _responses(name: str, description: str, parameters: JsonObject) -> JsonObject:
    # `strict` is spelt out: left away, this endpoint takes it for true and rewrites the schema.
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def _responses_strict(name: str, description: str, parameters: JsonObject) -> JsonObject:
    return {**_responses(name, description, _strict(parameters)), "strict": True}


def _anthropic(name: str, description: str, parameters: JsonObject) -> JsonObject:
    return {"name": name, "description": description, "input_schema": parameters}


def _gemini(name: str, description: str, parameters: JsonObject) -> JsonObject:
    return {"name": name, "description": description, "parametersJsonSchema": _without_null(parameters)}


def _mcp(name: str, description: str, parameters: JsonObject) -> JsonObject:
    # A child may write files, run commands and spend money, and running it twice does all that twice.
    hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    return {
        "name": name,
        "title": "Delegate tasks",
        "description": description,
        "inputSchema": parameters,
        "annotations": hints,
    }


_ENVELOPES: dict[Dialect, Callable[[str, str, JsonObject], JsonObject]] = {
    "openai": _openai,
    "openai-strict": _openai_strict,
    "openai-responses": _responses,
    "openai-responses-strict": _responses_strict,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _mcp,
}

# -------------------------------------------------------------------------------------- what constrained decoding knows


def _strict(schema: JsonObject) -> JsonObject:
    """OpenAI's strict subset: all properties required, optional ones nullable, objects of any shape as JSON text."""
    if "object" in _types(schema) and "properties" not in schema:
        return _as_json_text(schema)
    schema = _with_parts(schema, _strict)
    if fields := cast("dict[str, JsonObject]", schema.get("properties", {})):
        optional = fields.keys() - set(schema.get("required", ()))
        schema["properties"] = {n: _nullable(field) if n in optional else field for n, field in fields.items()}
        schema["required"] = list(fields)
        schema["additionalProperties"] = False
    return schema


def _without_null(schema: JsonObject) -> JsonObject:
    """Gemini's subset: a field may be left away, so none needs null; and a schema has one type."""
    schema = _with_parts(schema, _without_null)
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    types = [type for type in _types(schema) if type != "null"]
    if len(types) > 1:
        del schema["type"]
        return {"anyOf": [{"type": type} for type in types], **schema}
    return {**schema, "type": types[0]} if types else schema


def _with_parts(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """A copy with every part changed, and fixed values as enums of strings, which every decoder knows."""
    schema = dict(schema)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "enum" in schema:
        schema.setdefault("type", "string")
    if "items" in schema:
        schema["items"] = change(schema["items"])
    if "anyOf" in schema:
        schema["anyOf"] = [change(option) for option in schema["anyOf"]]
    if "properties" in schema:
        schema["properties"] = {name: change(field) for name, field in schema["properties"].items()}
    return schema


def _types(schema: JsonObject) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _as_json_text(schema: JsonObject) -> JsonObject:
    types = list(dict.fromkeys("string" if type == "object" else type for type in _types(schema)))
    either = "Text, or an object" if "string" in _types(schema) else None
    said = schema.get("description", either)
    told = {"description": f"{said} as JSON text"} if said else {}
    return {**schema, **told, "type": types if len(types) > 1 else types[0]}


def _nullable(schema: JsonObject) -> JsonObject:
    if "null" not in (types := _types(schema)):
        schema["type"] = [*types, "null"]
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n} tasks"
