"""Create the tool's definition in each host's dialect, from `schemas/delegate_task.json`.

Dialects differ in the envelope (the keys of name, description and parameters) and in the part of JSON Schema that
constrained decoding supports. The parser accepts calls of all dialects.
"""

import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast, get_args

from delegate._util import resources
from delegate._util.fencing import one_line
from delegate.contract.amounts import counted
from delegate.types import CallField, JsonObject
from delegate.types.errors import ConfigError
from delegate.types.money import usd

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

ROLE_CHARS = 160
"""How much of a role's description a parent's model reads."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The parent's current limits, for the tool's description. Limits that are None aren't mentioned."""

    max_tasks: int = 3
    """Maximum number of tasks per call."""
    max_steps: int | None = None
    """Maximum number of model calls per child."""
    timeout_seconds: float | None = None
    """Maximum wall time per child, in seconds."""
    tasks_left: int | None = None
    """Tasks left in the run, over all its calls."""
    usd_left: float | None = None
    """US dollars left in the run."""
    depth_left: int | None = None
    """Levels of delegation left below this call. With 0, its children can't delegate."""

    def sentence(self) -> str:
        """Return the limits in one sentence for the parent."""
        if self.tasks_left == 0:
            return "No tasks are left in this run: do the work yourself."
        each = [f"{self.max_steps} steps"] if self.max_steps is not None else []
        each += [f"{self.timeout_seconds:g} s"] if self.timeout_seconds is not None else []
        left = [counted(self.tasks_left, "task")] if self.tasks_left is not None else []
        left += [usd(self.usd_left, "short")] if self.usd_left is not None else []
        left += [f"depth {self.depth_left}"] if self.depth_left is not None else []
        call = f"{counted(self.max_tasks, 'task')} per call"
        call += f", {' and '.join(each)} each" if each else ""
        return f"Limits: {call}; {', '.join(left)} left." if left else f"Limits: {call}."


def tool(
    dialect: Dialect,
    *,
    name: str = "delegate_task",
    variant: Variant = "compact",
    limits: Limits | None = None,
    background: bool = False,
    roles: Mapping[str, str] | None = None,
    fields: Collection[CallField] = (),
) -> JsonObject:
    """Return the tool's definition, in the form in which the host registers its tools.

    The `compact` variant describes criteria as text and the three most common checks; `full` has the schema of every
    kind. Use `name` if the host already has a tool called `delegate_task`. `background` adds the argument with which a
    parent asks for handles at once, for hosts that have `read_delegation` as well. `roles` are those that a task may
    name, with their descriptions, of which the definition has the beginning. `fields` are those that a call may have
    besides the usual ones.

    Raises:
        ConfigError: The dialect is unknown, or the name isn't valid for all hosts.
    """
    if dialect not in DIALECTS:
        raise ConfigError(f"unknown dialect {dialect!r}; use one of {', '.join(DIALECTS)}")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the tool's name {name!r} must consist of 1 to 64 of the characters a-z A-Z 0-9 _ -")
    limits = limits or Limits()
    definition = resources.schema("delegate_task")
    description = cast("str", definition["description"]).replace("{limits}", limits.sentence())
    parameters: JsonObject = definition["parameters"]
    properties: JsonObject = parameters["properties"]
    of_task: JsonObject = properties["tasks"]["items"]["properties"]
    more: JsonObject = definition["more"]
    properties["tasks"]["maxItems"] = limits.max_tasks  # some hosts drop it: the limits say it in words
    if variant == "full":
        typed = definition["typed_criterion"]
        properties["acceptance_criteria"].update(typed)
        if dialect.endswith("-strict"):  # a second copy doubles the definition's length, and not all know references
            of_task["acceptance_criteria"]["items"] = deepcopy(typed["items"])
    if roles:
        role: JsonObject = {"type": ["string", "null"], "enum": [*roles, None]}
        described = "; ".join(f"{name}: {one_line(text, ROLE_CHARS)}" for name, text in roles.items())
        properties["role"], of_task["role"] = {**role, "description": described}, role
    if background:
        properties["background"] = definition["background"]
    if "needs" in fields:
        of_task |= {"id": more["id"], "needs": more["needs"]}
    if "attempts" in fields:
        properties["attempts"] = more["attempts"]
        of_task["attempts"] = {"type": more["attempts"]["type"]}
    if "scratch" in fields:
        properties["scratch"] = more["scratch"]
    return _envelope(dialect, name, description, parameters)


