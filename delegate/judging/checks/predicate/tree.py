"""What is asked of a syntax tree: its source, its parts without comments, and where a refused part stands."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from delegate.judging.checks.predicate.errors import PredicateError, clip

if TYPE_CHECKING:
    import tree_sitter

LINKS = ("member_expression", "subscript_expression", "call_expression")
"""Types of the links of a chain such as `a.b[0].trim()`."""
_NAMES = {
    **dict.fromkeys(("assignment_expression", "augmented_assignment_expression", "update_expression"), "assignment"),
    **dict.fromkeys(("lexical_declaration", "variable_declaration"), "a declaration"),
    **{f"{word}_expression": f"`{word}`" for word in ("await", "function", "new", "yield")},
    **dict.fromkeys(("class", "class_declaration"), "`class`"),
    "statement_block": "a block",
    "sequence_expression": "`,` between expressions",
}
_HINTS = {"assignment_expression": "compare with `===`", "function_expression": "write an arrow function"}


@lru_cache(1)
def _language() -> "tree_sitter.Language":
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Language(tree_sitter_javascript.language())


@dataclass(frozen=True, slots=True)
class Tree:
    """The source of a syntax tree, in bytes as tree-sitter counts."""

    source: bytes

    def expression(self) -> "tree_sitter.Node":
        """Parse the source: the one expression that it consists of."""
        language = _language()
        import tree_sitter

        root = tree_sitter.Parser(language).parse(self.source).root_node  # a parser isn't for two threads
        if root.has_error:
            raise self._syntax_error(root)
        statements = inner(root)
        if not statements:
            raise PredicateError("the expression is empty")
        if len(statements) > 1:
            raise self.refused(statements[1], "a second statement")
        if statements[0].type != "expression_statement":
            raise self.refused(statements[0])
        return self.one(statements[0])

    def one(self, node: "tree_sitter.Node") -> "tree_sitter.Node":
        """The only thing in `node`."""
        parts = inner(node)
        if len(parts) != 1:
            raise self.refused(node)
        return parts[0]

    def bare(self, node: "tree_sitter.Node") -> "tree_sitter.Node":
        """`node` without the parentheses around it."""
        while node.type == "parenthesized_expression":
            node = self.one(node)
        return node

    def text(self, node: "tree_sitter.Node") -> str:
        """The source of `node`."""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def shown(self, node: "tree_sitter.Node", length: int = 160) -> str:
        """The source of `node` on one line, cut short."""
        return clip(" ".join(self.text(node).split()), length)

    def place(self, node: "tree_sitter.Node") -> str:
        """Where `node` stands, for the end of a message."""
        before = self.source[: node.start_byte].decode(errors="replace")
        found = self.shown(node)[:60]
        return f" (at character {len(before) + 1}: `{found}`)" if found else f" (at character {len(before) + 1})"

    def refused(self, node: "tree_sitter.Node", what: str | None = None, hint: str | None = None) -> PredicateError:
        """The error that refuses `node`, under the name `what`; `hint` says what to write instead."""
        what = what or _NAMES.get(node.type) or f"`{node.type.replace('_', ' ')}`"
        hint = hint or _HINTS.get(node.type)
        return PredicateError(f"{what} is not allowed{self.place(node)}{f': {hint}' if hint else ''}")

    def _syntax_error(self, root: "tree_sitter.Node") -> PredicateError:
        """The error for a source that doesn't parse: the first place that is wrong."""
        node = root
        while not (node.is_error or node.is_missing):
            wrong = next((child for child in node.children if child.has_error or child.is_missing), None)
            if wrong is None:
                break
            node = wrong
        missing = f": `{node.type}` is missing" if node.is_missing else ""
        return PredicateError(f"syntax error{missing}{self.place(node)}")


def inner(node: "tree_sitter.Node") -> "list[tree_sitter.Node]":
    """The named children that aren't comments."""
    return [child for child in node.named_children if child.type != "comment"]


def child(node: "tree_sitter.Node", name: str) -> "tree_sitter.Node":
    """The part of `node` that the grammar calls `name`."""
    found = node.child_by_field_name(name)
    if found is None:
        raise PredicateError(f"`{node.type.replace('_', ' ')}` without its {name} is not allowed")
    return found


def is_optional(link: "tree_sitter.Node") -> bool:
    """Whether this link of a chain is written with `?.`."""
    return any(child.type == "optional_chain" for child in link.children)


def has_holes(node: "tree_sitter.Node") -> bool:
    """Whether an array leaves out an item, as in `[1, , 2]`; the tree has nothing there."""
    kinds = [part.type for part in node.children if part.type != "comment"]
    return any(right == "," and left in ("[", ",") for left, right in pairwise(kinds))
