"""What is known about programs: which can't fail, which only report, and which options keep a check from failing.

The facts come from the programs' manuals. A program that isn't known here is taken to be a check of the work.
"""

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from sys import stdlib_module_names
from typing import NamedTuple

from delegate.judging.checks.vacuous.state import CHECK_FAILED, CHECKS, FAILED, SETUP, TESTS_FAILED, ZERO, Codes

Argv = Sequence[str | None]
"""A command's words; None stands for what only running it would tell."""


class Effect(NamedTuple):
    """How a program may end; `rule` where its exit code says nothing about the work."""

    codes: Codes
    rule: str | None = None


class Input(NamedTuple):
    """What a program reads on standard input."""

    piped: bool = False
    """Something else than the terminal."""
    known: bool = False
    """It doesn't depend on the work."""
    text: str | None = None


MAX_WORD = 200
"""Longer words are cut before they are compared with the tables."""

_CANNOT_FAIL, _SETS_UP, _REPORTS = Effect(ZERO), Effect(SETUP), Effect(SETUP, "only_reports")
_TOOTHLESS, _DISCARDS = Effect(SETUP, "tool_flag"), Effect(SETUP, "discards_work")
_WORK, _CHECK, _TESTS = (Effect(frozenset({0, failure})) for failure in (FAILED, CHECK_FAILED, TESTS_FAILED))

FILTERS = frozenset({
    "cat", "head", "tail", "less", "more", "sort", "uniq", "tr", "cut", "wc", "nl", "tac", "rev", "column", "fold",
    "fmt", "tee", "sed", "awk", "gawk", "mawk", "xxd", "od", "base64", "paste", "ts", "strings", "ls",
})  # fmt: skip
SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack"})
_SCRIPTED = frozenset({"sed", "awk", "gawk", "mawk"})
_TEST_TOOLS = "pytest py.test unittest tox nox jest vitest mocha ava rspec phpunit ctest bats playwright behave nose2"


def _any(options: str) -> str:
    """A pattern for arguments of which one (or two, with a space between) match."""
    return rf"(.* )?({options}) "


def _no(options: str) -> str:
    """The opposite."""
    return rf"(?!(.* )?({options}) )"


