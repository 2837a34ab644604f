"""Reads a command line as bash would, as far as that is known before it runs, for rules to be compared with.

    command line ──▶ simple commands: words without quotes ──▶ readings: what a wrapper or `sh -c` runs, resolved paths

Nothing is run. What only a run can show (a substitution, a variable from elsewhere, what is piped to a shell) is an
open reading: its text is what is known before that, and a rule applies if it could match any continuation.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os.path import basename, expanduser, isdir, join, lexists

from delegate.policy.inline import is_interpreter, runs_code
from delegate.policy.paths import (
    MAX_NAMES,
    NOWHERE,
    below,
    expanded,
    is_followed,
    is_path,
    other_names,
    real_path,
    resolved_word,
)

MAX_CHARS = 200_000
MAX_WORDS = 2_000
"""Longer command lines aren't read."""
MAX_DEPTH = 8
"""How deep commands in commands are read."""
_MAX_FOLDERS = 4
_MAX_PLACES = 16
"""So many arguments of a program are looked at as folders in which it may run something."""
_MAX_STARTS = 200
"""In so many places of a program's arguments another command may begin."""

_OPEN, _NUMBER = "\0", "\1"
"""What isn't known of a word, and a number that isn't known."""
_ACTIVE = dict(zip("{,}*?[~", map(chr, range(0xE000, 0xE007)), strict=True))
"""Characters that aren't quoted, and so mean something."""
_SPLIT = "\ue007"
"""Where the value of a variable is split into words."""
_AS_WRITTEN = str.maketrans({marker: char for char, marker in _ACTIVE.items()})
_UNREADABLE = re.compile(f"[{_OPEN}{_NUMBER}{_SPLIT}{''.join(_ACTIVE.values())}]")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|;|&&|\|\||\|&|\||&(?!>)|\(|\)")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-?|<>|<&|>>|>&|>\||[<>](?!\())|(&>>?)")
_BRACES = re.compile("\ue000([^\ue000\ue002]*)\ue002")
_GLOB = re.compile("[\ue003\ue004]|\ue005.*]", re.DOTALL)
_RANGE = re.compile(r"(-?\d{1,4}|[a-zA-Z])\.\.(-?\d{1,4}|[a-zA-Z])")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MENTION = re.compile(r"(?<![\w$./])(?<!\$\{)(?<!-(?=\w\b))[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?\+?=")
_C_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
"""A shell's option that a command follows."""
_BEFORE_A_COMMAND = frozenset(
    ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "-p", "coproc", "function")
)
_ONLY_SAY = frozenset(("echo", "exit", "return", "test", "[", "[[", "true", ":"))
"""Programs for which it doesn't matter what isn't known of their arguments."""
_FIXED = frozenset(("HOME", "USER", "LOGNAME", "HOSTNAME", "SHELL", "TMPDIR", "LANG", "PATH", "VIRTUAL_ENV", "CI"))
"""Variables of the environment, which mean what they always do unless the command changes them."""
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish"))
_TAKE_CODE = frozenset(("eval", "trap", "alias", "watch", "script", "su", "runuser", "ssh", "parallel", "flock"))
"""Programs with commands as text in their arguments."""
_WRAPPERS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("command", "builtin", "nohup", "setsid", "busybox", "toybox", "chronic", "unbuffer"), ("", 0)),
    **dict.fromkeys(("time", "exec", "stdbuf", "unshare", "catchsegv", "xvfb-run"), ("aioef", 0)),
    **dict.fromkeys(("npx", "bunx", "pipx", "rlwrap", "eatmydata", "fakeroot", "firejail", "proot"), ("p", 0)),
    **dict.fromkeys(("chroot", "flock", "taskset", "chrt", "setarch"), ("cpw", 1)),
    **dict.fromkeys(("nice", "ionice"), ("nc", 0)),
    **dict.fromkeys(("sudo", "doas", "pkexec"), ("ugpChrtTUDRa", 0)),
    **dict.fromkeys(("timeout", "gtimeout"), ("ks", 1)),
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "bundle"), ("", 1)),
    **dict.fromkeys(("strace", "ltrace"), ("epoEsPSIuaX", 0)),
    **dict.fromkeys(("xargs", "gxargs"), ("adEILnPs", 0)),
    "env": ("uCS", 0),
}
"""Programs that run another one: their short options that take a value, and how many words come before its name."""
_READ_ARGUMENTS = ("xargs", "gxargs")
_ONLY_READ = frozenset(("cat", "head", "tail", "wc", "grep", "rg", "ls", "diff", "cmp", "stat", "file", "sort", "uniq",
                        "cut", "tr", "tee", "cp", "mv", "rm", "mkdir", "touch", "chmod", "ln", "du", "git", "cd", ">",
                        *_ONLY_SAY))  # fmt: skip
