"""Parsing of a parent's call: it is accepted as it was meant, or refused with an error that says how to fix it."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import contract
from delegate.judging.checks.json_schema import check_schema
from delegate.types import JsonSchemaCriterion, ReceiptCriterion, ShellCriterion, Task, TextCriterion
from delegate.types.errors import CallError

parse_call = partial(contract.parse_call, check_schema=check_schema)

SHELL = {"kind": "shell", "command": "true"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def nested(levels: int) -> Any:
    value: Any = {"type": "object"}
    for _ in range(levels):
        value = {"items": value}
    return value


def with_criteria(criteria: Any) -> dict[str, Any]:
    return {"goal": "g", "acceptance_criteria": criteria}


def with_criterion(**fields: Any) -> dict[str, Any]:
    return with_criteria([fields])


# -------------------------------------------------------------------------------------------------------- bad calls

BAD: list[tuple[str, Any, str, str | None]] = [
    # what was sent, the code, the field
    ("nothing", {}, "no_task", "goal"),
    ("no text at all", "", "no_task", "goal"),
    ("empty tasks", {"tasks": []}, "no_task", "goal"),
    ("tasks as the text of an empty list", {"tasks": "[ ]"}, "no_task", "goal"),
    ("only nulls", {"goal": None, "tasks": None}, "no_task", "goal"),
    ("four tasks", {"tasks": [{"goal": "g"}] * 4}, "too_many_tasks", "tasks"),
    ("four tasks as text", {"tasks": json.dumps([{"goal": "g"}] * 4)}, "too_many_tasks", "tasks"),
    ("goal and tasks", {"goal": "g", "tasks": [{"goal": "h"}]}, "goal_and_tasks", "goal"),
    ("tier beside tasks", {"tier": "fast", "tasks": [{"goal": "h"}]}, "goal_and_tasks", "tier"),
    ("an unknown field", {"goal": "g", "critera": []}, "unknown_field", "critera"),
    ("an unknown field in a task", {"tasks": [{"goal": "g", "prompt": "p"}]}, "unknown_field", "tasks[0].prompt"),
    ("a field for people", {"goal": "g", "workspace": "/"}, "unknown_field", "workspace"),
    ("a blank goal", {"goal": " \n"}, "empty", "goal"),
    ("a task without goal", {"tasks": [{"goal": "g"}, {"context": "c"}]}, "empty", "tasks[1].goal"),
    ("a blank criterion", {"goal": "g", "acceptance_criteria": ["a", " "]}, "empty", "acceptance_criteria[1]"),
    ("a null criterion", {"goal": "g", "acceptance_criteria": [None]}, "empty", "acceptance_criteria[0]"),
    ("a blank command", with_criterion(kind="shell", command=" "), "empty", "acceptance_criteria[0].command"),
    ("a goal that is a number", {"goal": 7}, "wrong_type", "goal"),
    ("a goal that is a list", {"goal": ["g"]}, "wrong_type", "goal"),
    ("a context that is an object", {"goal": "g", "context": {"a": 1}}, "wrong_type", "context"),
    ("tasks as a number", {"tasks": 3}, "wrong_type", "tasks"),
    ("a task that is a number", {"tasks": [3]}, "wrong_type", "tasks[0]"),
    ("criteria as a number", {"goal": "g", "acceptance_criteria": 3}, "wrong_type", "acceptance_criteria"),
    ("a criterion that is a number", {"goal": "g", "acceptance_criteria": [3]}, "wrong_type", "acceptance_criteria[0]"),
    ("an unknown tier", {"goal": "g", "tier": "opus"}, "unknown_tier", "tier"),
    ("a tier that is a number", {"tasks": [{"goal": "g", "tier": 1}]}, "unknown_tier", "tasks[0].tier"),
    ("an unknown kind", with_criterion(kind="bash"), "unknown_criterion_kind", "acceptance_criteria[0].kind"),
    ("a kind that is a list", with_criterion(kind=["shell"]), "unknown_criterion_kind", "acceptance_criteria[0].kind"),
    ("no kind", with_criterion(command="true"), "invalid_criterion", "acceptance_criteria[0].kind"),
    ("a shell without command", with_criterion(kind="shell"), "invalid_criterion", "acceptance_criteria[0].command"),
    (
        "an exit code out of range",
        with_criterion(**SHELL, exit_code=256),
        "invalid_criterion",
        "acceptance_criteria[0].exit_code",
    ),
    (
        "an exit code in words",
        with_criterion(**SHELL, exit_code="zero"),
        "wrong_type",
        "acceptance_criteria[0].exit_code",
    ),
    (
        "an unknown field of a criterion",
        with_criterion(**SHELL, cmd="x"),
        "unknown_field",
        "acceptance_criteria[0].cmd",
    ),
    (
        "a pattern that isn't one",
        with_criterion(kind="regex", pattern="(a"),
        "invalid_criterion",
        "acceptance_criteria[0].pattern",
    ),
    (
        "a pattern nested too deep",
        with_criterion(kind="regex", pattern="(" * 4000),
        "invalid_criterion",
        "acceptance_criteria[0].pattern",
    ),
    (
        "a pattern that takes gigabytes to compile",
        with_criterion(kind="regex", pattern="(?:(?:a{1000}){1000}){1000}"),
        "invalid_criterion",
        "acceptance_criteria[0].pattern",
    ),
    (
        "a rubric of the wrong shape",
        with_criterion(kind="rubric", rubric={"name": "r"}),
        "invalid_criterion",
        "acceptance_criteria[0].rubric.dimensions",
    ),
    (
        "an expected call without tool",
        with_criterion(kind="receipt", calls=[{"args": {"a": 1}}]),
        "invalid_criterion",
        "acceptance_criteria[0].calls[0].tool",
    ),
    (
        "the same id twice",
        {"goal": "g", "acceptance_criteria": [{**SHELL, "id": "a"}, {**SHELL, "id": "a"}]},
        "duplicate_id",
        "acceptance_criteria",
    ),
    (
        "an id that another criterion gets",
        {"goal": "g", "acceptance_criteria": [{**SHELL, "id": "c2"}, "text"]},
        "duplicate_id",
        "acceptance_criteria",
    ),
    ("a schema that isn't one", {"goal": "g", "output_schema": {"type": "strng"}}, "invalid_schema", "output_schema"),
    ("a schema that is a list", {"goal": "g", "output_schema": [SCHEMA]}, "invalid_schema", "output_schema"),
    ("a schema in words", {"goal": "g", "output_schema": "a number"}, "invalid_schema", "output_schema"),
    (
        "a criterion's schema that isn't one",
        with_criterion(kind="json_schema", schema={"required": "a"}),
        "invalid_schema",
        "acceptance_criteria[0].schema",
    ),
    ("a broken schema text", {"goal": "g", "output_schema": '{"type": '}, "invalid_json", "output_schema"),
    ("broken text", '{"goal": "g"', "invalid_json", None),
    ("Python's own spelling", "{'goal': 'g'}", "invalid_json", None),
    ("two objects", '{"goal": "g"} {"goal": "h"}', "invalid_json", None),
    ("not a number", '{"goal": "g", "context": NaN}', "invalid_json", None),
    ("no UTF-8", b'{"goal": "\xff"}', "invalid_json", None),
    ("an endless integer", '{"goal": ' + "9" * 5000 + "}", "invalid_json", None),
    ("broken tasks text", {"tasks": '[{"goal": "g"'}, "invalid_json", "tasks"),
    ("half a surrogate pair", {"goal": "a\ud800"}, "invalid_json", "goal"),
    ("a list", [{"goal": "g"}], "not_an_object", None),
    ("null", "null", "not_an_object", None),
    ("a call that is too long", '{"goal": "' + "x" * 1_000_001 + '"}', "too_large", None),
    ("a goal that is too long", {"goal": "x" * 100_001}, "too_large", "goal"),
    ("text nested too deep to be read", '{"goal":' * 100_000, "too_large", None),
    ("a schema nested too deep", {"goal": "g", "output_schema": nested(100)}, "too_large", None),
    ("a schema nested far too deep", {"goal": "g", "output_schema": nested(50_000)}, "too_large", None),
    ("too many criteria", {"goal": "g", "acceptance_criteria": ["c"] * 51}, "too_large", "acceptance_criteria"),
    ("too many values", {"goal": "g", "output_schema": {"enum": list(range(30_000))}}, "too_large", None),
    ("a key that is too long", {"goal": "g", "output_schema": {"x" * 100_001: 1}}, "too_large", "output_schema"),
    ("what JSON doesn't have", {"goal": "g", "context": object()}, "wrong_type", "context"),
    ("infinity", {"goal": "g", "output_schema": {"minimum": float("inf")}}, "wrong_type", "output_schema.minimum"),
    ("a key that is a number", {"goal": "g", "output_schema": {1: {}}}, "wrong_type", "output_schema"),
]  # fmt: skip


def refused(arguments: Any, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        parse_call(arguments, **options)
    return caught.value


@pytest.mark.parametrize(("sent", "code", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_call_is_refused_with_its_code_its_field_and_a_hint(sent: Any, code: str, field: str | None) -> None:
    error = refused(sent)
    assert (error.code, error.field) == (code, field), error.message
    assert error.hint
    assert len(error.message) < 1_500
    json.dumps([error.message, error.field, error.hint], ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("sent", "hint"),
    [
        ({"goal": "g", "critera": ["c"]}, "did you mean `acceptance_criteria`?"),
        ({"goal": "g", "aceptance_criteria": ["c"]}, "did you mean `acceptance_criteria`?"),
        ({"prompt": "g"}, "did you mean `goal`?"),
        ({"goal": "g", "Context": "c"}, "did you mean `context`?"),
        ({"goal": "g", "task": [{"goal": "g"}]}, "did you mean `goal`?"),
        ({"goal": "g", "model": "gpt"}, "ask for a `tier` instead"),
        ({"goal": "g", "max_steps": 3}, "set by the operator, not in a call"),
        ({"goal": "g", "xyzzy": 3}, "the fields are goal, context"),
        (with_criterion(kind="command", command="true"), "did you mean `shell`?"),
        (with_criterion(kind="regx", pattern="a"), "did you mean `regex`?"),
        (with_criterion(kind="shell", cmd="true"), "did you mean `command`?"),
        (with_criterion(pattern="a"), 'add "kind": "regex"'),
        ({"goal": "g", "tier": "opus"}, "the tiers are deep, standard, fast"),
        ({"tasks": [{"goal": "g"}] * 4}, "send the others in further calls"),
        ({"tasks": '[{"goal": "g'}, "make it shorter if it was cut off"),
        ({"goal": "g", "tasks": ["h"]}, "put `goal` into each of the `tasks`"),
    ],
)
def test_the_hint_says_how_to_fix_the_call(sent: Any, hint: str) -> None:
    assert hint in str(refused(sent).hint)


def test_all_problems_of_a_call_are_listed_at_once() -> None:
    error = refused(
        {"tasks": [{"goal": "", "tier": "x"}, {"goal": "g", "goals": 1, "acceptance_criteria": [{"kind": "y"}]}]}
    )
    assert (error.code, error.field) == ("empty", "tasks[0].goal")
    for place in ("tasks[0].tier", "tasks[1].goals", "tasks[1].acceptance_criteria[0].kind"):
        assert place in error.message


def test_a_thousand_problems_make_a_short_message() -> None:
    error = refused({"goal": "g", **{f"field\n{n}": n for n in range(1000)}, "acceptance_criteria": [" "] * 50})
    assert len(error.message) < 2_000
    assert "\n" not in error.message


def test_a_hosts_own_limit_of_tasks_applies() -> None:
    assert refused({"tasks": ["a", "b"]}, max_tasks=1).code == "too_many_tasks"
    assert len(parse_call({"tasks": ["a"] * 5}, max_tasks=5)) == 5


def test_a_given_schema_check_decides_about_every_schema() -> None:
    seen: list[Mapping[str, Any]] = []

    def check(schema: Mapping[str, Any]) -> str | None:
        seen.append(schema)
        return "too strange" if schema == {"a": 1} else None

    call = {
        "goal": "g",
        "output_schema": SCHEMA,
        "acceptance_criteria": [
            {"kind": "json_schema", "schema": {"b": 2}},
            {"kind": "file", "path": "p", "json_schema": {"a": 1}},
        ],
    }
    error = refused(call, check_schema=check)
    assert (error.code, error.field) == ("invalid_schema", "acceptance_criteria[1].json_schema")
    assert "too strange" in error.message
    assert seen == [SCHEMA, {"b": 2}, {"a": 1}]


# ------------------------------------------------------------------------------------------------------- good calls

TASK = {"goal": "g", "acceptance_criteria": ["a"]}
MEANT: list[tuple[str, Any, list[Any]]] = [
    ("one task", {"goal": "g"}, [{"goal": "g"}]),
    ("three tasks", {"tasks": [TASK] * 3}, [TASK] * 3),
    ("the call as text", json.dumps(TASK), [TASK]),
    ("the call as bytes with a mark", b"\xef\xbb\xbf" + json.dumps(TASK).encode(), [TASK]),
    ("the call as text within text", json.dumps(json.dumps(TASK)), [TASK]),
    ("tasks as text", {"tasks": json.dumps([TASK, TASK])}, [TASK, TASK]),
    ("a task as text", {"tasks": [json.dumps(TASK)]}, [TASK]),
    ("one task for a list", {"tasks": TASK}, [TASK]),
    ("a plain text for a task", {"tasks": ["g", "h"]}, [{"goal": "g"}, {"goal": "h"}]),
    ("unused fields filled in", {"goal": "", "context": None, "output_schema": {}, "tasks": [TASK]}, [TASK]),
    ("unused tasks filled in", {**TASK, "tasks": [], "tier": ""}, [TASK]),
    ("only a text", with_criterion(text="shell: a"), [with_criterion(kind="text", text="shell: a")]),
    ("a tier in capitals", {"goal": "g", "tier": " FAST "}, [{"goal": "g", "tier": "fast"}]),
    ("one criterion for a list", with_criteria("a. b, c\nd"), [with_criteria(["a. b, c\nd"])]),
    ("criteria as text", with_criteria('["a", "b"]'), [with_criteria(["a", "b"])]),
    ("a typed criterion as text", with_criteria([json.dumps(SHELL)]), [with_criteria([SHELL])]),
    ("one typed criterion for a list", with_criteria(SHELL), [with_criteria([SHELL])]),
    ("nulls in a criterion", with_criterion(**SHELL, exit_code=None, network=None), [with_criterion(**SHELL)]),
    ("a schema as text", {"goal": "g", "output_schema": json.dumps(SCHEMA)}, [{"goal": "g", "output_schema": SCHEMA}]),
    ("a goal that only looks like JSON", {"goal": "{x} and [y]"}, [{"goal": "{x} and [y]"}]),
    ("a criterion that only looks like JSON", with_criteria("[a] holds"), [with_criteria(["[a] holds"])]),
    ("a rubric by name", with_criterion(kind="rubric", rubric="code"), [with_criterion(kind="rubric", rubric="code")]),
    ("other scripts", {"goal": "数える 🧮"}, [{"goal": "数える 🧮"}]),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "meant"), [row[1:] for row in MEANT], ids=[row[0] for row in MEANT])
def test_a_call_is_taken_as_it_was_meant(sent: Any, meant: list[Any]) -> None:
    assert parse_call(sent) == tuple(Task.model_validate(task) for task in meant)


def test_criteria_keep_their_order_their_kinds_and_get_ids() -> None:
    (task,) = parse_call(
        {
            "goal": "g",
            "acceptance_criteria": [
                "a",
                SHELL,
                {"kind": "receipt", "id": "net", "calls": [{"tool": "fetch_url", "args": '{"url": "u"}'}]},
            ],
            "output_schema": SCHEMA,
        }
    )
    assert [type(criterion) for criterion in task.criteria] == [
        TextCriterion,
        ShellCriterion,
        ReceiptCriterion,
        JsonSchemaCriterion,
    ]
    assert [criterion.id for criterion in task.criteria] == ["c1", "c2", "net", "output_schema"]
    receipt = task.criteria[2]
    assert isinstance(receipt, ReceiptCriterion)
    assert receipt.calls[0].args == {"url": "u"}


def test_the_arguments_are_left_as_they_were() -> None:
    sent = {"tasks": [{"goal": "g", "acceptance_criteria": [json.dumps(SHELL), dict(SHELL)], "tier": "FAST"}]}
    before = json.dumps(sent)
    parse_call(sent)
    assert json.dumps(sent) == before


# --------------------------------------------------------------------------------------------------------- properties

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=20)
)
WORDS = st.sampled_from(
    ["goal", "context", "acceptance_criteria", "tier", "output_schema", "tasks", "kind", "shell", "command", "file",
     "path", "regex", "pattern", "receipt", "calls", "tool", "args", "rubric", "fast", "schema", "json_schema",
     "type", "properties", "required", "items", "id", "c1", "text", "threshold", "exit_code", "mode", "of"]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=8), inner, max_size=5)
        | inner.map(lambda value: json.dumps(value))
    ),
    max_leaves=20,
)
NEAR_CALLS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("goal", "context", "acceptance_criteria", "tier", "output_schema", "tasks"), VALUES),
)


def outcome(arguments: Any) -> None:
    try:
        tasks = parse_call(arguments)
    except CallError as error:
        refusal = error
    else:
        assert 1 <= len(tasks) <= 3
        assert all(task.goal.strip() for task in tasks)
        return
    assert refusal.code
    assert refusal.hint
    json.dumps([refusal.message, refusal.field, refusal.hint], ensure_ascii=False).encode()


@given(VALUES | NEAR_CALLS)
@settings(max_examples=25, deadline=None)
def test_any_json_becomes_tasks_or_a_call_error(value: Any) -> None:
    outcome(value)
    outcome(json.dumps(value))


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_text_becomes_tasks_or_a_call_error(text: str | bytes) -> None:
    outcome(text)
