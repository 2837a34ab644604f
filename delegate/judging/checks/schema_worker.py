"""Finds what is wrong with a value under a JSON Schema.

A worker process serves it, hence no imports from delegate. Nothing here resists a hostile schema: `json_schema` decides
what is validated in its own process, and a worker is killed when it takes too long.
"""

import itertools
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NoReturn, cast
from urllib.parse import urljoin

MAX_ERRORS_LOOKED_AT = 50
MAX_MESSAGE_CHARS = 300


class BadSchema(Exception):
    """The schema can't be used. The text says where and why."""


def prepare() -> None:
    """Load jsonschema."""
    find_schema_error({})


def answer(request: bytes) -> dict[str, str | None]:
    """`{"error"}` of the request's `instance` under its `schema`, null where it fits; or `{"bad_schema": why}`.

    With `text` in place of the instance, that JSON text is parsed first; `{"not_json": why}` if it isn't one.
    """
    try:
        question = json.loads(request)
        if "text" in question:
            try:
                question["instance"] = json.loads(question["text"], parse_float=_finite, parse_constant=_refuse)
            except RecursionError:
                return {"not_json": "it is nested too deeply"}
            except ValueError as problem:
                return {"not_json": one_line(str(problem))}
        return {"error": find_error(question["instance"], question["schema"])}
    except BadSchema as problem:
        return {"bad_schema": str(problem)}
    except (RecursionError, MemoryError) as problem:
        return {"bad_schema": f"too much to check: {type(problem).__name__}"}


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def find_error(instance: Any, schema: Any) -> str | None:
    """What is wrong with `instance`, in one line with its path; None when it fits. Raises `BadSchema`."""
    from jsonschema import exceptions
    from referencing import Registry

    validator_class, empty_registry = _validator_class(schema), cast("Any", Registry)
    try:
        # Without a registry of its own, jsonschema fetches references from the network and from files.
        validator: Any = validator_class(schema, registry=empty_registry())
        errors: list[Any] = list(itertools.islice(validator.iter_errors(instance), MAX_ERRORS_LOOKED_AT))
    except RecursionError as problem:
        raise BadSchema("schema or value is nested too deep, or refers to itself without end") from problem
    except Exception as problem:
        raise BadSchema(one_line(f"the schema can't be applied: {problem}")) from problem
    best_match: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return _described(best_match(errors)) if errors else None


def find_schema_error(schema: Any) -> str | None:
    """What is wrong with `schema` as a JSON Schema, in one line with its path; None when it is one."""
    from jsonschema import FormatChecker, exceptions

    try:
        # Formats aren't asserted: one of them is "regex", and compiling a hostile one takes long.
        _validator_class(schema).check_schema(schema, format_checker=FormatChecker(formats=()))
    except exceptions.SchemaError as problem:
        return _described(problem)
    except BadSchema as problem:
        return str(problem)
    except Exception as problem:
        return one_line(f"the schema can't be read: {problem or type(problem).__name__}")
    return None


@lru_cache(maxsize=16)
def keywords(dialect: str) -> Mapping[str, Literal["", "schema", "named"]]:
    """The keywords of the draft that `$schema` declares, and whether there are schemas in their values: as such or in
    lists, or under names. What describes a schema in the newest draft is included.
    """
    from jsonschema_specifications import REGISTRY

    newest = "https://json-schema.org/draft/2020-12/"
    kinds: dict[str, Literal["", "schema", "named"]] = {}
    vocabularies: list[Any] = [REGISTRY.contents(newest + name) for name in ("meta/core", "meta/meta-data")]
    draft: Any = _validator_class({"$schema": dialect}).META_SCHEMA
    vocabularies += [
        draft,
        *(REGISTRY.contents(urljoin(draft["$id"], part["$ref"])) for part in draft.get("allOf", ())),
    ]
    for vocabulary in vocabularies:
        for name, definition in cast("dict[str, Any]", vocabulary["properties"]).items():
            text = json.dumps(definition)
            has_schemas = any(reference in text for reference in ('"#meta"', '"#"', "/schemaArray"))
            kinds[name] = "" if not has_schemas else "named" if "additionalProperties" in definition else "schema"
    return kinds


def one_line(text: str) -> str:
    """`text` without line breaks, its middle cut out when it is long."""
    text = " ".join(text.split())
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _described(error: Any) -> str:
    path = one_line(error.json_path)
    return f"at {path}: {one_line(error.message)}"


def _validator_class(schema: Any) -> Any:
    from jsonschema import validators

    dialect = cast("dict[str, Any]", schema).get("$schema", "") if isinstance(schema, dict) else ""
    if not isinstance(dialect, str):
        raise BadSchema("at $.$schema: not a string")
    return validators.validator_for(cast("dict[str, Any]", schema), default=validators.Draft202012Validator)
