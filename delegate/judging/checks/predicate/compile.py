"""Compiles an expression to JavaScript that can only compute.

tree-sitter parses the expression, and an allow-list turns its tree into code that calls the guards in `runtime.js`.
What isn't on the list is refused by name, wherever it stands: also in a branch that would never be evaluated. Where
JavaScript has a trap that makes a predicate hold on anything (`a < b < c`, `x !== []`), that is refused too.

No text of the expression reaches the engine as code: strings, patterns and names go in as JSON strings, parameters get
new names, and numbers are copied in a known notation only.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from delegate.judging.checks.predicate import builtins
from delegate.judging.checks.predicate.errors import PredicateError
from delegate.judging.checks.predicate.literals import check_regex, is_number, unescape
from delegate.judging.checks.predicate.tree import LINKS, Tree, child, has_holes, inner, is_optional

if TYPE_CHECKING:
    import tree_sitter

MAX_CHARS = 8_192
MAX_PARTS = 2_000
MAX_DEPTH = 80

_COMPARING = frozenset({"===", "!==", "==", "!=", "<", "<=", ">", ">=", "in"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "**"})
_GUARDED = {"===": "same", "!==": "!same", "==": "equal", "!=": "!equal", "+": "plus", "in": "has"}
_LOGIC = ("&&", "||", "??")
_TAKE_FUNCTION, _NEED_FUNCTION = builtins.methods_that_take("fc"), builtins.methods_that_take("f")
_TAKE_PATTERN, _NEED_PATTERN = builtins.methods_that_take("pq"), builtins.methods_that_take("p")


@lru_cache(256)
def compile_expression(expr: str) -> bytes:
    """One line of JavaScript in ASCII. Raises PredicateError naming what isn't allowed, and where."""
    if len(expr) > MAX_CHARS:
        raise PredicateError(f"the expression is longer than {MAX_CHARS:,} characters")
    try:
        compiler = _Compiler(Tree(expr.encode()))
        root = compiler.compile(compiler.tree.expression())
    except UnicodeEncodeError:
        raise PredicateError("the expression is not valid Unicode") from None
    except RecursionError:
        raise PredicateError("the expression nests too deep for where it is evaluated") from None
    return f"run({json.dumps(compiler.nodes)},()=>{root.code})".encode()


@dataclass(frozen=True, slots=True)
class _Part:
    """A compiled part of the expression: its number among the nodes that an explanation refers to, and its code."""

    id: int
    code: str


