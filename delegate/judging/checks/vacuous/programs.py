"""What is known about programs: which can't fail, which only report, which options make a check toothless.

Facts come from the programs' own manuals. A program that isn't known here is taken to be a check of the work.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from delegate.judging.checks.vacuous.oneliners import other_can_fail, python_can_fail
from delegate.judging.checks.vacuous.shell import Unreadable
from delegate.judging.checks.vacuous.statuses import CHECK, SETUP, ZERO, Status

Argv = Sequence[str | None]
"""A command's words; None stands for what only running it would tell."""


@dataclass(frozen=True, slots=True)
class Effect:
    """How a program may end; `rule` where the reader should hear why it can't fail."""

    status: Status
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What stands around a program: its input, and the files that the command has just written, and what with."""

    piped: bool = False
    constant_input: bool = False
    stdin: str | None = None
    there: Mapping[str, str] = field(default_factory=dict[str, str])


MAX_WRAPPERS = 8
MAX_OPTION = 80
"""Longer words are no options."""

_CAN_FAIL = Effect(CHECK)
_CANNOT = Effect(ZERO)
_BESIDE = Effect(SETUP)
_REPORTS = Effect(SETUP, "only_reports")

_ALWAYS_ZERO = frozenset({
    "true", ":", "echo", "printf", "pwd", "date", "sleep", "yes", "whoami", "hostname", "uname", "id", "tty", "clear",
    "uptime", "history", "jobs", "disown", "alias", "df", "free", "nproc", "seq",
    "xargs",  # without a command of its own it is echo
})  # fmt: skip
_SETUP = frozenset({
    "touch", "mkdir", "rm", "rmdir", "unlink", "chmod", "chown", "kill", "pkill", "killall", "cd", "pushd", "popd",
    "ln", "export", "declare", "typeset", "readonly", "local", "unset", "shopt", "ulimit", "umask", "sync", "mktemp",
    "basename", "dirname", "du", "tree",
})  # fmt: skip
_FILTERS = frozenset({
    "cat", "head", "tail", "less", "more", "sort", "uniq", "tr", "cut", "wc", "nl", "tac", "rev", "column", "fold",
    "fmt", "tee", "sed", "awk", "gawk", "mawk", "xxd", "od", "base64", "paste", "ts", "strings",
})  # fmt: skip
_SCRIPTED = frozenset({"sed", "awk", "gawk", "mawk"})
_SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack"})
_WRAPPERS: Mapping[str, frozenset[str]] = {
    # name → options that take a value of their own
    "timeout": frozenset({"-k", "-s", "--signal", "--kill-after"}), "env": frozenset({"-u", "-C"}),
    "nice": frozenset({"-n"}), "ionice": frozenset({"-c", "-n"}), "nohup": frozenset(), "time": frozenset({"-f", "-o"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}), "setsid": frozenset(), "command": frozenset(), "builtin": frozenset(),
    "exec": frozenset({"-a"}), "sudo": frozenset({"-u", "-g"}), "chronic": frozenset(), "npx": frozenset({"-p"}),
    "bunx": frozenset(), "xvfb-run": frozenset({"-n", "-s"}), "unbuffer": frozenset(),
    "xargs": frozenset({"-n", "-I", "-P", "-L", "-d", "-a", "-s", "-E", "--max-args", "--max-procs", "--delimiter"}),
}  # fmt: skip
_RUNNERS: Mapping[str, frozenset[str]] = {
    "uv": frozenset({"run"}), "poetry": frozenset({"run"}), "pipenv": frozenset({"run"}), "pdm": frozenset({"run"}),
    "hatch": frozenset({"run"}), "rye": frozenset({"run"}), "bundle": frozenset({"exec"}),
    "coverage": frozenset({"run"}), "pnpm": frozenset({"exec", "dlx"}),
}  # fmt: skip
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")


def unwrapped(argv: Argv) -> Argv:
    """The command below `timeout 60`, `env X=1`, `uv run`, `python -m` and the like."""
    for _ in range(MAX_WRAPPERS):
        inner = _below_wrapper(argv)
        if not inner:
            return argv
        argv = inner
    raise Unreadable("too nested")


def wraps(argv: Argv) -> bool:
    """Whether the first word only runs the rest."""
    return bool(_below_wrapper(argv))


def _below_wrapper(argv: Argv) -> Argv | None:
    name = program(argv)
    if name in _WRAPPERS:
        rest = _after_options(argv[1:], _WRAPPERS[name])
        if name == "command" and {"-v", "-V"} & set(argv):
            return None
        return rest[1:] if name == "timeout" else rest
    if name in _RUNNERS and len(argv) > 2 and argv[1] in _RUNNERS[name]:
        rest = _after_options(argv[2:], frozenset({"--with", "--extra", "--group", "-p", "--python"}))
        return rest[1:] if rest and rest[0] == "-m" else rest
    if name.startswith("python") and len(argv) > 2 and argv[1] == "-m":
        return argv[2:]
    return None


def _after_options(argv: Argv, valued: frozenset[str]) -> Argv:
    place = 0
    while place < len(argv):
        word = argv[place] or ""
        if word == "-m" or not (word.startswith("-") or _ASSIGNS.match(word)):
            break
        place += 2 if word in valued else 1
        if word == "--":
            break
    return argv[place:]


def program(argv: Argv) -> str:
    """The program's name without its folder; empty when it can't be told."""
    return PurePosixPath(argv[0]).name if argv and argv[0] else ""


# ------------------------------------------------------------------------------------------------ how it may end


def effect(argv: Argv, setting: Setting) -> Effect:
    """How this program may end, by its name and words. `argv` is unwrapped."""
    name = program(argv)
    if toothless(argv):
        return Effect(SETUP, "tool_flag")
    if name == "false":
        return Effect(frozenset({1}))
    if name in _ALWAYS_ZERO:
        return _CANNOT
    if name in _SETUP:
        return _CAN_FAIL if name == "kill" and "-0" in argv else _BESIDE
    if name in _SEARCHES:
        return _search(argv, setting)
    if name in _FILTERS:
        return _filter(argv, setting)
    known = _KNOWN.get(re.sub(r"[\d.]+$", "", name))
    return known(argv, setting) if known else _CAN_FAIL


def _options(argv: Argv) -> list[str]:
    """The words before `--`; those that can't be told, or are too long to be an option, are empty."""
    words = [word if word and len(word) <= MAX_OPTION else "" for word in argv[1:]]
    return words[: words.index("--")] if "--" in words else words


