"""Reads a plain function as a tool: its name, docstring and type hints as a definition with a JSON Schema."""

import asyncio
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined, core_schema

from delegate.types.errors import ConfigError, ToolError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LISTED = {
    inspect.Parameter.VAR_POSITIONAL: "*{name} takes any number of values; use a list",
    inspect.Parameter.VAR_KEYWORD: "**{name} takes any arguments; name each of them, or use a dict",
    inspect.Parameter.POSITIONAL_ONLY: "{name} is positional-only; remove the `/`",
}
"""Parameters that a model can't give by their names, and what to write instead."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that can be called with the arguments that a model writes."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments."""
    _function: Callable[..., Any]
    _arguments: type[BaseModel]
    _fields: Mapping[str, str]
    """The names of the arguments, by the fields of `_arguments`."""
    _omittable: frozenset[str]
    """Arguments with a default that can't be null. Models write null for what they omit."""

    async def call(self, values: Mapping[str, Any]) -> object:
        """Call the function with validated arguments. A sync function runs in a thread, which can't be stopped.

        Raises:
            ToolError: The arguments don't fit the signature.
        """
        present = {name: value for name, value in values.items() if value is not None or name not in self._omittable}
        try:
            valid = self._arguments.model_validate(present)
        except ValidationError as problem:
            raise ToolError(argument_error(self.name, self._fields.values(), problem)) from problem
        # What the model omitted is left to the function's own defaults.
        arguments = {self._fields[field]: getattr(valid, field) for field in valid.model_fields_set}
        if inspect.iscoroutinefunction(_target(self._function)):
            return await self._function(**arguments)
        answer = await asyncio.to_thread(self._function, **arguments)
        return await answer if inspect.isawaitable(answer) else answer


def read_function(function: Callable[..., Any], *, name: str | None = None) -> FunctionTool:
    """Read a function, a method or a callable object as a tool. `name` replaces the function's own name.

    The docstring may be in Google's, NumPy's or Sphinx's style; its descriptions of parameters are those of the
    arguments.

    Raises:
        ConfigError: A model couldn't call it. The message names the function, the parameter and how to fix it.
    """
    name = name or _name_of(function)
    if inspect.isclass(function) or not callable(function):
        raise ConfigError(f"the tool {name} is not a function; give a function, a method or a Tool")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the function {name} can't be a tool by this name; use up to 64 letters, digits, _ and -")
    target = _target(function)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(f"the tool {name} is a generator; return a list instead")
    hints = _hints(name, target)
    description, descriptions = _read_docstring(inspect.getdoc(target) or "")
    fields, definitions, omittable = dict[str, str](), dict[str, Any](), set[str]()
    for n, parameter in enumerate(_parameters(name, function)):
        annotation = hints.get(parameter.name, Any)
        adapter = _adapter(name, parameter.name, annotation)
        if parameter.default is not inspect.Parameter.empty:
            try:
                adapter.validate_python(None)
            except ValidationError:
                omittable.add(parameter.name)
        # Fields are numbered: the name of an argument may be one that a model of Pydantic can't have.
        fields[f"a{n}"] = parameter.name
        definitions[f"a{n}"] = (annotation, _field(parameter, annotation, descriptions.get(parameter.name)))
    arguments = create_model(f"{name} arguments", __config__=ConfigDict(extra="forbid"), **definitions)
    schema = arguments.model_json_schema(schema_generator=_Schema)
    schema = {key: value for key, value in schema.items() if key != "title"}
    return FunctionTool(name, description, schema, function, arguments, fields, frozenset(omittable))


def argument_error(tool: str, names: Collection[str], problem: ValidationError) -> str:
    """One line that names the argument, so that a model can fix its call."""
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])[:80] or "(all)"
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"{tool} has no argument `{name}`; use: {', '.join(names) or '(none)'}"
    if first["type"] == "missing":
        return f"{tool} needs the argument `{name}`"
    return f"{tool}, argument `{name}`: {first['msg']}"


class _Schema(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names, and defaults that are no JSON."""

    ignored_warning_kinds = {"non-serializable-default"}  # noqa: RUF012 - declared without ClassVar by Pydantic

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        field_schema = super().default_schema(schema)
        return {key: value for key, value in field_schema.items() if key != "default" or value is not None}


def _name_of(function: object) -> str:
    if isinstance(function, partial):
        return _name_of(cast("object", function.func))
    return str(getattr(function, "__name__", type(function).__name__))


def _target(function: object) -> Any:
    """What has the signature's hints and the docstring: for a callable object, its `__call__`."""
    if isinstance(function, partial):
        return _target(cast("object", function.func))
    return function if inspect.isroutine(function) else getattr(function, "__call__")  # noqa: B004, B009


def _parameters(name: str, function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"the tool {name} has no signature that can be read; wrap it in a function") from problem
    for parameter in signature.parameters.values():
        if advice := _LISTED.get(parameter.kind):
            raise ConfigError(f"the tool {name}: {advice.format(name=parameter.name)}")
        yield parameter


def _hints(name: str, target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(target, include_extras=True)
    except Exception as problem:  # an annotation is code, which may raise anything
        raise ConfigError(f"the tool {name}: its type hints can't be evaluated: {problem}") from problem


def _adapter(tool: str, parameter: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter[Any](annotation)
        adapter.json_schema(schema_generator=_Schema)
    except PydanticUserError as problem:
        why = str(problem.message).partition("\n")[0]
        advice = "use types that JSON has, or a Pydantic model"
        raise ConfigError(
            f"the tool {tool}, parameter {parameter}: no JSON Schema for its type: {why}; {advice}"
        ) from None
    return adapter


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> Any:
    default = PydanticUndefined if parameter.default is inspect.Parameter.empty else parameter.default
    own = [getattr(item, "description", None) for item in getattr(annotation, "__metadata__", ())]
    options: dict[str, Any] = {} if description is None or any(own) else {"description": description}
    return Field(default, alias=parameter.name, **options)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description of the function, with what it returns, and those of its parameters."""
    import docstring_parser  # loaded only where a function is a tool

    try:
        docstring = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = [docstring.short_description, docstring.long_description]
    if docstring.returns and docstring.returns.description:
        parts.append(f"Returns: {docstring.returns.description}")
    descriptions = {
        parameter.arg_name: parameter.description for parameter in docstring.params if parameter.description
    }
    return "\n\n".join(part for part in parts if part), descriptions
