"""Fuzz the parser of tool calls: any input becomes tasks or one `CallError` within the time limit."""

import json
from typing import Any

import pytest
from hypothesis import strategies as st

from delegate.contract import parse_call
from delegate.judging.checks.json_schema import check_schema
from delegate.types.errors import CallError
from tests.fuzz.fuzzing import fuzz
from tests.fuzz.targets import SEEDS, check_call
from tests.fuzz.values import ANY_CHARACTER, JUNK, Mutator

GOOD: list[Any] = [
    {
        "goal": "Write a.txt",
        "context": "There is none yet.",
        "tier": "fast",
        "output_schema": {"type": "object", "properties": {"a": {"pattern": "^a+$"}}, "required": ["a"]},
        "acceptance_criteria": [
            "It is written.",
            {"kind": "text", "id": "mine", "text": "It is short."},
            {"kind": "question", "question": "Is it good?", "threshold": "high_confidence"},
            {"kind": "shell", "command": "test -f a.txt", "exit_code": 0, "timeout_seconds": 5, "network": "none"},
            {"kind": "json_predicate", "expr": "output.a === 1"},
            {"kind": "json_schema", "schema": {"$ref": "#/$defs/x", "$defs": {"x": {"enum": [1, None]}}}},
            {"kind": "file", "path": "a.txt", "min_bytes": 1, "contains": "a", "json_schema": {"type": "array"}},
            {"kind": "regex", "pattern": "[a-z]{2,3}"},
            {"kind": "receipt", "mode": "exactly", "calls": [{"tool": "t", "args": {"a": {"matches": "x+"}}}]},
            {"kind": "receipt", "mode": "none", "of": ["t", "u"]},
            {"kind": "rubric", "rubric": "writing", "threshold": 0.5},
            {"kind": "manual", "text": "Somebody looked."},
        ],
    },
    *(json.loads(seed) for seed in SEEDS["call"]),
]  # fmt: skip


@fuzz(25, value=JUNK)
def test_any_value_is_tasks_or_a_call_error(value: Any) -> None:
    check_call(value)
    check_call({"goal": "g", "acceptance_criteria": value, "output_schema": value, "tier": value})
    check_call(json.dumps(value))


@fuzz(50, base=st.sampled_from(GOOD), seed=st.integers(0, 2**32), junk=st.lists(JUNK, min_size=1, max_size=3))
def test_a_damaged_call_is_tasks_or_a_call_error(base: Any, seed: int, junk: list[Any]) -> None:
    mutator, value = Mutator(seed, junk), base
    for _ in range(mutator.random.randint(1, 4)):
        value = mutator.changed(value)
    check_call(value)
    text = json.dumps(value)
    check_call(text)
    check_call({"tasks": text})
    cut = mutator.random.randrange(len(text) + 1)
    check_call(text[:cut] + mutator.random.choice(["", text[cut + 1 :], '"', "}", "\x00", "\ud800"]))


@fuzz(25, data=st.binary(max_size=300) | st.text(ANY_CHARACTER, max_size=200))
def test_any_bytes_are_tasks_or_a_call_error(data: bytes | str) -> None:
    check_call(data)


