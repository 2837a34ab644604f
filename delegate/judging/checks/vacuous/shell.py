"""Reads a command into a small tree of its own, on tree-sitter's bash grammar.

The grammar's tree follows the text, not always bash's precedence: it puts `a && b >f` under one redirection, `! a | b`
under one pipeline, and whatever follows a heredoc's start inside the heredoc. Here all of it is put right.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from tree_sitter import Node as Leaf
    from tree_sitter import Parser

MAX_CHARS = 4_000
MAX_NODES = 6_000
MAX_DEPTH = 60


class Unreadable(Exception):
    """The text is too long or too nested to be worth reading. Nothing an honest check needs comes near."""


class Span(TypedDict):
    """Character offsets in the whole command."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A piece of shell. `start` and `end` are character offsets in the whole command."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Word(Node):
    """One argument. `literal` is its value where the text alone says it; `variable` is the name in a lone `"$name"`."""

    text: str
    literal: str | None
    variable: str | None = None
    bare: bool = False
    """Not quoted, so that `*` in it is a pattern."""
    reads_status: bool = False
    """`$?` occurs in it."""
    substitutions: tuple[Sequence_, ...] = ()


@dataclass(frozen=True, slots=True)
class Simple(Node):
    """`NAME=value … word word …`"""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Test(Node):
    """`[ … ]`, `[[ … ]]` or `(( … ))`, flattened to its words."""

    words: tuple[Word, ...]
    arithmetic: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """`a | b | c`"""

    stages: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AndOr(Node):
    """`first && … || …`, from left to right, as bash reads it."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`! body`"""

    body: Node


