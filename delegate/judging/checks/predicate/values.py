"""Values and their conversions, as JavaScript defines them (ECMA-262 §7).

Numbers are doubles, strings are UTF-16 (see `text`), arrays are lists, objects are dicts with string keys. Where
JavaScript would turn an array or an object into text or a number first, the answer is a refusal: nobody means it.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Literal, TypeAlias, cast

from delegate.judging.checks.predicate.budget import MAX_VALUES
from delegate.judging.checks.predicate.problems import PredicateError
from delegate.judging.checks.predicate.text import SPACE, units


class Nothing(Enum):
    """`UNDEFINED` is JavaScript's; `CUT` is how an optional chain ends early, and never leaves it."""

    UNDEFINED = "undefined"
    CUT = "cut"


UNDEFINED: Literal[Nothing.UNDEFINED] = Nothing.UNDEFINED
Js: TypeAlias = "bool | float | str | Nothing | list[Js] | dict[str, Js] | None"

_Todo = list[tuple[object, "list[Js] | dict[str, Js]"]]


def from_json(value: object) -> Js:
    """A copy of a parsed JSON value, in the evaluator's form. Raises PredicateError when it is too big or not JSON."""
    todo: _Todo = []
    result = _shallow(value, todo)
    count = 0
    while todo:
        source, target = todo.pop()
        if isinstance(target, list):
            items = cast("list[object]", source)
            count += len(items) + 1
            target.extend(_shallow(item, todo) for item in items)
        else:
            pairs = cast("dict[object, object]", source)
            count += 2 * len(pairs) + 1
            target.update((_key(key), _shallow(item, todo)) for key, item in pairs.items())
        if count > MAX_VALUES:
            raise PredicateError(f"the JSON holds more than {MAX_VALUES:,} values")
    return result


def _shallow(value: object, todo: _Todo) -> Js:
    if isinstance(value, str):
        return units(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return to_double(value)
    if not isinstance(value, dict | list):
        raise PredicateError(f"a {type(value).__name__} is not a JSON value")
    shell: list[Js] | dict[str, Js] = [] if isinstance(value, list) else {}
    todo.append((cast("object", value), shell))
    return shell


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise PredicateError(f"a {type(key).__name__} is not a key of a JSON object")
    return units(key)


def to_double(number: int) -> float:
    """The double nearest to `number`; infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


# ------------------------------------------------------------------------------------------------ conversions


def type_of(value: Js) -> str:
    """What `typeof` says."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "number"
    return "undefined" if isinstance(value, Nothing) else "object"


def kind(value: Js) -> str:
    """What a person calls it: `type_of`, but with arrays and null told apart, and with an article."""
    if value is None or isinstance(value, Nothing):
        return "null" if value is None else "undefined"
    if isinstance(value, list):
        return "an array"
    return "an object" if isinstance(value, dict) else f"a {type_of(value)}"


def truthy(value: Js) -> bool:
    """Whether `value` counts as true: not false, null, undefined, 0, NaN or the empty string."""
    if isinstance(value, list | dict):
        return True
    if isinstance(value, float):
        return bool(value) and not math.isnan(value)
    return value is not UNDEFINED and bool(value)


def to_text(value: Js) -> str:
    """`value` as text, as in a template. Raises PredicateError for arrays and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list | dict):
        hint = " (see `.join`)" if isinstance(value, list) else ""
        raise PredicateError(f"{kind(value)} can't be used as text{hint}")
    return kind(value)


def to_number(value: Js) -> float:
    """`value` as a number; NaN where there is none. Raises PredicateError for arrays and objects."""
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return _string_number(value)
    if isinstance(value, list | dict):
        raise PredicateError(f"{kind(value)} can't be used as a number")
    return math.nan if isinstance(value, Nothing) else float(value or 0)


_DECIMAL = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_RADIX = re.compile(r"0(?:[xX]([0-9a-fA-F]+)|[oO]([0-7]+)|[bB]([01]+))")


def _string_number(text: str) -> float:
    text = text.strip(SPACE)
    if not text:
        return 0.0
    if _DECIMAL.fullmatch(text):
        return float(text)
    return radix_number(text)


def radix_number(text: str) -> float:
    """The value of `0x1F`, `0o17` or `0b11`; NaN for anything else."""
    match = _RADIX.fullmatch(text)
    if match is None:
        return math.nan
    group = match.lastindex or 1
    return to_double(int(match[group], (16, 8, 2)[group - 1]))


def decimal_prefix(text: str) -> float:
    """What `parseFloat` makes of `text`: the longest start that is a decimal number, else NaN."""
    match = _DECIMAL.match(text.lstrip(SPACE))
    return float(match[0]) if match else math.nan


def number_text(number: float) -> str:
    """A number as JavaScript writes it (ECMA-262 §6.1.6.1.20)."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    sign = "-" if number < 0 else ""
    parts = Decimal(repr(abs(number))).as_tuple()
    digits = "".join(map(str, parts.digits))
    point = len(digits) + cast("int", parts.exponent)
    return sign + _positional(digits.rstrip("0"), point)


def _positional(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1:+d}"


# -------------------------------------------------------------------------------------------------- operators


def strict_equal(left: Js, right: Js) -> bool:
    """`===`. Two arrays or objects are refused: JavaScript asks whether they are the same one, never what's in them."""
    if isinstance(left, list | dict) and isinstance(right, list | dict):
        raise PredicateError(
            f"{kind(left)} compared with {kind(right)}: JavaScript compares identity, not content;"
            " compare elements, `.length` or `.join()`"
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def loose_equal(left: Js, right: Js) -> bool:
    """`==`: null equals undefined, and primitives of two types are compared as numbers."""
    empty_left, empty_right = _is_nullish(left), _is_nullish(right)
    if empty_left or empty_right:
        return empty_left and empty_right
    if type(left) is type(right) or (isinstance(left, list | dict) and isinstance(right, list | dict)):
        return strict_equal(left, right)
    return to_number(left) == to_number(right)


def _is_nullish(value: Js) -> bool:
    return value is None or value is UNDEFINED


def less(left: Js, right: Js) -> bool | None:
    """`<`; None where a NaN makes every order false."""
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    first, second = to_number(left), to_number(right)
    return None if math.isnan(first) or math.isnan(second) else first < second


def divide(left: float, right: float) -> float:
    """`/`, which gives infinity or NaN where Python raises."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def remainder(left: float, right: float) -> float:
    """`%`, with the sign of `left`."""
    if right == 0 or math.isinf(left) or math.isnan(left):
        return math.nan
    return math.fmod(left, right)


def power(left: float, right: float) -> float:
    """`**`. JavaScript differs from C in one case: a base of 1 or -1 with an infinite or missing exponent is NaN."""
    if math.isnan(right) or (abs(left) == 1 and math.isinf(right)):
        return math.nan
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and right % 2 == 1 else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        if left != 0:
            return math.nan
        return math.copysign(math.inf, left) if right % 2 == 1 else math.inf


# ------------------------------------------------------------------------------------------------ object keys

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_INDEX = 2**32 - 2


def index_of(key: str) -> int | None:
    """The array index that a property key stands for, if it is one."""
    if not _INDEX.fullmatch(key):
        return None
    index = int(key)
    return index if index <= _LAST_INDEX else None


def own_keys(value: Mapping[str, Js]) -> list[str]:
    """The keys in JavaScript's order: array indexes ascending, then the others as they came."""
    indexes = [key for key in value if key[:1].isdigit() and index_of(key) is not None]
    if not indexes:
        return list(value)
    first = dict.fromkeys(sorted(indexes, key=int))
    return [*first, *(key for key in value if key not in first)]
