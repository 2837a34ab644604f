"""JSON Schema validation that is safe with hostile schemas.

Schemas come from models. Plain `jsonschema` fetches remote references, hangs on a pattern with catastrophic
backtracking while it holds the interpreter, and takes exponential time over doubled `allOf`s. So:

* references never leave the schema itself;
* a small, plain schema and a small value are validated in this process;
* everything else goes to a worker process, which is killed when it takes too long.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from delegate._util.patterns import pattern_fault
from delegate._util.similar import most_similar
from delegate._util.threads import run_in_thread
from delegate.judging.checks import schema_worker
from delegate.judging.checks.schema_worker import BadSchema, find_error, find_schema_error, one_line
from delegate.judging.checks.worker import WorkerError, WorkerPool
from delegate.judging.report_json import strict_json
from delegate.records.recorder import LARGE_CHARS
from delegate.types.errors import DelegateError

MAX_SCHEMA_VALUES = 1_500
MAX_SCHEMA_DEPTH = 60
MAX_SCHEMA_CHARS = 50_000
INLINE_SCHEMA_VALUES = 200
INLINE_INSTANCE_VALUES = 500
INLINE_INSTANCE_CHARS = 100_000
INLINE_NESTED_BRANCHES = 2
"""More levels of allOf, anyOf and the like inside one another can multiply."""

_COSTLY = frozenset({
    "pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "uniqueItems",
    "unevaluatedProperties", "unevaluatedItems",
})  # fmt: skip
_BRANCHING = frozenset({"allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas"})
_OPENAPI = frozenset({"discriminator", "example", "externalDocs", "xml"})
"""What OpenAPI 3.1 adds. None of it checks anything; pydantic writes the first."""
_workers = WorkerPool(schema_worker.__file__)


class SchemaProblem(DelegateError):
    """The schema can't be used: it isn't one, refers outside itself, or takes too long to check."""


def check_schema(schema: object) -> str | None:
    """What keeps `schema` from being used as a JSON Schema, in one line with its path; None when nothing does."""
    if not isinstance(schema, (dict, bool)):
        return f"at $: a JSON Schema is an object, not {type(schema).__name__}"
    if (fault := _unbounded(schema) or _remote_reference(schema)) is not None:
        return fault
    try:
        return _schema_error(json.dumps(schema))
    except (TypeError, ValueError) as problem:
        return f"the schema isn't plain JSON: {one_line(str(problem))}"


def unknown_keyword(schema: object) -> str | None:
    """A keyword of a usable schema that its draft doesn't have, so that nothing would be checked by it, in one line.

    Those that start with `x-`, and what describes a schema in any draft or in OpenAPI, are fine.
    """
    dialect = cast("dict[str, Any]", schema).get("$schema", "") if isinstance(schema, dict) else ""
    keywords = schema_worker.keywords(dialect)
    stack: list[tuple[str, Any]] = [("$", schema)]
    while stack:
        at, value = stack.pop()
        if isinstance(value, list):
            stack += [(f"{at}[{n}]", item) for n, item in enumerate(cast("list[Any]", value))]
        for name, item in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
            if name.startswith("x-") or name in _OPENAPI:
                continue
            if name not in keywords:
                similar = most_similar(name, keywords)
                guess = f"; did you mean `{similar}`?" if similar else ""
                return f"at {one_line(at)}: `{name[:100]}` is not a keyword of JSON Schema{guess}"
            if keywords[name] == "named" and isinstance(item, dict):
                schemas = cast("dict[str, Any]", item).items()
                stack += [(f"{at}.{name}.{key}", part) for key, part in schemas if isinstance(part, dict)]
            elif keywords[name]:
                stack.append((f"{at}.{name}", item))
    return None


async def validate(instance: object, schema: object, *, timeout_seconds: float = 1.0) -> str | None:
    """None when `instance` fits `schema`, else what is wrong, in one line: `at $.a[2].b: 'x' is not of type …`.

    Draft 2020-12 unless the schema's `$schema` says otherwise. Raises `SchemaProblem` where that can't be found out.
    """
    if (problem := check_schema(schema)) is not None:
        raise SchemaProblem(problem)
    if not (_is_plain(schema) and _is_small(instance)):
        return await _ask_worker({"schema": schema, "instance": instance}, timeout_seconds)
    try:
        return find_error(instance, schema)
    except BadSchema as bad:
        raise SchemaProblem(str(bad)) from bad


async def validate_text(text: str, schema: object, *, timeout_seconds: float = 1.0) -> str | None:
    """The same for a JSON text of any length: a long one is parsed in the worker, since parsing it stops all threads.

    Raises ValueError if it is not JSON.
    """
    if len(text) <= LARGE_CHARS:
        return await validate(strict_json(text), schema, timeout_seconds=timeout_seconds)
    if (problem := check_schema(schema)) is not None:
        raise SchemaProblem(problem)
    return await _ask_worker({"schema": schema, "text": text}, timeout_seconds)


async def _ask_worker(question: dict[str, object], timeout_seconds: float) -> str | None:
    try:
        request = await run_in_thread(lambda: json.dumps(question).encode())
    except (TypeError, ValueError, RecursionError) as problem:
        raise SchemaProblem(f"not plain JSON, or nested too deep: {problem}") from problem
    try:
        answer = await _workers.ask(request, timeout_seconds)
    except TimeoutError as problem:
        raise SchemaProblem(f"validation against the schema took over {timeout_seconds:g} s") from problem
    except WorkerError as problem:
        raise SchemaProblem(f"the schema can't be used for validation: {problem}") from problem
    if "bad_schema" in answer:
        raise SchemaProblem(answer["bad_schema"])
    if "not_json" in answer:
        raise ValueError(answer["not_json"])
    return answer["error"]


# --------------------------------------------------------------------------------------------- checking a schema


def _unbounded(schema: Any) -> str | None:
    """Why `schema` is too large even to be looked at, or holds a pattern that isn't one."""
    chars = 0
    for count, (depth, key, value) in enumerate(_values(schema)):
        chars += len(key) + (len(value) if isinstance(value, str) else 0)
        if count >= MAX_SCHEMA_VALUES or chars > MAX_SCHEMA_CHARS:
            return f"the schema has over {MAX_SCHEMA_VALUES:,} values or {MAX_SCHEMA_CHARS:,} characters"
        if depth > MAX_SCHEMA_DEPTH:
            return f"the schema is nested over {MAX_SCHEMA_DEPTH} levels deep"
        patterns = [value] if key == "pattern" and isinstance(value, str) else []
        if key == "patternProperties" and isinstance(value, dict):
            patterns = list(cast("dict[str, Any]", value))
        for pattern in patterns:
            if problem := pattern_fault(pattern):
                return f"{one_line(repr(pattern))} is not a regular expression: {problem}"
    return None


