"""Reads a shell command with tree-sitter's bash grammar.

The grammar's tree follows the text, not always bash's precedence: it puts `a && b >f` under one redirection, `! a | b`
under one pipeline, and what follows `<<EOF` on its line inside the heredoc. `pipelines` gives the order that bash uses.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARS = 4_000
MAX_NODES = 6_000

Span = tuple[int, int]
"""Character offsets in the whole command."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
"""The grammar's scanner (0.25.1) looks such characters up in C's table of 256, and `{` before an emoji may crash it.
To bash they are letters like any other. With one byte per character, offsets are the same in both texts."""

_OPERATORS = frozenset({"&&", "||", "|", "|&", "!"})
_PLAIN = frozenset({"word", "number", "test_operator", "extglob_pattern", "regex"})


class Unreadable(Exception):
    """The command is too long or too nested. No check that a person would write comes near the limits."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A text that is read, and where it stands in the whole command: at `offset`, or somewhere `within` a span."""

    text: str
    root: Node
    offset: int = 0
    within: Span | None = None

    def text_of(self, node: Node) -> str:
        """The text of a node."""
        return self.text[node.start_byte : node.end_byte]

    def span(self, first: Node, last: Node | None = None) -> Span:
        """Where a node stands, or several, in the whole command."""
        return self.within or (self.offset + first.start_byte, self.offset + (last or first).end_byte)

    def argv(self, words: Sequence[Node]) -> list[str | None]:
        """The values of words."""
        return [self.literal(word) for word in words]

    def literal(self, word: Node) -> str | None:
        """The value of a word where the text alone says it, else None."""
        if word.type == "command_name" and word.child_count:
            word = word.children[0]
        kind, text = word.type, self.text_of(word)
        if kind in _PLAIN and not word.named_child_count:
            return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if "\\" in text else text
        if kind == "raw_string":
            return text[1:-1]
        if kind == "string":
            plain = all(child.type in ("string_content", '"') for child in word.children)
            return re.sub(r'\\(["$`\\])', r"\1", text[1:-1]) if plain else None
        if kind == "concatenation":
            parts = self.argv(word.children)
            return None if None in parts else "".join(filter(None, parts))
        return None if word.is_named else text

    def redirections(self, nodes: Sequence[Node]) -> Redirections:
        """Where standard input and output are redirected."""
        found = Redirections()
        for node in nodes:
            if node.type == "heredoc_redirect":
                body = next((child for child in node.children if child.type == "heredoc_body"), None)
                expands = body and any(child.type != "heredoc_content" for child in body.named_children)
                found.reads, found.text = True, None if expands else self.text_of(body) if body else ""
            elif node.type == "herestring_redirect":
                found.reads, found.text = True, self.literal(node.children[-1])
            elif where := node.child_by_field_name("destination"):
                operator = next((child.type for child in node.children if child.type[0] in "<>&"), "")
                descriptor = node.child_by_field_name("descriptor")
                if operator == "<":
                    found.reads, found.source = True, self.literal(where) or "?"
                elif operator in (">", ">>", ">|", "&>", "&>>") and (not descriptor or self.text_of(descriptor) == "1"):
                    found.target = self.literal(where) or "?"
        return found


@dataclass(slots=True)
class Redirections:
    """What several redirections come to. A file whose name isn't known is called `?`."""

    reads: bool = False
    text: str | None = None
    source: str = "/dev/null"
    target: str = "/dev/null"


@dataclass(slots=True)
class Stage:
    """One command of a pipeline, and what redirects it. Without a command, `node` is the first redirection."""

    node: Node
    redirects: list[Node] = field(default_factory=list["Node"])


@dataclass(slots=True)
class Pipeline:
    """`a | b`, with `&&` or `||` before it (empty for the first) and whether `!` applies to it."""

    operator: str
    negated: bool
    stages: list[Stage]

    @property
    def ends(self) -> tuple[Node, Node]:
        """Where it begins and ends."""
        return self.stages[0].node, self.stages[-1].node


def parse(text: str, offset: int = 0, within: Span | None = None) -> Script:
    """Read a script. Raises `Unreadable` when it is too long; `root.has_error` says whether it is valid shell."""
    if len(text) > MAX_CHARS or "\0" in text:
        raise Unreadable("too long, or not text")
    root = _parser().parse(_NOT_ASCII.sub("x", text).encode()).root_node
    if root.descendant_count > MAX_NODES:
        raise Unreadable("too long")
    return Script(text, root, offset, within)


@functools.cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def statements(children: Sequence[Node]) -> Iterator[tuple[Node, Node | None]]:
    """The statements among the children of a node, each with the `&` that sends it to the background."""
    for child, behind in zip_longest(children, children[1:]):
        if child.is_named and child.type not in ("comment", "ERROR"):
            yield child, behind if behind and behind.type == "&" else None


def command_parts(node: Node) -> tuple[list[Node], list[Node]]:
    """The words and the assignments of a simple command."""
    if node.type == "variable_assignment":
        return [], [node]
    words = [
        child
        for place, child in enumerate(node.children)
        if (child.is_named or not place)  # the first may be a keyword, as in `export …`
        and not child.type.endswith("_redirect")
        and child.type not in ("variable_assignment", "comment", "ERROR")
    ]
    return words, [child for child in node.children if child.type == "variable_assignment"]


def redirects(node: Node) -> list[Node]:
    """The redirections among the children of a node."""
    return [child for child in node.children if child.type.endswith("_redirect")]


def substitutions(word: Node) -> Iterator[Node]:
    """Every `$(…)` in a word."""
    if word.type == "command_substitution":
        yield word
    elif word.named_child_count and word.type != "process_substitution":
        for child in word.named_children:
            yield from substitutions(child)


def pipelines(node: Node) -> list[Pipeline]:
    """What `&&`, `||`, `|`, `!` and redirections join below `node`, from left to right."""
    tokens: list[str | Stage] = []
    _flatten(node, tokens)
    found: list[Pipeline] = []
    operator, negated = "", False
    for item in tokens:
        if item == "!":
            negated = not negated
        elif isinstance(item, str):
            operator = item
        elif found and operator in ("|", "|&"):
            found[-1].stages.append(item)
        else:
            found.append(Pipeline(operator, negated, [item]))
            negated = False
    return found


def _flatten(node: Node, tokens: list[str | Stage]) -> None:
    if node.type in ("list", "pipeline", "negated_command"):
        for child in node.children:
            _flatten(child, tokens)
    elif node.type == "redirected_statement":
        _flatten_redirected(node, tokens)
    elif node.type in _OPERATORS:
        tokens.append(node.type)
    elif node.is_named and node.type != "comment":
        tokens.append(Stage(node))


def _flatten_redirected(node: Node, tokens: list[str | Stage]) -> None:
    """The redirections belong to the last command of the body."""
    found = redirects(node)
    _flatten(node.child_by_field_name("body") or found[0], tokens)
    stage = tokens[-1]
    for redirect in found:
        heredoc = redirect.type == "heredoc_redirect"
        if isinstance(stage, Stage):
            stage.redirects += [redirect, *redirects(redirect)]
        for child in redirect.children if heredoc else ():
            if not child.type.endswith(("_redirect", "_start", "_body", "_end", "_descriptor")):
                _flatten(child, tokens)
