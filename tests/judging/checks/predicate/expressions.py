"""Random expressions over random JSON, for the comparison with a JavaScript engine.

Mostly what a person would write, and often enough what nobody would: missing names, wrong types, no parentheses.
"""

import json
from collections.abc import Callable, Sequence
from random import Random

NAMES = ("a", "b", "status", "items", "user", "tags", "text")
KEYS = ("id", "name", "ok", "price", "tags", "10", "9", "x")
WORDS = ("", "a", "abc", "Hello World", " pad ", "10", "3.50", "é", "😀x", "a,b,,c", "true", "NaN", "ß", "line\nend")
NUMBERS = (0, 1, 2, 3, -1, 10, 200, 404, 0.5, 1.005, -2.5, 1e21, 123456789012345680000, 1e-7, 9007199254740993)
COMPARISONS = ("===", "!==", "==", "!=", "<", "<=", ">", ">=")
OPERATORS = (*COMPARISONS, "+", "-", "*", "/", "%", "**", "&&", "||", "&&", "||", "??", "+", "*")
PATTERNS = (
    r"^\d+$", r"[a-c]+", r"^\s*$", r"\bWorld\b", r"(\w+)\s(\w+)", r".", r"^.$", r"a|b", r"[^a]", r"l{2}", r"\S+$",
    r"(?:a,)+", r"\W", r"(?=b)", r"(?<!a)b", r"[\d.]+", r"^$", r"o?", r"x*?", r"[\s\S]", r"(?<first>a)(b)?", r"\u00e9",
    r"^-?\d+(?:\.\d+)?$", r"[.\-\]]", r"$", r"\B",
)  # fmt: skip
ATOMS = (
    "a", "b", "é", "-", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", "^", "$", "[ab]", "[^a-]", "a+",
    "b*", r"[\s\d]", r"[^\w]", r"\.", "a{2}", r"[\W_]", "[A-C]", ".*?", r"\n",
)  # fmt: skip
ALPHABET = ("a", "a", "b", "A", "é", "É", "1", "-", "_", " ", "\n", "\u2028", ".", "😀", "\ufeff", "\x1c", "٣")
FLAGS = ("", "", "i", "g", "m", "s", "u", "gi", "gu")


