"""Walks a command as a shell would and collects, for every piece, in which ways it may end.

    Node ──▶ run ──▶ Status (how it ends, when it lets the next command run)
                └──▶ Shell.exits (how it ends the whole shell), Shell.notes (where a failure was lost)

Both ways of every branch are walked. What can't be known counts as a check that may fail, so that an honest command
raises no alarm. A failure that is only about something beside the work (`ASIDE`) doesn't make a check.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegate.judging.checks.vacuous import programs
from delegate.judging.checks.vacuous.conditions import decide
from delegate.judging.checks.vacuous.programs import Setting
from delegate.judging.checks.vacuous.purpose import (
    argv,
    last_only_checks,
    only_checks,
    runs_tests,
    says_the_same,
    simple,
)
from delegate.judging.checks.vacuous.shell import (
    AndOr,
    Background,
    Case,
    Function,
    If,
    Loop,
    Node,
    Not,
    Pipeline,
    Redirected,
    Script,
    Sequence_,
    Simple,
    Subshell,
    Test,
    Word,
)
from delegate.judging.checks.vacuous.simple import simple_command, substituted
from delegate.judging.checks.vacuous.state import Note, Shell, Value, Walk, as_status
from delegate.judging.checks.vacuous.statuses import (
    HANG,
    NOTHING,
    ONLY_ASIDE,
    SETUP,
    WORK,
    ZERO,
    Status,
    aside,
    failing,
    harmless,
    negated,
)

# ------------------------------------------------------------------------------------------------------ statements


@dataclass(frozen=True, slots=True)
class Seen:
    """How a whole command may leave, and where in it failures are lost. `sure` when nothing in it was misread."""

    ends: Status
    notes: list[Note]
    sure: bool


def walk(script: Script, *, uses_pipestatus: bool) -> Seen:
    """Walk a whole command."""
    shell = Shell(Walk(_run, uses_pipestatus))
    ends = shell.ends(shell.run(script.body))
    return Seen(ends, shell.walk.notes, not (script.misread or shell.walk.misread))


def _run(node: Node, shell: Shell, checked: bool) -> Status:
    shell.walk.step()
    status = _RUN[type(node)](node, shell, checked)
    if checked or not isinstance(node, Simple | Test | Pipeline | Subshell):
        return status
    return _unchecked(status, shell)


def _unchecked(status: Status, shell: Shell) -> Status:
    """What `trap … ERR` and `set -e` do with a failure."""
    failed = failing(status)
    if failed and shell.on_error:
        side = shell.fork()
        side.last, side.on_error = failed, None
        if not side.run(shell.on_error.handler):
            if WORK in failed and harmless(side.exits):
                shell.walk.note("trap_exit", shell.on_error.where, alone=True)
            shell.exits |= side.exits
            return status - failed
    if failed and shell.errexit:
        shell.exits |= failed
        return status - failed
    return status


def _sequence(node: Sequence_, shell: Shell, checked: bool) -> Status:
    status, outcome, lost, dropped = ZERO, ZERO, False, list[Node]()
    before: Node | None = None
    for item in node.items:
        shell.read_last = False
        entered, shell.exits = shell.exits, NOTHING
        ended = shell.run(item, checked)
        outcome, shell.exits = ended | shell.exits, entered | shell.exits
        if before is not None and WORK in status:
            lost = True
            if only_checks(before) and not (shell.read_last or shell.captured):
                dropped.append(before)
        before, status = item, ended
        if not ended:
            break
        shell.last = ended
    if before is not None:
        _note_lost(before, lost and harmless(outcome), dropped, shell)
    return status


def _note_lost(last: Node, all_lost: bool, dropped: Sequence[Node], shell: Shell) -> None:
    if all_lost:
        shell.walk.note("last_always", last, alone=any(map(runs_tests, dropped)))
        return
    for item in dropped:
        shell.walk.note("dropped_check", item, alone=True)


def _and_or(node: AndOr, shell: Shell, checked: bool) -> Status:
    status = shell.run(node.first, checked=True)
    for place, (operator, part) in enumerate(node.rest):
        taken = status & ZERO if operator == "&&" else failing(status)
        kept = status - taken
        last, variables = place == len(node.rest) - 1, shell.variables
        ended, outcome = _branch(part, shell, taken, certain=not kept, checked=checked or not last)
        if operator == "||" and WORK in taken and harmless(outcome):
            before = (node.first, *(earlier for _, earlier in node.rest[:place]))
            noted = shell.variables != variables  # `|| failed=1` keeps the failure for later
            alone = any(map(runs_tests, before)) and not (shell.captured or noted)
            shell.walk.note("or_always", part, alone=alone)
        status = kept | ended
    return status


def _branch(
    part: Node, shell: Shell, taken: Status, *, certain: bool, checked: bool, last: Status | None = None
) -> tuple[Status, Status]:
    """Run `part` where only `taken` leads to it. Gives how it ends; and also with what it makes the shell leave."""
    if not taken:
        return NOTHING, NOTHING
    side = shell.fork()
    side.last = taken if last is None else last
    ended = side.run(part, checked)
    if taken == ONLY_ASIDE:
        ended, side.exits, side.returns = aside(ended), aside(side.exits), aside(side.returns)
    _join(shell, side, certain=certain)
    return ended, ended | side.exits | side.returns | side.breaks | side.again


def _join(shell: Shell, side: Shell, *, certain: bool) -> None:
    """After a branch: what it set holds if it was surely taken, else what both ways agree on."""
    shell.exits |= side.exits
    shell.returns |= side.returns
    shell.breaks |= side.breaks
    shell.again |= side.again
    shell.read_last |= side.read_last
    shell.sourced |= side.sourced
    if certain:
        shell.functions = side.functions
        shell.errexit, shell.pipefail = side.errexit, side.pipefail
        shell.variables, shell.there = side.variables, side.there
        shell.on_exit, shell.on_error = side.on_exit, side.on_error
        return
    shell.errexit |= side.errexit
    shell.pipefail |= side.pipefail
    shell.on_exit, shell.on_error = side.on_exit and shell.on_exit, side.on_error and shell.on_error
    shell.there = {path: kind for path, kind in shell.there.items() if side.there.get(path) == kind}
    names = shell.variables.keys() | side.variables.keys()
    shell.variables = {name: _either(shell.variables.get(name), side.variables.get(name)) for name in names}


def _either(one: Value | None, other: Value | None) -> Value | None:
    if one == other or one is None or other is None:
        return one if one == other else None
    first, second = as_status(one), as_status(other)
    return first | second if first and second else None


def _pipeline(node: Pipeline, shell: Shell, checked: bool) -> Status:
    ends = list[Status]()
    constant = False
    for place, stage in enumerate(node.stages):
        side = shell.subshell()
        side.captured = shell.captured or place < len(node.stages) - 1
        if place:
            side.setting = Setting(piped=True, constant_input=constant)
        ends.append(side.ends(side.run(stage, checked)))
        constant = says_the_same(stage) if place == 0 else constant and ends[-1] <= SETUP
        shell.read_last |= side.read_last
        shell.there = {path: kind for path, kind in shell.there.items() if path in side.there} | side.there
    *before, last = ends
    if shell.pipefail:
        return last.union(*map(failing, before))
    _note_pipe(node, before, last, shell)
    return last


def _note_pipe(node: Pipeline, before: Sequence[Status], last: Status, shell: Shell) -> None:
    if not any(WORK in status for status in before):
        return
    final = simple(node.stages[-1])
    looks = final is not None and programs.searches(argv(final))
    tests = any(map(runs_tests, node.stages[:-1]))
    lost = tests and (looks or harmless(last)) and not (shell.captured or shell.walk.uses_pipestatus)
    shell.walk.note("pipe_drops_status", node, alone=lost)


def _not(node: Not, shell: Shell, checked: bool) -> Status:
    return negated(shell.run(node.body, checked=True))


def _subshell(node: Subshell, shell: Shell, checked: bool) -> Status:
    side = shell.subshell()
    return side.ends(side.run(node.body, checked))


def _background(node: Background, shell: Shell, checked: bool) -> Status:
    side = shell.subshell()
    if WORK in side.ends(side.run(node.body)):
        shell.walk.note("background", node)
    return ZERO


def _redirected(node: Redirected, shell: Shell, checked: bool) -> Status:
    captured, setting = shell.captured, shell.setting
    target = node.target.literal if node.target else None
    shell.captured = captured or (target is not None and target != "/dev/null")
    shell.setting = Setting(piped=setting.piped or node.stdin is not None, stdin=node.stdin)
    status = shell.run(node.body, checked)
    shell.captured, shell.setting = captured, setting
    if target:
        shell.there[target] = "constant" if says_the_same(node.body) else "output"
    missing = node.source is not None and not (node.source.literal or "").startswith("/dev/")
    return status | {WORK} if missing and not isinstance(node.body, Loop) else status


# -------------------------------------------------------------------------------------------------- branches, loops


def _if(node: If, shell: Shell, checked: bool) -> Status:
    ended, outcome, arriving = NOTHING, NOTHING, ZERO
    lost = False
    for condition, body in node.branches:
        decided = shell.run(condition, checked=True)
        lost |= WORK in decided
        taken, arriving = decided & ZERO, failing(decided)
        entered = shell.there
        shell.there = entered | _seen(condition)
        ends, all_ends = _branch(body, shell, taken, certain=not arriving, checked=checked)
        shell.there = entered if arriving else shell.there
        ended, outcome = ended | ends | (decided & {HANG}), outcome | all_ends
        if not arriving:
            break
    ends, all_ends = _otherwise(node, shell, arriving, checked)
    if lost and harmless(outcome | all_ends):
        shell.walk.note("branch_hides_failure", node)
    return ended | ends


def _otherwise(node: If, shell: Shell, arriving: Status, checked: bool) -> tuple[Status, Status]:
    if node.otherwise is not None:
        return _branch(node.otherwise, shell, arriving, certain=False, checked=checked)
    return (ZERO, ZERO) if arriving else (NOTHING, NOTHING)


def _seen(condition: Node) -> dict[str, str]:
    """The file that is there when a condition such as `[ -f file ]` holds."""
    match condition:
        case Sequence_(items=(Test(words=(sign, path)),)) | Sequence_(items=(Simple(words=(_, sign, path)),)):
            there = sign.literal in ("-e", "-f", "-s", "-r") and path.literal
            return {path.literal: "output"} if there and path.literal else {}
        case _:
            return {}


def _case(node: Case, shell: Shell, checked: bool) -> Status:
    ended = NOTHING if node.total and node.branches else ZERO
    outcome = ended
    if node.subject:
        substituted(node.subject, shell)
    for body in node.branches:
        certain = node.total and len(node.branches) == 1
        ends, all_ends = _branch(body, shell, ZERO, certain=certain, checked=checked, last=shell.last)
        ended, outcome = ended | ends, outcome | all_ends
    if harmless(outcome):
        shell.walk.note("branch_hides_failure", node)
    return ended


def _loop(node: Loop, shell: Shell, checked: bool) -> Status:
    outer, shell.breaks, shell.again = (shell.breaks, shell.again), NOTHING, NOTHING
    if node.variable:
        shell.variables[node.variable] = None
    entry = shell.run(node.condition, checked=True) if node.condition else None
    body = _rounds(node.body, shell, checked) | shell.again
    broken, (shell.breaks, shell.again) = shell.breaks, outer
    if entry is None or _counts(node.condition):
        return _kept(node, body, broken, shell)
    goes_on, stops = entry & ZERO, failing(entry)
    if node.kind == "until":
        goes_on, stops = stops, goes_on
    hangs = frozenset({HANG}) if goes_on and body else NOTHING
    return (body | ZERO if stops else NOTHING) | broken | hangs


def _rounds(body: Node, shell: Shell, checked: bool) -> Status:
    """A loop's body; once more when the first round changed a variable that the next may look at."""
    before, last = shell.variables, shell.last
    ended, _ = _branch(body, shell, ZERO, certain=False, checked=checked, last=last)
    if shell.variables != before or last != ended:
        ended |= _branch(body, shell, ZERO, certain=False, checked=checked, last=last | ended)[0]
    return ended


