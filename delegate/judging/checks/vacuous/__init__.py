"""Finds vacuous checks: shell commands that cannot fail, such as `pytest || true`, `make | tee log`, `make; exit 0`.

Nothing is run. `syntax` reads the command with tree-sitter, and `interpreter` executes it on every state that the shell
may be in: where a program may succeed or fail, both are followed. `programs` knows the programs that can't fail, and
`conditions` decides tests such as `[ 1 = 1 ]`. A command is vacuous when it leaves with the wanted exit code whatever
the work is like, or never does. Where it can fail, a part of it is still reported if it loses the exit code of a test
suite, or of another command that has no other use.

What can't be known counts as a check that may fail: an unknown program, a variable that is set elsewhere, the output of
a command. So a finding can be relied on, while some vacuous commands are missed: `./run.sh` passes, whatever is in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from delegate.judging.checks.vacuous.interpreter import Interpreter, Note
from delegate.judging.checks.vacuous.state import UNRELATED, WORK, harmless
from delegate.judging.checks.vacuous.syntax import Span, Unreadable, parse

__all__ = ["RULES", "VacuousPart", "describe", "find_vacuous"]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "background": "the work runs in the background, and nobody waits for how it ends",
        "branch_hides_failure": "an `if` or `case` takes the failure, and no branch passes it on",
        "constant": "nothing in the command can fail because of the work",
        "curl_without_fail": "curl without --fail leaves with 0 on HTTP errors, 500 included",
        "discards_work": "the command undoes uncommitted work before it looks",
        "dropped_check": "the exit code of this check is lost, because another command follows it",
        "last_always": "the last command always succeeds, whatever came before",
        "loop_hides_failure": "a loop keeps at most its last exit code, so earlier failures are lost",
        "never_holds": "the command can never leave with the wanted exit code",
        "not_shell": "this is program code, not a shell command",
        "only_reports": "the command prints what it finds and leaves with 0 either way",
        "or_always": "what follows `||` always succeeds, so a failure before it is forgiven",
        "pipe_drops_status": "without pipefail a pipeline has the exit code of its last command only",
        "substitution_hides_status": "the exit code of a command inside $(…) is lost",
        "tool_flag": "an option makes the tool report without failing, or run nothing",
        "trap_exit": "a trap replaces the exit code",
        "unparsable": "the command is not valid shell, or too long or too nested to be read",
    }
)
"""Rule id → what it means, in one line. The ids are stable."""


@dataclass(frozen=True, slots=True)
class VacuousPart:
    """One place where a command loses the failure it should report.

    `start` and `end` are character offsets in the command, `text` is what stands between them, `why` says what is lost.
    """

    rule: str
    start: int
    end: int
    text: str
    why: str


def find_vacuous(command: str, *, exit_code: int = 0) -> tuple[VacuousPart, ...]:
    """The parts of `command` that keep it from failing, when `exit_code` is to mean success; empty for a real check."""
    whole = (0, len(command))
    try:
        notes = _notes(command, whole, exit_code)
    except (Unreadable, RecursionError):
        notes = [Note("unparsable", whole)]
    places = sorted({(note.span, note.rule) for note in notes})
    return tuple(VacuousPart(rule, start, end, command[start:end], RULES[rule]) for (start, end), rule in places)


def describe(part: VacuousPart) -> str:
    """The finding in one line."""
    text = " ".join(part.text.split())
    shown = text if len(text) <= 80 else text[:79] + "…"
    return f"{part.rule} at {part.start}-{part.end} ({shown}): {part.why}"


def _notes(command: str, whole: Span, wanted: int) -> list[Note]:
    script = parse(command)
    interpreter = Interpreter(script)
    ends, notes = interpreter.codes(), interpreter.notes()
    alone = [note for note in notes if note.alone]
    if script.root.has_error:
        return alone or [Note("unparsable", whole)]
    if interpreter.misread:
        return alone
    inexact = WORK | {UNRELATED}
    if harmless(ends) if wanted == 0 else wanted in ends and ends <= inexact | {wanted}:
        return notes or [Note("constant", whole)]
    possible = wanted in ends or not ends or (wanted != 0 and ends & inexact)
    return alone if possible else [*alone, Note("never_holds", whole)]
