"""What a walk through a command remembers: per shell, and over all of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from delegate.judging.checks.vacuous.conditions import Operand
from delegate.judging.checks.vacuous.programs import Setting
from delegate.judging.checks.vacuous.shell import MAX_CHARS, Node, Place, Unreadable, Word, read
from delegate.judging.checks.vacuous.statuses import NOTHING, WORK, ZERO, Status, harmless

MAX_STEPS = 3_000
MAX_CALLS = 12

Value = str | Status
"""What a variable holds: a text, or an exit code that was kept with `$?`."""


@dataclass(frozen=True, slots=True)
class Note:
    """A failure was lost here. `alone`: worth telling even where something else in the command can still fail."""

    rule: str
    start: int
    end: int
    alone: bool = False


@dataclass(slots=True)
class Walk:
    """What all shells of one command share. `run` walks any node in a shell."""

    run: Callable[[Node, "Shell", bool], Status]
    uses_pipestatus: bool = False
    notes: list[Note] = field(default_factory=list[Note])
    steps: int = 0
    calls: int = 0
    read_chars: int = 0
    misread: bool = False

    def step(self) -> None:
        """Count one node; `Unreadable` when it is more than anybody writes."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unreadable("too long")

    def read(self, text: str, place: Place) -> Node:
        """Read a text that the command runs as a script of its own."""
        self.read_chars += len(text)
        if self.read_chars > MAX_CHARS:
            raise Unreadable("too long")
        script = read(text, place)
        if script.broken:
            raise Unreadable("not shell")
        self.misread |= script.misread
        return script.body

    def note(self, rule: str, where: Node, *, alone: bool = False) -> None:
        """Remember that a failure is lost at `where`."""
        self.notes.append(Note(rule, where.start, where.end, alone))


@dataclass(frozen=True, slots=True)
class Trap:
    """`trap handler EXIT` or `ERR`, and where it is set."""

    handler: Node
    where: Node


@dataclass(slots=True)
class Shell:
    """One shell's own state."""

    walk: Walk
    errexit: bool = False
    pipefail: bool = False
    captured: bool = False
    """Its output goes to a file or to another command, which may look at it."""
    setting: Setting = field(default_factory=Setting)
    variables: dict[str, Value | None] = field(default_factory=dict[str, Value | None])
    functions: dict[str, Node] = field(default_factory=dict[str, Node])
    there: dict[str, str] = field(default_factory=dict[str, str])
    """Files that the command itself has just written: path → `constant` text, or `output` of something."""
    last: Status = ZERO
    read_last: bool = False
    in_function: bool = False
    sourced: bool = False
    on_exit: Trap | None = None
    on_error: Trap | None = None
    exits: Status = NOTHING
    returns: Status = NOTHING
    breaks: Status = NOTHING
    again: Status = NOTHING
    """How a loop's body ended by `continue`."""

    def run(self, node: Node, checked: bool = False) -> Status:
        """How `node` may end. `checked`: somebody looks at its exit code, so that `set -e` doesn't act on it."""
        return self.walk.run(node, self, checked)

    def fork(self) -> "Shell":
        """The same shell on one of two ways; what it does there is joined later."""
        return Shell(
            self.walk, self.errexit, self.pipefail, self.captured, self.setting, dict(self.variables),
            dict(self.functions), dict(self.there), self.last, in_function=self.in_function, sourced=self.sourced,
            on_exit=self.on_exit, on_error=self.on_error,
        )  # fmt: skip

    def subshell(self) -> "Shell":
        """A shell of its own that starts as this one is. Traps aren't inherited."""
        side = self.fork()
        side.on_exit = side.on_error = None
        return side

    def ends(self, status: Status) -> Status:
        """How a shell leaves that got this far."""
        status |= self.exits | self.returns
        return self.after(self.on_exit, status) if self.on_exit else status

    def after(self, trap: Trap, status: Status) -> Status:
        """The exit code once the trap has run: its own where it calls `exit`, else the one it found."""
        side = self.subshell()
        side.last = status
        kept = status if side.run(trap.handler) else NOTHING
        if WORK in status and harmless(kept | side.exits):
            self.walk.note("trap_exit", trap.where, alone=True)
        return kept | side.exits

    def value(self, word: Word) -> Value | None:
        """What a word stands for, where that is known."""
        if word.literal is not None:
            return word.literal
        if word.variable == "?":
            self.read_last = True
            return self.last
        return self.variables.get(word.variable) if word.variable else None

    def operand(self, word: Word) -> Operand:
        """A word of a test."""
        self.read_last |= word.reads_status
        return Operand(word.text, self.value(word), word.bare)


def as_status(value: Value | None) -> Status:
    """The value as an exit code; empty when it is none."""
    if isinstance(value, str):
        return frozenset({int(value) % 256}) if value.isascii() and value.isdigit() and len(value) < 10 else NOTHING
    return value or NOTHING
