"""The pure functions and constants that JavaScript has without asking: `Math.max`, `Object.keys`, `Number` …"""

import math
import re
from collections.abc import Callable

from delegate.judging.checks.predicate.arguments import Args, Method, integer
from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.properties import has_own
from delegate.judging.checks.predicate.text import SPACE
from delegate.judging.checks.predicate.values import (
    UNDEFINED,
    Js,
    Nothing,
    decimal_prefix,
    kind,
    own_keys,
    power,
    to_double,
    to_number,
    to_text,
    truthy,
)

CONSTANTS: dict[str, Js] = {
    "undefined": UNDEFINED,
    "NaN": math.nan,
    "Infinity": math.inf,
    "Math.E": math.e,
    "Math.PI": math.pi,
    "Number.EPSILON": 2.0**-52,
    "Number.MAX_SAFE_INTEGER": 2.0**53 - 1,
    "Number.MIN_SAFE_INTEGER": 1 - 2.0**53,
}


def _container(value: Js, function: str) -> "dict[str, Js] | list[Js]":
    if value is None or isinstance(value, Nothing):
        raise Thrown(f"`{function}` of {kind(value)}")
    if not isinstance(value, dict | list):
        raise PredicateError(f"`{function}` needs an object, not {kind(value)}")
    return value


def _pairs(budget: Budget, value: Js, function: str) -> list[tuple[str, Js]]:
    container = _container(value, function)
    budget.spend(len(container))
    if isinstance(container, list):
        return [(str(n), item) for n, item in enumerate(container)]
    return [(key, container[key]) for key in own_keys(container)]


def _keys(budget: Budget, this: None, args: Args) -> Js:
    return [key for key, _ in _pairs(budget, args[0], "Object.keys")]


def _values(budget: Budget, this: None, args: Args) -> Js:
    return [value for _, value in _pairs(budget, args[0], "Object.values")]


def _entries(budget: Budget, this: None, args: Args) -> Js:
    return [[key, value] for key, value in _pairs(budget, args[0], "Object.entries")]


def _has_own(budget: Budget, this: None, args: Args) -> Js:
    return has_own(_container(args[0], "Object.hasOwn"), to_text(args[1]))


def _parse_int(budget: Budget, this: None, args: Args) -> Js:
    text = to_text(args[0]).strip(SPACE)
    radix = integer(args, 1, 0, "parseInt")
    sign = -1.0 if text.startswith("-") else 1.0
    text = text[1:] if text[:1] in ("+", "-") else text
    if text[:2].lower() == "0x" and radix in (0, 16):
        text, radix = text[2:], 16
    if radix not in _DIGITS:
        raise PredicateError("`parseInt` takes the radix 2, 8, 10 or 16")
    digits = re.match(_DIGITS[radix], text)
    if digits is None:
        return math.nan
    return sign * (float(digits[0]) if radix in (0, 10) else to_double(int(digits[0], int(radix))))


_DIGITS: dict[float, str] = {0: "[0-9]+", 10: "[0-9]+", 2: "[01]+", 8: "[0-7]+", 16: "[0-9a-fA-F]+"}


def _is_whole(value: Js) -> bool:
    return isinstance(value, float) and value.is_integer()


def _round(number: float) -> float:
    below = float(math.floor(number))
    return below if number - below < 0.5 else below + 1


def _keeping_sign(function: Callable[[float], float]) -> Callable[[float], float]:
    """`function` for finite numbers; zeros keep the sign, infinities and NaN stay."""
    return lambda number: math.copysign(function(number), number) if math.isfinite(number) else number


def _largest(numbers: list[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else max(numbers, default=-math.inf, key=_order)


def _smallest(numbers: list[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else min(numbers, default=math.inf, key=_order)


def _order(number: float) -> tuple[float, float]:
    return number, math.copysign(1, number)  # -0 is less than 0


def _of_number(function: Callable[[float], Js]) -> Method:
    return Method(lambda budget, this, args: function(to_number(args[0])), 1, 1)


def _of_value(function: Callable[[Js], Js]) -> Method:
    return Method(lambda budget, this, args: function(args[0]), 1, 1)


def _of_numbers(function: Callable[[list[float]], float]) -> Method:
    def run(budget: Budget, this: None, args: Args) -> Js:
        budget.spend(len(args))
        return function([to_number(value) for value in args])

    return Method(run, 0, math.inf)


def _is_safe(value: Js) -> bool:
    return isinstance(value, float) and _is_whole(value) and abs(value) < 2**53


def _sign(number: float) -> float:
    return number if number == 0 or math.isnan(number) else math.copysign(1, number)


FUNCTIONS: dict[str, Method] = {
    "Array.isArray": _of_value(lambda value: isinstance(value, list)),
    "Boolean": _of_value(truthy),
    "Math.abs": _of_number(abs),
    "Math.ceil": _of_number(_keeping_sign(math.ceil)),
    "Math.floor": _of_number(_keeping_sign(math.floor)),
    "Math.max": _of_numbers(_largest),
    "Math.min": _of_numbers(_smallest),
    "Math.pow": Method(lambda budget, this, args: power(to_number(args[0]), to_number(args[1])), 2, 2),
    "Math.round": _of_number(_keeping_sign(_round)),
    "Math.sign": _of_number(_sign),
    "Math.sqrt": _of_number(lambda number: math.sqrt(number) if number >= 0 else math.nan),
    "Math.trunc": _of_number(_keeping_sign(math.trunc)),
    "Number": _of_number(lambda number: number),
    "Number.isFinite": _of_value(lambda value: isinstance(value, float) and math.isfinite(value)),
    "Number.isInteger": _of_value(_is_whole),
    "Number.isNaN": _of_value(lambda value: isinstance(value, float) and math.isnan(value)),
    "Number.isSafeInteger": _of_value(_is_safe),
    "Object.entries": Method(_entries, 1, 1),
    "Object.hasOwn": Method(_has_own, 2, 2),
    "Object.keys": Method(_keys, 1, 1),
    "Object.values": Method(_values, 1, 1),
    "String": _of_value(to_text),
    "isFinite": _of_number(math.isfinite),
    "isNaN": _of_number(math.isnan),
    "parseFloat": Method(lambda budget, this, args: decimal_prefix(to_text(args[0])), 1, 1),
    "parseInt": Method(_parse_int, 1, 2),
}
FUNCTIONS["Number.parseFloat"] = FUNCTIONS["parseFloat"]
FUNCTIONS["Number.parseInt"] = FUNCTIONS["parseInt"]

AS_CALLBACKS = frozenset(name for name, function in FUNCTIONS.items() if function.most == 1)
"""Those that look at one argument only, so that the index an array method passes as the second does no harm."""

RESERVED = frozenset(name.partition(".")[0] for name in (*FUNCTIONS, *CONSTANTS))
"""Names that never stand for data; such a key is read as `output.Number`."""
