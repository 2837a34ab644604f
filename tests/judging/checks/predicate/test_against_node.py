"""Thousands of expressions, each evaluated by us and by node: the same, or refused by us."""

import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from delegate.judging.checks.predicate import PredicateError
from delegate.judging.checks.predicate.evaluate import value_of
from delegate.judging.checks.predicate.problems import Thrown
from delegate.judging.checks.predicate.text import units
from delegate.judging.checks.predicate.values import UNDEFINED, Js, own_keys
from tests.judging.checks.predicate.expressions import Writer

NODE = shutil.which("node")
ORACLE = Path(__file__).with_name("oracle.js")
MAX_REFUSED = 0.16
"""Share of the generated expressions that we may refuse; most of those turn arrays or objects into text."""

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed: nothing to compare with")

DATA = """{
  "n": 3, "f": 1.5, "t": true, "z": null, "neg": -0.0, "big": 9007199254740993, "tiny": 5e-324,
  "s": "Hello, World", "e": "a😀b", "h": "0x1F", "empty": "", "sharp": "Straße",
  "l": [3, 1, 2], "w": ["b", "a", "c"], "o": {"b": 1, "10": 2, "9": 3, "a": {"c": null}},
  "rows": [{"id": 1, "ok": true, "tags": ["x"]}, {"id": 2, "ok": false, "tags": []}]
}"""
EDGES = Path(__file__).with_name("edges.txt")
"""One expression per line, over DATA."""


@pytest.fixture(scope="module")
def answers() -> "dict[str, list[tuple[str, str, Any]]]":
    """By group: expression, JSON text, and what node says."""
    writer = Writer(seed=20261126)
    groups = {
        "edges": [(line, DATA) for line in EDGES.read_text(encoding="utf-8").splitlines()],
        "random": [writer.case() for _ in range(8_000)],
        "patterns": [writer.search() for _ in range(4_000)],
        "precedence": [writer.soup() for _ in range(4_000)],
    }
    lines = [json.dumps(case) for cases in groups.values() for case in cases]
    assert NODE is not None
    ran = subprocess.run([NODE, ORACLE], input="\n".join(lines), capture_output=True, text=True, timeout=50, check=True)
    said: Iterator[Any] = map(json.loads, ran.stdout.split("\n"))
    return {name: [(*case, next(said)) for case in cases] for name, cases in groups.items()}


@pytest.mark.parametrize(
    ("group", "max_refused"), [("random", MAX_REFUSED), ("patterns", 0.2), ("precedence", 0.3), ("edges", 0.08)]
)
def test_every_value_is_the_one_node_gives_or_the_expression_is_refused(
    answers: "dict[str, list[tuple[str, str, Any]]]", group: str, max_refused: float
) -> None:
    cases, refused, different = answers[group], 0, list[str]()
    for expression, text, theirs in cases:
        ours = _ours(expression, text)
        refused += ours is None and not _is_syntax_error(theirs)
        if ours is not None and not _is_same(ours, theirs) and not _is_close(expression, ours, theirs):
            different.append(f"{expression} over {text}: {ours} here, {theirs} in node")
    print(f"{group}: {len(cases)} expressions, {refused} refused ({refused / len(cases):.1%})")
    assert different == []
    assert refused / len(cases) < max_refused


def test_what_node_calls_a_syntax_error_is_never_evaluated(answers: "dict[str, list[tuple[str, str, Any]]]") -> None:
    bad = [
        (expression, text)
        for group in answers.values()
        for expression, text, theirs in group
        if _is_syntax_error(theirs)
    ]
    assert len(bad) > 100
    assert [expression for expression, text in bad if _ours(expression, text) is not None] == []


def _ours(expression: str, text: str) -> Any:
    """What we say, in the oracle's form; None for a refusal."""
    try:
        return _plain(value_of(expression, json.loads(text)))
    except PredicateError:
        return None
    except Thrown as problem:
        return {"throws": str(problem)}


def _is_close(expression: str, ours: Any, theirs: Any) -> bool:
    """ECMA-262 leaves the last bits of `**` to the implementation."""
    both = isinstance(ours, float) and isinstance(theirs, int | float)
    return both and "**" in expression and math.isclose(ours, theirs, rel_tol=1e-12)


def _is_syntax_error(theirs: Any) -> bool:
    return isinstance(theirs, dict) and cast("dict[str, Any]", theirs).get("throws") == "SyntaxError"


def _is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict) and "throws" in theirs:
        return isinstance(ours, dict) and "throws" in ours
    return json.dumps(ours) == json.dumps(_in_units(theirs))


def _plain(value: Js) -> Any:
    if value is UNDEFINED:
        return {"undefined": True}
    if isinstance(value, float) and (not math.isfinite(value) or (value == 0.0 and math.copysign(1, value) < 0)):
        return {"number": {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN", "-0.0": "-0"}[str(value)]}
    if isinstance(value, list):
        return {"array": [_plain(item) for item in value]}
    if isinstance(value, dict):
        return {"object": [[key, _plain(value[key])] for key in own_keys(value)]}
    return {"null": True} if value is None else value


def _in_units(value: Any) -> Any:
    """The oracle's JSON with strings and numbers in the evaluator's form."""
    if isinstance(value, str):
        return units(value)
    if isinstance(value, list):
        return [_in_units(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _in_units(item) for key, item in cast("dict[str, Any]", value).items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