def _operands(argv: Argv) -> list[str | None]:
    return [word for word in argv[1:] if word is None or not (word.startswith("-") or word.isdigit())]


def _search(argv: Argv, setting: Setting) -> Effect:
    files = _operands(argv)[1:]
    if files and all(file is not None and setting.there.get(file) == "constant" for file in files):
        return _BESIDE
    return _BESIDE if setting.constant_input and not files else _CAN_FAIL


def _filter(argv: Argv, setting: Setting) -> Effect:
    name, operands = program(argv), _operands(argv)
    if name in _SCRIPTED:
        if any(word is None or re.search(r"\bexit\b|\bq *[1-9]", word) for word in argv[1:]):
            return _CAN_FAIL
        operands = operands[1:]
    if setting.piped or name in ("tr", "tee"):
        return _CANNOT
    files = [word for word in operands if word is None or not (word in setting.there or word == "/dev/null")]
    return _CAN_FAIL if files else _CANNOT


def _listing(argv: Argv, setting: Setting) -> Effect:
    return _CAN_FAIL if _operands(argv) else _CANNOT


def _processes(argv: Argv, setting: Setting) -> Effect:
    return _CAN_FAIL if {"-p", "-C", "--pid"} & set(argv) else _CANNOT


def _curl(argv: Argv, setting: Setting) -> Effect:
    words = _options(argv)
    fails = any(re.fullmatch(r"--fail(-with-body|-early)?|-[a-zA-Z]*f[a-zA-Z]*", word) for word in words)
    elsewhere = any(word.startswith(("file:", "ftp:", "--config", "-K")) for word in words)
    return _CAN_FAIL if fails or elsewhere else Effect(SETUP, "curl_without_fail")