def _local_tool(
    schema_name: str, title: str, dialect: Dialect, *, reads: bool = True, repeats: bool = True
) -> JsonObject:
    """Return the definition of a tool that starts no child and reaches nothing outside."""
    schema = resources.schema(schema_name)
    definition = _envelope(dialect, schema["name"], schema["description"], schema["parameters"])
    if dialect == "mcp":
        hints = {"readOnlyHint": reads, "destructiveHint": not reads, "idempotentHint": repeats, "openWorldHint": False}
        definition |= {"title": title, "annotations": hints}
    return definition


read_tool = partial(_local_tool, "read_delegation", "Read a delegated task's report")
"""Returns the definition of `read_delegation`, with which a parent waits for a task and reads its report."""
stop_tool = partial(_local_tool, "stop_delegation", "Stop work", reads=False)
"""Returns the definition of `stop_delegation`, with which a parent stops a task."""
message_tool = partial(_local_tool, "message_delegation", "Send an instruction", reads=False, repeats=False)
"""Returns the definition of `message_delegation`, with which a parent sends a task an instruction."""
merge_tool = partial(_local_tool, "merge_delegation", "Merge work", reads=False, repeats=False)
"""Returns the definition of `merge_delegation`, with which a parent brings tasks' changes into their checkout."""
think_tool = partial(_local_tool, "think", "Think")
"""Returns the definition of `think`, with which a parent checks a thought against its criteria."""


def _envelope(dialect: Dialect, name: str, description: str, parameters: JsonObject) -> JsonObject:
    """Return a definition with the keys of a dialect, and its parameters in the dialect's part of JSON Schema."""
    text, is_strict = {"name": name, "description": description}, dialect.endswith("-strict")
    parameters = _strict(parameters) if is_strict else parameters
    match dialect:
        case "openai" | "openai-strict":
            strict = {"strict": True} if is_strict else {}
            return {"type": "function", "function": {**text, "parameters": parameters, **strict}}
        case "openai-responses" | "openai-responses-strict":
            # Without an explicit `strict`, this endpoint assumes true and rewrites the schema.
            return {"type": "function", **text, "parameters": parameters, "strict": is_strict}
        case "anthropic":
            return {**text, "input_schema": parameters}
        case "gemini":
            return {**text, "parametersJsonSchema": _without_null(parameters)}
        case "mcp":
            # A child can write files, run commands and spend money, and a repeated call does so again.
            hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
            title = {"title": "Delegate tasks"}
            return {"name": name, **title, "description": description, "inputSchema": parameters, "annotations": hints}


_TEXT: JsonObject = {"type": "string"}


def _strict(schema: JsonObject) -> JsonObject:
    """Convert to OpenAI's strict subset: optional properties are required but nullable, free-form objects JSON text."""
    if "object" in _types(schema) and "properties" not in schema:
        types = list(dict.fromkeys("string" if type == "object" else type for type in _types(schema)))
        description = {"description": f"{schema['description']} as JSON text"} if "description" in schema else {}
        return {**schema, **description, "type": types if len(types) > 1 else types[0]}
    schema = _with_parts(schema, _strict)
    if schema.get("anyOf") == [_TEXT, _TEXT]:  # one of them was a free-form object
        del schema["anyOf"]
        schema |= {"type": "string", "description": "Text, or an object as JSON text"}
    if fields := cast("dict[str, JsonObject]", schema.get("properties", {})):
        optional = fields.keys() - set(schema.get("required", ()))
        schema["properties"] = {n: _nullable(field) if n in optional else field for n, field in fields.items()}
        schema["required"] = list(fields)
        schema["additionalProperties"] = False
    return schema


def _without_null(schema: JsonObject) -> JsonObject:
    """Convert to Gemini's subset: a schema has one type, and optional fields are omitted instead of null."""
    schema = _with_parts(schema, _without_null)
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    types = [type for type in _types(schema) if type != "null"]
    return {**schema, "type": types[0]} if types else schema


def _with_parts(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return a copy with `change` applied to every subschema, and constants as enums, which all decoders support."""
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


def _nullable(schema: JsonObject) -> JsonObject:
    if "anyOf" in schema and "type" not in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    elif "null" not in (types := _types(schema)):
        schema["type"] = [*types, "null"]
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
