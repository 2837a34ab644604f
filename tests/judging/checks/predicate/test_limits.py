import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from delegate.judging.checks.predicate import PredicateError, evaluate
from tests.support.pace import best_of, pace

SECONDS = 5
"""What the limits don't stop takes minutes, and what they stop up to 0.3 s on a quiet machine."""

BIG: dict[str, Any] = {
    "rows": [{"id": n, "name": "x" * 20} for n in range(10_000)],
    "n": list(range(600)),
    "ascii": "ab" * 200_000,
    "accents": "é" * 200_000,
    "faces": "😀" * 100_000,
    "same": "ab" * 200_000,
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
    "ascii.split('a').join(ascii).length",
    # long strings, again and again
    "n.map(x => ascii === same).length",
    "n.map(x => ascii < same + 'c').length",
    "n.map(x => faces.includes('y')).length",
    "n.map(x => accents.trim()).length",
    "n.map(x => ascii.indexOf('aba' + same)).length",
    "n.map(x => Number(ascii)).length",
    "n.map(x => parseInt(ascii, 16)).length",
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
]


@pytest.mark.parametrize("expression", HOSTILE, ids=lambda expression: expression[:40])
def test_a_hostile_expression_ends_soon(expression: str) -> None:
    started = time.thread_time()
    with suppress(PredicateError):
        evaluate(expression, BIG)
    assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("n.map(x => ascii.trim()).length", "200,000 steps"),
        ("n.map(x => ascii === same).length", "200,000 steps"),
        ("n.map(x => n.toSorted()).length", "200,000 steps"),
        ("n.map(x => n.indexOf(-1)).length", "200,000 steps"),
        ("n.map(x => n.slice(1)).length", "200,000 steps"),
        ("n.map(x => Object.keys(n)).length", "200,000 steps"),
        ("n.map(x => [...n]).length", "200,000 steps"),
        ("n.map(x => n.map(y => 1)).length", "200,000 steps"),
        ("ascii.match(/a/g).length", "200,000 steps"),
        ("ascii.split('a').length", "200,000 steps"),
        ("(ascii + same + ascii).length", "longer than 1,000,000"),
        ("`${ascii}${ascii}${ascii}`.length", "longer than 1,000,000"),
        ("ascii.replaceAll('a', 'aaaaaaaa').length", "longer than 1,000,000"),
        ("/^(a|a)*$/.test(a40 + 'b')", "longer than 0.2 s"),
    ],
)
def test_what_costs_too_much_is_refused_and_says_which_limit(expression: str, limit: str) -> None:
    with pytest.raises(PredicateError, match=limit):
        evaluate(expression, BIG)


OVERGROWN = [
    "(" * 4_000 + "1" + ")" * 4_000, "(" * 8_192, "[" * 8_192, "{" * 8_192, "`${" * 2_700, "a?" * 4_096, "a=>" * 2_700,
    "(a," * 2_700, "(a)=>" * 1_600, "({a:" * 2_000, "!" * 8_191 + "a", "- " * 4_000 + "a", "a." * 4_000 + "a",
    "a?.[" * 2_000, "a/" * 4_096, "}])({[" * 1_300, "function(" * 800, "if(" * 2_700, "'\\" * 4_000, "({a}," * 1_600,
    "a ? b : " * 1_000 + "c", "a && " * 1_600 + "a", "a + " * 2_000 + "a", "a ** " * 1_600 + "a", "é" * 8_000,
    "a.map(a => " * 700 + "a" + ")" * 700, "[" + "1," * 4_000 + "]", "f(" * 2_700, "/(" * 3_000,
]  # fmt: skip


@pytest.mark.parametrize("expression", OVERGROWN, ids=lambda expression: expression[:8])
def test_an_overgrown_expression_ends_soon(expression: str) -> None:
    started = time.thread_time()
    with suppress(PredicateError):
        evaluate(expression, {"b": 1})
    assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("a" * 8_193, "longer than 8,192"),
        ("!" * 200 + "a", "deeper than 80"),
        ("a" + ".b" * 200, "deeper than 80"),
        ("[" + "1," * 3_000 + "]", "more than 2,000 parts"),
    ],
)
def test_length_depth_and_size_of_an_expression_are_limited(expression: str, limit: str) -> None:
    with pytest.raises(PredicateError, match=limit):
        evaluate(expression, {"a": 1})


def test_a_long_run_of_conditions_is_not_deep() -> None:
    expression = " && ".join(f"a[{n}] === {n}" for n in range(300))
    assert evaluate(expression, {"a": list(range(300))}).holds


def test_json_nested_as_deep_as_it_likes_can_be_looked_at() -> None:
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    assert evaluate("output.length === 1 && output[0][0][0].length === 1", deep).holds
    assert not evaluate("output[0] === 1", deep).holds


def test_json_that_is_too_big_or_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, [0] * 300_000, {str(n): n for n in range(150_000)}):
        with pytest.raises(PredicateError, match="values"):
            evaluate("output.length === 1", value)


def test_a_deep_stack_is_an_error_of_the_expression_and_nothing_else() -> None:
    def within(frames: int) -> None:
        if frames:
            within(frames - 1)
        else:
            evaluate("!" * 70 + "a", {"a": 1})

    with pytest.raises(PredicateError, match="deep"):
        within(sys.getrecursionlimit() - 150)


def test_threads_evaluate_side_by_side() -> None:
    def holds(n: int) -> bool:
        return evaluate(f"a === {n} && /{n}/.test(a)", {"a": n}).holds

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(holds, range(400)))


def test_the_parser_is_loaded_by_the_first_expression_and_not_by_the_import() -> None:
    program = "import sys, delegate.judging.checks.predicate; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


def test_a_typical_evaluation_takes_microseconds_once_parsed() -> None:
    value = {"response": {"status": 200, "body": {"ok": True, "items": [{"id": n} for n in range(5)]}}}
    expression = "response.status === 200 && response.body.ok === true"
    evaluate(expression, value)
    best = best_of(20, lambda: [evaluate(expression, value) for _ in range(100)]) / 100
    assert best < 60e-6 * 3 * pace()  # three times the aim: other processes share the machine