@dataclass(slots=True)
class _Compiler:
    """Compiles one expression. `scope` has the parameters of the arrow functions around, by their names."""

    tree: Tree
    nodes: list[list[object]] = field(default_factory=list[list[object]])
    scope: dict[str, str] = field(default_factory=dict[str, str])
    count: int = 0
    depth: int = 0

    def compile(self, node: "tree_sitter.Node", rule: "_Rule | None" = None) -> _Part:
        """A part of the expression, one level deeper than what it belongs to."""
        node = self.tree.bare(node)
        rule = rule or _RULES.get(node.type)
        if rule is None:
            raise self.tree.refused(node)
        self.count += 1
        self.depth += 1
        if self.count > MAX_PARTS:
            raise PredicateError(f"the expression has more than {MAX_PARTS:,} parts")
        if self.depth > MAX_DEPTH:
            raise PredicateError(f"the expression nests deeper than {MAX_DEPTH} levels{self.tree.place(node)}")
        part = rule(self, node)
        self.depth -= 1
        return part

    def part(self, node: "tree_sitter.Node", kind: str, code: str, *details: object) -> _Part:
        """A part whose last value is kept, so that `runtime.js` can explain it as a node of that kind."""
        self.nodes.append([kind, self.tree.shown(node), *details])
        id = len(self.nodes) - 1
        return _Part(id, f"keep({id},{code})")

    # --------------------------------------------------------------------------------------------- names, literals

    def name(self, node: "tree_sitter.Node") -> str:
        text = self.tree.text(node)
        if "\\" in text:
            raise self.tree.refused(node, "an escape in a name")
        return text

    def identifier(self, node: "tree_sitter.Node") -> _Part:
        name = self.name(node)
        if name in self.scope:
            return self.part(node, "plain", self.scope[name])
        if name in builtins.CONSTANTS:
            return self.part(node, "literal", name)
        if name in builtins.RESERVED:
            raise self.tree.refused(node, f"`{name}` as a value")
        return self.part(node, "plain", "whole" if name in ("output", "$") else f"field({json.dumps(name)})")

    def literal(self, node: "tree_sitter.Node") -> _Part:
        if node.type == "string":
            return self.part(node, "literal", self.string(node, node.start_byte + 1, node.end_byte - 1))
        text = self.tree.text(node)
        if node.type == "number":
            after = self.tree.source[node.end_byte : node.end_byte + 1].decode(errors="replace")
            if after.isalpha() or after in ("_", "$"):
                raise self.tree.refused(node, "a name that touches a number")
            if not is_number(text):
                raise self.tree.refused(node, "this way to write a number")
        return self.part(node, "literal", text)

    def string(self, node: "tree_sitter.Node", start: int, end: int) -> str:
        """The text that the source between two places in `node` stands for, as JSON."""
        value = unescape(self.tree.source[start:end].decode().replace("\r\n", "\n").replace("\r", "\n"))
        if value is None:
            raise self.tree.refused(node, "an escape in a text")
        return json.dumps(value)

    def template(self, node: "tree_sitter.Node") -> _Part:
        pieces: list[str] = []
        at = node.start_byte + 1
        for hole in (part for part in node.children if part.type == "template_substitution"):
            value = self.compile(self.tree.one(hole))
            pieces += self.string(node, at, hole.start_byte), f"`${{{value.code}}}`"
            at = hole.end_byte
        return self.part(node, "plain", f"({'+'.join([*pieces, self.string(node, at, node.end_byte - 1)])})")

    def array(self, node: "tree_sitter.Node") -> _Part:
        if has_holes(node):
            raise self.tree.refused(node, "an array with holes")
        return self.part(node, "plain", f"[{','.join(map(self.item, inner(node)))}]")

    def item(self, node: "tree_sitter.Node") -> str:
        if node.type != "spread_element":
            return self.compile(node).code
        of = self.compile(self.tree.one(node))
        return f"...items({of.id},{of.code})"

    def object(self, node: "tree_sitter.Node") -> _Part:
        return self.part(node, "plain", f"({{{','.join(map(self.entry, inner(node)))}}})")

    def entry(self, node: "tree_sitter.Node") -> str:
        if node.type == "spread_element":
            of = self.compile(self.tree.one(node))
            return f"...fields({of.id},{of.code})"
        if node.type == "shorthand_property_identifier":
            return f"[{json.dumps(self.tree.text(node))}]:{self.identifier(node).code}"
        if node.type != "pair":
            raise self.tree.refused(node)
        key = self.key(child(node, "key"))
        if key == '"__proto__"':
            raise self.tree.refused(node, "`__proto__`")
        return f"[{key}]:{self.compile(child(node, 'value')).code}"  # a computed key never sets the prototype

    def key(self, node: "tree_sitter.Node") -> str:
        """The code of a key, a JSON string unless it is computed."""
        if node.type == "computed_property_name":
            return self.compile(self.tree.one(node)).code
        if node.type == "property_identifier":
            return json.dumps(self.name(node))
        if node.type == "string":
            return self.string(node, node.start_byte + 1, node.end_byte - 1)
        if node.type == "number":
            return self.literal(node).code
        raise self.tree.refused(node)

    # -------------------------------------------------------------------------------------------------- operators

    def unary(self, node: "tree_sitter.Node") -> _Part:
        operator, argument = self.tree.text(child(node, "operator")), self.tree.bare(child(node, "argument"))
        if operator not in ("!", "-", "+", "typeof"):
            raise self.tree.refused(node, f"`{operator}`")
        of = self.compile(argument)
        if operator == "!":
            return self.part(node, "not", f"!{of.code}", of.id)
        is_name = operator == "typeof" and argument.type == "identifier"  # which needn't be there
        return self.part(node, "plain", f"{operator} {of.code.replace('field(', 'known(') if is_name else of.code}")

    def binary(self, node: "tree_sitter.Node") -> _Part:
        operator = self.operator(node)
        if operator in _LOGIC:
            parts = [self.compile(part) for part in self.operands(node, operator)]
            code = operator.join(part.code for part in parts)
            return self.part(node, "logic", f"({code})", operator, [part.id for part in parts])
        left, right = child(node, "left"), child(node, "right")
        if operator not in _COMPARING | _ARITHMETIC:
            hint = f"did you mean `{operator * 2}`?" if operator in ("&", "|") else None
            raise self.tree.refused(node, f"the operator `{operator}`", hint)
        if operator == "**" and left.type == "unary_expression":
            raise self.tree.refused(node, "a sign before `**` without parentheses")
        for side in (left, right) if operator in _COMPARING else ():
            if self.operator(side) in _COMPARING:
                raise self.tree.refused(node, "a comparison of a comparison", "write `a < b && b < c`")
            if (bare := self.tree.bare(side)).type in ("array", "object") and operator != "in":
                raise self.tree.refused(node, f"`{operator}` with an {bare.type} literal", "it never equals anything")
        one, two = self.compile(left), self.compile(right)
        guard = _GUARDED.get(operator)
        code = f"{guard}({one.code},{two.code},{two.id})" if guard else f"({one.code}{operator}{two.code})"
        return self.part(node, "compare" if operator in _COMPARING else "plain", code, one.id, two.id)

    def operator(self, node: "tree_sitter.Node") -> str:
        return self.tree.text(child(node, "operator")) if node.type == "binary_expression" else ""

    def operands(self, node: "tree_sitter.Node", operator: str) -> "list[tree_sitter.Node]":
        """The operands of a run of the same operator; its left spine is walked, so that long runs aren't deep."""
        operands: list[tree_sitter.Node] = []
        while self.operator(node) == operator:
            sides = child(node, "left"), child(node, "right")
            for side in sides:
                other = self.operator(side)
                if other != operator and other in _LOGIC and "??" in (operator, other):
                    raise self.tree.refused(side, f"`{other}` next to `{operator}` without parentheses")
            node = sides[0]
            operands.insert(0, sides[1])
        return [node, *operands]

    def conditional(self, node: "tree_sitter.Node") -> _Part:
        test, yes, no = (self.compile(child(node, name)) for name in ("condition", "consequence", "alternative"))
        return self.part(node, "choice", f"({test.code}?{yes.code}:{no.code})", test.id, yes.id, no.id)

    # ------------------------------------------------------------------------------------------ members and calls

    def chain(self, node: "tree_sitter.Node") -> _Part:
        """A chain such as `a?.b.c()`; a `?.` ends the whole chain early."""
        last, link = self.link(node), node
        while link.type in LINKS:
            if is_optional(link):
                return self.part(node, "chain", f"end({last.code})", last.id)
            link = child(link, "function" if link.type == "call_expression" else "object")
        return last

    def link(self, node: "tree_sitter.Node") -> _Part:
        if node.type == "call_expression":
            return self.call(node)
        if (name := self.builtin_name(node)) in builtins.CONSTANTS:
            return self.part(node, "literal", str(name))
        of = self.owner(node)
        if node.type == "member_expression":
            key = self.key(child(node, "property"))
        else:
            key = f"()=>{self.compile(child(node, 'index')).code}"
        return self.part(node, "member", f"prop({of.id},{of.code},{key},{int(is_optional(node))})", of.id)

    def owner(self, node: "tree_sitter.Node") -> _Part:
        """What `node` is a member of: one more link of the same chain, or a value of its own."""
        of = child(node, "object")
        return self.compile(of, _Compiler.link if of.type in LINKS else None)

    def call(self, node: "tree_sitter.Node") -> _Part:
        callee, arguments = child(node, "function"), child(node, "arguments")
        if arguments.type != "arguments":
            raise self.tree.refused(node, "a tagged template")
        name = self.builtin_name(callee)
        if name in builtins.FUNCTIONS and not is_optional(node):
            return self.part(node, "plain", f"{_function(name)}({','.join(map(self.item, inner(arguments)))})")
        if name is not None or callee.type != "member_expression":
            raise self.tree.refused(node, f"a call of `{self.tree.shown(callee)}`")
        method, of = self.name(child(callee, "property")), child(callee, "object")
        tables = {kind: methods for kind, methods in builtins.METHODS.items() if method in methods}
        if not tables and method != "test":
            raise self.tree.refused(node, f"the method `.{method}()`")
        if of.type == "regex" or method == "test":
            return self.pattern_test(node, of, method, inner(arguments))
        if method in builtins.CHANGING and not self.is_fresh(of):
            raise self.tree.refused(node, f"`.{method}()`, which changes the array,", f"write `.slice().{method}()`")
        this = self.owner(callee)
        values, body = self.arguments(arguments, method)
        signatures = json.dumps({kind: builtins.signature(methods[method]) for kind, methods in tables.items()})
        optional = f"{int(is_optional(callee))},{int(is_optional(node))}"
        code = f"call({this.id},{this.code},{json.dumps(method)},{signatures},()=>[{values}],{optional})"
        return self.part(node, "call", code, this.id, method, body)

    def builtin_name(self, node: "tree_sitter.Node") -> str | None:
        """`Math.max` for such a node; None where the name is data."""
        of = child(node, "object") if node.type == "member_expression" else node
        name = self.tree.text(of) if of.type == "identifier" else ""
        if name in self.scope or name not in builtins.RESERVED:
            return None
        return re.sub(r"\s", "", self.tree.text(node))

    def is_fresh(self, node: "tree_sitter.Node") -> bool:
        """Whether `node` is an array that was made on the spot."""
        node = self.tree.bare(node)
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        if callee is None or callee.type != "member_expression":
            return node.type == "array"
        is_of_object = (self.builtin_name(callee) or "").startswith("Object.")
        return is_of_object or self.tree.text(child(callee, "property")) in builtins.MAKING_ARRAYS

    def pattern_test(
        self, node: "tree_sitter.Node", of: "tree_sitter.Node", method: str, arguments: "list[tree_sitter.Node]"
    ) -> _Part:
        types = [argument.type for argument in arguments]
        if of.type != "regex" or method != "test" or len(types) != 1 or "spread_element" in types:
            raise self.tree.refused(node, "a regular expression other than in `/…/.test(text)`")
        value = self.compile(arguments[0])
        return self.part(node, "test", f"test({value.id},{self.pattern(of)},{value.code})", value.id)

    def pattern(self, node: "tree_sitter.Node") -> str:
        source, flags = self.tree.text(child(node, "pattern")), node.child_by_field_name("flags")
        letters = self.tree.text(flags) if flags else ""
        check_regex(source, letters)
        return f"new RegExp({json.dumps(source)},{json.dumps(letters)})"

    def arguments(self, node: "tree_sitter.Node", method: str) -> tuple[str, int | None]:
        """The code of the arguments, and the number of the body where the first one is an arrow function."""
        nodes, body = inner(node), None
        first = nodes[0] if nodes else node
        builtin = self.builtin_name(first) or ""
        is_function = first.type == "arrow_function" or builtin in builtins.AS_CALLBACKS
        if method in _NEED_FUNCTION and not is_function:
            raise self.tree.refused(first, f"`.{method}()` without an arrow function")
        if method in _NEED_PATTERN and first.type != "regex":
            raise self.tree.refused(first, f"`.{method}()` without a regular expression")
        if method in _TAKE_FUNCTION and first.type == "arrow_function":
            arrow = self.compile(first, _Compiler.arrow)
            codes, body = [arrow.code], arrow.id
        elif method in _TAKE_FUNCTION and is_function:
            codes = [f"v=>{_function(builtin)}(v)"]
        elif method in _TAKE_PATTERN and first.type == "regex":
            codes = [self.pattern(first)]
        else:
            codes = [self.item(part) for part in nodes[:1]]
        return ",".join([*codes, *map(self.item, nodes[1:])]), body

    # ------------------------------------------------------------------------------------------- arrow functions

    def arrow(self, node: "tree_sitter.Node") -> _Part:
        """An arrow function; the number is that of its body."""
        if any(part.type == "async" for part in node.children):
            raise self.tree.refused(node, "`async`")
        outside, self.scope = self.scope, dict(self.scope)
        single = node.child_by_field_name("parameter")
        names, taken = set[str](), list[str]()
        params = [single] if single else inner(child(node, "parameters"))
        variables = ",".join([self.param(param, names, taken) for param in params])
        body = child(node, "body")
        if body.type == "statement_block":  # `{ return x }` is an expression too
            statement = self.tree.one(body)
            if statement.type != "return_statement":
                raise self.tree.refused(statement)
            body = self.tree.one(statement)
        part = self.compile(body)
        self.scope = outside
        return _Part(part.id, f"({variables})=>{{{''.join(taken)}return {part.code}}}")

    def param(self, node: "tree_sitter.Node", names: set[str], taken: list[str]) -> str:
        """The variable of a parameter; what a pattern takes out of it is added to `taken`."""
        variable = f"v{node.start_byte}"
        if node.type in ("identifier", "shorthand_property_identifier_pattern"):
            name = self.name(node)
            if name in builtins.RESERVED:
                raise self.tree.refused(node, f"a parameter named `{name}`")
            if name in names:
                raise self.tree.refused(node, "a parameter named twice")
            names.add(name)
            self.scope[name] = variable
        elif node.type == "object_pattern" or (node.type == "array_pattern" and not has_holes(node)):
            pattern = json.dumps(self.tree.shown(node))
            for n, part in enumerate(inner(node)):
                key, inside = (str(n), part) if node.type == "array_pattern" else self.param_field(part)
                taken.append(f"const v{inside.start_byte}=take({pattern},{variable},{key});")
                self.param(inside, names, taken)
        else:
            raise self.tree.refused(node)
        return variable

    def param_field(self, node: "tree_sitter.Node") -> "tuple[str, tree_sitter.Node]":
        if node.type == "shorthand_property_identifier_pattern":
            return json.dumps(self.name(node)), node
        key = self.key(child(node, "key")) if node.type == "pair_pattern" else ""
        if not key.startswith('"'):
            raise self.tree.refused(node)
        return key, child(node, "value")


def _function(name: str) -> str:
    """The code of a built-in function whose arguments are checked."""
    return f"builtin({json.dumps(name)},{json.dumps(builtins.signature(builtins.FUNCTIONS[name]))},{name})"


_Rule = Callable[[_Compiler, "tree_sitter.Node"], _Part]
_RULES: dict[str, _Rule] = {
    "array": _Compiler.array,
    "binary_expression": _Compiler.binary,
    "identifier": _Compiler.identifier,
    "object": _Compiler.object,
    "template_string": _Compiler.template,
    "ternary_expression": _Compiler.conditional,
    "unary_expression": _Compiler.unary,
    "undefined": _Compiler.identifier,
    **dict.fromkeys(LINKS, _Compiler.chain),
    **dict.fromkeys(("false", "null", "number", "string", "true"), _Compiler.literal),
}
