"""The methods of arrays and objects. None changes its array: `sort` and `reverse` are for fresh ones only (`parse`)."""

import math
from functools import cmp_to_key
from itertools import pairwise

from delegate.judging.checks.predicate.arguments import Args, Callback, Method, integer, item_at, relative
from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.properties import has_own
from delegate.judging.checks.predicate.values import UNDEFINED, Js, kind, strict_equal, to_text, truthy

Items = list[Js]
_STEPS_PER_SORTED = 5


def _at(budget: Budget, this: Items, args: Args) -> Js:
    return item_at(this, integer(args, 0, 0, "at"))


def _concat(budget: Budget, this: Items, args: Args) -> Js:
    result = list(this)
    for value in args:
        result += value if isinstance(value, list) else [value]
    budget.spend(len(result))
    return result


def _every(budget: Budget, this: Items, args: Args) -> Js:
    return all(truthy(args[0](item, float(n), this)) for n, item in enumerate(this))


def _some(budget: Budget, this: Items, args: Args) -> Js:
    return any(truthy(args[0](item, float(n), this)) for n, item in enumerate(this))


def _filter(budget: Budget, this: Items, args: Args) -> Js:
    return [item for n, item in enumerate(this) if truthy(args[0](item, float(n), this))]


def _map(budget: Budget, this: Items, args: Args) -> Js:
    return [args[0](item, float(n), this) for n, item in enumerate(this)]


def _flat_map(budget: Budget, this: Items, args: Args) -> Js:
    result: Items = []
    for n, item in enumerate(this):
        mapped: Js = args[0](item, float(n), this)
        result += mapped if isinstance(mapped, list) else [mapped]
        budget.spend(len(mapped) if isinstance(mapped, list) else 1)
    return result


def _found(this: Items, test: Callback, *, last: bool = False) -> int:
    places = range(len(this))
    return next((n for n in (reversed(places) if last else places) if truthy(test(this[n], float(n), this))), -1)


def _find(budget: Budget, this: Items, args: Args) -> Js:
    place = _found(this, args[0])
    return UNDEFINED if place < 0 else this[place]


def _find_index(budget: Budget, this: Items, args: Args) -> Js:
    return float(_found(this, args[0]))


def _find_last(budget: Budget, this: Items, args: Args) -> Js:
    place = _found(this, args[0], last=True)
    return UNDEFINED if place < 0 else this[place]


def _find_last_index(budget: Budget, this: Items, args: Args) -> Js:
    return float(_found(this, args[0], last=True))


def _flat(budget: Budget, this: Items, args: Args) -> Js:
    result: Items = []
    todo = [(iter(this), integer(args, 0, 1, "flat"))]
    while todo:
        items, depth = todo[-1]
        for item in items:
            budget.spend(1)
            if isinstance(item, list) and depth > 0:
                todo.append((iter(item), depth - 1))
                break
            result.append(item)
        else:
            todo.pop()
    return result


def _includes(budget: Budget, this: Items, args: Args) -> Js:
    start = relative(integer(args, 1, 0, "includes"), len(this))
    if isinstance(args[0], float) and math.isnan(args[0]):
        return any(isinstance(item, float) and math.isnan(item) for item in this[start:])
    return _place(budget, this, args[0], start, "includes") >= 0


def _index_of(budget: Budget, this: Items, args: Args) -> Js:
    return float(_place(budget, this, args[0], relative(integer(args, 1, 0, "indexOf"), len(this)), "indexOf"))


def _last_index_of(budget: Budget, this: Items, args: Args) -> Js:
    place = _place(budget, this[::-1], args[0], 0, "lastIndexOf")
    return float(len(this) - 1 - place) if place >= 0 else -1.0


def _place(budget: Budget, this: Items, wanted: Js, start: int, method: str) -> int:
    if isinstance(wanted, list | dict):
        raise PredicateError(f"`.{method}()` can't look for {kind(wanted)}: it would find only the very same one")
    cost = 1 + len(wanted) // 64 if isinstance(wanted, str) else 1
    budget.spend((len(this) - start) * cost + 1)
    return next((n for n in range(start, len(this)) if strict_equal(this[n], wanted)), -1)