DEEP = 100_000
MANY = 300_000


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        '{"goal":"g","acceptance_criteria":' + "[" * DEEP + "]" * DEEP + "}",
        '{"goal":"g","output_schema":' + '{"not":' * DEEP + "{}" + "}" * DEEP + "}",
        '{"goal":"g","output_schema":' + '{"not":' * 60 + "{}" + "}" * 60 + "}",
        '{"goal":"' + "x" * 1_000_000 + '"}',
        '{"goal":"g","context":"' + "\\u0000" * 90_000 + '"}',
        '{"goal":"g","' + "k" * 900_000 + '":1}',
        '{"goal":"g",' + ",".join(f'"k{n}":{n}' for n in range(60_000)) + "}",
        '{"goal":"g","acceptance_criteria":[' + ",".join('""' for _ in range(MANY)) + "]}",
        '{"goal":"g","acceptance_criteria":[' + ",".join('{"kind":"x"}' for _ in range(5_000)) + "]}",
        '{"goal":"g",' * 3 + '"goal":"h"}' + "}" * 2,
        '{"goal":"g","goal":"h","tasks":[],"tasks":null}',
        '{"goal":' + "9" * 900_000 + "}",
        '{"goal":1e' + "9" * 100 + "}",
        '{"goal":-' + "9" * 4_000 + "}",
        '{"goal":"g","acceptance_criteria":[{"kind":"shell","command":"c","timeout_seconds":' + "9" * 4_000 + "}]}",
        '{"goal":"g","acceptance_criteria":[{"kind":"regex","pattern":"' + "(" * 5_000 + '"}]}',
        '{"goal":"g","acceptance_criteria":[{"kind":"regex","pattern":"' + "(?:a|b)*" * 600 + '"}]}',
        '{"goal":"g","acceptance_criteria":[{"kind":"regex","pattern":"' + "[a-z&&[^b]]" * 400 + '"}]}',
        json.dumps(json.dumps(json.dumps({"goal": "g"}))),
        '"' * MANY,
        "\\" * MANY,
        " " * MANY + "{}",
        "\ufeff{}",
        '{"goal":"\\ud800"}',
        '{"\\ud800":"g"}',
        '{"goal":"g","output_schema":{"title":"\\ud800"}}',
        '{"goal":"g","output_schema":{"\\udfff":{}}}',
    ],
    ids=lambda text: text[:40] + f" ({len(text)})",
)  # fmt: skip
def test_an_oversized_call_is_answered_soon(text: str) -> None:
    check_call(text)
    check_call(text.encode("utf-8", "surrogatepass"))


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"not": value}
    return value


@pytest.mark.parametrize("levels", [30, 500, 50_000])
def test_a_nested_object_is_answered_soon(levels: int) -> None:
    for call in (nested(levels), {"goal": "g", "output_schema": nested(levels)}, {"tasks": [nested(levels)]}):
        check_call(call)
        call.clear()  # or the garbage collector would follow it all the way down, once per test


def test_a_call_that_holds_itself_is_refused() -> None:
    call: dict[str, Any] = {"goal": "g"}
    call["acceptance_criteria"] = [call]
    check_call(call)


NO_JSON: list[Any] = [b"x", {1}, object(), 1j, {1: 2}, {None: 1}, {(1, 2): 3}, (1, {2: 3}), 10**5000]


@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
def test_what_json_does_not_have_is_refused(value: Any) -> None:
    calls = [value, {"goal": value}, {"goal": "g", "context": value}, {"tasks": value}, {"tasks": [value]}]
    criteria = [value, {"kind": value}, {"kind": "regex", "pattern": value}, {"kind": "shell", "command": value}]
    criteria += [{"kind": "shell", "command": "c", name: value} for name in ("exit_code", "timeout_seconds")]
    calls += [{"goal": "g", "acceptance_criteria": [criterion]} for criterion in criteria]
    calls += [{"goal": "g", "output_schema": schema} for schema in (value, {"const": value}, {"type": value})]
    for call in calls:
        check_call(call)


def test_a_number_that_python_would_not_write_down_is_too_large() -> None:
    with pytest.raises(CallError) as refusal:
        parse_call({"goal": "g", "output_schema": {"const": 10**5_000}}, check_schema=check_schema)
    assert refusal.value.code == "too_large"


@pytest.mark.parametrize("call", GOOD, ids=lambda call: json.dumps(call)[:40])
def test_what_is_damaged_here_was_good(call: Any) -> None:
    assert parse_call(call, check_schema=check_schema)


# ----------------------------------------------------------------------------------------------------- found by fuzzing

RECEIPT = {"kind": "receipt", "calls": [{"tool": "t", "a\x7f\u202e\nb" + "c" * 100: 1}]}
BAD_SCHEMA = {"type": "object", "properties": {"a\x7f\u202e\nb" + "c" * 400: 1}}


@pytest.mark.parametrize("fields", [{"acceptance_criteria": [RECEIPT]}, {"output_schema": BAD_SCHEMA}])
def test_a_key_deep_in_a_call_is_named_short_and_harmless(fields: dict[str, Any]) -> None:
    with pytest.raises(CallError) as refusal:
        parse_call({"goal": "g", **fields}, check_schema=check_schema)
    assert "ab" in refusal.value.message or "a b" in refusal.value.message
    assert refusal.value.message.isprintable()
    assert len(refusal.value.message) < 400
    check_call({"goal": "g", **fields})
