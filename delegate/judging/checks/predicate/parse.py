"""Reads an expression: tree-sitter parses it, and an allow-list turns the tree into the nodes of `syntax`.

What isn't on the list is refused by name, wherever it stands: also in a branch that would never be evaluated. Where
JavaScript has a trap that makes a predicate hold on anything (`a < b < c`, `x !== []`), it is refused too.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from delegate.judging.checks.predicate import syntax
from delegate.judging.checks.predicate.arrays import ARRAY, CHANGING, OBJECT
from delegate.judging.checks.predicate.budget import MAX_CHARS, MAX_DEPTH, MAX_NODES
from delegate.judging.checks.predicate.builtins import AS_CALLBACKS, CONSTANTS, FUNCTIONS, RESERVED
from delegate.judging.checks.predicate.machine import BINARY, COMPARING
from delegate.judging.checks.predicate.patterns import compile_pattern
from delegate.judging.checks.predicate.problems import PredicateError
from delegate.judging.checks.predicate.show import source as shown
from delegate.judging.checks.predicate.strings import BOOLEAN, NUMBER, STRING
from delegate.judging.checks.predicate.text import unescape, units
from delegate.judging.checks.predicate.tree import LINKS, Tree, child, has_holes, inner, is_optional_link
from delegate.judging.checks.predicate.values import radix_number

if TYPE_CHECKING:
    import tree_sitter

WHOLE = ("output", "$")
"""The names of the whole value."""
CACHED_EXPRESSIONS = 256

_METHODS = frozenset([*STRING, *ARRAY, *OBJECT, *NUMBER, *BOOLEAN, "test"])
_TAKE_FUNCTION = frozenset(name for name, method in ARRAY.items() if "function" in method.takes)
_NEED_FUNCTION = frozenset(name for name, method in ARRAY.items() if method.takes == "function")
_TAKE_PATTERN = frozenset(name for name, method in STRING.items() if "pattern" in method.takes)
_NEED_PATTERN = frozenset(name for name, method in STRING.items() if method.takes == "pattern")
_MAKE_FRESH = frozenset(
    ["concat", "filter", "flat", "flatMap", "map", "reverse", "slice", "sort", "split", "toReversed", "toSorted"]
)
"""Methods whose array nobody else holds, so that it may be sorted."""
_HINTS = {"&": "did you mean `&&`?", "|": "did you mean `||`?"}
_DECIMAL = re.compile(
    r"(?:(?:0|[1-9](?:_?[0-9])*)(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)


@lru_cache(CACHED_EXPRESSIONS)
def parse(expr: str) -> syntax.Node:
    """The expression as nodes. Raises PredicateError naming what isn't allowed, and where."""
    if len(expr) > MAX_CHARS:
        raise PredicateError(f"the expression is longer than {MAX_CHARS:,} characters")
    try:
        source = expr.encode()
    except UnicodeEncodeError:
        raise PredicateError("the expression is not valid Unicode") from None
    root = _parser().parse(source).root_node
    tree = Tree(source)
    if root.has_error:
        raise tree.syntax_error(root)
    return _Builder(tree).build(tree.only_expression(root))


@lru_cache(1)
def _language() -> "tree_sitter.Language":
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Language(tree_sitter_javascript.language())


def _parser() -> "tree_sitter.Parser":
    language = _language()
    import tree_sitter

    return tree_sitter.Parser(language)  # one each time: a parser isn't for two threads


