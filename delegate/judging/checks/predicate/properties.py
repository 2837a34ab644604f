"""Reading properties. Only data can be read: what JavaScript would inherit (`toString`, `constructor` …) is refused."""

from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.values import UNDEFINED, Js, Nothing, index_of, kind

_OF_ALL = frozenset({
    "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString",
    "valueOf", "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
})  # fmt: skip
_OF_MATCHES = frozenset({"groups", "index", "indices", "input"})
"""Properties of the array that `match` gives."""
_OF_ARRAYS = _OF_ALL | _OF_MATCHES | frozenset({
    "at", "concat", "copyWithin", "entries", "every", "fill", "filter", "find", "findIndex", "findLast",
    "findLastIndex", "flat", "flatMap", "forEach", "includes", "indexOf", "join", "keys", "lastIndexOf", "map",
    "pop", "push", "reduce", "reduceRight", "reverse", "shift", "slice", "some", "sort", "splice", "toReversed",
    "toSorted", "toSpliced", "unshift", "values", "with",
})  # fmt: skip
_OF_STRINGS = _OF_ALL | frozenset({
    "anchor", "at", "big", "blink", "bold", "charAt", "charCodeAt", "codePointAt", "concat", "endsWith", "fixed",
    "fontcolor", "fontsize", "includes", "indexOf", "isWellFormed", "italics", "lastIndexOf", "link",
    "localeCompare", "match", "matchAll", "normalize", "padEnd", "padStart", "repeat", "replace", "replaceAll",
    "search", "slice", "small", "split", "startsWith", "strike", "sub", "substr", "substring", "sup",
    "toLocaleLowerCase", "toLocaleUpperCase", "toLowerCase", "toUpperCase", "toWellFormed", "trim", "trimEnd",
    "trimLeft", "trimRight", "trimStart",
})  # fmt: skip
_OF_NUMBERS = _OF_ALL | frozenset({"toExponential", "toFixed", "toPrecision"})


def inherits(value: Js, key: str) -> bool:
    """Whether JavaScript finds `key` on the prototype of `value`, or on the array a match gives."""
    if isinstance(value, list):
        return key in _OF_ARRAYS
    if isinstance(value, str):
        return key in _OF_STRINGS
    return key in (_OF_ALL if isinstance(value, dict | bool) else _OF_NUMBERS)


def read(value: Js, key: str, text: str) -> Js:
    """The property `key` of `value`; `text` is how `value` was written, for messages."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
    elif isinstance(value, list | str):
        if key == "length":
            return float(len(value))
        index = index_of(key)
        if index is not None:
            return value[index] if index < len(value) else UNDEFINED
    elif value is None or isinstance(value, Nothing):
        raise Thrown(f"`{text}` is {kind(value)}, so it has no `{key}`")
    if inherits(value, key):
        raise PredicateError(f"`{key}` of {kind(value)} (`{text}`) is not data")
    return UNDEFINED


def has(value: Js, key: str, text: str) -> bool:
    """`key in value`, for own properties."""
    if not isinstance(value, dict | list):
        raise Thrown(f"`{text}` is {kind(value)}, so `in` can't look into it")
    own = has_own(value, key)
    if not own and inherits(value, key):
        raise PredicateError(f"`{key}` of {kind(value)} (`{text}`) is not data")
    return own


def has_own(value: dict[str, Js] | list[Js], key: str) -> bool:
    """Whether `value` itself has `key`."""
    if isinstance(value, dict):
        return key in value
    index = index_of(key)
    return key == "length" or (index is not None and index < len(value))
