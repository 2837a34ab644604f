"""How the shell's own commands may end, and what they change in the shell."""

from collections.abc import Callable, Mapping

from delegate.judging.checks.vacuous.conditions import decide
from delegate.judging.checks.vacuous.shell import Place, Simple, Word
from delegate.judging.checks.vacuous.state import Shell, Trap, as_status
from delegate.judging.checks.vacuous.statuses import CHECK, NOTHING, ZERO, Status

Builtin = Callable[[Simple, Shell, bool], Status]


def place_of(word: Word) -> Place:
    """Where a script stands that is written as one word."""
    offset = word.text.find(word.literal) if word.literal else -1
    return Place(offset=word.start + offset) if offset >= 0 else Place(within=(word.start, word.end))


def _exit(node: Simple, shell: Shell, checked: bool) -> Status:
    shell.exits |= _argument(node, shell)
    return NOTHING


def _return(node: Simple, shell: Shell, checked: bool) -> Status:
    if not shell.in_function:
        return frozenset({2})  # bash refuses it outside of functions and sourced files
    shell.returns |= _argument(node, shell)
    return NOTHING


def _argument(node: Simple, shell: Shell) -> Status:
    if len(node.words) == 1:
        shell.read_last = True
        return shell.last
    return as_status(shell.value(node.words[1])) or CHECK


def _break(node: Simple, shell: Shell, checked: bool) -> Status:
    shell.breaks |= ZERO
    return NOTHING


def _continue(node: Simple, shell: Shell, checked: bool) -> Status:
    shell.again |= ZERO
    return NOTHING


def _set(node: Simple, shell: Shell, checked: bool) -> Status:
    words = [word.literal or "" for word in node.words[1:]]
    for place, word in enumerate(words):
        if word == "--":
            break
        if word[:1] in ("-", "+"):
            named = words[place + 1] if word.endswith("o") and place + 1 < len(words) else ""
            shell.errexit = word[0] == "-" if "e" in word or named == "errexit" else shell.errexit
            shell.pipefail = word[0] == "-" if named == "pipefail" else shell.pipefail
    return ZERO


def _trap(node: Simple, shell: Shell, checked: bool) -> Status:
    signals = {(word.literal or "").upper().removeprefix("SIG") for word in node.words[2:]}
    handler = node.words[1] if len(node.words) > 2 else None
    trap = _read_handler(handler, node, shell) if handler and signals & {"EXIT", "0", "ERR"} else None
    if signals & {"EXIT", "0"}:
        shell.on_exit = trap
    if "ERR" in signals:
        shell.on_error = trap
    return ZERO


def _read_handler(word: Word, where: Simple, shell: Shell) -> Trap | None:
    if word.literal in (None, "", "-"):
        return None
    return Trap(shell.walk.read(word.literal or "", place_of(word)), where)


def _eval(node: Simple, shell: Shell, checked: bool) -> Status:
    words = [word.literal for word in node.words[1:]]
    if None in words:
        return CHECK
    place = place_of(node.words[1]) if len(words) == 1 else Place(within=(node.start, node.end))
    return shell.run(shell.walk.read(" ".join(word for word in words if word), place), checked)


def _source(node: Simple, shell: Shell, checked: bool) -> Status:
    shell.sourced = True
    return CHECK


def _wait(node: Simple, shell: Shell, checked: bool) -> Status:
    return CHECK if len(node.words) > 1 else ZERO


def _test(node: Simple, shell: Shell, checked: bool) -> Status:
    return decide([shell.operand(word) for word in node.words[1:]], shell.there)


BUILTINS: Mapping[str, Builtin] = {
    "exit": _exit, "return": _return, "break": _break, "continue": _continue, "set": _set, "trap": _trap,
    "eval": _eval, "source": _source, ".": _source, "wait": _wait, "test": _test,
}  # fmt: skip
