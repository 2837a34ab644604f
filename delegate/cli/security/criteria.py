"""Attacks by criteria that a model wrote: expressions and schemas that would run, read, reach out or never end.

Tried out for real: an attack is stopped when it is refused or ends within its limits, and nothing was met by it.
"""

import time
from collections.abc import Mapping
from typing import Any

from delegate.cli.security.commands import Row
from delegate.errors import DelegateError
from delegate.judging.checks.json_schema import check_schema, validate
from delegate.judging.checks.predicate import PredicateError, evaluate

SECONDS = 2.0
"""Longer than any criterion may take, the start of a worker included."""

_N = list(range(600))
PREDICATES: Mapping[str, str] = {
    "a loop without end": "(() => { while (true) {} })()",
    "a function that calls itself": "(function f() { return f() })()",
    "a program's own globals": "process.exit(0)",
    "a module of the system": "require('child_process').execSync('id')",
    "code from text": "eval('1') === 1 || Function('return 1')() === 1",
    "a prototype that is changed": "(output.__proto__.polluted = 1) === 1",
    "the constructor of constructors": "n.constructor.constructor('return 1')() === 1",
    "a pattern that backtracks for ever": "/^(a+)+$/.test(a40)",
    "work that multiplies": "n.every(a => n.every(b => n.every(c => true)))",
    "a text that doubles": "n.reduce((s, x) => s + s, 'x').length > 0",
    "a number without bound": "n.reduce((s, x) => s * s, 10) < 0",
    "an array of a billion": "new Array(1e9).fill(0).length > 0",
    "five thousand brackets": "(" * 5_000 + "true" + ")" * 5_000,
    "a second statement": "true; process.exit(0)",
}
_DOUBLING: dict[str, Any] = {
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)} | {"d25": {"type": "object"}},
    "$ref": "#/$defs/d0",
}
SCHEMAS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "a reference to this machine": ({"$ref": "http://127.0.0.1:9/schema.json"}, {}),
    "a reference to a file": ({"$ref": "file:///etc/passwd"}, {}),
    "a pattern that backtracks for ever": ({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
    "a property pattern that backtracks": ({"patternProperties": {"^(a+)+$": False}}, {"a" * 40 + "!": 1}),
    "definitions that double 25 times": (_DOUBLING, {}),
    "a definition that refers to itself": ({"$ref": "#"}, {}),
}


async def criterion_attacks() -> list[Row]:
    """Try all attacks; takes a second or two."""
    rows = [await _predicate(attack, expr) for attack, expr in PREDICATES.items()]
    return rows + [await _schema(attack, *SCHEMAS[attack]) for attack in SCHEMAS]


async def _predicate(attack: str, expr: str) -> Row:
    began, met, said = time.monotonic(), False, "it ended within its limits, and was not met"
    try:
        outcome = await evaluate(expr, {"n": _N, "a40": "a" * 40 + "!"})
        met = outcome.holds
    except PredicateError as error:
        said = f"refused: {_short(error)}"
    stopped = not met and time.monotonic() - began < SECONDS
    return Row("predicate", attack, "evaluator", "stopped" if stopped else "possible", said)


async def _schema(attack: str, schema: dict[str, Any], instance: Any) -> Row:
    began, fits, said = time.monotonic(), False, "refused before it is used"
    try:
        if check_schema(schema) is None:
            fits = await validate(instance, schema) is None
            said = "it ended within its limits, and nothing fitted it"
    except DelegateError as error:
        said = f"stopped: {_short(error)}"
    stopped = not fits and time.monotonic() - began < SECONDS
    return Row("schema", attack, "validator", "stopped" if stopped else "possible", said)


def _short(error: DelegateError) -> str:
    return str(error).splitlines()[0].partition(" (at character")[0][:80]
