"""What built-in functions and methods have in common: their shape, and how they read their arguments."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.problems import PredicateError
from delegate.judging.checks.predicate.values import UNDEFINED, Js, kind, number_text

Callback: TypeAlias = Callable[..., Js]
Args: TypeAlias = Sequence[Any]
"""Values; a callback or a `Pattern` where the method takes one as its first."""


@dataclass(frozen=True, slots=True)
class Method:
    """A pure method or function. `takes` is what its first argument may be beside data."""

    run: Callable[[Budget, Any, Args], Js]
    least: int
    most: float
    takes: Literal["data", "function", "maybe_function", "maybe_pattern", "pattern"] = "data"


def needle(args: Args, method: str) -> str:
    """The first argument as the text to look for: a string or a number. JavaScript would look for "undefined" too."""
    value = args[0]
    if isinstance(value, float):
        return number_text(value)
    if not isinstance(value, str):
        raise PredicateError(f"`.{method}()` can't look for {kind(value)}")
    return value


def integer(args: Args, index: int, default: float, method: str) -> float:
    """Argument `index` as a whole number or an infinity."""
    value: Js = args[index] if index < len(args) else UNDEFINED
    if value is UNDEFINED:
        return default
    if not isinstance(value, float):
        raise PredicateError(f"`.{method}()` needs a number, not {kind(value)}")
    if math.isnan(value):
        return 0.0
    return value if math.isinf(value) else float(math.trunc(value))


def clamped(number: float, length: int) -> int:
    """`number` as a position from 0 to `length`."""
    return int(min(max(number, 0), length))


def relative(number: float, length: int) -> int:
    """`number` as a position from 0 to `length`, counted from the end when negative."""
    return clamped(number + length if number < 0 else number, length)


def item_at(items: "str | list[Js]", number: float) -> Js:
    """What `.at(number)` gives."""
    place = number + len(items) if number < 0 else number
    return items[int(place)] if 0 <= place < len(items) else UNDEFINED