"""Programs that don't run the files that they are given."""
_TAKE_NAMES = frozenset((
    *_ONLY_READ, "which", "whereis", "type", "help", "info", "apropos", "whatis", "unalias", "unset", "read",
    "set", "rmdir", "unlink", "sed", "awk", "gawk", "mawk", "jq", "yq", "kill", "pkill", "killall", "service",
    "systemctl", "gcc", "cc", "g++", "clang", "clang++", "javac", "rustc", "rustfmt", "pip", "pip3", "gh", "aws",
    "gcloud", "curl", "unzip", "gzip", "gunzip", "pytest", "ruff", "mypy", "black", "isort", "flake8", "pylint",
    "pyright", "prettier", "eslint", "tsc", "jest", "vitest", "clang-format", "gofmt", "shellcheck", "find", "fd",
    "fdfind", "make", "gmake", "man",
))  # fmt: skip
"""Programs that run no command of their arguments. Of all others it is assumed that they may."""
_TAKE_OPTIONS = frozenset(("make", "gmake", "man", "sort"))
"""Programs of these that run what one of their options or variables says."""
_RUN_AFTER = {
    **dict.fromkeys(("docker", "podman", "kubectl", "nerdctl"), ("exec", "run", "debug", "create", "--")),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun"), ("exec", "x", "dlx")),
    **dict.fromkeys(("conda", "mamba"), ("run",)),
    "cmake": ("env", "time"),
}
"""Programs that run a command of their arguments only after one of these words."""
_GIT_RUNS = frozenset(("bisect", "rebase", "submodule", "filter-branch", "difftool", "mergetool",
                       "for-each-repo", "config"))  # fmt: skip
_MAKE_LINKS = frozenset(("ln", "link", "cp", "mv", "rsync", "install", "mount", "bindfs"))
"""Programs that make something known under another name."""
_NO_PROGRAM = re.compile(r"-|[\d.]+[smhd]?$")
"""The rest of a test, or the duration that a wrapper gets."""
_WHERE = re.compile(
    r"(?:-C|--(?:directory|chdir|cwd|work-tree|git-dir|working-directory|wd|prefix|root)=?)(.*)", re.DOTALL
)
"""An option that says where a program runs."""
_LOADS_CODE = frozenset(("BASH_ENV", "ENV", "PROMPT_COMMAND", "PERL5OPT", "PERL5DB", "RUBYOPT", "PYTHONSTARTUP",
                         "LD_PRELOAD", "LD_AUDIT"))  # fmt: skip
_LOADS = re.compile(r"-r\b|--(require|import|loader|experimental-loader)\b")
"""Variables by which a program runs other code, and options in NODE_OPTIONS that do."""
_IMPLIED = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun"), ("package.json",)),
}
_OF_A_MODULE = (".py", "/__main__.py")
_OPTION = re.compile(r"^-{0,2}[\w.-]+=(?=.)")
_RUN_OTHERS = frozenset((*_WRAPPERS, *_SHELLS, *_TAKE_CODE, "find", "fd", "fdfind"))
_EXEC = frozenset(("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"))


