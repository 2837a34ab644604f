"""Fuzz the evaluation of predicates with random, damaged and exponentially growing expressions."""

import json
import resource
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.targets import check_predicate
from tests.fuzz.values import ANY_CHARACTER, JUNK
from tests.judging.checks.predicate.expressions import Writer
from tests.judging.checks.predicate.hasty import make_hasty

MEMORY_BYTES = 250_000_000
"""Maximum growth of this process over all examples. A string of a million characters takes four megabytes."""
PIECES = [
    *"abnx()[]{}.,;:?!+-*/%<>=&|^~$`'\"\\ \n0159é😀\0\u2028", "=>", "===", "?.", "...", "${", "output", "n", "t",
    "map(x => x", "/a/g", "/(", "typeof ", "null", "Math.max(", "Object.keys(", ".length", ".every(", "\\u", "new ",
    " in ", "[0]", "1e9", "9" * 40, "0x", "1_0", "...n", "({a})", "async ", "#x", "@", "//",
]  # fmt: skip


def damaged(text: str, random: Random) -> str:
    """The expression with a few characters overwritten."""
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        text = text[:at] + random.choice(PIECES) + text[at + random.randint(0, 4) :]
    return text


@fuzz(33, seed=st.integers(0, 2**32), value=JUNK)
def test_a_damaged_expression_is_an_outcome_or_an_error(seed: int, value: Any) -> None:
    random, writer = Random(seed), Writer(seed)
    expression, document = random.choice([writer.case, writer.soup, writer.search])()
    check_predicate(damaged(expression, random), json.loads(document))
    check_predicate(expression, {"items": value, "a": value, "text": value, "user": value})


@fuzz(25, pieces=st.lists(st.sampled_from(PIECES) | st.text(ANY_CHARACTER, max_size=4), max_size=20), value=JUNK)
def test_any_pieces_are_an_outcome_or_an_error(pieces: list[str], value: Any) -> None:
    check_predicate("".join(pieces), value)


# ------------------------------------------------------------------------------------------------ growing past limits

LARGE: dict[str, Any] = {
    "n": list(range(800)),
    "rows": [{"id": n, "name": f"name {n}"} for n in range(3_000)],
    "t": "ab, é😀" * 15_000,
    "a": [[n, f"{n}"] for n in range(300)],
    "s": "x" * 2_000,
}
STRINGS = ("t", "s", "'ab'", "`${t}${t}`", "n.join(t)", "n.join()", "String(t)", "rows[1].name")
ARRAYS = ("n", "rows", "a", "[...n, ...n]", "[...t]", "Object.entries(rows)", "t.split('')", "[a, a]", "a.flat()")
OF_STRING = (
    ".replace(/./g, t)", ".replaceAll('a', t)", ".split('')", ".split(/b/)", ".toUpperCase()", ".match(/.*?b/g)",
    ".concat(t, t)", ".slice(1)", " + t", " + s", ".trim()", ".replace(/(?:a+)+$/, '')", ".search(/(a|ab)*c/)",
    ".includes(t)", ".lastIndexOf(t)", ".at(-1)", ".indexOf('b')", ".substring(3)", " + {}",
)  # fmt: skip
OF_ARRAY = (
    ".map(x => {})", ".flatMap(x => {})", ".filter(x => {})", ".reduce((a, x) => {}, a)", ".reduce((s, x) => {}, '')",
    ".flat(Infinity)", ".concat({})", ".slice().sort((a, x) => {})", ".slice().sort()", ".join({})", ".every(x => {})",
    ".includes({})", ".toReversed()", ".some(x => {})", ".find(x => {})", ".indexOf({})", ".flatMap(x => [{}, {}])",
)  # fmt: skip


class Grower:
    """Generates expressions whose values or work multiply at every level."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def expression(self) -> str:
        """Return an expression for a predicate."""
        form = self.random.choice(["({}).length > 0", "{} === {}", "Boolean({})", "!({})", "({}) > ({})"])
        return self._filled(form, 4)

    def _filled(self, form: str, depth: int) -> str:
        while "{}" in form:
            form = form.replace("{}", self._value(depth - 1), 1)
        return form

    def _value(self, depth: int) -> str:
        pick = self.random
        if pick.random() < 0.5:
            chain, kind = pick.choice(STRINGS), OF_STRING
        else:
            chain, kind = pick.choice(ARRAYS), OF_ARRAY
        for _ in range(pick.randint(0, 3) if depth > 0 else 0):
            chain += self._filled(pick.choice(kind), depth)
            if pick.random() < 0.3:
                kind = OF_ARRAY if kind is OF_STRING else OF_STRING
        return pick.choice([chain, chain, f"({chain})", f"[{chain}]", f"`<${{{chain}}}>`", f"({chain} ?? {chain})"])


@pytest.mark.slow
def test_what_grows_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)

    @fuzz(25, seed=st.integers(0, 2**32))
    def hunt(seed: int) -> None:
        check_predicate(Grower(seed).expression(), LARGE)

    hunt()


@pytest.mark.slow
def test_what_grows_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(1_000, 1_020):
        check_predicate(Grower(seed).expression(), LARGE)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < MEMORY_BYTES


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5_000 + "1" + ")" * 5_000,
        "[" * 5_000 + "]" * 5_000,
        "!" * 8_000 + "1",
        "a" + ".a" * 4_000,
        "a" + "?.[0]" * 1_600,
        "a" + "[a" * 2_000 + "]" * 2_000,
        "x => " * 1_600 + "1",
        "`${" * 2_000 + "1" + "}`" * 2_000,
        "1" + "+1" * 4_000,
        "1" + "**1" * 2_700,
        "1?" * 2_700 + "1" + ":1" * 2_700,
        "a??" * 2_700 + "a",
        "{a:" * 2_700,
        "/" + "(" * 8_000 + "/.test(t)",
        "/" + "(?:" * 2_000 + "a" + ")*" * 2_000 + "/.test(t)",
        "/" + "[" * 8_000,
        "/(a*)*(a*)*(a*)*b/.test('" + "a" * 5_000 + "')",
        "'" + "\\u" * 4_000 + "'",
        "0x" + "f" * 8_000,
        "1" * 8_000,
        "'" + "\\x41" * 2_000 + "'.length",
        "é" * 8_000,
        "\0" * 8_000,
        ";" * 8_000,
        "<!--" * 2_000,
        "/*" * 4_000,
        "async " * 1_300,
        "<a>" * 2_700,
    ],
    ids=lambda expression: f"{expression[:16]!r} ({len(expression)})",
)
def test_an_overgrown_expression_ends_soon(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_hasty(monkeypatch)
    check_predicate(expression, LARGE)
    check_predicate(expression[: len(expression) // 2], LARGE)
