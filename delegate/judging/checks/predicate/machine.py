"""Gives every node of `syntax` its meaning. No node can loop, and nothing is ever changed, so order never matters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from delegate.judging.checks.predicate import syntax
from delegate.judging.checks.predicate.arguments import Callback, Method
from delegate.judging.checks.predicate.arrays import ARRAY, OBJECT
from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.builtins import FUNCTIONS
from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.properties import has, inherits, read
from delegate.judging.checks.predicate.show import names
from delegate.judging.checks.predicate.strings import BOOLEAN, NUMBER, STRING
from delegate.judging.checks.predicate.text import points, units
from delegate.judging.checks.predicate.values import (
    UNDEFINED,
    Js,
    Nothing,
    divide,
    kind,
    less,
    loose_equal,
    power,
    remainder,
    strict_equal,
    to_number,
    to_text,
    truthy,
    type_of,
)


@dataclass(slots=True)
class Frame:
    """Where an expression runs: the value it looks at, what it may cost, and the parameters in scope."""

    whole: Js
    budget: Budget
    scope: Mapping[str, Js] = field(default_factory=dict[str, Js])


def run(node: syntax.Node, frame: Frame) -> Js:
    """The value of `node`. Raises Thrown or PredicateError where it has none."""
    return _RULES[type(node)](node, frame)


def _literal(node: syntax.Literal, frame: Frame) -> Js:
    return node.value


def _whole(node: syntax.Whole, frame: Frame) -> Js:
    return frame.whole


def _field(node: syntax.Field, frame: Frame) -> Js:
    whole = frame.whole
    if isinstance(whole, dict) and node.name in whole:
        return whole[node.name]
    there = f"it has: {names(whole)}" if isinstance(whole, dict) else f"it is {kind(whole)}, named `output`"
    raise Thrown(f"there is no `{node.name}` in the output; {there}")


def _local(node: syntax.Local, frame: Frame) -> Js:
    return frame.scope[node.name]


def _template(node: syntax.Template, frame: Frame) -> Js:
    texts = [part if isinstance(part, str) else to_text(run(part, frame)) for part in node.parts]
    frame.budget.make_string(sum(map(len, texts)))
    return "".join(texts)


def _array(node: syntax.ArrayOf, frame: Frame) -> Js:
    return list(_items(node.items, frame))


def _items(nodes: tuple[syntax.Node, ...], frame: Frame) -> Iterator[Js]:
    for node in nodes:
        if isinstance(node, syntax.Spread):
            yield from _spread(node, frame)
        else:
            yield run(node, frame)


def _spread(node: syntax.Spread, frame: Frame) -> list[Js]:
    value = run(node.of, frame)
    if isinstance(value, list):
        frame.budget.spend(len(value))
        return value
    if isinstance(value, str):
        frame.budget.spend(len(value))
        return [units(char) for char in points(value)]
    raise Thrown(f"`{node.of.text}` is {kind(value)}, so it can't be spread")


def _object(node: syntax.ObjectOf, frame: Frame) -> Js:
    result: dict[str, Js] = {}
    for entry in node.entries:
        if isinstance(entry, syntax.Spread):
            result.update(_spread_object(entry, frame))
        else:
            result[to_text(run(entry[0], frame))] = run(entry[1], frame)
    return result


def _spread_object(node: syntax.Spread, frame: Frame) -> dict[str, Js]:
    value = run(node.of, frame)
    if value is None or value is UNDEFINED:
        return {}
    if not isinstance(value, dict):
        raise PredicateError(f"`{node.text}`: {kind(value)} can't be spread into an object")
    frame.budget.spend(len(value))
    return value


# -------------------------------------------------------------------------------------------------- operators


def _unary(node: syntax.Unary, frame: Frame) -> Js:
    if node.op == "!":
        return not truthy(run(node.of, frame))
    if node.op == "typeof":
        return "undefined" if _is_unknown(node.of, frame) else type_of(run(node.of, frame))
    number = to_number(_paid(run(node.of, frame), frame))
    return -number if node.op == "-" else number


def _is_unknown(node: syntax.Node, frame: Frame) -> bool:
    """`typeof` is the one place where JavaScript allows a name that isn't there."""
    whole = frame.whole
    return isinstance(node, syntax.Field) and not (isinstance(whole, dict) and node.name in whole)