@dataclass(frozen=True, slots=True)
class Reading:
    """A command as text. If it is open, it goes on in a way that isn't known."""

    text: str
    is_open: bool = False
    is_derived: bool = False
    """Whether it isn't what the line itself says, but what comes of it: without its wrapper, or its folder."""
    asks: bool = False
    """Whether it isn't known to be run: a person has to decide."""
    elsewhere: str = ""
    """The same in another workspace, if it has the workspace's path in it. What matches this too is about any path."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A program with its arguments, or a redirection, and the folders where it may run."""

    words: tuple[str, ...]
    folders: tuple[str, ...]
    is_redirect: bool = False
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the line has made known under another name before: paths, by the paths of their links or copies."""
    runs_written: bool = False
    """Whether it runs a file that the line writes before."""
    variables: tuple[str, ...] = ()
    """Variables that are set for it, such as `PAGER=cat`."""

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2]


@dataclass(slots=True)
class Line:
    """A command line. `is_known` says whether all of it could be read, and nothing in it is open."""

    commands: list[Simple] = field(default_factory=list[Simple])
    is_known: bool = True
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """What it makes known under another name."""

    def spellings(self, *, only_followed: bool) -> Iterator[tuple[str, ...]]:
        """Per command, the texts for what it is: itself, or with the paths to which its own paths lead.

        With `only_followed`, those that are themselves are left out.
        """
        for command in self.commands:
            for folder in command.folders:
                if any(is_followed(folder, word) for word in command.words[1:]):
                    yield tuple(" ".join(_resolved(command, folder, place)) for place in ("", command.folders[0]))
                elif not only_followed:
                    yield (" ".join(command.words),)

    def readings(self) -> Iterator[Reading]:
        """All that the line may run, as far as that can be read."""
        if not self.is_known and not self.commands:
            yield Reading("", is_open=True)
        for command in self.commands:
            yield _reading(command.words)
            if command.words[0] not in _ONLY_SAY:
                yield from _meant(command)

    def names(self) -> dict[str, bool]:
        """What may be names of files, and whether a program that gets the name may run the file."""
        names: dict[str, bool] = {}
        own = [(command.words[0], command.words, command.folders) for command in self.commands]
        texts = {tuple(reading.text.split()) for reading in self.readings()}
        folders = self.commands[-1].folders if self.commands else ()
        commands = (*own, *((words[0], words, folders) for words in texts if words))
        run_all = any(_runs_input(basename(first), words[1:]) for first, words, _ in commands)
        for first, words, where in commands:
            program = first.rpartition("/")[2]
            is_run = run_all or "/" in first or program not in _ONLY_READ
            implied = [word.replace(".", "/") + end for word in words[1:] if "-m" in words for end in _OF_A_MODULE]
            for name in (*words, *_IMPLIED.get(program, ()), *implied):
                for path in (join(folder, _OPTION.sub("", name)) for folder in where):
                    names[path] = names.get(path, False) or (is_run and (name != first or "/" in name))
        return names

    @property
    def folders(self) -> set[str]:
        """Where its commands may run."""
        return {folder for command in self.commands for folder in command.folders}


def read(text: str, folder: str) -> Line:
    """A command line that runs in `folder`. If it can't be read, it has no commands and isn't known."""
    return _read(text, (folder,), 0)


def _read(text: str, folders: tuple[str, ...], depth: int, links: Mapping[str, str] | None = None) -> Line:
    if depth <= MAX_DEPTH and len(text) <= MAX_CHARS and not _UNREADABLE.search(text):
        with suppress(_UnreadableError, RecursionError):
            return _Shell(text, folders, depth, links).line()
    return Line(is_known=False)


def _meant(command: Simple) -> Iterator[Reading]:
    """What a command stands for: with its paths followed, and without what it is run by."""
    ways = list(_ways(command))
    yield from map(_reading, ways[1:])
    for folder in command.folders:
        for words in (_resolved(command, folder, command.folders[0]), _as_folders(command, folder, command.folders[0])):
            whole = _reading(words)
            yield replace(whole, elsewhere=whole.text.replace(command.folders[0], NOWHERE))
        yield from _by_other_names(command, folder)
    for words in ways if not command.is_redirect else ():
        yield from (replace(reading, is_derived=True) for reading in _derived_by_way(command, words, 0))
    for name, _, text in (one_set.partition("=") for one_set in command.variables):
        yield from (
            replace(reading, is_derived=True, asks=True) for reading in _of_text(text, command, 0) if reading.text
        )
        if name in _LOADS_CODE or (name == "NODE_OPTIONS" and _LOADS.search(text)):
            yield _ASKS
    if command.runs_written:
        yield _ASKS


_ASKS = Reading("", is_open=True, is_derived=True, asks=True)
"""Something that only a person can decide about."""


def _reading(words: Sequence[str]) -> Reading:
    if words[0] in _ONLY_SAY or words[0].startswith("-"):  # the latter is the rest of a test
        return Reading(re.sub(f"[{_OPEN}{_NUMBER}]", "", " ".join(words)))
    text = " ".join(words).replace(_NUMBER, _OPEN)
    known, is_open, _ = text.partition(_OPEN)
    return Reading(known, bool(is_open))


def _resolved(command: Simple, folder: str, place: str = "") -> list[str]:
    """The words with their paths once links and `..` are followed, those in the workspace below `place`."""
    root, sure, links = command.folders[0], command.is_redirect, command.links
    return [
        command.words[0],
        *(resolved_word(root, folder, word, place, sure=sure, links=links) for word in command.words[1:]),
    ]


def _as_folders(command: Simple, folder: str, place: str = "") -> list[str]:
    """The same, with a `/` after folders: who names one means what is in it."""
    words = _resolved(command, folder, place)
    for at, word in enumerate(command.words[1:], 1):
        path = _OPTION.sub("", word)
        if not word.endswith("/") and is_path(path) and isdir(real_path(folder, path, command.links)):
            words[at] += "/"
    return words


def _by_other_names(command: Simple, folder: str) -> Iterator[Reading]:
    """The words with the other names of files that have hard links. Names outside of the workspace aren't known."""
    root, words = command.folders[0], _resolved(command, folder)
    for at, word in enumerate(command.words[1:], 1):
        path = _OPTION.sub("", word).removeprefix("@")
        if not root or not is_path(path):
            continue
        names, are_all = other_names(root, real_path(folder, path, command.links))
        for name in names:
            yield _reading([*words[:at], below(root, name), *words[at + 1 :]])
        if not are_all:
            yield Reading(" ".join([*words[:at], "/"]), is_open=True, asks=True)


def _derived_by_way(command: Simple, words: tuple[str, ...], depth: int) -> Iterator[Reading]:
    for reading in _derived(replace(command, words=words), depth):
        if words == command.words or reading.text or not reading.asks:  # code isn't a path
            yield reading


def _derived(command: Simple, depth: int) -> Iterator[Reading]:
    words = command.words
    if _OPEN in words[0] or depth > MAX_DEPTH:
        yield Reading(words[0].partition(_OPEN)[0] if depth <= MAX_DEPTH else "", is_open=True)
        return
    if _OPEN in "".join(words):  # what isn't known may be nothing
        yield Reading(" ".join(filter(None, (word.replace(_OPEN, "") for word in words))))
    for folder in command.folders:
        resolved = resolved_word(command.folders[0], folder, words[0], links=command.links)
        for name in {command.program, resolved.rpartition("/")[2]} - {words[0]}:
            yield _reading((name, *words[1:]))
            yield from _inner(replace(command, words=(name, *words[1:])), depth)
    yield from _inner(command, depth)