def _join(budget: Budget, this: Items, args: Args) -> Js:
    separator = to_text(args[0]) if args and args[0] is not UNDEFINED else ","
    budget.spend(len(this))
    texts = ["" if item is None or item is UNDEFINED else to_text(item) for item in this]
    budget.make_string(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def _reduce(budget: Budget, this: Items, args: Args) -> Js:
    if not this and len(args) < 2:
        raise Thrown("`.reduce()` of an empty array needs a first value")
    start, total = (0, args[1]) if len(args) > 1 else (1, this[0])
    for n in range(start, len(this)):
        total = args[0](total, this[n], float(n), this)
    return total


def _reversed(budget: Budget, this: Items, args: Args) -> Js:
    budget.spend(len(this))
    return this[::-1]


def _slice(budget: Budget, this: Items, args: Args) -> Js:
    start = relative(integer(args, 0, 0, "slice"), len(this))
    result = this[start : relative(integer(args, 1, len(this), "slice"), len(this))]
    budget.spend(len(result))
    return result


def _sorted(budget: Budget, this: Items, args: Args) -> Js:
    present = [item for item in this if item is not UNDEFINED]
    budget.spend(_STEPS_PER_SORTED * len(this))
    compare: Callback | Js = args[0] if args else UNDEFINED
    if compare is not UNDEFINED and not callable(compare):
        raise PredicateError(f"`.sort()` takes a function, not {kind(compare)}")
    ordered = _sorted_by(present, compare) if callable(compare) else sorted(present, key=to_text)
    return ordered + [UNDEFINED] * (len(this) - len(present))


def _sorted_by(items: Items, compare: Callback) -> Items:
    def order(left: Js, right: Js) -> float:
        result = compare(left, right)
        if not isinstance(result, float) or math.isnan(result):
            raise PredicateError(f"the function of `.sort()` has to give a number such as `a - b`, not {kind(result)}")
        return (result > 0) - (result < 0)

    ordered = sorted(items, key=cmp_to_key(order))  # pyright: ignore[reportArgumentType] (any number will do)
    if any(order(left, right) > 0 or order(left, right) != -order(right, left) for left, right in pairwise(ordered)):
        raise PredicateError("the function of `.sort()` contradicts itself")
    return ordered


ARRAY = {
    "at": Method(_at, 1, 1),
    "concat": Method(_concat, 0, 100),
    "every": Method(_every, 1, 1, "function"),
    "filter": Method(_filter, 1, 1, "function"),
    "find": Method(_find, 1, 1, "function"),
    "findIndex": Method(_find_index, 1, 1, "function"),
    "findLast": Method(_find_last, 1, 1, "function"),
    "findLastIndex": Method(_find_last_index, 1, 1, "function"),
    "flat": Method(_flat, 0, 1),
    "flatMap": Method(_flat_map, 1, 1, "function"),
    "includes": Method(_includes, 1, 2),
    "indexOf": Method(_index_of, 1, 2),
    "join": Method(_join, 0, 1),
    "lastIndexOf": Method(_last_index_of, 1, 1),
    "map": Method(_map, 1, 1, "function"),
    "reduce": Method(_reduce, 1, 2, "function"),
    "reverse": Method(_reversed, 0, 0),
    "slice": Method(_slice, 0, 2),
    "some": Method(_some, 1, 1, "function"),
    "sort": Method(_sorted, 0, 1, "maybe_function"),
    "toReversed": Method(_reversed, 0, 0),
    "toSorted": Method(_sorted, 0, 1, "maybe_function"),
}
CHANGING = frozenset(["reverse", "sort"])
"""Methods that in JavaScript change the array they are called on."""


def _has_own(budget: Budget, this: dict[str, Js], args: Args) -> Js:
    return has_own(this, to_text(args[0]))


OBJECT = {"hasOwnProperty": Method(_has_own, 1, 1)}
