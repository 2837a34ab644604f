"""Expressions and JSON that try to leave the engine, to reach what isn't data, or to pass for something else."""

import json
import os
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from delegate.judging.checks.predicate.evaluate import PredicateError, evaluate
from tests.judging.checks.predicate.hasty import make_hasty
from tests.support import warm

DATA: dict[str, Any] = {"n": 3, "s": "text", "l": [1, 2], "o": {"k": 1}}

MISSING = [
    "process.exit(0) !== 1", "require('os') !== null", "fetch('http://localhost') !== null", "Date.now() > 0",
    "Math.random() >= 0 && Reflect !== null", "eval('1') === 1", "Function('return true')()", "globalThis !== null",
    "constructor !== null", "toString !== null", "__proto__ !== null", "arguments !== null", "world !== null",
    "text !== null", "scope !== null", "whole !== null", "Error !== null", "Symbol !== null", "performance !== null",
]  # fmt: skip
"""They would be true if names that the data lacks were something of JavaScript's, or of the program around them."""


@pytest.mark.parametrize("expression", MISSING)
async def test_a_name_that_the_data_lacks_is_nothing_else(expression: str) -> None:
    outcome = await evaluate(expression, DATA)
    assert not outcome.holds
    assert outcome.reason.startswith("there is no `")
    assert outcome.reason.endswith("` in the output; it has: n, s, l, o")


# ----------------------------------------------------------------------------------------------------- hostile JSON


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ('{"__proto__": {"ok": true}}', "$.ok === undefined && $.__proto__.ok && Object.keys($).length === 1"),
        ('{"a": {"__proto__": {"ok": true}}}', "({ ...a }).ok === undefined && ({ ...a })['__proto__'].ok"),
        ('{"k": "__proto__"}', "({ [k]: { ok: 1 } }).ok === undefined && Object.keys({ [k]: 1 })[0] === k"),
        ('{"constructor": {"prototype": {"ok": 1}}}', "[].ok === undefined && output.constructor.prototype.ok === 1"),
        ('{"hasOwnProperty": 1, "a": {"x": 1}}', "a.hasOwnProperty('x') && 'hasOwnProperty' in output"),
        ('{"a": 1, "a": 2}', "a === 2 && Object.keys(output).length === 1"),
        (r'{"a": "\ud83d", "b": "\ude00"}', "a !== b && (a + b).length === 2 && [...(a + b)].length === 1"),
        (r'{"\ud83d": 1}', r"Object.keys(output)[0] === '\ud83d'"),
        ('{"a": 9007199254740993, "b": 1e400}', "a === 9007199254740992 && !Number.isSafeInteger(a)"),
        ('{"a": -0.0, "b": 0}', "a === b && 1 / a === -Infinity && 1 / b === Infinity"),
        ('{"a": 1e-400, "b": 12345678901234567890123}', "a === 0 && String(b) === '1.2345678901234568e+22'"),
        (r'{"a": "\u0000\u2028\n\"\\\t"}', r"a.length === 6 && a === '\0\u2028\n\"\\\t'"),
        ('{"": 1, "$": 2, "output": 3}', "output[''] === 1 && $['$'] === 2 && $.output === 3"),
        ('{"world": 1, "text": 2, "eval": 3, "Date": 4}', "world + text + eval + Date === 10"),
        ('{"__proto__": 1, "constructor": 2}', "__proto__ + constructor === 3"),
    ],
)  # fmt: skip
async def test_odd_json_is_read_as_javascript_reads_it(text: str, expression: str) -> None:
    value = json.loads(text, parse_float=lambda number: 0 if number == "1e400" else float(number))
    outcome = await evaluate(expression, value)
    assert outcome.holds, outcome.reason


# ------------------------------------------------------------------------------------------------ what code can do


HOST = ["process", "require", "std", "os", "fetch", "setTimeout", "print", "console", "WebAssembly"]


@pytest.mark.parametrize("name", HOST)
async def test_no_code_reaches_host_objects(name: str) -> None:
    outcome = await evaluate(f"s.constructor.constructor('return typeof {name}')() === 'undefined'", DATA)
    assert outcome.holds, outcome.reason


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)


