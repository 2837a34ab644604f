"""What isn't one pure expression, or doesn't give true or false, is refused: never met, and not the work's fault."""

from pathlib import Path
from typing import Any

import pytest

from delegate.judging.checks.predicate.evaluate import PredicateError, check_expression, evaluate

VALUE: dict[str, Any] = {"n": 3, "s": "text", "l": [1, 2], "o": {"k": 1}}
NOT_EXPRESSIONS = {
    "": "syntax error",
    "  // nothing": "syntax error",
    "n ===": "syntax error",
    "s === 'a\nb'": "syntax error",
    "n &&& s": "syntax error",
    "a b": "syntax error",
    "(n": "syntax error",
    "'\\": "syntax error",
    "`${": "syntax error",
    "return n": "syntax error",
    "if (n) { true }": "syntax error",
    "n; true": "syntax error",
    "n) || (s": "parentheses",
    "n) || true || (n": "parentheses",
    "n)}; while (true); if (0) {(n": "parentheses",
    "n \0": "syntax error",
    "n = 3": "assignment",
    "n += 1": "assignment",
    "o.k = true": "assignment",
    "x => x": "function",
    "'\ud83d' === s": "Unicode",
    "a" * 8_193: "longer than 8,192",
}


@pytest.mark.parametrize(("expression", "named"), NOT_EXPRESSIONS.items())
def test_what_is_not_one_pure_expression_is_refused_before_anything_runs(expression: str, named: str) -> None:
    with pytest.raises(PredicateError) as caught:
        check_expression(expression)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "gives"),
    [
        ("n", "gives 3,"),
        ("l", r"gives \[1,2\],"),
        ("l.length", "gives 2,"),
        ("s", 'gives "text",'),
        ("n & 1", "gives 1,"),
        ("n <!-- s", "gives 3,"),
        ("import('os')", "gives {},"),
        ("l.filter(x => x > 5)", r"gives \[\],"),
    ],
)
async def test_a_value_that_is_not_true_or_false_is_refused(expression: str, gives: str) -> None:
    with pytest.raises(PredicateError, match=gives):
        await evaluate(expression, VALUE)


@pytest.mark.parametrize("expression", ["super.x", "import.meta", "/(/.test(s)", "-n ** 2 === 9", "n ?? s || l"])
async def test_what_the_engine_cannot_read_is_refused(expression: str) -> None:
    with pytest.raises(PredicateError):
        await evaluate(expression, VALUE)


@pytest.mark.parametrize(
    "expression",
    [
        "(o.k = true) && true",
        "l.some(x => { n = x; return true })",
        "n++ > 2",
        "(l[0] = 9) === 9",
        "(output.n = 1) === 1",
    ],
)
async def test_nothing_can_be_assigned_inside_of_a_condition_either(expression: str) -> None:
    outcome = await evaluate(expression, VALUE)
    assert not outcome.holds
    assert "read-only" in outcome.reason


NO_JSON: list[object] = [{1, 2}, {(1, 2): 2}, {"a": object()}, [b"x"], {"a": float("nan")}, {"a": Path()}]


@pytest.mark.parametrize("value", NO_JSON)
async def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(PredicateError, match="JSON"):
        await evaluate("output === 1", value)