@dataclass(frozen=True, slots=True)
class Sequence_(Node):
    """Commands one after the other; `{ … }` too."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Subshell(Node):
    """`( body )`"""

    body: Node


@dataclass(frozen=True, slots=True)
class Background(Node):
    """`body &`"""

    body: Node


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if … elif … else … fi`"""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`case … esac`; `total` when a branch takes whatever is left."""

    subject: Word | None
    branches: tuple[Node, ...]
    total: bool


@dataclass(frozen=True, slots=True)
class Loop(Node):
    """`while`, `until` with a condition, `for` with words (None: they can't be counted)."""

    kind: Literal["while", "until", "for"]
    condition: Node | None
    words: tuple[Word, ...] | None
    body: Node
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Function(Node):
    """`name() body`"""

    name: str
    body: Node


@dataclass(frozen=True, slots=True)
class Redirected(Node):
    """`body <source >target`, or with a text on its standard input."""

    body: Node
    target: Word | None = None
    source: Word | None = None
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands in the whole command: at `offset`, or somewhere inside `within`."""

    offset: int = 0
    within: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A command as read. `broken` when the grammar had to skip something.

    `misread` when it took a reserved word for a command, as it does in `! { …; }`: then the tree proves nothing.
    """

    body: Sequence_
    broken: bool
    misread: bool


def read(text: str, place: Place = Place()) -> Script:
    """Read `text`. Raises `Unreadable` when it is too much."""
    if len(text) > MAX_CHARS or "\0" in text:
        raise Unreadable("too long, or not text")
    root = _parser().parse(_NOT_ASCII.sub("x", text).encode()).root_node
    if root.descendant_count > MAX_NODES:
        raise Unreadable("too long")
    reader = _Reader(text, place)
    return Script(reader.sequence(root), root.has_error, reader.misread)


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
"""The grammar's scanner (0.25.1) looks such characters up in C's table of 256, and `{` before an emoji may crash it.
To bash they are letters like any other. With one byte per character, offsets are the same in both texts."""


@functools.cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    def __init__(self, text: str, place: Place) -> None:
        self._whole = text
        self._place = place
        self._depth = 0
        self.misread = False

    def _span(self, leaf: Leaf) -> Span:
        if self._place.within:
            return {"start": self._place.within[0], "end": self._place.within[1]}
        return {"start": self._place.offset + leaf.start_byte, "end": self._place.offset + leaf.end_byte}

    @contextmanager
    def _deeper(self) -> Generator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too nested")
        yield
        self._depth -= 1

    def _text(self, leaf: Leaf) -> str:
        return self._whole[leaf.start_byte : leaf.end_byte]

    # ------------------------------------------------------------------------------------------------ statements

    def sequence(self, parent: Leaf, children: Sequence[Leaf] | None = None) -> Sequence_:
        """The statements below `parent`, with `&` applied to the one before it."""
        items: list[Node] = []
        for child in parent.children if children is None else children:
            if child.type == "&" and items:
                items[-1] = Background(items[-1], start=items[-1].start, end=self._span(child)["end"])
            elif child.is_named and child.type != "comment":
                items.extend(self._statements(child))
        if not items:
            return Sequence_((), **self._span(parent))
        return Sequence_(tuple(items), start=items[0].start, end=items[-1].end)

    def _statements(self, leaf: Leaf) -> Iterator[Node]:
        read = _STATEMENTS.get(leaf.type)
        if read is None:
            return
        with self._deeper():
            yield read(self, leaf)

    def statement(self, leaf: Leaf) -> Node:
        """The one statement that `leaf` is; an empty sequence when it is none."""
        return next(iter([*self._statements(leaf)]), Sequence_((), **self._span(leaf)))

    def command(self, leaf: Leaf) -> Node:
        words: list[Word] = []
        assignments: list[tuple[str, Word | None]] = []
        redirects: list[Leaf] = []
        for child in leaf.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type.endswith("_redirect"):
                redirects.append(child)
            elif child.type == "command_name":
                words.append(self.word(child.children[0] if child.children else child))
            elif child.type in _KEYWORDS or (child.is_named and child.type not in ("comment", "ERROR")):
                words.append(self.word(child))
        self.misread |= any(word.text in _RESERVED for word in words[:2] if words[0].text in (word.text, "time"))
        simple = Simple(tuple(words), tuple(assignments), **self._span(leaf))
        return self._redirect(simple, redirects)

    def assignment(self, leaf: Leaf) -> Node:
        found = [leaf] if leaf.type == "variable_assignment" else leaf.named_children
        pairs = tuple(self._assignment(child) for child in found if child.type == "variable_assignment")
        return Simple((), pairs, **self._span(leaf))

    def _assignment(self, leaf: Leaf) -> tuple[str, Word | None]:
        name, value = leaf.child_by_field_name("name"), leaf.child_by_field_name("value")
        return self._text(name) if name else "", self.word(value) if value else None

    def joined(self, leaf: Leaf) -> Node:
        """Everything that `&&`, `||`, `|`, `!` and redirections join, however the grammar has nested it."""
        parts = self._parts(leaf)
        if not parts:
            return Simple((), **self._span(leaf))
        groups: list[tuple[str, list[_Part]]] = []
        for part in parts:
            if groups and part.operator.startswith("|") and part.operator != "||":
                groups[-1][1].append(part)
            else:
                groups.append((part.operator, [part]))
        first, *rest = [(operator, _piped(group)) for operator, group in groups]
        return AndOr(first[1], tuple(rest), start=first[1].start, end=rest[-1][1].end) if rest else first[1]

    def _parts(self, leaf: Leaf) -> list[_Part]:
        """The joined commands in the order of the text, each with the operator before it."""
        parts: list[_Part] = []
        operator, bangs, waiting = "", 0, [(leaf, False)]
        while waiting:
            leaf, body_done = waiting.pop()
            if body_done:
                waiting.extend(self._redirect_last(parts, leaf))
            elif leaf.type == "redirected_statement":
                body = leaf.child_by_field_name("body")
                waiting.append((leaf, True))
                waiting.extend([(body, False)] if body else [])
            elif leaf.type in ("list", "pipeline", "negated_command"):
                waiting.extend((child, False) for child in reversed(leaf.children))
            elif leaf.type == "!":
                bangs += 1
            elif leaf.type in _JOINTS:
                operator = leaf.type
            elif leaf.is_named and leaf.type != "comment":
                parts.append(_Part(operator, bangs, self.statement(leaf)))
                operator, bangs = "", 0
        return parts

    def _redirect_last(self, parts: list[_Part], leaf: Leaf) -> Iterator[tuple[Leaf, bool]]:
        """Redirect the last command; gives what stands behind a heredoc's start on the same line, last first."""
        redirects = [child for child in leaf.children if child.type.endswith("_redirect")]
        node = parts[-1].node if parts and leaf.child_by_field_name("body") else Simple((), **self._span(leaf))
        node = self._redirect(node, redirects)
        if leaf.child_by_field_name("body") and parts:
            parts[-1] = replace(parts[-1], node=node)
        else:
            parts.append(_Part("", 0, node))
        for heredoc in reversed(redirects):
            if heredoc.type == "heredoc_redirect":
                behind = [child for child in heredoc.children if child.type in _JOINTS or child.type == "pipeline"]
                right = heredoc.child_by_field_name("right")
                yield from [(right, False)] if right else []
                yield from [(child, False) for child in reversed(behind)]

    def _redirect(self, node: Node, redirects: Sequence[Leaf]) -> Node:
        for leaf in redirects:
            if leaf.type == "heredoc_redirect":
                text = next((self._text(child) for child in leaf.children if child.type == "heredoc_body"), "")
                node = Redirected(node, stdin=text, **_place(node))
                node = self._redirect(node, [child for child in leaf.children if child.type.endswith("_redirect")])
            elif leaf.type == "herestring_redirect":
                node = Redirected(node, stdin=self.word(leaf.children[-1]).literal, **_place(node))
            else:
                node = self._file(node, leaf)
        return node

    def _file(self, node: Node, leaf: Leaf) -> Node:
        operator = next((child.type for child in leaf.children if child.type[0] in "<>&"), "")
        descriptor, where = leaf.child_by_field_name("descriptor"), leaf.child_by_field_name("destination")
        word = self.word(where) if where else None
        if operator == "<" and word:
            return Redirected(node, source=word, **_place(node))
        stdout = descriptor is None or self._text(descriptor) == "1"
        if operator in (">", ">>", ">|", "&>", "&>>") and stdout and word:
            return Redirected(node, target=word, **_place(node))
        return node

    def subshell(self, leaf: Leaf) -> Node:
        return Subshell(self.sequence(leaf), **self._span(leaf))

    def compound(self, leaf: Leaf) -> Node:
        if leaf.child_count and leaf.children[0].type == "((":
            return Test(tuple(self._operands(leaf)), arithmetic=True, **self._span(leaf))
        return replace(self.sequence(leaf), **self._span(leaf))

    def test(self, leaf: Leaf) -> Node:
        return Test(tuple(self._operands(leaf)), **self._span(leaf))

    def _operands(self, leaf: Leaf) -> Iterator[Word]:
        for child in leaf.children:
            if child.type.endswith("_expression"):
                with self._deeper():
                    yield from self._operands(child)
            elif child.type not in ("[", "]", "[[", "]]", "((", "))"):
                yield self.word(child)

    def function(self, leaf: Leaf) -> Node:
        name, body = leaf.child_by_field_name("name"), leaf.child_by_field_name("body")
        inner = self.statement(body) if body else Sequence_((), **self._span(leaf))
        return Function(self._text(name) if name else "", inner, **self._span(leaf))

    # ---------------------------------------------------------------------------------------- branches and loops

    def conditional(self, leaf: Leaf) -> Node:
        branches: list[tuple[Node, Node]] = [self._branch(leaf)]
        otherwise: Node | None = None
        for child in leaf.children:
            if child.type == "elif_clause":
                branches.append(self._branch(child))
            elif child.type == "else_clause":
                otherwise = self.sequence(child)
        return If(tuple(branches), otherwise, **self._span(leaf))

    def _branch(self, leaf: Leaf) -> tuple[Node, Node]:
        children = [child for child in leaf.children if child.type not in ("elif_clause", "else_clause")]
        then = next((place for place, child in enumerate(children) if child.type == "then"), len(children))
        return self.sequence(leaf, children[:then]), self.sequence(leaf, children[then:])

    def case(self, leaf: Leaf) -> Node:
        items = [child for child in leaf.children if child.type == "case_item"]
        subject = leaf.child_by_field_name("value")
        total = any(self._text(value) == "*" for item in items for value in item.children_by_field_name("value"))
        bodies = tuple(self.sequence(item, _after(item.children, ")")) for item in items)
        return Case(self.word(subject) if subject else None, bodies, total, **self._span(leaf))

    def while_loop(self, leaf: Leaf) -> Node:
        kind: Literal["while", "until"] = "until" if leaf.children[0].type == "until" else "while"
        body = leaf.child_by_field_name("body")
        condition = self.sequence(leaf, [child for child in leaf.children if child.type != "do_group"])
        inner = self.sequence(body) if body else Sequence_((), **self._span(leaf))
        return Loop(kind, condition, None, inner, **self._span(leaf))

    def for_loop(self, leaf: Leaf) -> Node:
        body, variable = leaf.child_by_field_name("body"), leaf.child_by_field_name("variable")
        words = tuple(self.word(value) for value in leaf.children_by_field_name("value"))
        inner = self.sequence(body) if body else Sequence_((), **self._span(leaf))
        name = self._text(variable) if variable else None
        return Loop("for", None, words if variable else None, inner, name, **self._span(leaf))

    # ----------------------------------------------------------------------------------------------------- words

    def word(self, leaf: Leaf) -> Word:
        text = self._text(leaf)
        names = [self._text(name) for name in _below(leaf, "variable_name", "special_variable_name")]
        lone = names[0] if len(names) == 1 and text.strip('"') in (f"${names[0]}", f"${{{names[0]}}}") else None
        scripts = tuple(self._substitutions(leaf))
        return Word(
            text,
            self._literal(leaf),
            variable=lone,
            bare=leaf.type not in ("string", "raw_string", "ansi_c_string"),
            reads_status="?" in names,
            substitutions=scripts,
            **self._span(leaf),
        )

    def _substitutions(self, leaf: Leaf) -> Iterator[Sequence_]:
        if leaf.type == "command_substitution":
            with self._deeper():
                yield self.sequence(leaf)
        elif leaf.type not in ("process_substitution", "word", "raw_string"):
            for child in leaf.named_children:
                yield from self._substitutions(child)

    def _literal(self, leaf: Leaf) -> str | None:
        """The value, where it doesn't depend on anything but the text."""
        text = self._text(leaf)
        if leaf.type in ("word", "number", "test_operator", "extglob_pattern", "regex") and not leaf.named_child_count:
            return _unescaped(text)
        if leaf.type == "raw_string":
            return text[1:-1]
        if leaf.type == "string":
            plain = all(child.type in ("string_content", '"') for child in leaf.children)
            return re.sub(r'\\(["$`\\])', r"\1", text[1:-1]) if plain else None
        if leaf.type == "concatenation":
            parts = [self._literal(child) for child in leaf.children]
            return None if None in parts else "".join(part for part in parts if part is not None)
        return None if leaf.is_named else text


_Read = Callable[[_Reader, "Leaf"], Node]
_STATEMENTS: dict[str, _Read] = {
    "program": _Reader.sequence,
    "command": _Reader.command,
    "declaration_command": _Reader.command,
    "unset_command": _Reader.command,
    "variable_assignment": _Reader.assignment,
    "variable_assignments": _Reader.assignment,
    "list": _Reader.joined,
    "pipeline": _Reader.joined,
    "negated_command": _Reader.joined,
    "subshell": _Reader.subshell,
    "compound_statement": _Reader.compound,
    "do_group": _Reader.sequence,
    "test_command": _Reader.test,
    "function_definition": _Reader.function,
    "if_statement": _Reader.conditional,
    "case_statement": _Reader.case,
    "while_statement": _Reader.while_loop,
    "for_statement": _Reader.for_loop,
    "c_style_for_statement": _Reader.for_loop,
    "redirected_statement": _Reader.joined,
}
_JOINTS = frozenset({"&&", "||", "|", "|&"})
_RESERVED = frozenset({
    "!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "case", "esac", "select",
    "function", "in", "[[", "((",
})  # fmt: skip
_KEYWORDS = frozenset({"export", "declare", "typeset", "readonly", "local", "unset", "unsetenv"})


def _place(node: Node) -> Span:
    return {"start": node.start, "end": node.end}


def _after(leaves: Sequence[Leaf], kind: str) -> Sequence[Leaf]:
    return leaves[next((place for place, leaf in enumerate(leaves) if leaf.type == kind), -1) + 1 :]


def _below(leaf: Leaf, *kinds: str) -> Iterator[Leaf]:
    """The leaves of these kinds in a word, those inside of substitutions not among them."""
    for child in leaf.children:
        if child.type in kinds:
            yield child
        elif not child.type.endswith("_substitution"):
            yield from _below(child, *kinds)


@dataclass(frozen=True, slots=True)
class _Part:
    """One command among joined ones, with the operator and the number of `!` before it."""

    operator: str
    bangs: int
    node: Node


def _piped(parts: Sequence[_Part]) -> Node:
    """A pipeline; a `!` before its first command is about the whole of it."""
    first, last = parts[0], parts[-1]
    place: Span = {"start": first.node.start, "end": last.node.end}
    node = first.node if len(parts) == 1 else Pipeline(tuple(part.node for part in parts), **place)
    for _ in range(first.bangs % 2):
        node = Not(node, **place)
    return node


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
