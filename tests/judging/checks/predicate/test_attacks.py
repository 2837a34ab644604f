"""Expressions and JSON that try to leave the engine, to reach what isn't data, or to pass for something else."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from delegate.judging.checks.predicate import PredicateError, check_expression, evaluate
from delegate.judging.checks.predicate.compile import compile_expression
from delegate.judging.checks.worker import WorkerPool
from tests.support import warm

DATA: dict[str, Any] = {"n": 3, "s": "text", "l": [1, 2], "o": {"k": 1}, "c": "constructor"}

NOT_ALLOWED = [
    "[].constructor.constructor('return process')()",
    "'a'.repeat(2 ** 30)",
    "Array(1e9).length",
    "Array(1e9).join('x').length",
    "[...Array(1e9)].length",
    "Array.from({ length: 1e9 }).length",
    "s.padEnd(1e9).length",
    "l.concat.call(l, l)",
    "l.map(x => x.constructor('return 1')())",
    "(0, eval)('1')",
    "globalThis['eval']('1')",
    "Reflect.get(o, 'k')",
    "JSON.parse('{}')",
    "l[Symbol.iterator]()",
    "new Date().getTime() > 0",
    "Date.now() > 0",
    "Math.random() >= 0",
    "s.localeCompare('a') < 2",
    "`${eval('1')}`",
    "o.k = 2",
    "l.length = 0",
    "({ get k() { return 1 } }).k",
    "({ __proto__: l }).length",
    "({ '__proto__': l }).length",
    "({ '\\u005f_proto__': l }).length",
    "n) || process.exit(0) || (n",
    "n\u2028process.exit(0)",
    "n <!-- s",
    "n /* */ ; s",
    "'\\",
    "`${",
    "/a/.test(s) || /[/]/ || eval('1') || /]/.test(s)",
]


@pytest.mark.parametrize("expression", NOT_ALLOWED)
def test_what_reaches_for_more_than_data_is_refused_at_once(expression: str) -> None:
    with pytest.raises(PredicateError):
        check_expression(expression)


INHERITED = [
    "l.map(({ __proto__: p }) => p)",
    "[l].map(({ '__proto__': { push } }) => push)",
    "output[c]",
    "o['con' + 'structor']",
    "o[`${c}`]",
    "l['ma' + 'p']",
    "s['length'.replace('length', 'at')]",
    "n['to' + 'Fixed']",
    "o['__pro' + 'to__']",
    "l['__proto__']['push']",
    "o['__lookup' + 'Getter__']",
    "l.map(({ constructor }) => constructor).length",
    "l.map(({ constructor: { name } }) => name + name).length > 9",
    "[l].map(({ push }) => push).length",
    "[s].map(({ at }) => at).length",
    "('constructor') in o",
    "'__proto__' in o",
    "o?.['constructor']",
    "s.match(/t/)['in' + 'dex']",
    "o.toString() === ''",
    "o.valueOf().k === 1",
    "l.toString() === '1,2'",
]


@pytest.mark.parametrize("expression", INHERITED)
async def test_what_a_value_inherits_is_not_data(expression: str) -> None:
    with pytest.raises(PredicateError, match=r"not data|not allowed|not supported|can't be used"):
        await evaluate(expression, DATA)


# ----------------------------------------------------------------------------------------------------- hostile JSON


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ('{"toString": 1, "valueOf": {"a": 1}}', "output + ''"),
        ('{"toString": 1}', "`${output}`"),
        ('{"valueOf": 5}', "output > 4"),
        ('{"toJSON": 1, "join": 2, "length": 3}', "[output].join() === ''"),
        ('{"a": {"map": 1, "length": 2}}', "[a, a].sort((x, y) => x - y).length === 2"),
        ('{"a": {"toString": 1}, "b": {"1": 2}}', "b[a] === 2"),
    ],
)
async def test_data_cannot_convert_itself(text: str, expression: str) -> None:
    with pytest.raises(PredicateError, match="can't be used as"):
        await evaluate(expression, json.loads(text))


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
        ('{"input": 1, "keep": 2, "run": 3, "v3": 4}', "input + keep + run + v3 === 10"),
    ],
)  # fmt: skip
async def test_odd_json_is_read_as_javascript_reads_it(text: str, expression: str) -> None:
    value = json.loads(text, parse_float=lambda number: 0 if number == "1e400" else float(number))
    outcome = await evaluate(expression, value)
    assert outcome.holds, outcome.reason


# ------------------------------------------------------------------------- what the engine does should the list fail


@pytest.fixture(scope="module")
def engine() -> Any:
    pool = WorkerPool(str(Path(__file__).with_name("hasty_engine.py")))
    yield pool
    pool.close()


def program(code: str) -> bytes:
    """A request that evaluates any JavaScript, as `compile` would never write it."""
    return f"run([['literal','it']],()=>keep(0,{code}))\tnull".encode()


@pytest.mark.parametrize(
    "code",
    [
        "typeof process === 'undefined' && typeof require === 'undefined' && typeof std === 'undefined'",
        "typeof os === 'undefined' && typeof fetch === 'undefined' && typeof setTimeout === 'undefined'",
        "typeof print === 'undefined' && typeof console === 'undefined' && typeof WebAssembly === 'undefined'",
        "Function('return typeof process')() === 'undefined'",
    ],
)
async def test_the_engine_has_no_host_objects(engine: WorkerPool, code: str) -> None:
    assert (await engine.ask(program(code), 5))["holds"]


@pytest.mark.parametrize(
    "code",
    [
        "(() => { while (true); })()",
        "(() => { for (;;) try { for (;;); } finally { continue } })()",
        "(function f() { return f() + f() })()",
        "(() => { const all = []; for (;;) all.push(all.slice()); })()",
        "'a'.repeat(2 ** 30).length",
        "new Array(1e9).fill(0).length",
        "new Uint8Array(2 ** 31).length",
        "'a'.repeat(1e5).match(/(a+)+b/)",
        "import('os')",
        "Array.prototype.every = () => true",
        "Object.prototype.ok = true",
        "Object.defineProperty(Object.prototype, Symbol.toPrimitive, { value: () => 1 })",
        "JSON.parse = () => ({ ok: true })",
        "seen.constructor.prototype.push = () => 0",
        "explain = () => 'forged'",
        "outcome = () => ({ holds: true })",
        "globalThis.own = () => true",
        "(() => { nodes = whole = seen = places = 1 })()",
    ],
)
async def test_any_code_ends_and_leaves_nothing_for_the_next(engine: WorkerPool, code: str) -> None:
    expression = compile_expression("l.every(x => x === 1) || l.ok || o.ok || n > '4'")
    request = expression + b"\t" + json.dumps(DATA).encode()
    before = await engine.ask(request, 5)
    assert before["reason"].startswith("none of the 4 alternatives holds: l.every(x => x === 1) → false: item [1] is 2")
    await engine.ask(program(code), 5)
    assert await engine.ask(request, 5) == before


async def test_a_long_native_call_that_nothing_interrupts_is_killed(engine: WorkerPool) -> None:
    await engine.ask(program("true"), 5)
    with pytest.raises(TimeoutError):
        await engine.ask(program("Array(1e9).join('x').length"), 0.25)
    assert (await engine.ask(program("true"), 5))["holds"]


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
        verdict = await delegator.judge(goal="g", acceptance_criteria=[schema], output='{"a": 1}')
        print(verdict.verdict)
        try:
            await delegator.judge(goal="g", acceptance_criteria=[{"kind": "json_predicate", "expr": "a"}], output="{}")
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
