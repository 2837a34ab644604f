"""Runs attacks by criteria: expressions and schemas that would execute code, read files, connect or never end.

An attack is stopped if it is refused or ends within its limits, and the criterion isn't met.
"""

import time
from collections.abc import Mapping
from typing import Any

from delegate.cli.doctor.security.commands import Row
from delegate.errors import DelegateError
from delegate.judging.checks.json_schema import check_schema, validate
from delegate.judging.checks.predicate import PredicateError, evaluate

SECONDS = 2.0
"""Upper bound on the time for one criterion, including the start of a worker."""
SCHEMA_SECONDS = 0.3
"""The limit for one schema, whose worker has started; delegate's own is a second."""

_N = list(range(600))
PREDICATES: Mapping[str, str] = {
    "an endless loop": "(() => { while (true) {} })()",
    "endless recursion": "(function f() { return f() })()",
    "access to process globals": "process.exit(0)",
    "loading a system module": "require('child_process').execSync('id')",
    "evaluating a string as code": "eval('1') === 1 || Function('return 1')() === 1",
    "changing a prototype": "(output.__proto__.polluted = 1) === 1",
    "the Function constructor": "n.constructor.constructor('return typeof require')() === 'function'",
    "a regex with catastrophic backtracking": "/^(a+)+$/.test(a40)",
    "nested loops over a list": "n.every(a => n.every(b => n.every(c => true)))",
    "a string that keeps doubling": "n.reduce((s, x) => s + s, 'x').length > 0",
    "a number that keeps growing": "n.reduce((s, x) => s * s, 10) < 0",
    "an array of a billion elements": "new Array(1e9).fill(0).length > 0",
    "5,000 nested parentheses": "(" * 5_000 + "true" + ")" * 5_000,
    "a second statement": "true; process.exit(0)",
}
_DOUBLING: dict[str, Any] = {
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)} | {"d25": {"type": "object"}},
    "$ref": "#/$defs/d0",
}
SCHEMAS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "a $ref to a local server": ({"$ref": "http://127.0.0.1:9/schema.json"}, {}),
    "a $ref to a local file": ({"$ref": "file:///etc/passwd"}, {}),
    "a regex with catastrophic backtracking": ({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
    "a patternProperties regex with backtracking": (
        {"patternProperties": {"^(a+)+$": False}},
        {"a" * 40 + "!": 1},
    ),
    "definitions that expand exponentially": (_DOUBLING, {}),
    "a definition that refers to itself": ({"$ref": "#"}, {}),
}


async def criterion_attacks() -> list[Row]:
    """Run all attacks. Takes about two seconds."""
    rows = [await _predicate(attack, expr) for attack, expr in PREDICATES.items()]
    return rows + [await _schema(attack, *SCHEMAS[attack]) for attack in SCHEMAS]


async def _predicate(attack: str, expr: str) -> Row:
    started, met, note = time.monotonic(), False, "it ended within its limits and was not met"
    try:
        outcome = await evaluate(expr, {"n": _N, "a40": "a" * 40 + "!"})
        met = outcome.holds
    except PredicateError as error:
        note = f"refused: {_short(error)}"
    stopped = not met and time.monotonic() - started < SECONDS
    return Row("predicate", attack, "evaluator", "stopped" if stopped else "possible", note)


async def _schema(attack: str, schema: dict[str, Any], instance: Any) -> Row:
    started, valid, note = time.monotonic(), False, "refused before use"
    try:
        if check_schema(schema) is None:
            valid = await validate(instance, schema, timeout_seconds=SCHEMA_SECONDS) is None
            note = "it ended within its limits and the data was invalid"
    except DelegateError as error:
        note = f"stopped: {_short(error)}"
    stopped = not valid and time.monotonic() - started < SECONDS
    return Row("schema", attack, "validator", "stopped" if stopped else "possible", note)


def _short(error: DelegateError) -> str:
    return str(error).splitlines()[0].partition(" (at character")[0][:80]
