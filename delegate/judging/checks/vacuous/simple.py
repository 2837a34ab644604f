"""How one simple command may end: a function, a builtin, a shell with a text of its own, or a program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from delegate.judging.checks.vacuous import programs
from delegate.judging.checks.vacuous.builtins import BUILTINS, place_of
from delegate.judging.checks.vacuous.programs import Argv, Effect
from delegate.judging.checks.vacuous.purpose import argv
from delegate.judging.checks.vacuous.shell import Node, Place, Simple, Word
from delegate.judging.checks.vacuous.state import MAX_CALLS, Shell
from delegate.judging.checks.vacuous.statuses import CHECK, HANG, NOTHING, WORK, ZERO, Status, harmless

_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash"})
_CODE = frozenset({"assert", "def", "class", "from", "import", "lambda", "expect", "describe"})
_KEEPS_FUNCTIONS = frozenset({"time", "exec"})


def simple_command(node: Simple, shell: Shell, checked: bool) -> Status:
    """How the command may end, and whether it hides how a `$(…)` in its words ended."""
    values = [value for _, value in node.assignments if value is not None]
    inner = [(word, substituted(word, shell)) for word in (*node.words, *values)]
    if not node.words or node.words[0].literal in _DECLARES:
        for name, word in node.assignments:
            shell.variables[name] = "" if word is None else shell.value(word)
    if not node.words:
        return next((status for _, status in reversed(inner) if status), ZERO)
    before, shell.exits = shell.exits, NOTHING
    status = _command(node, shell, checked)
    if harmless(status | shell.exits):
        for word, ended in inner:
            if WORK in ended:
                shell.walk.note("substitution_hides_status", word)
    shell.exits |= before
    return status


def substituted(word: Word, shell: Shell) -> Status:
    """How the last `$(…)` in a word ends; empty when there is none."""
    status = NOTHING
    for script in word.substitutions:
        side = shell.subshell()
        side.captured, side.errexit = True, False
        status = side.ends(side.run(script))
    return status


def _command(node: Simple, shell: Shell, checked: bool) -> Status:
    name = node.words[0].literal
    shell.read_last |= any(word.reads_status for word in node.words)
    if name is None:
        return CHECK
    if name in shell.functions:
        return _call(shell.functions[name], shell, checked)
    if name in BUILTINS:
        return BUILTINS[name](node, shell, checked)
    words = argv(node)
    if programs.wraps(words):
        return _wrapped(node, words, shell)
    if (script := _script(node)) is not None:
        return _own_shell(script, shell)
    return _program(node, words, shell)


def _call(body: Node, shell: Shell, checked: bool) -> Status:
    if shell.walk.calls >= MAX_CALLS:
        return CHECK
    shell.walk.calls += 1
    inside, returns, shell.in_function, shell.returns = shell.in_function, shell.returns, True, NOTHING
    ended = shell.run(body, checked) | shell.returns
    shell.in_function, shell.returns = inside, returns
    shell.walk.calls -= 1
    return ended


def _wrapped(node: Simple, words: Argv, shell: Shell) -> Status:
    """`timeout 60 cmd` ends as `cmd` does, or with 124 when that hangs."""
    name, inner = programs.program(words), programs.unwrapped(words)
    below = Simple(node.words[len(node.words) - len(inner) :], (), start=node.start, end=node.end)
    functions = shell.functions
    shell.functions = functions if name in _KEEPS_FUNCTIONS else {}
    status = shell.run(below, checked=True)
    shell.functions = functions
    if name == "exec":
        shell.exits |= status
        return NOTHING
    return (status - {HANG}) | {WORK} if HANG in status else status


# ------------------------------------------------------------------------------------------------------- programs


def _program(node: Simple, words: Argv, shell: Shell) -> Status:
    name, setting = programs.program(words), shell.setting
    if name in _SHELLS and setting.stdin and all((word or "").startswith("-") for word in words[1:]):
        side = shell.subshell()
        return side.ends(side.run(shell.walk.read(setting.stdin, Place(within=(node.start, node.end)))))
    if programs.discards_work(words):
        shell.walk.note("discards_work", node, alone=True)
    if name.startswith("@") or (name in _CODE and not shell.sourced):
        shell.walk.note("not_shell", node, alone=True)
    effect = programs.effect(words, replace(setting, there=shell.there))
    if effect.rule:
        shell.walk.note(effect.rule, node, alone=effect.rule == "tool_flag" and not shell.captured)
    _wrote(words, effect, shell)
    return effect.status


def _wrote(words: Argv, effect: Effect, shell: Shell) -> None:
    """Keep account of the files that this very command made. Anything unknown may have changed them."""
    name = programs.program(words)
    if name in ("touch", "tee", "mkdir"):
        kind = "output" if name == "tee" and not shell.setting.constant_input else "constant"
        shell.there |= {word: kind for word in words[1:] if word and not word.startswith("-")}
    elif effect.status == CHECK and programs.may_write(words):
        shell.there.clear()


# ---------------------------------------------------------------------------------------------- a shell of its own


@dataclass(frozen=True, slots=True)
class _Script:
    """What stands behind the `-c` of a shell, and the options before it."""

    word: Word
    options: Mapping[str, bool]


def _script(node: Simple) -> _Script | None:
    """The script of a shell that is called here, by whatever program."""
    for place, word in enumerate(node.words):
        if programs.program([word.literal]) in _SHELLS:
            return _after_c(node.words[place + 1 :])
    return None


def _after_c(words: Sequence[Word]) -> _Script | None:
    options, command = {"errexit": False, "pipefail": False}, False
    for place, word in enumerate(words):
        text = word.literal or ""
        if text[:1] in ("-", "+") and not text.startswith("--"):
            command |= "c" in text
            options["errexit"] |= "e" in text
        elif place and (words[place - 1].literal or "").endswith("o"):
            options[text] = True
        elif not text.startswith("--"):
            return _Script(word, options) if command else None
    return None


def _own_shell(script: _Script, shell: Shell) -> Status:
    if script.word.literal is None:
        return CHECK
    side = shell.subshell()
    side.functions, side.variables, side.last = {}, {}, ZERO
    side.errexit, side.pipefail = script.options["errexit"], script.options["pipefail"]
    return side.ends(side.run(shell.walk.read(script.word.literal, place_of(script.word))))