@dataclass(slots=True)
class _Builder:
    """Builds the nodes of one expression. `scope` holds the parameters of the arrow functions around it."""

    tree: Tree
    count: int = 0
    depth: int = 0
    scope: list[str] = field(default_factory=list[str])

    def build(self, node: "tree_sitter.Node") -> syntax.Node:
        while node.type == "parenthesized_expression":
            node = self.tree.one(node)
        rule = _RULES.get(node.type)
        if rule is None:
            raise self.tree.refused(node)
        self.enter(node)
        built = rule(self, node)
        self.depth -= 1
        return built

    def enter(self, node: "tree_sitter.Node") -> None:
        self.count += 1
        self.depth += 1
        if self.count > MAX_NODES:
            raise PredicateError(f"the expression has more than {MAX_NODES:,} parts")
        if self.depth > MAX_DEPTH:
            raise PredicateError(f"the expression nests deeper than {MAX_DEPTH} levels{self.tree.place(node)}")

    # --------------------------------------------------------------------------------------------- names, literals

    def identifier(self, node: "tree_sitter.Node") -> syntax.Node:
        text = self.tree.text(node)
        if "\\" in text:
            raise self.tree.refused(node, "an escape in a name")
        if text in self.scope:
            return syntax.Local(text, text)
        if text in CONSTANTS:
            return syntax.Literal(text, CONSTANTS[text])
        if text in RESERVED:
            raise self.tree.refused(node, f"`{text}` as a value")
        return syntax.Whole(text) if text in WHOLE else syntax.Field(text, units(text))

    def word(self, node: "tree_sitter.Node") -> syntax.Node:
        return syntax.Literal(node.type, {"true": True, "false": False}.get(node.type))

    def number(self, node: "tree_sitter.Node") -> syntax.Node:
        text = self.tree.text(node)
        after = self.tree.source[node.end_byte : node.end_byte + 1].decode(errors="replace")
        if after.isalpha() or after in ("_", "$"):
            raise self.tree.refused(node, "a name that touches a number")
        if _DECIMAL.fullmatch(text):
            return syntax.Literal(text, float(text.replace("_", "")))
        value = radix_number(text)
        if math.isnan(value):
            raise self.tree.refused(node, "this way to write a number")
        return syntax.Literal(text, value)

    def string(self, node: "tree_sitter.Node") -> syntax.Node:
        return syntax.Literal(self.tree.text(node), self.unescaped(node, self.tree.text(node)[1:-1]))

    def unescaped(self, node: "tree_sitter.Node", raw: str) -> str:
        value = unescape(raw)
        if value is None:
            raise self.tree.refused(node, "an escape in a text")
        return value

    def template(self, node: "tree_sitter.Node") -> syntax.Node:
        parts: list[str | syntax.Node] = []
        at = node.start_byte + 1
        for part in node.children:
            if part.type == "template_substitution":
                parts += self.between(node, at, part.start_byte), self.build(self.tree.one(part))
                at = part.end_byte
        parts.append(self.between(node, at, node.end_byte - 1))
        return syntax.Template(self.tree.text(node), tuple(parts))

    def between(self, node: "tree_sitter.Node", start: int, end: int) -> str:
        return self.unescaped(node, self.tree.source[start:end].decode().replace("\r\n", "\n").replace("\r", "\n"))

    def array(self, node: "tree_sitter.Node") -> syntax.Node:
        if has_holes(node):
            raise self.tree.refused(node, "an array with holes")
        return syntax.ArrayOf(self.tree.text(node), tuple(self.item(part) for part in inner(node)))

    def item(self, node: "tree_sitter.Node") -> syntax.Node:
        if node.type != "spread_element":
            return self.build(node)
        return syntax.Spread(self.tree.text(node), self.build(self.tree.one(node)))

    def object(self, node: "tree_sitter.Node") -> syntax.Node:
        return syntax.ObjectOf(self.tree.text(node), tuple(self.entry(part) for part in inner(node)))

    def entry(self, node: "tree_sitter.Node") -> "tuple[syntax.Node, syntax.Node] | syntax.Spread":
        if node.type == "spread_element":
            return syntax.Spread(self.tree.text(node), self.build(self.tree.one(node)))
        if node.type == "shorthand_property_identifier":
            return syntax.Literal(self.tree.text(node), units(self.tree.text(node))), self.identifier(node)
        if node.type != "pair":
            raise self.tree.refused(node)
        key = self.key(child(node, "key"))
        if isinstance(key, syntax.Literal) and key.value == "__proto__":
            raise self.tree.refused(node, "`__proto__`")
        return key, self.build(child(node, "value"))

    def key(self, node: "tree_sitter.Node") -> syntax.Node:
        if node.type == "computed_property_name":
            return self.build(self.tree.one(node))
        if node.type == "property_identifier":
            if "\\" in self.tree.text(node):
                raise self.tree.refused(node, "an escape in a name")
            return syntax.Literal(self.tree.text(node), units(self.tree.text(node)))
        if node.type not in ("string", "number"):
            raise self.tree.refused(node)
        return self.build(node)

    # -------------------------------------------------------------------------------------------------- operators

    def unary(self, node: "tree_sitter.Node") -> syntax.Node:
        op = self.tree.text(child(node, "operator"))
        if op not in ("!", "-", "+", "typeof"):
            raise self.tree.refused(node, f"`{op}`")
        return syntax.Unary(self.tree.text(node), op, self.build(child(node, "argument")))

    def binary(self, node: "tree_sitter.Node") -> syntax.Node:
        op, left, right = self.tree.text(child(node, "operator")), child(node, "left"), child(node, "right")
        if op in ("&&", "||", "??"):
            return syntax.Logic(self.tree.text(node), op, tuple(self.build(part) for part in self.operands(node, op)))
        if op not in BINARY:
            raise self.tree.refused(node, f"the operator `{op}`", _HINTS.get(op))
        if op == "**" and left.type == "unary_expression":
            raise self.tree.refused(node, "a sign before `**` without parentheses")
        if op in COMPARING:
            self.check_comparison(node, op, (left, right))
        return syntax.Binary(self.tree.text(node), op, self.build(left), self.build(right))

    def operands(self, node: "tree_sitter.Node", op: str) -> "list[tree_sitter.Node]":
        """The operands of a run of the same operator; its left spine is walked, so that long runs aren't deep."""
        operands: list[tree_sitter.Node] = []
        while self.operator(node) == op:
            right = child(node, "right")
            self.check_mix(op, right)
            operands.append(right)
            node = child(node, "left")
            self.check_mix(op, node)
        return [node, *reversed(operands)]

    def operator(self, node: "tree_sitter.Node") -> str | None:
        return self.tree.text(child(node, "operator")) if node.type == "binary_expression" else None

    def check_mix(self, op: str, operand: "tree_sitter.Node") -> None:
        other = self.operator(operand)
        if other != op and other in ("&&", "||", "??") and "??" in (op, other):
            raise self.tree.refused(operand, f"`{other}` beside `{op}` without parentheses")

    def check_comparison(self, node: "tree_sitter.Node", op: str, sides: "Sequence[tree_sitter.Node]") -> None:
        for side in sides:
            if self.operator(side) in COMPARING:
                raise self.tree.refused(node, "a comparison of a comparison", "write `a < b && b < c`")
            while side.type == "parenthesized_expression":
                side = self.tree.one(side)
            if side.type in ("array", "object") and op != "in":
                raise self.tree.refused(node, f"`{op}` with an {side.type} literal", "it never equals anything")

    def conditional(self, node: "tree_sitter.Node") -> syntax.Node:
        test, yes, no = (self.build(child(node, name)) for name in ("condition", "consequence", "alternative"))
        return syntax.Conditional(self.tree.text(node), test, yes, no)

    # ------------------------------------------------------------------------------------------ members and calls

    def chain(self, node: "tree_sitter.Node") -> syntax.Node:
        if constant := self.constant(node):
            return constant
        built = self.link(node)
        return syntax.Chain(built.text, built) if self.is_optional(node) else built

    def constant(self, node: "tree_sitter.Node") -> syntax.Node | None:
        name = self.builtin_name(node)
        return syntax.Literal(name, CONSTANTS[name]) if name in CONSTANTS else None

    def is_optional(self, node: "tree_sitter.Node") -> bool:
        """Whether a `?.` stands anywhere in the chain that ends with `node`."""
        while node.type in LINKS:
            if is_optional_link(node):
                return True
            node = child(node, "function" if node.type == "call_expression" else "object")
        return False

    def link(self, node: "tree_sitter.Node") -> syntax.Node:
        if node.type == "call_expression":
            return self.call(node)
        of = self.object_of(node)
        if node.type == "subscript_expression":
            return syntax.Member(self.tree.text(node), of, self.build(child(node, "index")), is_optional_link(node))
        return syntax.Member(self.tree.text(node), of, self.property(node), is_optional_link(node))

    def object_of(self, node: "tree_sitter.Node") -> syntax.Node:
        """What `node` is a member of: one more link of the same chain, or something of its own."""
        of = child(node, "object")
        if of.type not in LINKS or self.constant(of):
            return self.build(of)
        self.enter(of)
        built = self.link(of)
        self.depth -= 1
        return built

    def property(self, node: "tree_sitter.Node") -> syntax.Literal:
        key = self.key(child(node, "property"))
        assert isinstance(key, syntax.Literal)
        return key

    def call(self, node: "tree_sitter.Node") -> syntax.Node:
        callee, arguments = child(node, "function"), child(node, "arguments")
        if arguments.type != "arguments":
            raise self.tree.refused(node, "a tagged template")
        name = self.builtin_name(callee)
        if name in FUNCTIONS and not is_optional_link(node):
            return syntax.BuiltinCall(self.tree.text(node), name, self.arguments(arguments))
        if name is not None or callee.type != "member_expression":
            raise self.tree.refused(node, f"a call of `{shown(self.tree.text(callee))}`")
        return self.method_call(node, callee, arguments)

    def builtin_name(self, node: "tree_sitter.Node") -> str | None:
        """`Math.max` for such a node; None where the name is data."""
        of = child(node, "object") if node.type == "member_expression" else node
        name = self.tree.text(of) if of.type == "identifier" else ""
        if name in self.scope or name not in RESERVED:
            return None
        return re.sub(r"\s", "", self.tree.text(node))

    def method_call(
        self, node: "tree_sitter.Node", callee: "tree_sitter.Node", arguments: "tree_sitter.Node"
    ) -> syntax.Node:
        method = str(self.property(callee).value)
        if method not in _METHODS:
            raise self.tree.refused(node, f"the method `.{method}()`")
        of = child(callee, "object")
        if of.type == "regex" or method == "test":
            return self.pattern_test(node, of, arguments, method)
        if method in CHANGING and not _is_fresh(of, self):
            raise self.tree.refused(node, f"`.{method}()`, which changes the array,", f"write `.slice().{method}()`")
        this = self.object_of(callee)
        args = self.arguments(arguments, method)
        return syntax.Call(self.tree.text(node), this, method, args, is_optional_link(callee), is_optional_link(node))

    def pattern_test(
        self, node: "tree_sitter.Node", of: "tree_sitter.Node", arguments: "tree_sitter.Node", method: str
    ) -> syntax.Node:
        args = self.arguments(arguments)
        if of.type != "regex" or method != "test" or len(args) != 1 or isinstance(args[0], syntax.Spread):
            raise self.tree.refused(node, "a regular expression other than in `/…/.test(text)`")
        return syntax.PatternTest(self.tree.text(node), self.pattern(of).pattern, args[0])

    def pattern(self, node: "tree_sitter.Node") -> syntax.PatternArg:
        flags = node.child_by_field_name("flags")
        pattern = compile_pattern(self.tree.text(child(node, "pattern")), self.tree.text(flags) if flags else "")
        return syntax.PatternArg(self.tree.text(node), pattern)

    def arguments(self, node: "tree_sitter.Node", method: str = "") -> tuple[syntax.Node, ...]:
        nodes = inner(node)
        first = nodes[0] if nodes else node
        if method in _NEED_FUNCTION and not self.is_function(first):
            raise self.tree.refused(first, f"`.{method}()` without an arrow function")
        if method in _NEED_PATTERN and first.type != "regex":
            raise self.tree.refused(first, f"`.{method}()` without a regular expression")
        return tuple(self.argument(part, method if n == 0 else "") for n, part in enumerate(nodes))

    def is_function(self, node: "tree_sitter.Node") -> bool:
        return node.type == "arrow_function" or self.builtin_name(node) in AS_CALLBACKS

    def argument(self, node: "tree_sitter.Node", method: str) -> syntax.Node:
        if method in _TAKE_FUNCTION and node.type == "arrow_function":
            return self.arrow(node)
        if method in _TAKE_FUNCTION and (name := self.builtin_name(node)) in AS_CALLBACKS:
            return syntax.BuiltinArg(self.tree.text(node), str(name))
        if method in _TAKE_PATTERN and node.type == "regex":
            return self.pattern(node)
        return self.item(node)

    # ------------------------------------------------------------------------------------------- arrow functions

    def arrow(self, node: "tree_sitter.Node") -> syntax.Node:
        self.enter(node)
        if any(part.type == "async" for part in node.children):
            raise self.tree.refused(node, "`async`")
        single = node.child_by_field_name("parameter")
        nodes = [single] if single else inner(child(node, "parameters"))
        outside, before = list(self.scope), self.count
        params = tuple(self.param(part) for part in nodes)
        names = self.scope[len(outside) :]
        if len(set(names)) < len(names):
            raise self.tree.refused(node, "a parameter named twice")
        body = self.build(self.body(child(node, "body")))
        self.scope = outside
        self.depth -= 1
        return syntax.Arrow(self.tree.text(node), params, body, self.count - before + 1)

    def body(self, node: "tree_sitter.Node") -> "tree_sitter.Node":
        """The expression of a body; `{ return x }` is one too."""
        if node.type != "statement_block":
            return node
        statement = self.tree.one(node)
        if statement.type != "return_statement":
            raise self.tree.refused(statement)
        return self.tree.one(statement)

    def param(self, node: "tree_sitter.Node") -> syntax.Param:
        if node.type in ("identifier", "shorthand_property_identifier_pattern"):
            return self.named(node)
        self.enter(node)
        if node.type == "object_pattern":
            param = syntax.ObjectParam(self.tree.text(node), tuple(self.param_field(part) for part in inner(node)))
        elif node.type == "array_pattern" and not has_holes(node):
            param = syntax.ArrayParam(self.tree.text(node), tuple(self.param(part) for part in inner(node)))
        else:
            raise self.tree.refused(node)
        self.depth -= 1
        return param

    def named(self, node: "tree_sitter.Node") -> str:
        name = self.tree.text(node)
        if name in RESERVED or "\\" in name:
            raise self.tree.refused(node, f"a parameter named `{name}`")
        self.scope.append(name)
        return name

    def param_field(self, node: "tree_sitter.Node") -> tuple[str, syntax.Param]:
        if node.type == "shorthand_property_identifier_pattern":
            return units(self.tree.text(node)), self.named(node)
        if node.type != "pair_pattern":
            raise self.tree.refused(node)
        key = self.key(child(node, "key"))
        if not isinstance(key, syntax.Literal) or not isinstance(key.value, str):
            raise self.tree.refused(node)
        return key.value, self.param(child(node, "value"))


def _is_fresh(node: "tree_sitter.Node", builder: _Builder) -> bool:
    """Whether `node` is an array that was made on the spot."""
    while node.type == "parenthesized_expression":
        node = builder.tree.one(node)
    if node.type == "array":
        return True
    callee = node.child_by_field_name("function") if node.type == "call_expression" else None
    if callee is None or callee.type != "member_expression":
        return False
    name = builder.builtin_name(callee)
    return (name or "").startswith("Object.") or builder.tree.text(child(callee, "property")) in _MAKE_FRESH


_Rule = Callable[[_Builder, "tree_sitter.Node"], syntax.Node]
_RULES: dict[str, _Rule] = {
    "array": _Builder.array,
    "binary_expression": _Builder.binary,
    "call_expression": _Builder.chain,
    "false": _Builder.word,
    "identifier": _Builder.identifier,
    "member_expression": _Builder.chain,
    "null": _Builder.word,
    "number": _Builder.number,
    "object": _Builder.object,
    "string": _Builder.string,
    "subscript_expression": _Builder.chain,
    "template_string": _Builder.template,
    "ternary_expression": _Builder.conditional,
    "true": _Builder.word,
    "unary_expression": _Builder.unary,
    "undefined": _Builder.identifier,
}
