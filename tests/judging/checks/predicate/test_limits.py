import asyncio
import json
import time
from contextlib import suppress
from typing import Any

import pytest

from delegate.judging.checks.predicate.evaluate import PredicateError, check_expression, evaluate
from tests.judging.checks.predicate.hasty import make_hasty
from tests.support.pace import best_of, is_within, watched_loop
from tests.support.samples import sampled

SECONDS = 1.0
"""That a hostile expression may take; what isn't stopped takes minutes."""

BIG: dict[str, Any] = {
    "rows": [{"id": n, "name": "x" * 20} for n in range(5_000)],
    "n": list(range(600)),
    "ascii": "ab" * 100_000,
    "accents": "é" * 50_000,
    "faces": "😀" * 25_000,
    "same": "ab" * 100_000,
    "a40": "a" * 40,
}

HOSTILE = [
    # work that multiplies
    "rows.map(a => rows.map(b => 1)).length",
    "n.map(a => n.map(b => n.map(c => n.map(d => 1)))).length",
    "n.every(a => n.every(b => n.every(c => true)))",
    "n.flatMap(x => n).flatMap(x => n).flatMap(x => n).length",
    "n.map(x => Object.entries(output)).flat(Infinity).length",
    "n.map(x => Math.max(...n, ...n, ...n)).length",
    "n.map(x => n.concat(n, n, n, n, n, n, n, n)).length",
    "n.map(x => rows.slice()).length",
    "n.map(x => [...ascii]).length",
    "n.map(x => ascii.split('')).length",
    "n.every((x, i, all) => all.indexOf(x) === i && all.lastIndexOf(x) === i)",
    "rows.map(r => r.name).slice().sort().length",
    "rows.slice().sort((a, b) => b.id - a.id).length",
    "n.slice().sort((a, b) => n.reduce((s, x) => s + x, 0)).length",
    # values that grow
    "n.reduce((s, x) => s + s, 'x').length",
    "n.reduce((s, x) => [...s, ...s, x], []).length",
    "n.reduce((s, x) => [s, s], []).flat(Infinity).length",
    "n.reduce((s, x) => ({ ...s, [x]: s }), {}).length",
    "n.reduce((s, x) => `${s}${s}`, 'x').length",
    "n.reduce((s, x) => s.concat(s), 'x').length",
    "n.reduce((s, x) => s.replaceAll('x', 'xx'), 'x').length",
    "n.reduce((s, x) => [s, s].join(), 'x').length",
    "n.reduce((s, x) => s * s, 10)",
    "n.reduce((s, x) => s ** s, 10)",
    "n.map(x => ascii.toUpperCase()).length",
    "ascii.replace(/a/g, ascii).length",
    # long strings, again and again
    "n.map(x => ascii === same).length",
    "n.map(x => ascii < same + 'c').length",
    "n.map(x => faces.includes('y')).length",
    "n.map(x => accents.trim()).length",
    "n.map(x => ascii.indexOf('aba' + same)).length",
    "n.map(x => Number(ascii)).length",
    "n.map(x => parseInt(ascii, 16)).length",
    # one call of a built-in method that takes long
    "ascii.split('a').join(ascii).length",
    "ascii.replaceAll('a', ascii).length",
    "n.join(ascii).length",
    "n.reduce((s, x) => s.concat([s]), []).flat(Infinity).length",
    "rows.map(r => Object.entries(rows).length).length",
    "n.map(x => [...ascii].includes('z')).length",
    "n.map(x => accents.toUpperCase().toLowerCase() === accents).length",
    "Math.max(...rows.map(r => r.id), ...ascii, ...ascii)",
    # sorting
    "rows.slice().sort((a, b) => 1).length",
    "rows.slice().sort((a, b) => a.id % 2 === b.id % 3 ? 1 : -1).length",
    "rows.slice().sort((a, b) => rows.some(r => r.id === -1) ? 1 : -1).length",
    "[...ascii].toSorted((a, b) => a < b ? -1 : 1).length",
    # regular expressions
    "/^(a|a)*$/.test(a40 + 'b')",
    "/^(a+)+$/.test(a40 + 'b')",
    "/(x+x+)+y/.test('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')",
    "/(?:a?){60}a{60}/.test(a40)",
    "/(?=(a+)+b)c/.test(a40)",
    "/(?<=(a|aa)+)b/.test(a40)",
    "/(.+)+x/.test(ascii)",
    "n.map(x => /(a|a)*$/.test(a40 + 'b')).length",
    "faces.match(/./gu).length",
    "ascii.split(/b/).length",
    "n.map(x => /é/i.test(accents)).length",
    "/" + "(?:a{100}" * 15 + "){100}" * 15 + "/.test(ascii)",
    "/" + "(" * 400 + ")" * 400 + "/.test(ascii)",
    "/" + "(?:" * 40 + "a|" + "|)+" * 40 + "/.test(a40)",
    "/" + "(" * 900 + "a*" + ")*" * 900 + "b/.test(a40)",
    r"/(?:[\w\W]*[\w\W]*)*$^/.test(accents)",
]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)


