from typing import Any

import pytest

from delegate.judging.checks.predicate.evaluate import PredicateError, evaluate

VALUE: dict[str, Any] = {
    "response": {"status": 404, "body": {"ok": False}},
    "items": [{"id": 1, "ok": True}, {"id": 2, "ok": False}],
    "name": "Ada",
    "none": None,
}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("response.status === 200", "response.status === 200 → false: `response.status` was 404"),
        (
            "name === 'Ada' && response.status === 200 && nobody",
            "response.status === 200 → false: `response.status` was 404",
        ),
        ("name === 'Bob'", "name === 'Bob' → false: `name` was \"Ada\""),
        (
            "response.status < items.length",
            "response.status < items.length → false: `response.status` was 404, `items.length` was 2",
        ),
        ("response.body.ok", "response.body.ok → false"),
        ("response.code", "response.code → false"),
        ("response.code === 200", "response.code === 200 → false: `response.code` was undefined"),
        ("response.bdy.ok", "JavaScript throws: cannot read property 'ok' of undefined"),
        ("nobody === 1", "there is no `nobody` in the output; it has: response, items, name, none"),
        ("!items.length", "!items.length → false: `items.length` was 2"),
        (
            "items.every(i => i.ok)",
            'items.every(i => i.ok) → false: `items` was [{"id":1,"ok":true},{"id":2,"ok":false}]',
        ),
        ("name.startsWith('B')", "name.startsWith('B') → false: `name` was \"Ada\""),
        ("/^B/.test(name)", '/^B/.test(name) → false: `name` was "Ada"'),
        (
            "name === 'Bob' || response.status === 200",
            "name === 'Bob' || response.status === 200 → false: `name` was \"Ada\", `response.status` was 404",
        ),
        ("none ?? response.body.ok", "none ?? response.body.ok → false: `none` was null, `response.body.ok` was false"),
    ],
)
async def test_a_failure_says_which_part_failed_and_with_what_values(expression: str, reason: str) -> None:
    outcome = await evaluate(expression, VALUE)
    assert (outcome.holds, outcome.reason) == (False, reason)


async def test_a_success_is_confirmed_in_a_line() -> None:
    assert (await evaluate("response.status\n  === 404", VALUE)).reason == "response.status === 404 → true"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("output === 1", "x" * 500_000),
        ("output.length === 1", [["y" * 1_000] * 1_000] * 100),
        ("a === 1", {"a": {"k" * 10_000: list(range(10_000))}}),
        ("missing === 1", {"k" * 10_000 + str(n): n for n in range(1_000)}),
        ("a[b].c", {"a": {}, "b": "\n" * 9_000}),
        ("a === " + "1 + " * 1_000 + "1", {"a": 0}),
    ],
)
async def test_a_reason_is_short_and_on_one_line_whatever_the_child_wrote(expression: str, value: object) -> None:
    try:
        reason = (await evaluate(expression, value)).reason
    except PredicateError as problem:
        reason = str(problem)
    assert len(reason) <= 700
    assert "\n" not in reason


async def test_a_reason_can_always_be_written_as_utf_8() -> None:
    outcome = await evaluate("a[b].c + a[b]", {"a": {}, "b": "\ud83d", "c": "\ude00"})
    assert outcome.reason.encode()
    assert (await evaluate("a === 1", {"a": "\ud83d😀"})).reason == r'a === 1 → false: `a` was "\ud83d😀"'