def _git(argv: Argv, setting: Setting) -> Effect:
    verb = argv[1] if len(argv) > 1 else None
    rest = argv[2:]
    if verb == "diff" and not {"--exit-code", "--quiet", "--check", "--no-index"} & set(rest):
        return _REPORTS
    if verb in ("status", "stash", "reset", "clean", "restore", "add"):
        return _REPORTS if verb == "status" else _BESIDE
    if verb in ("log", "branch", "remote", "tag") and all((word or "").startswith("-") for word in rest):
        return _REPORTS
    return _CAN_FAIL


def _find(argv: Argv, setting: Setting) -> Effect:
    return _CAN_FAIL if "+" in argv and {"-exec", "-execdir"} & set(argv) else _REPORTS


def _jq(argv: Argv, setting: Setting) -> Effect:
    fails = any(re.fullmatch(r"--exit-status|-[a-zA-Z]*e[a-zA-Z]*", word) for word in _options(argv))
    query = next(iter(_operands(argv)), None)
    if fails or query is None or not re.search(r"[=!<>]=|[<>]|\b(any|all|contains|has|test|inside)\b", query):
        return _CAN_FAIL
    return _CAN_FAIL if re.search(r"\b(error|halt_error|select)\b", query) else _REPORTS


def _gofmt(argv: Argv, setting: Setting) -> Effect:
    return _REPORTS


def _diff(argv: Argv, setting: Setting) -> Effect:
    files = [word for word in argv[1:] if word and not word.startswith("-")]
    return _CANNOT if len(files) == 2 and files[0] == files[1] != "-" else _CAN_FAIL


def _python(argv: Argv, setting: Setting) -> Effect:
    code = _given_code(argv, "-c", setting)
    return _CANNOT if code is not None and not python_can_fail(code) else _CAN_FAIL


def _other(argv: Argv, setting: Setting) -> Effect:
    code = next(
        (code for flag in ("-e", "-r", "--eval") if (code := _given_code(argv, flag, setting)) is not None), None
    )
    return _CANNOT if code is not None and not other_can_fail(code) else _CAN_FAIL


def _given_code(argv: Argv, flag: str, setting: Setting) -> str | None:
    if flag in argv[:-1]:
        return argv[argv.index(flag) + 1]
    from_stdin = all(word == "-" for word in argv[1:])
    return setting.stdin if from_stdin else None


_KNOWN: Mapping[str, Callable[[Argv, Setting], Effect]] = {
    "ls": _listing, "ps": _processes, "curl": _curl, "git": _git, "find": _find, "jq": _jq, "gofmt": _gofmt,
    "diff": _diff, "cmp": _diff, "python": _python, "pypy": _python, "node": _other, "nodejs": _other, "perl": _other,
    "ruby": _other, "php": _other, "bun": _other, "deno": _other,
}  # fmt: skip


# ----------------------------------------------------------------------------------------------- checks by name

_TEST_TOOLS = frozenset({
    "pytest", "py.test", "unittest", "tox", "nox", "jest", "vitest", "mocha", "ava", "rspec", "phpunit", "ctest",
    "bats", "playwright", "behave", "nose2",
})  # fmt: skip
_LINT_TOOLS = frozenset({
    "mypy", "pyright", "flake8", "pylint", "eslint", "tsc", "shellcheck", "golangci-lint", "bandit", "ruff", "clippy",
})  # fmt: skip
_TEST_VERBS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for names, pattern in (
        ("npm yarn pnpm bun deno", r"t|test(:.*)?"),
        ("cargo", r"test|nextest"),
        ("go dotnet swift mix", r"test"),
        ("make gmake just task", r"(.*[-_])?(tests?|check|verify)"),
        ("mvn gradle gradlew", r"test|verify|check"),
        ("manage.py", r"test"),
    )
    for name in names.split()
}