def _inner(command: Simple, depth: int) -> Iterator[Reading]:
    program, arguments = command.words[0], command.words[1:]
    yield from _run_by_wrapper(command, depth)
    if program in _SHELLS:
        yield from _run_by_shell(command, depth)
    elif program in _TAKE_CODE:
        if program == "parallel" and all(re.match(r"-|\d+$", word) for word in arguments):
            yield Reading("", is_open=True)
        for text in (" ".join(arguments), *arguments):
            yield from _of_text(text.partition("=")[2] if program == "alias" else text, command, depth)
    elif program in (".", "source") and _is_unknown_file(arguments):
        yield Reading("", is_open=True)
    elif program == "git":
        yield from _run_by_git(command)
    if runs_code(program, arguments):
        yield _ASKS
    has_script = bool(arguments) and not any(map(_C_OPTION.fullmatch, arguments))
    if program not in _WRAPPERS and depth < MAX_DEPTH and (program not in _SHELLS or has_script):
        yield from _may_run(command)


def _run_by_wrapper(command: Simple, depth: int) -> Iterator[Reading]:
    program, arguments = command.words[0], command.words[1:]
    wrapped = list(_wrapped(program, arguments))
    if wrapped:  # which options have a value isn't always as it is known
        before = len(arguments) - max(map(len, wrapped)) if program not in _READ_ARGUMENTS else 0
        for at in range(min(before, _MAX_PLACES)):
            yield replace(_reading(arguments[at:]), asks=True)
    for at, word in enumerate(arguments[:-1]):
        if program in ("find", "fd", "fdfind") and word in _EXEC:
            wrapped.append(tuple(_OPEN if "{}" in other else other for other in arguments[at + 1 :]))
    for inner in wrapped:
        yield _reading(inner)
        yield from _derived(replace(command, words=inner), depth + 1)


def _may_run(command: Simple) -> Iterator[Reading]:
    program, words = command.words[0], command.words
    texts = [word for word in words[1:] if re.search(r"\s", word)]
    texts += [
        text for word in words[1:] if word.startswith("-") for text in (word.partition("=")[2], word.rpartition("=")[2])
    ]
    if program in _TAKE_OPTIONS:
        values = [word for before, word in pairwise(words) if before.startswith("-")]
        texts = [*values, *(word.partition("=")[2] for word in words[1:])]
    elif program in _TAKE_NAMES or _NO_PROGRAM.match(program):
        return
    else:
        yield from _may_begin(command)
    if len(texts) > _MAX_STARTS:
        yield _ASKS
        return
    for text in filter(None, texts):
        yield from (replace(reading, asks=True) for reading in _of_text(text, command, MAX_DEPTH - 1) if reading.text)


def _may_begin(command: Simple) -> Iterator[Reading]:
    program, words = command.words[0], command.words
    first = 1
    if (after := _RUN_AFTER.get(program)) is not None:
        first = next((at for at, word in enumerate(words[1:], 1) if word in after), len(words)) + 1
    unknown = next((at for at, word in enumerate(words[first:], first) if not word.startswith("-")), 0)
    if len(words) > _MAX_STARTS:
        yield _ASKS
        return
    for at in range(first, len(words)):
        if words[at].startswith("-") or not words[at] or (words[at].startswith(_OPEN) and at != unknown):
            continue
        inner = replace(command, words=(basename(words[at]) or words[at], *words[at + 1 :]))
        yield replace(_reading(inner.words), asks=True)
        if inner.program in _RUN_OTHERS or is_interpreter(inner.program):
            yield from (replace(reading, asks=True) for reading in _inner(inner, MAX_DEPTH - 1))


def _run_by_shell(command: Simple, depth: int) -> Iterator[Reading]:
    """What a shell runs: the text after `-c`; else a script, which isn't read; else what it gets from its stdin."""
    arguments = command.words[1:]
    operands = [word for word in arguments if not word.startswith(("-", "+"))]
    if any(map(_C_OPTION.fullmatch, arguments)):
        for text in operands:
            yield from _of_text(text, command, depth)
    elif "-s" in arguments or ("--version" not in arguments and _is_unknown_file(operands)):
        yield Reading("", is_open=True)


def _runs_input(program: str, arguments: Sequence[str]) -> bool:
    """Whether what a program gets from other commands may be run."""
    if program in _SHELLS:
        operands = [word for word in arguments if not word.startswith(("-", "+"))]
        return "-s" in arguments or _is_unknown_file(operands)
    if program in (*_READ_ARGUMENTS, "parallel"):
        return True
    return (is_interpreter(program) and runs_code(program, arguments)) or (
        program in (".", "source") and _is_unknown_file(arguments)
    )


def _is_unknown_file(operands: Sequence[str]) -> bool:
    """Whether a shell gets its commands from what isn't a file with a known name, such as its stdin."""
    return not operands or _OPEN in operands[0] or operands[0].startswith(("/dev/", "/proc/"))


