"""Basic validation of JSON Schemas without a schema library."""

from collections.abc import Mapping
from typing import cast

from delegate.types import JsonObject

_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


def schema_fault(schema: JsonObject) -> str | None:
    """Return what is wrong with a schema, or None. Checks types, required names and the structure of subschemas."""
    waiting: list[tuple[str, object]] = [("", schema)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, Mapping):
            return f"{path or 'the schema'} must be an object or a boolean"
        keywords = cast("Mapping[str, object]", part)
        if fault := _fault_here(keywords):
            return f"{path}: {fault}" if path else fault
        waiting += _subschemas(path, keywords)
    return None


def _fault_here(keywords: Mapping[str, object]) -> str | None:
    types = keywords.get("type", [])
    for type in cast("list[object]", types) if isinstance(types, list) else [types]:
        if type not in _TYPES:
            return f"type must be one of {', '.join(_TYPES)}"
    required = keywords.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in cast("list[object]", required)):
        return "required must be a list of names"
    if not isinstance(keywords.get("enum", []), list):
        return "enum must be a list"
    for name in _OF_SCHEMAS:
        if not isinstance(keywords.get(name, {}), Mapping):
            return f"{name} must be an object of schemas"
    for name in _LISTS_OF_SCHEMAS:
        if not isinstance(keywords.get(name, []), list):
            return f"{name} must be a list of schemas"
    return None


def _subschemas(path: str, keywords: Mapping[str, object]) -> list[tuple[str, object]]:
    found = [(f"{path}/{name}", keywords[name]) for name in _ONE_SCHEMA if name in keywords]
    for name in _OF_SCHEMAS:
        parts = cast("Mapping[str, object]", keywords.get(name, {}))
        found += [(f"{path}/{name}/{key}", part) for key, part in parts.items()]
    for name in _LISTS_OF_SCHEMAS:
        parts = cast("list[object]", keywords.get(name, []))
        found += [(f"{path}/{name}/{n}", part) for n, part in enumerate(parts)]
    return found
