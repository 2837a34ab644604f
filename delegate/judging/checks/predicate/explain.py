"""Says why an expression does not hold: which part of it, and with what values.

The expression is evaluated again, part by part: it is pure, so it gives the same.
"""

from collections.abc import Callable
from typing import Any

from delegate.judging.checks.predicate import syntax
from delegate.judging.checks.predicate.machine import COMPARING, Frame, beside, callback, decides, inner_frame, run
from delegate.judging.checks.predicate.show import show, source
from delegate.judging.checks.predicate.values import Js, truthy

MAX_ALTERNATIVES = 4


def explain(node: syntax.Node, frame: Frame) -> str:
    """Why `node`, whose value isn't truthy, isn't."""
    return _RULES.get(type(node), _plain)(node, frame)


def _plain(node: syntax.Node, frame: Frame) -> str:
    return f"{source(node.text)} → {_described(node, frame)}"


def _described(node: syntax.Node, frame: Frame) -> str:
    """The value of `node`; where it is missing, also what is there instead."""
    value = run(node, frame)
    return show(value) + beside(node, value, frame)


def _logic(node: syntax.Logic, frame: Frame) -> str:
    if node.op == "||":
        parts = [explain(part, frame) for part in node.parts[:MAX_ALTERNATIVES]]
        return f"none of the {len(node.parts)} alternatives holds: {'; '.join(parts)}"
    deciding = next((part for part in node.parts if decides(node.op, run(part, frame))), node.parts[-1])
    return explain(deciding, frame)


def _binary(node: syntax.Binary, frame: Frame) -> str:
    if node.op not in COMPARING:
        return _plain(node, frame)
    sides = [side for side in (node.left, node.right) if not isinstance(side, syntax.Literal)]
    if len(sides) == 1:
        return f"{source(node.text)} → false: it is {_described(sides[0], frame)}"
    found = ", ".join(f"`{source(side.text)}` is {_described(side, frame)}" for side in sides)
    return f"{source(node.text)} → false: {found}" if found else f"{source(node.text)} → false"


def _unary(node: syntax.Unary, frame: Frame) -> str:
    if node.op != "!":
        return _plain(node, frame)
    return f"{source(node.text)} → false: `{source(node.of.text)}` is {show(run(node.of, frame))}"


def _conditional(node: syntax.Conditional, frame: Frame) -> str:
    chosen = node.yes if truthy(run(node.test, frame)) else node.no
    return f"{explain(chosen, frame)} (as `{source(node.test.text)}` is {show(run(node.test, frame))})"


def _chain(node: syntax.Chain, frame: Frame) -> str:
    return explain(node.of, frame) if isinstance(node.of, syntax.Call) else _plain(node, frame)


def _call(node: syntax.Call, frame: Frame) -> str:
    this = run(node.of, frame)
    arrow = node.args[0] if node.args else None
    if isinstance(this, list) and isinstance(arrow, syntax.Arrow) and node.method in ("every", "some"):
        return f"{source(node.text)} → false: {_items(node, this, arrow, frame)}"
    value = run(node, frame)
    word = show(value) if isinstance(value, bool | str | float) or value is None else "undefined"
    return f"{source(node.text)} → {word}: `{source(node.of.text)}` is {show(this)}"


def _items(node: syntax.Call, this: list[Js], arrow: syntax.Arrow, frame: Frame) -> str:
    if node.method == "some":
        return f"none of the {len(this)} items of `{source(node.of.text)}`, which is {show(this)}"
    test = callback(arrow, frame)
    place = next(n for n, item in enumerate(this) if not truthy(test(item, float(n), this)))
    why = explain(arrow.body, inner_frame(arrow, frame, (this[place], float(place), this)))
    return f"item [{place}] is {show(this[place])}: {why}"


def _pattern_test(node: syntax.PatternTest, frame: Frame) -> str:
    return f"{source(node.text)} → false: `{source(node.of.text)}` is {show(run(node.of, frame))}"


_RULES: dict[type[syntax.Node], Callable[[Any, Frame], str]] = {
    syntax.Binary: _binary,
    syntax.Call: _call,
    syntax.Chain: _chain,
    syntax.Conditional: _conditional,
    syntax.Logic: _logic,
    syntax.PatternTest: _pattern_test,
    syntax.Unary: _unary,
}