def runs_tests(argv: Argv) -> bool:
    """Whether this runs a test suite: then its exit code is what the check is about."""
    argv = unwrapped(argv)
    name = program(argv)
    if toothless(argv):
        return False
    verbs = [word for word in _options(argv) if word != "run"]
    return name in _TEST_TOOLS or (name in _TEST_VERBS and any(_TEST_VERBS[name].fullmatch(verb) for verb in verbs))


def only_checks(argv: Argv) -> bool:
    """Whether this has no other use than its exit code."""
    argv = unwrapped(argv)
    name = program(argv)
    if name in ("test", "[", "py_compile") or name in _LINT_TOOLS or runs_tests(argv):
        return not toothless(argv)
    quiet = any(re.fullmatch(r"-[a-zA-Z]*[qs][a-zA-Z]*|--quiet|--silent|--brief", word) for word in _options(argv))
    return quiet and name in (*_SEARCHES, "cmp", "diff")


def may_write(argv: Argv) -> bool:
    """Whether running this may change files that were there before."""
    return program(argv) not in _FILTERS | _SEARCHES | {"ls"} and not only_checks(argv)


def searches(argv: Argv) -> bool:
    """Whether this looks for a text in what it reads."""
    return program(unwrapped(argv)) in _SEARCHES


# ------------------------------------------------------------------------------------------------ toothless options

_TOOTHLESS: Mapping[str, str] = {
    "ruff": r"--exit-zero|-e",
    "flake8 bandit": r"--exit-zero",
    "pylint": r"--exit-zero|--fail-under[= ]0(\.0)?",
    "golangci-lint": r"--issues-exit-code[= ]0",
    "pytest py.test": r"--collect-only|--co|--setup-plan|--fixtures|--markers",
    "make gmake": r"--ignore-errors|--dry-run|--just-print|--recon|--touch|-[bBdeikpqrRsSvw]*[int]\w*",
    "cargo": r"--no-run|--list",
    "go": r"-run[= ](\^\$|NONE|XXX|none|xxx)|-list|-c|-n|-exec[= ](true|echo)",
    "mvn mvnw": r"-D(skipTests|maven\.test\.skip|maven\.test\.failure\.ignore)(=true)?|-fn|--fail-never",
    "gradle gradlew": r"--dry-run|-m|(-x|--exclude-task)[= ]test",
    "ctest": r"-N|--show-only(=.*)?",
    "jest": r"--listTests|--showConfig",
    "playwright phpunit dotnet": r"--list|--list-tests",
    "rspec": r"--dry-run",
    "tox": r"-l|-a|--listenvs|--notest",
    "nox": r"-l|--list",
    "npm pnpm yarn": r"--if-present",
    "semgrep": r"--no-error",
}
_OPTIONS = {name: re.compile(pattern) for names, pattern in _TOOTHLESS.items() for name in names.split()}
_HELP = frozenset({"--help", "--version"})


def toothless(argv: Argv) -> bool:
    """Whether an option makes this tool report without failing, or run nothing."""
    name = program(argv)
    words = _options(argv)
    if name in _TEST_TOOLS and _HELP & set(words):
        return True
    pattern = _OPTIONS.get(name)
    if pattern is None or (name == "cargo" and "test" not in words):
        return False
    pairs = (f"{flag} {value}" for flag, value in pairwise(words))
    return any(pattern.fullmatch(word) for word in (*words, *pairs))


_KEEPS_WORK = frozenset({"list", "show", "pop", "apply", "branch", "drop", "clear", "create", "store"})


def discards_work(argv: Argv) -> bool:
    """Whether this undoes uncommitted work, so that what is checked afterwards isn't the work."""
    words = [word or "" for word in argv]
    if program(argv) != "git" or len(words) < 2:
        return False
    verb, rest = words[1], words[2:]
    if verb == "stash":
        return not (rest and rest[0] in _KEEPS_WORK)
    if verb in ("checkout", "restore"):
        return bool({".", ":/", "-f", "--force"} & set(rest)) and "--staged" not in rest
    return (verb == "reset" and "--hard" in rest) or (verb == "clean" and any(word.startswith("-") for word in rest))
