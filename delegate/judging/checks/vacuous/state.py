"""What is known about the shell at one point of one way through a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tree_sitter import Node

    from delegate.judging.checks.vacuous.syntax import Script, Span

Codes = frozenset[int]
"""Exit codes: exact ones where they are known. Of any other failure only the cause is known, one of the following."""

FAILED = -1
"""Some non-zero code, because the work isn't right."""
CHECK_FAILED = -2
"""The same, from a command that is run only for its exit code, such as `test` or `grep -q`."""
TESTS_FAILED = -3
"""The same, from a test suite."""
UNRELATED = -4
"""Some non-zero code for a reason other than the work: no disk, no network, a name that is taken."""

ZERO: Codes = frozenset({0})
SETUP: Codes = frozenset({0, UNRELATED})
WORK: Codes = frozenset({FAILED, CHECK_FAILED, TESTS_FAILED})
CHECKS: Codes = frozenset({CHECK_FAILED, TESTS_FAILED})

Fact = TypeVar("Fact")
Facts = tuple[tuple[str, Fact], ...]
"""A small mapping that can be hashed, sorted by name."""


class Body(NamedTuple):
    """The body of a function or of a trap, and where it was set up."""

    script: Script
    node: Node
    span: Span


class Shell(NamedTuple):
    """One shell's settings, and what is known about its surroundings."""

    variables: Facts[str | int] = ()
    """A text, or a failure's cause where it was set from `$?`. A variable that isn't here may hold anything."""
    functions: Facts[Body] = ()
    files: Facts[bool] = ()
    """Files that are surely there. True where their content doesn't depend on the work."""
    errexit: bool = False
    pipefail: bool = False
    on_exit: Body | None = None
    on_error: Body | None = None


class State(NamedTuple):
    """One way through the command, up to here."""

    code: int = 0
    jump: str = ""
    """`exit`, `return`, `break` or `continue`: nothing is run until a shell, a function or a loop takes it."""
    shell: Shell = Shell()

    def ended(self, code: int) -> State:
        """The state after a command that ended with `code`."""
        return State(code, "", self.shell)

    def but(self, **changes: object) -> State:
        """The same with other settings of the shell."""
        return State(self.code, self.jump, self.shell._replace(**changes))  # type: ignore[arg-type]

    def subshell(self) -> State:
        """The state in which a subshell starts. It has no traps."""
        return State(self.code, "", self.shell._replace(on_exit=None, on_error=None))


States = set[State]


def put(facts: Facts[Fact], name: str, value: Fact | None) -> Facts[Fact]:
    """The facts with one replaced, or forgotten when it is None."""
    kept = [fact for fact in facts if fact[0] != name]
    return tuple(sorted([*kept, (name, value)], key=lambda fact: fact[0]) if value is not None else kept)


def codes(states: Iterable[State]) -> Codes:
    """The exit codes of the states."""
    return frozenset(state.code for state in states)


def running(states: Iterable[State]) -> States:
    """The states that aren't on their way out."""
    return {state for state in states if not state.jump}


def either(state: State, failure: int = FAILED) -> States:
    """The states after a command that may succeed or fail."""
    return {state.ended(0), state.ended(failure)}


def harmless(ends: Codes) -> bool:
    """Whether it can succeed, and the work can't make it fail."""
    return 0 in ends and ends <= SETUP