@lru_cache(maxsize=128)  # it is costly, and a schema comes more than once
def _schema_error(text: str) -> str | None:
    return find_schema_error(json.loads(text))


def _remote_reference(schema: Any) -> str | None:
    """The first reference that leads out of the schema. Ids inside it, and the published meta-schemas, are within."""
    values = list(_values(schema))
    own = [value for _, key, value in values if key == "$id" and isinstance(value, str)]
    for _, key, value in values:
        if key not in ("$ref", "$dynamicRef", "$recursiveRef") or not isinstance(value, str):
            continue
        base = value.partition("#")[0]
        if not base or "json-schema.org/" in base or any(id.endswith(base) for id in own):
            continue
        return f"{key} {one_line(value)!r} leads outside the schema; use $defs and '#/$defs/…'"
    return None


def _values(value: Any) -> Iterator[tuple[int, str, Any]]:
    """Every value within a JSON value, with its depth, and its key where it has one."""
    stack: list[tuple[int, str, Any]] = [(0, "", value)]
    while stack:
        depth, key, value = stack.pop()
        yield depth, key, value
        if isinstance(value, dict):
            stack += [(depth + 1, str(name), item) for name, item in cast("dict[Any, Any]", value).items()]
        elif isinstance(value, list):
            stack += [(depth + 1, "", item) for item in cast("list[Any]", value)]


def _is_plain(schema: Any) -> bool:
    """True where the cost of checking grows with nothing but the sizes of schema and value."""
    stack: list[tuple[int, Any]] = [(0, schema)]
    count = 0
    while stack:
        branches, value = stack.pop()
        count += 1
        if count > INLINE_SCHEMA_VALUES or branches > INLINE_NESTED_BRANCHES:
            return False
        if isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                if name in _COSTLY:
                    return False
                stack.append((branches + (name in _BRANCHING), item))
        elif isinstance(value, list):
            stack += [(branches, item) for item in cast("list[Any]", value)]
    return True


def _is_small(instance: object) -> bool:
    chars = 0
    for count, (_, _, value) in enumerate(_values(instance)):
        chars += len(value) if isinstance(value, str) else 0
        is_long = isinstance(value, (dict, list)) and len(cast("list[Any]", value)) > INLINE_INSTANCE_VALUES
        if is_long or count >= INLINE_INSTANCE_VALUES or chars > INLINE_INSTANCE_CHARS:
            return False
    return True
