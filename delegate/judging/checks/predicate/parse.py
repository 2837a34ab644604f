"""Reads an expression with tree-sitter, without evaluating it."""

from dataclasses import dataclass
from functools import lru_cache

import tree_sitter
import tree_sitter_javascript

from delegate.errors import DelegateError

MAX_CHARS = 8_192
MAX_MESSAGE_CHARS = 700
_ASSIGNMENTS = ("assignment_expression", "augmented_assignment_expression", "update_expression")
_NOT_SHOWN = ("number", "string", "true", "false", "null", "undefined", "regex", "arrow_function", "spread_element")


class PredicateError(DelegateError):
    """The expression can't be decided: a syntax error, or a limit. It is a fault of the criterion, and never a pass."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """A message without line breaks, cut short, that can be written as UTF-8; a lone surrogate becomes `?`."""
    line = " ".join(text.split())
    line = line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"
    return line.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the conditions that `&&` connects, and the parts whose values explain why it doesn't hold."""

    source: str
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """One pure expression, and its conditions."""

    source: str
    conditions: tuple[Condition, ...]


@lru_cache(256)
def parse(expr: str) -> Expression:
    """Read an expression. Raises PredicateError where a text isn't one."""
    if len(expr) > MAX_CHARS:
        raise PredicateError(f"the expression is longer than {MAX_CHARS:,} characters")
    expr = expr.rstrip().removesuffix(";")
    try:
        source = f"({expr}\n)".encode()  # in parentheses, so that `{ a: 1 }` is an object and not a block
    except UnicodeEncodeError:
        raise PredicateError("the expression is not valid Unicode") from None
    root = tree_sitter.Parser(_language()).parse(source).root_node  # a parser isn't for two threads
    _refuse_other_than_values(root, source)
    inside = _parts(root)
    if len(inside) != 1 or inside[0].type != "expression_statement":
        raise PredicateError("it is not one expression")
    (whole,) = _parts(inside[0])
    if whole.type != "parenthesized_expression" or whole.end_byte < len(source):
        raise PredicateError("it is not one expression: its parentheses don't match")
    conjuncts: list[tree_sitter.Node] = []
    node = _bare(whole)
    while _operator(node) == "&&":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        assert left is not None
        assert right is not None
        conjuncts.append(_bare(right))
        node = _bare(left)
    conditions = (
        Condition(_text(condition, source), tuple(_text(part, source) for part in _operands(condition)))
        for condition in (node, *reversed(conjuncts))
    )
    return Expression(expr, tuple(conditions))


@lru_cache(1)
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_javascript.language())


def _refuse_other_than_values(root: tree_sitter.Node, source: bytes) -> None:
    """Refuse what doesn't parse, and assignments, since `ok = true` is true whatever `ok` was."""
    if root.has_error:
        excerpt = " ".join(_text(root, source)[1:].split())[:60]
        raise PredicateError(f"syntax error{_place(_first_error(root), source)}, in `{excerpt}`")
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.type in _ASSIGNMENTS:
            raise PredicateError(f"assignment is not allowed{_place(node, source)}: compare with `===`")
        nodes += node.named_children


def _first_error(node: tree_sitter.Node) -> tree_sitter.Node:
    while not (node.is_error or node.is_missing):
        wrong = next((child for child in node.children if child.has_error or child.is_missing), None)
        if wrong is None:
            break
        node = wrong
    return node


def _place(node: tree_sitter.Node, source: bytes) -> str:
    """Where a part stands, for the end of a message."""
    before = source[1 : max(node.start_byte, 1)].decode(errors="replace")
    return f" (at character {len(before) + 1}: `{_text(node, source)[:60]}`)"


def _parts(node: tree_sitter.Node) -> list[tree_sitter.Node]:
    return [child for child in node.named_children if child.type != "comment"]


def _bare(node: tree_sitter.Node) -> tree_sitter.Node:
    """The node without the parentheses around it."""
    while node.type == "parenthesized_expression" and len(parts := _parts(node)) == 1:
        (node,) = parts
    return node


def _operator(node: tree_sitter.Node) -> str:
    operator = node.child_by_field_name("operator") if node.type == "binary_expression" else None
    return operator.type if operator is not None else ""


def _operands(node: tree_sitter.Node) -> list[tree_sitter.Node]:
    """The parts of a condition whose values are of interest: of `name.startsWith(start)`, both names."""
    match node.type:
        case "binary_expression":
            parts = [node.child_by_field_name("left"), node.child_by_field_name("right")]
        case "unary_expression":
            parts = [node.child_by_field_name("argument")]
        case "call_expression":
            function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            parts = [function.child_by_field_name("object") if function is not None else None]
            parts += _parts(arguments) if arguments is not None else []
        case _:
            parts = []
    return [part for part in parts if part is not None and part.type not in _NOT_SHOWN]


def _text(node: tree_sitter.Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode(errors="replace")