@pytest.mark.parametrize("expression", sampled(HOSTILE, 4, attacks=True, id=lambda expression: expression[:40]))
async def test_a_hostile_expression_ends_and_the_loop_goes_on(hasty: None, expression: str) -> None:
    await evaluate("true", 1)  # a running worker, whose start isn't measured
    started = time.monotonic()
    async with watched_loop() as held:
        with suppress(PredicateError):
            await evaluate(expression, BIG)
    assert is_within(time.monotonic() - started, SECONDS)
    assert is_within(held.seconds, SECONDS / 2)
    assert (await evaluate("output === 1", 1)).holds


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("/^(a|a)*$/.test(a40 + 'b')", r"takes longer than 0\.\d+ s"),
        ("n.reduce((s, x) => s + s, 'x').length", "more than 128 MB"),
    ],
)
async def test_what_costs_too_much_is_refused_and_says_which_limit(expression: str, limit: str) -> None:
    with pytest.raises(PredicateError, match=limit):
        await evaluate(expression, BIG)


OVERGROWN = [
    "(" * 4_000 + "1" + ")" * 4_000, "(" * 8_192, "[" * 8_192, "{" * 8_192, "`${" * 2_700, "a?" * 4_096, "a=>" * 2_700,
    "(a," * 2_700, "(a)=>" * 1_600, "({a:" * 2_000, "!" * 8_191 + "a", "- " * 4_000 + "a", "a." * 4_000 + "a",
    "a?.[" * 2_000, "a/" * 4_096, "}])({[" * 1_300, "function(" * 800, "if(" * 2_700, "'\\" * 4_000, "({a}," * 1_600,
    "a ? b : " * 1_000 + "c", "a && " * 1_600 + "a", "a + " * 2_000 + "a", "a ** " * 1_600 + "a", "é" * 8_000,
    "a.map(a => " * 700 + "a" + ")" * 700, "[" + "1," * 4_000 + "]", "f(" * 2_700, "/(" * 3_000,
]  # fmt: skip


@pytest.mark.parametrize("expression", sampled(OVERGROWN, 4, attacks=True, id=lambda expression: expression[:8]))
async def test_an_overgrown_expression_ends_soon(expression: str) -> None:
    started = time.thread_time()
    with suppress(PredicateError):
        await evaluate(expression, {"b": 1})
    assert is_within(time.thread_time() - started, SECONDS)


async def test_a_long_run_of_conditions_is_not_deep() -> None:
    expression = " && ".join(f"a[{n}] === {n}" for n in range(300))
    assert (await evaluate(expression, {"a": list(range(300))})).holds


async def test_json_is_looked_at_as_deep_as_python_reads_it() -> None:
    deep = json.loads("[" * 900 + "]" * 900)
    assert (await evaluate("output.length === 1 && output[0][0][0].length === 1", deep)).holds
    assert not (await evaluate("output[0] === 1", deep)).holds
    assert (await evaluate("output.flat(Infinity).length === 0", deep)).holds


async def test_json_that_is_deeper_larger_or_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    for value, problem in ((circle, "not JSON"), (deep, "too deep"), ("x" * 20_000_001, "larger than 20,000,000")):
        with pytest.raises(PredicateError, match=problem):
            await evaluate("output.length === 1", value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    ["x" * 15_000_000, [0] * 500_000, [{"id": n} for n in range(60_000)], {str(n): n for n in range(100_000)}],
    ids=["a text", "numbers", "objects", "keys"],
)
async def test_megabytes_of_json_are_looked_at_and_the_loop_goes_on(value: Any) -> None:
    await evaluate("true", 1)
    started = time.monotonic()
    async with watched_loop() as held:
        with suppress(PredicateError):  # on a slow machine
            assert (await evaluate("output.length !== 1", value)).holds
    assert is_within(time.monotonic() - started, SECONDS)
    assert is_within(held.seconds, SECONDS / 2)


async def test_expressions_are_evaluated_side_by_side() -> None:
    async def holds(n: int) -> bool:
        return (await evaluate(f"a === {n} && /{n}/.test(a)", {"a": n})).holds

    assert all(await asyncio.gather(*map(holds, range(100))))


@pytest.mark.slow
async def test_a_typical_evaluation_takes_a_few_milliseconds() -> None:
    value = {"response": {"status": 200, "body": {"ok": True, "items": [{"id": n} for n in range(5)]}}}
    expression = "response.status === 200 && response.body.ok === true"
    await evaluate(expression, value)
    seconds: list[float] = []
    for _ in range(100):
        started = time.perf_counter()
        await evaluate(expression, value)
        seconds.append(time.perf_counter() - started)
    assert is_within(min(seconds), 0.003)
    assert is_within(best_of(20, lambda: check_expression(expression)), 60e-6)
