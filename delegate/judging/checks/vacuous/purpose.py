"""What a piece of shell is for, as far as its exit code goes."""

from collections.abc import Iterator

from delegate.judging.checks.vacuous import programs
from delegate.judging.checks.vacuous.shell import (
    AndOr,
    Background,
    Node,
    Not,
    Pipeline,
    Redirected,
    Sequence_,
    Simple,
    Subshell,
    Test,
    Word,
)


def argv(node: Simple) -> list[str | None]:
    """The command's words; None for what only running it would tell."""
    return [word.literal for word in node.words]


def simple(node: Node) -> Simple | None:
    """The simple command that a node is, its redirections aside."""
    while isinstance(node, Redirected):
        node = node.body
    return node if isinstance(node, Simple) and node.words else None


def says_the_same(node: Node) -> bool:
    """Whether a node's output is the same, however the work went."""
    command = simple(node)
    if command is None or programs.program(argv(command)) not in ("echo", "printf", ":", "true", "cat"):
        return False
    if command.words[0].literal == "cat":
        return isinstance(node, Redirected) and node.stdin is not None
    return None not in argv(command)


def _leaves(node: Node) -> Iterator[Simple]:
    """The simple commands that a node's exit code is made of, where nothing else of them is kept."""
    match node:
        case Redirected(target=Word(literal=path)) if path != "/dev/null":
            return  # whoever reads that file may judge
        case Redirected(body=body) | Not(body=body) | Subshell(body=body) | Background(body=body):
            yield from _leaves(body)
        case Pipeline(stages=stages):
            yield from _leaves(stages[-1])
        case AndOr(first=first, rest=rest):
            for part in (first, *(part for _, part in rest)):
                yield from _leaves(part)
        case Simple(words=words) if words:
            yield node
        case _:
            return


def runs_tests(node: Node) -> bool:
    """Whether a node's exit code is that of a test suite."""
    return any(programs.runs_tests(argv(leaf)) for leaf in _leaves(node))


def only_checks(node: Node) -> bool:
    """Whether a node has no other use than its exit code."""
    match node:
        case Test():
            return True
        case Not(body=body):
            return only_checks(body)
        case AndOr(first=first, rest=rest):
            return all(operator == "&&" for operator, _ in rest) and all(
                map(only_checks, (first, *(p for _, p in rest)))
            )
        case Redirected(body=body, target=target):
            return only_checks(body) and (target is None or target.literal == "/dev/null")
        case Simple():
            return programs.only_checks(argv(node))
        case _:
            return False


def last_only_checks(node: Node) -> bool:
    """Whether the last of several commands has no other use than its exit code."""
    return isinstance(node, Sequence_) and bool(node.items) and only_checks(node.items[-1])
