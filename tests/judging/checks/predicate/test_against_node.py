"""Thousands of expressions, whose values are compared with those that node gave: the same, or refused."""

import json
import math
from typing import Any

import pytest

from delegate.judging.checks.predicate import PredicateError, engine
from delegate.judging.checks.predicate.compile import compile_expression
from tests.judging.checks.predicate import recorded
from tests.judging.checks.predicate.recorded import HERE, Case

PLAIN = (HERE / "plain.js").read_text(encoding="utf-8")
DIFFERENT = {
    # V8 looks for the match inside a character, although the flag `u` forbids it (ECMA-262, AdvanceStringIndex).
    '"😀".search(/(?!😀)/u)': 2,
    r"text.search(/(?!\b|[^a-]|\d(?:(\s[\W_])*(?!^\D^))(?<![^a-]a[\s\d])|\D)/gu)": 3,
}
"""Expressions for which node gives another value than we do, and ours."""


@pytest.fixture(scope="module")
def groups() -> dict[str, list[Case]]:
    known, groups = recorded.read()
    assert known["written"] == recorded.digest(), "other expressions than those recorded: see recorded.py"
    return groups


@pytest.mark.parametrize(
    ("group", "max_refused"), [("edges", 0.06), ("random", 0.14), ("patterns", 0.0), ("precedence", 0.3)]
)
def test_every_value_is_nodes_or_the_expression_is_refused(
    groups: dict[str, list[Case]], group: str, max_refused: float
) -> None:
    refused, different = 0, list[str]()
    for case in groups[group]:
        ours = value_of(case)
        refused += "refused" in ours and not case.throws("SyntaxError")
        if "refused" not in ours and not is_same(case, ours):
            different.append(f"{case.expression} over {case.text}: {ours} here, {case.result} in node")
    print(f"{group}: {len(groups[group])} expressions, {refused} refused ({refused / len(groups[group]):.1%})")
    assert different == []
    assert refused / len(groups[group]) <= max_refused


def test_what_node_calls_a_syntax_error_is_never_evaluated(groups: dict[str, list[Case]]) -> None:
    bad = [case for cases in groups.values() for case in cases if case.throws("SyntaxError")]
    assert len(bad) > 100
    for case in bad:
        with pytest.raises(PredicateError):
            compile_expression(case.expression)


def test_the_record_is_what_node_says(groups: dict[str, list[Case]]) -> None:
    if recorded.node_version() != "v20":
        pytest.skip("node 20, which gave the results, is not installed")
    cases = [case for cases in groups.values() for case in cases]
    assert [case.result for case in cases] == [json.loads(line) for line in recorded.ask_node()]


def value_of(case: Case) -> dict[str, Any]:
    """`{"value"}` in the form of `plain.js`, or what the engine answers where there is none."""
    try:
        code = compile_expression(case.expression).decode()
    except PredicateError as problem:
        return {"refused": str(problem)}
    conclude = f"value => ({{ value: ({PLAIN})(value) }})"
    return engine.answer(f"{code[:-1]},{conclude})\t{json.dumps(json.loads(case.text))}".encode())


def is_same(case: Case, ours: dict[str, Any]) -> bool:
    if "thrown" in ours or case.throws():
        return "thrown" in ours and case.throws()
    if case.expression in DIFFERENT:
        return ours["value"] == DIFFERENT[case.expression]
    value, theirs = ours["value"], case.result
    if "**" in case.expression and isinstance(value, float) and isinstance(theirs, float):
        return math.isclose(value, theirs, rel_tol=1e-12)  # ECMA-262 leaves its last bits to the engine
    return json.dumps(value) == json.dumps(theirs)
