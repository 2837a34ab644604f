"""The nodes an expression may consist of, and nothing else. `parse` builds them, `machine` gives them meaning."""

from dataclasses import dataclass
from typing import TypeAlias

from delegate.judging.checks.predicate.patterns import Pattern
from delegate.judging.checks.predicate.values import Js


@dataclass(frozen=True, slots=True)
class Node:
    """`text` is the node's source, for messages."""

    text: str


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant."""

    value: Js


@dataclass(frozen=True, slots=True)
class Whole(Node):
    """`output` or `$`: the whole value."""


@dataclass(frozen=True, slots=True)
class Field(Node):
    """A name that stands for a top-level key of the value."""

    name: str


@dataclass(frozen=True, slots=True)
class Local(Node):
    """A parameter of an arrow function around it."""

    name: str


@dataclass(frozen=True, slots=True)
class Template(Node):
    """Text with expressions in it."""

    parts: tuple[str | Node, ...]


@dataclass(frozen=True, slots=True)
class Spread(Node):
    """`...of`, in an array, an object or arguments."""

    of: Node


@dataclass(frozen=True, slots=True)
class ArrayOf(Node):
    """An array literal."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ObjectOf(Node):
    """An object literal: pairs of key and value, or spreads."""

    entries: tuple[tuple[Node, Node] | Spread, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`!`, `-`, `+` or `typeof`."""

    op: str
    of: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Arithmetic, comparison or `in`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic(Node):
    """A run of operands of the same `&&`, `||` or `??`."""

    op: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`test ? yes : no`."""

    test: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class Member(Node):
    """`of.key` or `of[key]`; `optional` when written with `?.`."""

    of: Node
    key: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`of.method(args)`. `optional`: `of?.method`; `optional_call`: `method?.(args)`."""

    of: Node
    method: str
    args: tuple[Node, ...]
    optional: bool
    optional_call: bool


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """The whole of a chain with a `?.` in it: undefined when it was cut short."""

    of: Node


@dataclass(frozen=True, slots=True)
class BuiltinCall(Node):
    """A call of a built-in function such as `Object.keys`."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PatternTest(Node):
    """`/pattern/.test(of)`."""

    pattern: Pattern
    of: Node


@dataclass(frozen=True, slots=True)
class PatternArg(Node):
    """A regex literal as an argument of `match`, `search`, `replace` or `split`."""

    pattern: Pattern


@dataclass(frozen=True, slots=True)
class BuiltinArg(Node):
    """A built-in function as an argument, as in `.filter(Boolean)`."""

    name: str


@dataclass(frozen=True, slots=True)
class ObjectParam:
    """`{key, other: param}` as a parameter."""

    text: str
    fields: tuple[tuple[str, "Param"], ...]


@dataclass(frozen=True, slots=True)
class ArrayParam:
    """`[first, second]` as a parameter."""

    text: str
    items: tuple["Param", ...]


Param: TypeAlias = str | ObjectParam | ArrayParam


@dataclass(frozen=True, slots=True)
class Arrow(Node):
    """An arrow function, which can only be an argument. `size` is what a call costs in steps."""

    params: tuple[Param, ...]
    body: Node
    size: int
