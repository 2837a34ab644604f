"""Finds what is wrong with a value under a JSON Schema. Also a program: one question and one answer per line.

As a program it is started by its path, without the rest of delegate, so that it is up quickly; hence no imports from
delegate here. Nothing in it resists a hostile schema: `json_schema` decides what is run in-process, and kills the
program when an answer takes too long.
"""

import itertools
import json
import sys
from typing import Any, cast

MAX_ERRORS_LOOKED_AT = 50
MAX_MESSAGE_CHARS = 300
MEMORY_BYTES = 1 << 30
CPU_SECONDS = 60
"""Of the program's whole life; it is replaced afterwards."""


class BadSchema(Exception):
    """The schema can't be used. The text says where and why."""


def find_error(instance: Any, schema: Any) -> str | None:
    """What is wrong with `instance`, in one line with its path; None when it fits. Raises `BadSchema`."""
    from jsonschema import exceptions
    from referencing import Registry

    validator_class, empty_registry = _validator_class(schema), cast("Any", Registry)
    try:
        # Without a registry of its own, jsonschema fetches references from the network and from files.
        validator: Any = validator_class(schema, registry=empty_registry())
        found: list[Any] = list(itertools.islice(validator.iter_errors(instance), MAX_ERRORS_LOOKED_AT))
    except RecursionError as problem:
        raise BadSchema("schema or value is nested too deep, or refers to itself without end") from problem
    except Exception as problem:
        raise BadSchema(one_line(f"the schema can't be applied: {problem}")) from problem
    best_match: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return _described(best_match(found)) if found else None


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

    declared = cast("dict[str, Any]", schema).get("$schema", "") if isinstance(schema, dict) else ""
    if not isinstance(declared, str):
        raise BadSchema("at $.$schema: not a string")
    return validators.validator_for(cast("dict[str, Any]", schema), default=validators.Draft202012Validator)


def _answer(line: bytes) -> dict[str, str | None]:
    try:
        question = json.loads(line)
        return {"error": find_error(question["instance"], question["schema"])}
    except BadSchema as problem:
        return {"bad_schema": str(problem)}
    except (RecursionError, MemoryError) as problem:
        return {"bad_schema": f"too much to check: {type(problem).__name__}"}


def main() -> None:
    """Answer questions from standard input until it ends."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    find_schema_error({})  # loads jsonschema
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin.buffer:
        print(json.dumps(_answer(line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