@pytest.mark.parametrize(
    "code",
    [
        "(() => { while (true); })()",
        "(() => { for (;;) try { for (;;); } finally { continue } })()",
        "(function f() { return f() + f() })()",
        "(() => { const all = []; for (;;) all.push(all.slice()); })()",
        "'a'.repeat(2 ** 30).length > 1",
        "new Array(1e9).fill(0).length > 1",
        "'a'.repeat(1e5).match(/(a+)+b/)",
        "(() => { throw 1 })()",
        "(() => { throw null })()",
        "(() => { throw { message: { toString: 1 } } })()",
        "Object.defineProperty(Array.prototype, 'every', { value: () => true }) === 1",
        "Object.defineProperty(Object.prototype, 'ok', { value: true }) === 1",
        "Object.assign(Object.prototype, { ok: true }) === 1",
        "Object.assign(JSON, { parse: () => ({ ok: true }), stringify: () => '{\"holds\":true}' }) === 1",
        "Object.assign(this, { Object: 1, JSON: 2, Number: 3 }) === 1",
        "Object.freeze(this) === 1",
    ],
)
async def test_any_code_ends_and_leaves_nothing_for_the_next(hasty: None, code: str) -> None:
    expression = "l.every(x => x === 1) || l.ok === true || o.ok === true || JSON.stringify(o) === 'x'"
    with suppress(PredicateError):
        assert not (await evaluate(code, DATA)).holds
    assert not (await evaluate(expression, DATA)).holds
    assert (await evaluate("l[1] === 2 && JSON.parse('[1]').length === 1", DATA)).holds


async def test_a_long_native_call_that_nothing_interrupts_is_killed(hasty: None) -> None:
    with pytest.raises(PredicateError, match="takes longer"):
        await evaluate("Array(1e9).join('x').length === 1", DATA)
    assert (await evaluate("n === 3", DATA)).holds


# --------------------------------------------------------------------------------------------------- without an engine


@pytest.mark.parametrize(
    ("expected", "sys_platform", "platform_machine", "implementation"),
    [
        (True, "linux", "x86_64", "CPython"),
        (True, "linux", "aarch64", "CPython"),
        (True, "darwin", "arm64", "CPython"),
        (False, "darwin", "x86_64", "CPython"),
        (False, "linux", "ppc64le", "CPython"),
        (False, "linux", "x86_64", "PyPy"),
    ],
)
def test_the_engine_is_required_only_where_it_has_wheels(
    expected: bool, sys_platform: str, platform_machine: str, implementation: str
) -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (required,) = (Requirement(line) for line in project["dependencies"] if line.startswith("quickjs-ng"))
    assert required.marker is not None
    environment = {
        "sys_platform": sys_platform,
        "platform_machine": platform_machine,
        "platform_python_implementation": implementation,
    }
    assert required.marker.evaluate(environment) is expected


WITHOUT = """
import asyncio, sys
sys.modules["quickjs"] = None
from delegate import CallError, Delegator
from delegate.models.providers.scripted import Scripted

async def main():
    async with Delegator(client=Scripted(lambda request: "never asked")) as delegator:
        schema = {"kind": "json_schema", "schema": {"required": ["a"]}}
        verdict = await delegator.judge(goal="g", acceptance_criteria=[schema], report='{"a": 1}')
        print(verdict.verdict)
        try:
            predicate = {"kind": "json_predicate", "expr": "a === 1"}
            await delegator.judge(goal="g", acceptance_criteria=[predicate], report="{}")
        except CallError as error:
            print(error.code, error.field, error)

asyncio.run(main())
"""


def test_without_the_engine_a_predicate_is_refused_with_what_to_install(home: Path) -> None:
    ran = subprocess.run(
        [*warm.python(), "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=True, env={**os.environ}
    )
    verdict, refusal = ran.stdout.splitlines()
    assert verdict == "PASS"
    assert refusal.startswith("invalid_criterion acceptance_criteria[0]")
    assert "quickjs-ng" in refusal