def _of_text(text: str, within: Simple, depth: int) -> Iterator[Reading]:
    if _OPEN in text:
        yield Reading("", is_open=True)
        return
    line = _read(text, within.folders, depth + 1, within.links)
    if not line.is_known and not line.commands:
        yield Reading("", is_open=True)
    for command in line.commands:
        for words in _ways(command):
            yield _reading(words)
            yield from _derived_by_way(command, words, depth + 1)


def _ways(command: Simple) -> Iterator[tuple[str, ...]]:
    """The words as they are, and with the paths to which theirs lead."""
    ways = {command.words: None}
    if command.words[0] not in _ONLY_SAY:
        for folder in command.folders:
            ways |= {tuple(_resolved(command, folder)): None, tuple(_as_folders(command, folder)): None}
    yield from ways


def _wrapped(program: str, arguments: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands that a wrapper may run: after its options, which may have values, and words such as a duration."""
    if program not in _WRAPPERS:
        return
    with_value, before = _WRAPPERS[program]
    is_value = may_be_value = False
    least = most = 0
    for at, word in enumerate(arguments):
        if program == "env" and re.match(r"-\w*S|--split-string", word):
            yield (_OPEN,)
        if word.startswith("-") and not is_value:
            is_value = len(word) == 2 and word[1] in with_value
            may_be_value = word.startswith("--") and len(word) > 2 and "=" not in word
        elif is_value or _ASSIGNMENT.match(word):
            is_value = may_be_value = False
        else:
            if most >= before:
                yield arguments[at:] if program not in _READ_ARGUMENTS else _with_arguments(arguments, at)
            if least >= before and not may_be_value:
                return
            most, least, may_be_value = most + 1, least + (not may_be_value), False


def _with_arguments(arguments: tuple[str, ...], at: int) -> tuple[str, ...]:
    """What xargs runs: words that it reads follow, or take the place of a mark."""
    marks = {word[2:] or after for word, after in pairwise(arguments) if word.startswith("-I")} | {"{}"}
    return (*(_OPEN if any(mark in word for mark in marks) else word for word in arguments[at:]), _OPEN)


def _run_by_git(command: Simple) -> Iterator[Reading]:
    """A git command without the options that come before its name, and what it may run: the values of its
    configuration, and the commands of those of its own that take any.
    """
    words, at = command.words, 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-c" and words[at + 1 : at + 2] and words[at + 1].lower().startswith("alias."):
            yield Reading("", is_open=True)
        takes_value = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env")
        at += 2 if words[at] in takes_value else 1
    if at > 1:
        yield _reading(("git", *words[at:]))
    texts = [after.partition("=")[2] for word, after in pairwise(words) if word in ("-c", "--config-env")]
    if _GIT_RUNS.intersection(words):
        texts += [" ".join(words[at:]) for at in range(2, min(len(words), _MAX_PLACES))]
        texts += [text for word in words[2:] for text in (word, word.partition("=")[2]) if re.search(r"\s", text)]
    for text in filter(None, texts):
        readings = _of_text(text.removeprefix("!"), command, MAX_DEPTH - 1)
        yield from (replace(reading, asks=True) for reading in readings if reading.text)


class _UnreadableError(Exception):
    """The text isn't a command line, or too large a one."""


class _Shell:
    """Goes through a command line once, from left to right, and through the bodies of `for` loops once per value."""

    def __init__(self, text: str, folders: tuple[str, ...], depth: int, links: Mapping[str, str] | None = None) -> None:
        self._text, self._folders, self._depth = text, folders, depth
        self._at = self._words = self._cases = 0
        self._is_lost = False
        """Whether it isn't known in which folder the next command runs."""
        self._found = Line()
        self._variables: dict[str, str] = {}
        self._links: dict[str, str] = dict(links or {})
        self._written: set[str] = set()
        self._loops: list[tuple[str, list[str], int] | None] = []
        self._heredocs: list[tuple[str, bool, bool]] = []
        self._mentions = Counter(_MENTION.findall(text))
        """How often each name stands where it may be set. What is mentioned twice isn't known."""

    def line(self) -> Line:
        self._commands(end="")
        self._found.is_known = not any(_reading(command.words).is_open for command in self._found.commands)
        self._found.links = self._links
        return self._found

    def _commands(self, end: str) -> None:
        """Read commands until `end`, which is a parenthesis or the end of the text."""
        words: list[str] = []
        cases = self._cases
        while True:
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            if self._at >= len(self._text):
                if end:
                    raise _UnreadableError
                self._add(words)
                words = []
                if self._at >= len(self._text):  # else a loop begins anew
                    return
                continue
            if self._text[self._at] == "#":
                self._at = self._find("\n", or_end=True)
            elif redirect := _REDIRECT.match(self._text, self._at):
                self._redirect(redirect)
            elif operator := _OPERATOR.match(self._text, self._at):
                if self._operator(operator, words, end, cases):
                    return
                words = []
            else:
                words += self._word()

    def _operator(self, match: "re.Match[str]", words: list[str], end: str, cases: int) -> bool:
        """Take what stands before an operator. Returns whether it is the end. `cases` are those open outside of it."""
        operator, self._at = match[0], match.end()
        if operator == "(" and words and words[-1].endswith("="):
            words[-1] += _OPEN  # an array
        self._add(words)
        if self._at != match.end():  # a loop begins anew
            return False
        if operator == "(":
            self._commands(end=")")
        elif operator == "\n":
            self._skip_heredocs()
        elif operator == ")" and self._cases == cases:
            if end != ")":
                raise _UnreadableError
            return True
        return False

    def _add(self, words: list[str]) -> None:
        """Take the words of a simple command, behind keywords and assignments."""
        self._count(len(words) + 1)
        while words and words[0] in _BEFORE_A_COMMAND:
            if (keyword := words.pop(0)) in ("while", "until"):
                self._loops.append(None)
            elif keyword == "function":
                words[:1] = []
        match words:
            case ["for" | "select", _, *_]:
                self._start_loop(words)
            case ["done", *_]:
                self._end_loop()
            case ["case", *_]:
                self._cases += 1
            case ["esac", *_]:
                self._cases -= 1
            case [] | ["fi" | "}", *_]:
                pass
            case _:
                self._add_command(words)

    def _count(self, words: int) -> None:
        self._words += words
        if self._words > MAX_WORDS:
            raise _UnreadableError

    def _add_command(self, words: list[str]) -> None:
        assigned = list[str]()
        is_declared = words[0] in ("export", "declare", "readonly", "local", "typeset")
        words = words[1:] if is_declared and any(map(_ASSIGNMENT.match, words)) else words
        while words and (name := _ASSIGNMENT.match(words[0])):
            assigned.append(name[1])
            value = words.pop(0)[name.end() :]
            self._variables[name[1]] = value if name[0] == f"{name[1]}=" else _OPEN
        if words:
            assignments = tuple(f"{name}={value}" for name in assigned if _OPEN not in (value := self._variables[name]))
            self._variables.update(dict.fromkeys(assigned, _OPEN))  # they hold for this command only
            self._simple((words[0], _OPEN, *words[1:]) if self._is_lost else tuple(words), variables=assignments)

    def _simple(self, words: tuple[str, ...], *, is_redirect: bool = False, variables: tuple[str, ...] = ()) -> None:
        folders = self._folders if is_redirect else (*self._folders, *self._places(words))
        links = dict(self._links) if self._links else self._links
        runs = not is_redirect and self._runs_written(words)
        self._found.commands.append(Simple(words, tuple(dict.fromkeys(folders)), is_redirect, links, runs, variables))
        if words[0] in ("cd", "pushd") and not is_redirect:
            target = next((word for word in words[1:] if not word.startswith("-")), "~")
            self._is_lost |= _OPEN in target
            there = (real_path(folder, target, links) for folder in self._folders if folder and not self._is_lost)
            self._folders = tuple(dict.fromkeys((*self._folders, *there)))
            if len(self._folders) > _MAX_FOLDERS:
                raise _UnreadableError
        elif is_redirect:
            self._written |= set(self._paths(words[1:])) if words[0] == ">" else set()
        elif basename(words[0]) in ("tee", "dd"):
            self._written |= set(self._paths([word.removeprefix("of=") for word in words[1:]]))
        elif basename(words[0]) in _SHELLS:
            for text in (word for word in words[1:] if re.search(r"\s", word) and _OPEN not in word):
                self._links |= _read(text, self._folders, self._depth + 1, self._links).links
        else:
            self._link_by(words)

    def _link_by(self, words: Sequence[str]) -> None:
        """Remember what ln and its like do, also where another program runs them."""
        for at, word in enumerate(words[:_MAX_PLACES]):
            if basename(word) in _MAKE_LINKS and (at == 0 or basename(words[0]) not in _TAKE_NAMES):
                self._link(
                    [operand for operand in words[at + 1 :] if not operand.startswith("-") and _OPEN not in operand]
                )
                return

    def _paths(self, words: Sequence[str]) -> list[str]:
        paths = [word for word in words if is_path(word)]
        return [real_path(folder, path, self._links) for folder in filter(None, self._folders) for path in paths]

    def _runs_written(self, words: tuple[str, ...]) -> bool:
        """Whether a shell, an interpreter or the name of a file runs what the line has written."""
        program = basename(words[0])
        if not self._written or (program in _ONLY_READ and "/" not in words[0]):
            return False
        runs = program in (*_RUN_OTHERS, ".", "source") or is_interpreter(program)
        named = (*words, *_IMPLIED.get(program, ())) if runs or program in _IMPLIED else words[:1]
        return not self._written.isdisjoint(self._paths(named))

    def _places(self, words: tuple[str, ...]) -> list[str]:
        """The other folders in which a program may run: that of an option, and unless it only reads, of any word."""
        places: list[str] = []
        chained = list(self._folders)
        for at, word in enumerate(words[1:], 1):
            if (option := _WHERE.fullmatch(word)) is None:
                continue
            value = option[1] or (words[at + 1] if at + 1 < len(words) else "")
            if is_path(value) and _OPEN not in value:
                chained = [real_path(folder, value, self._links) for folder in chained if folder]
                places += [*chained, *(real_path(folder, value, self._links) for folder in self._folders if folder)]
                if len(places) > _MAX_PLACES * _MAX_FOLDERS:
                    raise _UnreadableError
        if basename(words[0]) in _ONLY_READ or words[0].startswith("-"):
            return places
        last, named = self._folders[-1], (_OPTION.sub("", word) for word in words[1 : _MAX_PLACES + 1])
        known = [name for name in named if last and _OPEN not in name and is_path(name)]
        return places + [path for name in known if isdir(path := real_path(last, name, self._links))]

    def _link(self, operands: Sequence[str]) -> None:
        """Remember what a link, a copy or a file that is moved is, also by the name that it gets in a folder."""
        *targets, name = operands if len(operands) > 1 else [*operands, "."]
        for folder in filter(None, self._folders):
            for target in targets:
                if not (is_path(target) and is_path(name)):
                    continue
                real = real_path(folder, target, self._links)
                place = join(folder, name.rstrip("/"))
                inside = f"{real_path(folder, name, self._links)}/{basename(target.rstrip('/'))}"
                for link in (real_path(folder, name, self._links) if not lexists(place) else "", inside):
                    if link and link != real and not real.startswith(f"{link}/"):
                        self._links.setdefault(link, real)

    def _start_loop(self, words: list[str]) -> None:
        values = words[3:] if words[2:3] == ["in"] else [_OPEN]
        name, *rest = words[1], *(values if len(values) <= MAX_NAMES else [_OPEN])
        self._variables[name] = rest.pop(0) if rest else ""
        self._loops.append((name, rest, self._at))

    def _end_loop(self) -> None:
        if self._loops and (loop := self._loops.pop()) and loop[1]:
            name, rest, start = loop
            self._variables[name] = rest[0]
            self._loops.append((name, rest[1:], start))
            self._at = start

    def _redirect(self, match: "re.Match[str]") -> None:
        operator, self._at = match[1] or match[2], match.end()
        if blank := _BLANK.match(self._text, self._at):
            self._at = blank.end()
        start = self._at
        target = self._word()[:1] or [""]
        if operator in ("<<", "<<-"):
            is_quoted = any(char in "'\"\\" for char in self._text[start : self._at])
            self._heredocs.append((target[0], is_quoted, operator == "<<-"))
        elif operator != "<<<" and not re.fullmatch(r"\d*-?", target[0]) and target[0] != "/dev/null":
            self._simple((">" if ">" in operator else "<", *target), is_redirect=True)

    def _skip_heredocs(self) -> None:
        """Go over the texts that begin here. In one whose end isn't quoted, substitutions are run."""
        for end, is_quoted, has_tabs in self._heredocs:
            body = self._at
            while True:
                stop = self._find("\n", or_end=True)
                line = self._text[self._at : stop]
                is_end = (line.lstrip("\t") if has_tabs else line) == end
                if is_end or stop >= len(self._text):
                    break
                self._at = stop + 1
            last, self._at = self._at if is_end else stop, stop
            if not is_quoted:
                inner = _Shell(self._text[body:last] + '"', self._folders, self._depth + 1, self._links)
                inner._double(is_heredoc=True)
                self._found.commands += inner._found.commands
        self._heredocs = []

    # ------------------------------------------------------------------------------------------------ one word

    def _word(self) -> list[str]:
        """The word that begins here, or the words that its braces, its variables or its `*` stand for."""
        text, has_quotes, start = "", False, self._at
        while self._at < len(self._text):
            char, after = self._text[self._at], self._text[self._at + 1 : self._at + 2]
            if char in " \t\n;&|()" or (char in "<>" and after != "("):
                break
            is_quoted = char in "'\"\\" or (char == "$" and after in ("'", '"'))
            has_quotes |= is_quoted
            piece = self._piece(char, is_first=self._at == start)
            text += re.sub(r"\s+", _SPLIT, piece) if char == "$" and not is_quoted else piece
        words = [part for word in _braced(text) for part in word.split(_SPLIT)]
        return [name for word in words for name in self._named(word) if name or (has_quotes and _SPLIT not in text)]

    def _named(self, word: str) -> list[str]:
        if _GLOB.search(word) and _OPEN not in word:
            names = expanded(self._folders[-1], word, {_ACTIVE[char]: char for char in "*?["})
            return [_OPEN] if names is None else names or [word.translate(_AS_WRITTEN)]
        if word.startswith(_ACTIVE["~"]) and (len(word) == 1 or word[1] == "/"):
            return [expanduser("~") + word[1:].translate(_AS_WRITTEN)]
        return [word.translate(_AS_WRITTEN)]

    def _piece(self, char: str, *, is_first: bool) -> str:
        if char in "<>":  # a process whose output or input is a file
            self._at += 2
            self._commands(end=")")
            return _OPEN
        if char == "$":
            return self._dollar(is_quoted=False)
        self._at += 1
        if char == "'":
            start, stop = self._at, self._find("'")
            self._at = stop + 1
            return self._text[start:stop]
        if char == '"':
            return self._double()
        if char == "`":
            return self._backquoted()
        if char == "\\":
            self._at += 1
            return self._text[self._at - 1 : self._at].replace("\n", "")
        return _ACTIVE.get(char, char) if char != "~" or is_first else char

    def _double(self, *, is_heredoc: bool = False) -> str:
        text = ""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "$":
                text += self._dollar(is_quoted=True)
                continue
            self._at += 1
            if char == '"' and (not is_heredoc or self._at == len(self._text)):
                return text
            if char == "`":
                text += self._backquoted()
            elif char == "\\" and self._text[self._at : self._at + 1] in ("$", "`", '"', "\\", "\n"):
                text += self._text[self._at].replace("\n", "")
                self._at += 1
            else:
                text += char
        raise _UnreadableError

    def _dollar(self, *, is_quoted: bool) -> str:
        rest, self._at = self._text[self._at + 1 : self._at + 2], self._at + 2
        if rest == "(":
            folders = self._folders
            self._commands(end=")")
            self._folders = folders
            return _OPEN
        if rest == "{":
            return self._in_braces(is_quoted=is_quoted)
        if rest == "'" and not is_quoted:
            body = self._escaped_until("'")
            with suppress(UnicodeError):
                return body.encode("latin-1", "backslashreplace").decode("unicode_escape").replace("\0", "")
            return _OPEN
        if rest == '"' and not is_quoted:
            return self._double()
        self._at -= 1
        if name := _NAME.match(self._text, self._at):
            self._at = name.end()
            if not is_quoted and self._text[self._at : self._at + 1] in ("{", ",", "}"):
                return _OPEN  # braces come first: {$X,b}c is $Xc and bc
            return self._value(name[0], is_quoted=is_quoted)
        if rest and rest in "?#$!":
            self._at += 1
            return _NUMBER
        if rest and (rest in "@*-_" or rest.isdigit()):
            self._at += 1
            return _OPEN
        return "$" if is_quoted else _OPEN  # as in {$,b}X

    def _in_braces(self, *, is_quoted: bool) -> str:
        if (name := _NAME.match(self._text, self._at)) and self._text[name.end() : name.end() + 1] == "}":
            self._at = name.end() + 1
            return self._value(name[0], is_quoted=is_quoted)
        while self._at < len(self._text) and self._text[self._at] != "}":
            self._piece(self._text[self._at], is_first=False)
        self._at += 1
        return _OPEN

    def _value(self, name: str, *, is_quoted: bool) -> str:
        mentions = self._mentions
        if name in self._variables and mentions[name] == 1 and not mentions["IFS"]:
            value = self._variables[name]
            return value if is_quoted else "".join(_ACTIVE[char] if char in "*?[" else char for char in value)
        if mentions[name] or name in self._variables:
            return _OPEN
        if name == "IFS":
            return " \t\n" if is_quoted else " "
        if name == "PWD" and len(self._folders) == 1:
            return self._folders[0]
        return f"${name}" if name in _FIXED else _OPEN

    def _escaped_until(self, end: str) -> str:
        """What is before the next `end` that has no backslash in front, with its backslashes."""
        body = re.compile(rf"((?:\\.|[^{end}\\])*){end}", re.DOTALL).match(self._text, self._at)
        if body is None:
            raise _UnreadableError
        self._at = body.end()
        return body[1]

    def _backquoted(self) -> str:
        body = self._escaped_until("`")
        self._count(5)
        inner = _read(re.sub(r"\\([`$\\])", r"\1", body), self._folders, self._depth + 1, self._links)
        if not inner.is_known and not inner.commands:
            raise _UnreadableError
        self._found.commands += inner.commands
        return _OPEN

    def _find(self, text: str, *, or_end: bool = False) -> int:
        end = self._text.find(text, self._at)
        if end < 0 and not or_end:
            raise _UnreadableError
        return end if end >= 0 else len(self._text)


def _braced(word: str) -> list[str]:
    """The words that `{a,b}` and `{1..3}` stand for. The innermost comes first."""
    words, waiting = list[str](), [word]
    while waiting:
        part = waiting.pop(0)
        choice = next((match for match in _BRACES.finditer(part) if _choices(match[1])), None)
        if choice is None:
            words.append(part)
        else:
            waiting += [part[: choice.start()] + value + part[choice.end() :] for value in _choices(choice[1])]
        if len(waiting) + len(words) > MAX_NAMES:
            raise _UnreadableError
    return words


def _choices(body: str) -> list[str]:
    if _ACTIVE[","] in body:
        return body.split(_ACTIVE[","])
    if (match := _RANGE.fullmatch(body)) and match[1].isalpha() == match[2].isalpha():
        start, end = (ord(char) if char.isalpha() else int(char) for char in match.groups())
        numbers = range(min(start, end), max(start, end) + 1)
        return [chr(n) if match[1].isalpha() else str(n) for n in numbers]
    return []