def _binary(node: syntax.Binary, frame: Frame) -> Js:
    left = _paid(run(node.left, frame), frame)
    right = _paid(run(node.right, frame), frame)
    if node.op == "+" and (isinstance(left, str) or isinstance(right, str)):
        left, right = to_text(left), to_text(right)
        frame.budget.make_string(len(left) + len(right))
        return left + right
    if node.op == "in":
        return has(right, to_text(left), node.right.text)
    if (compare := _COMPARISONS.get(node.op)) is not None:
        return compare(left, right)
    return _ARITHMETIC[node.op](to_number(left), to_number(right))


def _paid(value: Js, frame: Frame) -> Js:
    if isinstance(value, str) and len(value) > 64:
        frame.budget.spend_chars(len(value))
    return value


_COMPARISONS: dict[str, Callable[[Js, Js], bool]] = {
    "===": strict_equal,
    "!==": lambda left, right: not strict_equal(left, right),
    "==": loose_equal,
    "!=": lambda left, right: not loose_equal(left, right),
    "<": lambda left, right: less(left, right) is True,
    ">": lambda left, right: less(right, left) is True,
    "<=": lambda left, right: less(right, left) is False,
    ">=": lambda left, right: less(left, right) is False,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": divide,
    "%": remainder,
    "**": power,
}
BINARY = frozenset([*_COMPARISONS, *_ARITHMETIC, "in"])
"""The operators that a `Binary` may have."""
COMPARING = frozenset([*_COMPARISONS, "in"])
"""Those of them that give true or false."""


def _logic(node: syntax.Logic, frame: Frame) -> Js:
    value: Js = UNDEFINED
    for part in node.parts:
        value = run(part, frame)
        if decides(node.op, value):
            break
    return value


def decides(op: str, value: Js) -> bool:
    """Whether an operand with `value` ends a run of `&&`, `||` or `??`."""
    if op == "??":
        return value is not None and value is not UNDEFINED
    return truthy(value) == (op == "||")


def _conditional(node: syntax.Conditional, frame: Frame) -> Js:
    return run(node.yes if truthy(run(node.test, frame)) else node.no, frame)


# ------------------------------------------------------------------------------------------- members and calls


def _member(node: syntax.Member, frame: Frame) -> Js:
    value = run(node.of, frame)
    if value is Nothing.CUT or (node.optional and (value is None or value is UNDEFINED)):
        return Nothing.CUT
    key = to_text(run(node.key, frame))
    if value is None or value is UNDEFINED:
        raise Thrown(_missing(node.of, value, key, frame))
    return read(value, key, node.of.text)


def _missing(node: syntax.Node, value: Js, key: str, frame: Frame) -> str:
    return f"`{node.text}` is {kind(value)}{beside(node, value, frame)}, so it has no `{key}`"


def beside(node: syntax.Node, value: Js, frame: Frame) -> str:
    """Where `node` reads a property that isn't there: what is there instead."""
    member = node.of if isinstance(node, syntax.Chain) else node
    if value is not UNDEFINED or not isinstance(member, syntax.Member):
        return ""
    owner = run(member.of, frame)
    return f" (`{member.of.text}` has: {names(owner)})" if isinstance(owner, dict) else ""


def _chain(node: syntax.Chain, frame: Frame) -> Js:
    value = run(node.of, frame)
    return UNDEFINED if value is Nothing.CUT else value


def _call(node: syntax.Call, frame: Frame) -> Js:
    this = run(node.of, frame)
    if this is Nothing.CUT or (node.optional and (this is None or this is UNDEFINED)):
        return Nothing.CUT
    if this is None or this is UNDEFINED:
        raise Thrown(_missing(node.of, this, node.method, frame))
    method = _method_of(this, node)
    if method is None:
        return Nothing.CUT
    if isinstance(this, str):
        frame.budget.spend_chars(len(this))
    return _applied(method, this, f".{node.method}", node.args, frame)


def _method_of(this: Js, node: syntax.Call) -> Method | None:
    """The method to call; None when an optional call finds none."""
    own = isinstance(this, dict) and node.method in this
    if not own and (method := _methods(this).get(node.method)) is not None:
        return method
    if not own and inherits(this, node.method):
        raise PredicateError(f"`.{node.method}()` of {kind(this)} (`{node.of.text}`) is not supported")
    if node.optional_call and (not isinstance(this, dict) or this.get(node.method) is None):
        return None
    raise Thrown(f"`{node.of.text}` is {kind(this)}, which has no method `{node.method}`")