_TABLE: Sequence[tuple[str, str, Effect]] = (
    # programs, the beginning of their arguments (each followed by a space), effect; the first that matches counts
    ("true : echo printf pwd date sleep yes whoami hostname uname id tty clear uptime history jobs disown alias df", "",
     _CANNOT_FAIL),
    ("free nproc seq shift exec xargs", "", _CANNOT_FAIL),  # exec and xargs without a command of their own
    ("touch mkdir rm rmdir unlink chmod chown pkill killall cd pushd popd ln export declare typeset readonly local", "",
     _SETS_UP),
    ("unset shopt ulimit umask sync mktemp basename dirname du tree", "", _SETS_UP),
    ("kill", _no("-0"), _SETS_UP),
    ("wait", "$", _CANNOT_FAIL),
    ("false", "", Effect(frozenset({1}))),
    ("diff cmp", r"(-\S+ )*([^\s\0-][^\s\0]*) \2 $", _CANNOT_FAIL),
    # options that make a tool report without failing, or run nothing
    (_TEST_TOOLS, _any("--help|--version"), _TOOTHLESS),
    ("ruff", _any("--exit-zero|-e"), _TOOTHLESS),
    ("flake8 bandit pylint", _any(r"--exit-zero|--fail-under[= ]0(\.0)?"), _TOOTHLESS),
    ("golangci-lint", _any("--issues-exit-code[= ]0"), _TOOTHLESS),
    ("pytest py.test", _any("--collect-only|--co|--setup-plan|--fixtures|--markers"), _TOOTHLESS),
    ("make gmake", _any(r"--ignore-errors|--dry-run|--just-print|--recon|--touch|-[bBdeikpqrRsSvw]*[int]\w*"),
     _TOOTHLESS),
    ("cargo", "(?=.*test )" + _any("--no-run|--list"), _TOOTHLESS),
    ("go", _any(r"-run[= ](\^\$|NONE|XXX|none|xxx)|-list|-c|-n|-exec[= ](true|echo)"), _TOOTHLESS),
    ("mvn mvnw", _any(r"-D(skipTests|maven\.test\.(skip|failure\.ignore))(=true)?|-fn|--fail-never"), _TOOTHLESS),
    ("gradle gradlew", _any("--dry-run|-m|(-x|--exclude-task)[= ]test"), _TOOTHLESS),
    ("ctest", _any(r"-N|--show-only(=\S*)?"), _TOOTHLESS),
    ("jest", _any("--listTests|--showConfig"), _TOOTHLESS),
    ("phpunit dotnet tox nox", _any("--list(-tests|envs)?|--notest"), _TOOTHLESS),
    ("npm pnpm yarn", _any("--if-present"), _TOOTHLESS),
    # programs that report with exit code 0
    ("curl", _no(r"--fail\S*|-[a-zA-Z]*f[a-zA-Z]*|(file:|ftp:|--config|-K)\S*"), Effect(SETUP, "curl_without_fail")),
    ("git", "stash (?!(list|show|pop|apply|branch|drop|clear|create|store) )", _DISCARDS),
    ("git", "(checkout|restore) (?!.*--staged )" + _any(r"\.|:/|-f|--force"), _DISCARDS),
    ("git", "reset " + _any("--hard"), _DISCARDS),
    ("git", r"clean " + _any(r"-\S*"), _DISCARDS),
    ("git", r"status |(log|branch|remote|tag) (-\S+ )*$", _REPORTS),
    ("git", "diff " + _no("--exit-code|--quiet|--check|--no-index"), _REPORTS),
    ("git", "(stash|reset|clean|restore|add) ", _SETS_UP),
    ("find", r"(?!.*-exec(dir)? .*\+ )", _REPORTS),
    ("jq", _no(r"--exit-status|-[a-zA-Z]*e[a-zA-Z]*") + r"(?!.*\b(error|halt_error|select)\b)"
     r".*([=!<>]=|[<>]|\b(any|all|contains|has|test|inside)\b)", _REPORTS),
    ("gofmt", "", _REPORTS),
    ("@ assert def class from import lambda describe", "", Effect(_WORK.codes, "not_shell")),
    # test suites, and commands that are run only for their exit code
    (_TEST_TOOLS, "", _TESTS),
    ("npm yarn pnpm bun deno", _any(r"t|test(:\S*)?"), _TESTS),
    ("cargo", _any("test|nextest"), _TESTS),
    ("go dotnet swift mix manage.py", _any("test"), _TESTS),
    ("make gmake just task", _any(r"(\S*[-_])?(tests?|check|verify)"), _TESTS),
    ("mvn gradle gradlew", _any("test|verify|check"), _TESTS),
    ("mypy pyright flake8 pylint eslint tsc shellcheck golangci-lint bandit ruff clippy py_compile", "", _CHECK),
    ("grep egrep fgrep rg ag ack cmp diff", _any("-[a-zA-Z]*[qs][a-zA-Z]*|--quiet|--silent|--brief"), _CHECK),
)  # fmt: skip
_EFFECTS: dict[str, list[tuple[re.Pattern[str], Effect]]] = {}
for _programs, _arguments, _effect in _TABLE:
    for _name in _programs.split():
        _EFFECTS.setdefault(_name, []).append((re.compile(_arguments), _effect))

_WRAPPERS: Mapping[str, str] = {
    # a program, with its first argument where needed, that runs another one → options that take a value of their own
    "timeout": "-k -s --signal --kill-after", "env": "-u -C", "nice": "-n", "ionice": "-c -n", "time": "-f -o",
    "stdbuf": "-i -o -e", "exec": "-a", "sudo": "-u -g", "npx": "-p", "xvfb-run": "-n -s",
    "xargs": "-n -I -P -L -d -a -s -E --max-args --max-procs --delimiter",
    **dict.fromkeys(("nohup", "setsid", "command", "builtin", "chronic", "bunx", "unbuffer", "python -m"), ""),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "hatch run", "rye run", "coverage run"), ""),
    **dict.fromkeys(("bundle exec", "pnpm exec", "pnpm dlx"), ""), "uv run": "--with --extra --group -p --python",
}  # fmt: skip


def program(argv: Argv) -> str:
    """The program's name without its folder; empty when it can't be told."""
    return argv[0].rpartition("/")[2] if argv and argv[0] else ""


def wrapped(argv: Argv) -> Argv:
    """The command that `timeout 60`, `env X=1`, `uv run`, `python -m` and the like run; empty for other programs."""
    name = re.sub(r"^python[\d.]+$", "python", program(argv))
    both = f"{name} {argv[1]}" if len(argv) > 1 else name
    place = 1 if name in _WRAPPERS else 2 if both in _WRAPPERS else len(argv)
    valued = _WRAPPERS.get(name if place == 1 else both, "").split()
    while place < len(argv) and re.match(r"-(?!m$)|[A-Za-z_]\w*=", argv[place] or ""):
        place += 2 if argv[place] in valued else 1
    if name == "command" and {"-v", "-V"} & set(argv):
        return ()
    return argv[place + 1 if name == "timeout" or argv[place : place + 1] == ["-m"] else place :]


