"""The constants, functions and methods that an expression may use, with the arguments that each takes.

There is one letter per argument, followed by `?` where the argument may be left out, or by `*` where any number may
follow. `runtime.js` checks them before the engine sees them, because JavaScript accepts any value anywhere:
`text.includes(undefined)` looks for the word "undefined".

c: arrow function that compares two items · d: text or number to look for · f: arrow function · i: index, length, count
· o: array or object · p: regular expression · q: regular expression, or what to look for · r: string to put in ·
v: any value · w: value to look for among items
"""

CONSTANTS = frozenset({
    "undefined", "NaN", "Infinity", "Math.E", "Math.PI", "Number.EPSILON", "Number.MAX_SAFE_INTEGER",
    "Number.MIN_SAFE_INTEGER",
})  # fmt: skip
FUNCTIONS = {
    "Array.isArray": "v", "Boolean": "v", "Math.abs": "v", "Math.ceil": "v", "Math.floor": "v", "Math.max": "v*",
    "Math.min": "v*", "Math.pow": "v v", "Math.round": "v", "Math.sign": "v", "Math.sqrt": "v", "Math.trunc": "v",
    "Number": "v", "Number.isFinite": "v", "Number.isInteger": "v", "Number.isNaN": "v", "Number.isSafeInteger": "v",
    "Number.parseFloat": "v", "Number.parseInt": "v i?", "Object.entries": "o", "Object.hasOwn": "o v",
    "Object.keys": "o", "Object.values": "o", "String": "v", "isFinite": "v", "isNaN": "v", "parseFloat": "v",
    "parseInt": "v i?",
}  # fmt: skip
METHODS = {
    "array": {
        "at": "i", "concat": "v*", "every": "f", "filter": "f", "find": "f", "findIndex": "f", "findLast": "f",
        "findLastIndex": "f", "flat": "i?", "flatMap": "f", "includes": "w i?", "indexOf": "w i?", "join": "v?",
        "lastIndexOf": "w", "map": "f", "reduce": "f v?", "reverse": "", "slice": "i? i?", "some": "f", "sort": "c?",
        "toReversed": "", "toSorted": "c?",
    },
    "string": {
        "at": "i", "charAt": "i?", "concat": "v*", "endsWith": "d i?", "includes": "d i?", "indexOf": "d i?",
        "lastIndexOf": "d", "match": "p", "replace": "q r", "replaceAll": "q r", "search": "p", "slice": "i? i?",
        "split": "q? i?", "startsWith": "d i?", "substring": "i i?", "toLowerCase": "", "toString": "",
        "toUpperCase": "", "trim": "", "trimEnd": "", "trimStart": "",
    },
    "number": {"toFixed": "i?", "toString": ""},
    "boolean": {"toString": ""},
    "object": {"hasOwnProperty": "v"},
}  # fmt: skip
"""By the type of the value that the method is called on."""

RESERVED = frozenset(name.partition(".")[0] for name in (*FUNCTIONS, *CONSTANTS))
"""Names that never stand for data; such a key is read as `output.Number`."""
AS_CALLBACKS = frozenset(name for name, letters in FUNCTIONS.items() if len(letters) == 1)
"""Functions of one argument, so that the index that an array method passes as the second one does no harm."""
CHANGING = frozenset({"reverse", "sort"})
"""Methods that change the array that they are called on."""
MAKING_ARRAYS = frozenset({
    "concat", "filter", "flat", "flatMap", "map", "reverse", "slice", "sort", "split", "toReversed", "toSorted",
})  # fmt: skip
"""Methods whose result nothing else refers to, so that it may be changed."""


def signature(letters: str) -> tuple[int, int, str]:
    """The least and the greatest number of arguments, and the letters alone; the last one holds for all that follow."""
    words = letters.split()
    most = 65_535 if letters.endswith("*") else len(words)
    return sum(len(word) == 1 for word in words), most, "".join(word[0] for word in words)


def methods_that_take(letters: str) -> frozenset[str]:
    """The methods whose first argument is one of `letters`."""
    tables = [table.items() for table in METHODS.values()]
    return frozenset(name for table in tables for name, taken in table if taken and taken[0] in letters)