def _methods(this: Js) -> Mapping[str, Method]:
    if isinstance(this, str):
        return STRING
    if isinstance(this, list):
        return ARRAY
    if isinstance(this, dict):
        return OBJECT
    return BOOLEAN if isinstance(this, bool) else NUMBER


def _builtin(node: syntax.BuiltinCall, frame: Frame) -> Js:
    return _applied(FUNCTIONS[node.name], None, node.name, node.args, frame)


def _applied(method: Method, this: Js, name: str, nodes: tuple[syntax.Node, ...], frame: Frame) -> Js:
    args = list(_arguments(nodes, frame))
    if not method.least <= len(args) <= method.most:
        wanted = method.least if method.least == method.most else f"{method.least} to {method.most}"
        raise PredicateError(f"`{name}()` takes {wanted} arguments, not {len(args)}")
    if args and method.takes == "data" and callable(args[0]):
        raise PredicateError(f"`{name}()` takes no function here")
    return method.run(frame.budget, this, args)


def _arguments(nodes: tuple[syntax.Node, ...], frame: Frame) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, syntax.Arrow):
            yield callback(node, frame)
        elif isinstance(node, syntax.BuiltinArg):
            yield _builtin_callback(node, frame)
        elif isinstance(node, syntax.PatternArg):
            yield node.pattern
        elif isinstance(node, syntax.Spread):
            yield from _spread(node, frame)
        else:
            yield _paid(run(node, frame), frame)


def _builtin_callback(node: syntax.BuiltinArg, frame: Frame) -> Callback:
    method = FUNCTIONS[node.name]

    def call(*args: Js) -> Js:
        frame.budget.spend(1)
        return method.run(frame.budget, None, (_paid(args[0], frame),))

    return call


def callback(node: syntax.Arrow, frame: Frame) -> Callback:
    """The arrow function as something to call; every call is paid for."""

    def call(*args: Js) -> Js:
        frame.budget.spend(node.size)
        return run(node.body, inner_frame(node, frame, args))

    return call


def inner_frame(node: syntax.Arrow, frame: Frame, args: tuple[Js, ...]) -> Frame:
    """The frame of the body of an arrow function called with `args`."""
    scope = dict(frame.scope)
    for n, param in enumerate(node.params):
        _bind(param, args[n] if n < len(args) else UNDEFINED, scope)
    return Frame(frame.whole, frame.budget, scope)


def _bind(param: syntax.Param, value: Js, scope: dict[str, Js]) -> None:
    if isinstance(param, str):
        scope[param] = value
    elif value is None or value is UNDEFINED:
        raise Thrown(f"`{param.text}` can't be taken from {kind(value)}")
    elif isinstance(param, syntax.ObjectParam):
        for key, inner in param.fields:
            _bind(inner, read(value, key, param.text), scope)
    elif isinstance(value, list):
        for n, inner in enumerate(param.items):
            _bind(inner, value[n] if n < len(value) else UNDEFINED, scope)
    else:
        raise PredicateError(f"`{param.text}` can't be taken from {kind(value)}")


def _pattern_test(node: syntax.PatternTest, frame: Frame) -> Js:
    value = run(node.of, frame)
    if not isinstance(value, str | float):
        raise PredicateError(f"`{node.text}`: {kind(value)} is not a text to test")
    text = to_text(value)
    frame.budget.spend_chars(len(text))
    return node.pattern.search(text, frame.budget) is not None


_RULES: dict[type[syntax.Node], Callable[[Any, Frame], Js]] = {
    syntax.Literal: _literal,
    syntax.Whole: _whole,
    syntax.Field: _field,
    syntax.Local: _local,
    syntax.Template: _template,
    syntax.ArrayOf: _array,
    syntax.ObjectOf: _object,
    syntax.Unary: _unary,
    syntax.Binary: _binary,
    syntax.Logic: _logic,
    syntax.Conditional: _conditional,
    syntax.Member: _member,
    syntax.Chain: _chain,
    syntax.Call: _call,
    syntax.BuiltinCall: _builtin,
    syntax.PatternTest: _pattern_test,
}