def effect(argv: Argv, given: Input, files: Mapping[str, bool]) -> Effect:
    """How this program may end. `files` are surely there; those that are true have a content that is known."""
    name = program(argv)
    if (code := _program_text(name, argv, given)) is not None:
        return _WORK if code[1](code[0]) else _CANNOT_FAIL
    if name in FILTERS | SEARCHES and (found := _reads(name, argv, given, files)) is not _WORK:
        return found
    arguments = "".join(re.sub(r"\s", "\0", (word or "\0")[:MAX_WORD]) + " " for word in argv[1:])
    rows = _EFFECTS.get("@" if name.startswith("@") else name, ())
    return next((effect for pattern, effect in rows if pattern.match(arguments)), _WORK)


def reads_only(argv: Argv, ends: Codes) -> bool:
    """Whether a program that may end so changes no file that was there before."""
    return ends == ZERO or bool(ends & CHECKS) or program(argv) in FILTERS | SEARCHES


def _reads(name: str, argv: Argv, given: Input, there: Mapping[str, bool]) -> Effect:
    """A filter fails when a file that it names isn't there, a search also when it doesn't find the text."""
    files = [word for word in argv[1:] if word is None or not (word.startswith("-") or word.isdigit())]
    if name in _SCRIPTED | SEARCHES:
        files = files[1:]  # the first is a script or a pattern
    if name in SEARCHES:
        known = all(there.get(file or "") for file in files) if files else given.known
        return _SETS_UP if known else _WORK
    if name in _SCRIPTED and any(word is None or re.search(r"\bexit\b|\bq *[1-9]", word) for word in argv[1:]):
        return _WORK
    if name in ("tr", "tee") or (given.piped and name != "ls"):
        return _CANNOT_FAIL
    return _CANNOT_FAIL if all(file in there or file == "/dev/null" for file in files) else _WORK


# ------------------------------------------------------------------------------------- programs given as text

_PYTHON_ENDS = re.compile(r"((sys\.)?exit|quit|os\._exit)\((0|None)?\)|raise SystemExit(\((0|None)?\))?")
_PYTHON_PLAIN = re.compile(
    r"pass|assert (True|1|(\S+) == \2)|(import|from) (?P<modules>[\w., ]+?)( import .*)?"
    r"""|([\w.]+ = |(print|sys\.std(out|err)\.write)\()?('([^'\\]|\\.)*'|"([^"\\]|\\.)*"|\d+)?\)?"""
)
"""Statements, as `ast.unparse` writes them, that end the program with 0, and those that can't fail."""
_OTHER_PLAIN = re.compile(
    r"""|(?:process\.)?exit(?:\(0?\)|\s+0)?|(?:console\.log|print|puts|echo|say)[ (](?:"[^"$]*"|'[^']*')\)?|true|[01]"""
)
"""JavaScript, Perl, Ruby and PHP statements that leave with 0, print a constant, or do nothing."""
_OTHERS = frozenset({"node", "nodejs", "perl", "ruby", "php", "bun", "deno"})


def _program_text(name: str, argv: Argv, given: Input) -> tuple[str, Callable[[str], bool]] | None:
    """What `python -c …`, `node -e …` or an interpreter without arguments runs, and how to tell if it can fail."""
    python = name.rstrip("0123456789.") in ("python", "pypy")
    if not python and name not in _OTHERS:
        return None
    flag = next((word for word in argv[1:-1] if word in (("-c",) if python else ("-e", "-r", "--eval"))), None)
    text = argv[argv.index(flag) + 1] if flag else given.text if all(word == "-" for word in argv[1:]) else None
    return None if text is None else (text, python_can_fail if python else other_can_fail)


def python_can_fail(code: str) -> bool:
    """Whether the work can make this Python program fail. Only the plainest programs are known to be unable."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _can_fail(ast.parse(code).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _can_fail(statements: Sequence[ast.stmt]) -> bool:
    for statement in statements:
        text = ast.unparse(statement)
        if _PYTHON_ENDS.fullmatch(text):
            return False
        if isinstance(statement, ast.Try) and re.search(r"\nexcept( (Base)?Exception( as \w+)?)?:", text):
            after = [child for handler in statement.handlers for child in handler.body]
            if re.search("exit|quit", text, re.IGNORECASE) or _can_fail(
                [*after, *statement.orelse, *statement.finalbody]
            ):
                return True
            continue
        plain = _PYTHON_PLAIN.fullmatch(text)
        modules = plain["modules"] or "sys" if plain else "?"
        if not {name.split(".")[0] for name in re.split(", ?", modules)} <= stdlib_module_names:
            return True
    return False


def other_can_fail(code: str) -> bool:
    """The same for JavaScript, Perl, Ruby and PHP."""
    return any(_OTHER_PLAIN.fullmatch(statement.strip()) is None for statement in re.split("[;\n]", code))