def _kept(node: Loop, body: Status, broken: Status, shell: Shell) -> Status:
    """What is left of a body's failures after the last of several rounds."""
    if WORK in body and not broken and not _once(node):
        shell.walk.note("loop_hides_failure", node, alone=last_only_checks(node.body) and not shell.captured)
        body = aside(body)
    elif harmless(body | broken):
        shell.walk.note("loop_hides_failure", node)
    return body | broken if _surely(node) else body | ZERO | broken


def _surely(node: Loop) -> bool:
    """Whether there is at least one round."""
    return bool(node.words) and all(word.literal is not None for word in node.words or ())


def _counts(condition: Node | None) -> bool:
    """Whether a loop reads lines or counts, and so comes to its end whatever the work does."""
    match condition:
        case Sequence_(items=(Test(words=words),)):
            return _compares_numbers(words)
        case Sequence_(items=(Simple() as command, *_)):
            name = programs.program(argv(command))
            return name in ("read", "mapfile") or (name == "test" and _compares_numbers(command.words))
        case _:
            return False


def _compares_numbers(words: Sequence[Word]) -> bool:
    return any(word.text in _ORDER for word in words) and not any(word.substitutions for word in words)


def _once(node: Loop) -> bool:
    words = node.words
    return words is not None and len(words) == 1 and not any(mark in (words[0].literal or "*") for mark in "*?[{")


def _function(node: Function, shell: Shell, checked: bool) -> Status:
    shell.functions[node.name] = node.body
    return ZERO


def _test(node: Test, shell: Shell, checked: bool) -> Status:
    return decide([shell.operand(word) for word in node.words], shell.there, arithmetic=node.arithmetic)


_ORDER = frozenset({"-lt", "-le", "-gt", "-ge", "-ne", "<", "<=", ">", ">="})
_RUN: Mapping[type[Node], Callable[[Any, Shell, bool], Status]] = {
    Sequence_: _sequence, AndOr: _and_or, Pipeline: _pipeline, Not: _not, Subshell: _subshell,
    Background: _background, Redirected: _redirected, If: _if, Case: _case, Loop: _loop, Function: _function,
    Test: _test, Simple: simple_command,
}  # fmt: skip
