"""Fuzz JSON Schemas from models: a value is validated or the schema is refused, in bounded time."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from delegate.judging.checks.json_schema import SchemaProblem, check_schema, validate
from tests.fuzz.fuzzing import ends_soon, fuzz
from tests.fuzz.values import ANY_CHARACTER, JUNK

TIMEOUT_SECONDS = 0.5
PATTERNS = st.sampled_from(["^a+$", "(a+)+$", "(?=", "[", "\\p{L}", "(a|a)*b", "a{99999}", "(?:a{999}){999}"])
NUMBERS = st.sampled_from([0, -1, 1e-300, 10**400, 0.1, "1"])
TYPES = st.sampled_from(["object", "array", "string", "number", "x", 1, ["null", "null"]])
NAMES = st.sampled_from(["a", "b", "$ref", "properties", "const"]) | st.text(ANY_CHARACTER, max_size=3)
INSIDE = ["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#a", "#/$defs", "#/%", "#/~2", "#/$defs/a/" * 50, "\ud800"]
OUTSIDE = ["http://127.0.0.1:1/x", "file:///x", "other.json", "", "urn:x", "//", "http://["]
DRAFTS = ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
REFERENCES = st.sampled_from([*INSIDE, *OUTSIDE, *DRAFTS])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with some JSON Schema keywords, mostly with values of the right type."""
    lists, named = st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("not", "if", "then", "items", "contains", "additionalProperties", "propertyNames"), inner),
            **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists),
            **dict.fromkeys(("properties", "$defs", "dependentSchemas"), named),
            **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"), REFERENCES),
            **dict.fromkeys(("minimum", "multipleOf", "maxLength", "minItems"), NUMBERS),
            **dict.fromkeys(("uniqueItems", "format", "enum", "const", "$comment", "$vocabulary"), JUNK),
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "pattern": PATTERNS,
            "$schema": REFERENCES | JUNK,
            "type": TYPES,
            "required": st.lists(NAMES, max_size=3) | JUNK,
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(JUNK | st.booleans(), keywords, max_leaves=10)


def check(schema: Any, instance: Any) -> None:
    """Check that the result is one short line or None, and that this thread needed little CPU time."""
    with ends_soon():
        said = check_schema(schema)
        with suppress(SchemaProblem):
            said = asyncio.run(validate(instance, schema, timeout_seconds=TIMEOUT_SECONDS)) or said
    if said is not None:
        assert 0 < len(said) < 1_000
        assert "\n" not in said


@fuzz(25, schema=SCHEMAS, instance=JUNK)
def test_any_schema_is_checked_against_or_is_a_problem(schema: Any, instance: Any) -> None:
    check(schema, instance)


HOSTILE: list[tuple[Any, Any]] = [
    ({"$ref": "#"}, 1),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
    ({"items": {"$ref": "#"}}, [[[[]]]]),
    ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
    ({"pattern": "(a+)+$"}, "a" * 5_000 + "b"),
    ({"patternProperties": {"(a|a)*b": {}}}, {"a" * 40: 1}),
    ({"uniqueItems": True}, [[n] for n in range(5_000)]),
    ({"multipleOf": 1e-300}, 1e308),
    ({"multipleOf": 0.1}, 10**400),
    ({"const": 10**5_000}, 1),
    ({"type": "string"}, 10**5_000),
    ({"enum": ["x" * 40_000]}, "y"),
    ({"maxLength": 10**400}, "x"),
    ({"$schema": ["x"]}, 1),
    ({"$schema": {}}, 1),
    ({"$id": "http://[", "$ref": "x"}, 1),
    ({"$id": "\ud800", "$ref": "#"}, 1),
    ({"$ref": "#/\ud800"}, "\ud800"),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_schema_is_answered(number: int) -> None:
    check(*HOSTILE[number])