class Writer:
    """Writes one case after the other; the same seed gives the same cases."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.params: list[str] = []

    def case(self) -> tuple[str, str]:
        """An expression, and the text of the JSON it looks at."""
        pick = self.random
        value = self.document() if pick.random() < 0.95 else self.value(2)
        kind = pick.choice((self.condition, self.condition, self.number, self.string, self.array, self.anything))
        return kind(pick.randint(1, 4)), json.dumps(value)

    def soup(self) -> tuple[str, str]:
        """Operators and operands in a row without parentheses, so that precedence decides."""
        pick = self.random
        text = self.operand()
        for _ in range(pick.randint(1, 6)):
            text += f" {pick.choice(OPERATORS)} {self.operand()}"
        if pick.random() < 0.3:
            text += f" ? {self.operand()} : {self.operand()} {pick.choice(OPERATORS)} {self.operand()}"
        return text, json.dumps(self.document())

    def search(self) -> tuple[str, str]:
        """A regular expression put together at random, and a text that it may match."""
        pick = self.random
        subject = "".join(pick.choice(ALPHABET) for _ in range(pick.randint(0, 8)))
        pattern, flags = self.pattern(3), pick.choice(FLAGS)
        ways = (f"/{pattern}/{flags}.test(text)", f"text.match(/{pattern}/g)", f"text.search(/{pattern}/{flags})")
        return pick.choice(ways), json.dumps({"text": subject})

    def pattern(self, depth: int) -> str:
        pick = self.random
        if depth == 0 or pick.random() < 0.3:
            return pick.choice(ATOMS)
        if pick.random() < 0.3:
            return f"{self.pattern(depth - 1)}|{self.pattern(depth - 1)}"
        group = pick.choice(("(?:", "(?:", "(", "(?=", "(?!", "(?<=", "(?<!"))
        repeat = pick.choice(("", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?")) if group[-1] in ":(" else ""
        parts = "".join(self.pattern(depth - 1) for _ in range(pick.randint(1, 3)))
        return f"{group}{parts}){repeat}{pick.choice(('', pick.choice(ATOMS)))}"

    def operand(self) -> str:
        sign = self.random.choice(("", "", "", "!", "-", "+", "typeof ", "!!", "- -"))
        return sign + self.random.choice(("a", "b", "status", "text", "2", "0.5", "'7'", "null", "items?.length", "a"))

    # ------------------------------------------------------------------------------------------------------- JSON

    def document(self) -> dict[str, object]:
        pick = self.random
        typical: dict[str, object] = {
            "a": pick.choice(NUMBERS),
            "b": pick.choice(NUMBERS),
            "status": pick.choice((200, 404, "200", None)),
            "items": [self.item() for _ in range(pick.randint(0, 4))],
            "user": self.item(),
            "tags": [pick.choice(WORDS) for _ in range(pick.randint(0, 4))],
            "text": pick.choice(WORDS),
        }
        return {name: value if pick.random() < 0.9 else self.value(3) for name, value in typical.items()}

    def item(self) -> dict[str, object]:
        pick = self.random
        typical: dict[str, object] = {
            "id": pick.choice(NUMBERS),
            "name": pick.choice(WORDS),
            "ok": pick.choice((True, False)),
            "price": pick.choice(NUMBERS),
            "tags": [pick.choice(WORDS) for _ in range(pick.randint(0, 3))],
        }
        return {key: value for key, value in typical.items() if pick.random() < 0.9}

    def value(self, depth: int) -> object:
        kind = self.random.randint(0, 8 if depth else 5)
        if kind <= 1:
            return self.random.choice(NUMBERS)
        if kind <= 3:
            return self.random.choice(WORDS)
        if kind <= 5:
            return self.random.choice((True, False, None))
        if kind == 6:
            return {key: self.value(depth - 1) for key in self.random.sample(KEYS, self.random.randint(0, 4))}
        if kind == 7:
            return [self.random.choice((NUMBERS, WORDS))[n] for n in range(self.random.randint(0, 5))]
        return [self.value(depth - 1) for _ in range(self.random.randint(0, 4))]

    # ------------------------------------------------------------------------------------------------ expressions

    def typed(self, *paths: str) -> str:
        """One of `paths`, which usually have the type that is wanted here; now and then any other."""
        return self.random.choice(paths) if self.random.random() < 0.85 else self.path()

    def path(self) -> str:
        pick = self.random
        roots = (*NAMES, *self.params, *self.params, "output", "$", "nobody" if pick.random() < 0.03 else "items")
        path = pick.choice(roots)
        for _ in range(pick.choice((0, 0, 1, 1, 2))):
            dot = pick.choice((".", ".", "?."))
            key = pick.choice(KEYS)
            path += (
                f"{dot}{key}" if key.isalpha() else f"{'?.' if dot == '?.' else ''}[{pick.choice((key, '0', '-1'))}]"
            )
        return path

    def literal(self) -> str:
        pick = self.random
        if pick.random() < 0.5:
            return repr(abs(pick.choice(NUMBERS)))
        return pick.choice((json.dumps(pick.choice(WORDS)), "null", "undefined", "true", "false", "NaN", "Infinity"))

    def anything(self, depth: int) -> str:
        if depth <= 0:
            return self.random.choice((self.path, self.path, self.literal))()
        kinds = (self.condition, self.number, self.string, self.array, self.choice, self.find)
        return self.random.choice(kinds)(depth - 1)

    def choice(self, depth: int) -> str:
        if self.random.random() < 0.5:
            return f"{self.condition(depth)} ? {self.anything(depth)} : {self.anything(depth)}"
        return f"({self.anything(depth)} {self.random.choice(('??', '||', '&&'))} {self.anything(depth)})"

    def maybe_wrapped(self, text: str) -> str:
        return f"({text})" if self.random.random() < 0.6 else text

    def condition(self, depth: int) -> str:
        pick = self.random
        if depth <= 0:
            return pick.choice((f"{self.path()} {pick.choice(COMPARISONS)} {self.literal()}", self.path(), "true"))
        below = depth - 1
        kind = pick.randint(0, 9)
        if kind <= 2:
            side = pick.choice((self.number, self.string, self.anything))
            return f"({side(below)}) {pick.choice(COMPARISONS)} ({side(below)})"
        if kind <= 4:
            joined = pick.choice((" && ", " || "))
            return self.maybe_wrapped(joined.join(self.condition(below) for _ in range(pick.randint(2, 3))))
        if kind == 5:
            return f"!{self.maybe_wrapped(self.condition(below))}"
        if kind == 6:
            return f"{self.list(below)}.{pick.choice(('every', 'some'))}({self.arrow(self.condition, below)})"
        if kind == 7:
            return self.test_of_text(below)
        if kind == 8:
            test = pick.choice(("Array.isArray", "Number.isInteger", "isNaN", "Number.isFinite", "Boolean"))
            return f"{test}({self.anything(below)})"
        return f'"{pick.choice(KEYS)}" in {self.typed("output", "user", "items")}'

    def test_of_text(self, depth: int) -> str:
        pick = self.random
        if pick.random() < 0.4:
            return f"/{pick.choice(PATTERNS)}/{pick.choice(FLAGS)}.test({self.string(depth)})"
        method = pick.choice(("includes", "startsWith", "endsWith"))
        return f"({self.string(depth)}).{method}({self.string(0)})"

    def number(self, depth: int) -> str:
        pick = self.random
        if depth <= 0:
            number = self.typed("a", "b", "status", "user.id", "items.length", "text.length", "items[0]?.price")
            return pick.choice((number, repr(abs(pick.choice(NUMBERS)))))
        below = depth - 1
        kind = pick.randint(0, 7)
        if kind <= 1:
            return self.maybe_wrapped(f"{self.number(below)} {pick.choice('+-*/%')} {self.number(below)}")
        if kind == 2:
            return f"(-{self.maybe_wrapped(self.number(below))})"
        if kind == 3:
            name = pick.choice(("abs", "floor", "ceil", "round", "trunc", "sign", "sqrt", "max", "min"))
            return f"Math.{name}({self.number(below)})"
        if kind == 4:
            name = pick.choice(("Number", "parseInt", "parseFloat"))
            return f"{name}({self.anything(below)})"
        if kind == 5:
            return f"({self.list(below)}).reduce((s, x) => s + {self.with_params(['s', 'x'], self.number, below)}, 0)"
        if kind == 6:
            return f"({self.string(below)}).{pick.choice(('indexOf', 'lastIndexOf'))}({self.string(0)})"
        return f"({pick.choice((self.list, self.string))(below)}).length"

    def string(self, depth: int) -> str:
        pick = self.random
        if depth <= 0:
            return pick.choice((self.typed("text", "user.name", "tags[0]"), json.dumps(pick.choice(WORDS))))
        below = depth - 1
        kind = pick.randint(0, 7)
        if kind == 0:
            return f"`<${{{self.anything(below)}}}>`"
        if kind == 1:
            return f"({self.string(below)} + {self.anything(below)})"
        if kind == 2:
            return f"({self.string(below)}).{pick.choice(('trim', 'toLowerCase', 'toUpperCase', 'trimEnd'))}()"
        if kind == 3:
            at = ", ".join(str(pick.randint(-4, 6)) for _ in range(pick.randint(0, 2)))
            return f"({self.string(below)}).{pick.choice(('slice', 'substring'))}({at or 1})"
        if kind == 4:
            return f"({self.list(below)}).join({json.dumps(pick.choice(WORDS))})"
        if kind == 5:
            return f"({self.number(below)}).toFixed({pick.randint(0, 4)})"
        if kind == 6:
            old = pick.choice((f"/{pick.choice(PATTERNS)}/{pick.choice(FLAGS)}", json.dumps(pick.choice(WORDS))))
            return f"({self.string(below)}).replace({old}, {json.dumps(pick.choice(WORDS))})"
        return pick.choice((f"String({self.anything(below)})", f"typeof {self.path()}"))

    def list(self, depth: int) -> str:
        """An array, so that a method of it can follow."""
        if depth > 0 and self.random.random() < 0.6:
            return f"({self.array(depth)})"
        return self.typed("items", "items", "tags", "user.tags", "output.items", "Object.keys(output)")

    def array(self, depth: int) -> str:
        pick = self.random
        below = depth - 1
        kind = pick.randint(0, 8) if depth > 0 else 0
        if kind == 0:
            return f"[{', '.join(self.anything(below) for _ in range(pick.randint(0, 3)))}]"
        if kind == 1:
            return f"[...{self.list(below)}, {self.anything(below)}]"
        if kind == 2:
            return f"{self.list(below)}.filter({self.arrow(self.condition, below)})"
        if kind == 3:
            return f"{self.list(below)}.map({self.arrow(self.anything, below)})"
        if kind == 4:
            return (
                f"Object.{pick.choice(('keys', 'values', 'entries'))}({self.typed('output', 'user', 'items', 'tags')})"
            )
        if kind == 5:
            by = pick.choice((f"/{pick.choice(PATTERNS)}/", json.dumps(pick.choice(WORDS)), json.dumps(",")))
            return f"({self.string(below)}).split({by})"
        if kind == 6:
            order = pick.choice(("", "(p, q) => p - q", "(p, q) => q - p"))
            return f"{self.list(below)}.slice().sort({order})"
        if kind == 7:
            return f"({self.string(below)}).match(/{pick.choice(PATTERNS)}/{pick.choice(FLAGS)})"
        more = pick.choice((".slice(1)", ".flat()", ".concat(1, [2])", ".toReversed()", ".slice(-2, 5)"))
        return f"{self.list(below)}{more}"

    def find(self, depth: int) -> str:
        pick = self.random
        if pick.random() < 0.3:
            return (
                f"{self.list(depth)}.{pick.choice(('includes', 'indexOf', 'at'))}({pick.choice((self.literal(), '0'))})"
            )
        method = pick.choice(("find", "findIndex", "findLast", "findLastIndex"))
        return f"{self.list(depth)}.{method}({self.arrow(self.condition, depth)})"

    def arrow(self, body: Callable[[int], str], depth: int) -> str:
        pick = self.random
        if pick.random() < 0.15:
            return "({ id, name }) => " + self.with_params(["id", "name"], body, depth)
        if pick.random() < 0.15:
            return pick.choice(("Boolean", "Number.isInteger", "Array.isArray"))
        params = pick.choice((["x"], ["y"], ["x", "i"]))
        return f"({', '.join(params)}) => ({self.with_params(params, body, depth)})"

    def with_params(self, params: Sequence[str], body: Callable[[int], str], depth: int) -> str:
        self.params += params
        text = body(depth)
        del self.params[-len(params) :]
        return text
