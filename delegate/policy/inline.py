"""Tells whether a program runs code that stands in its arguments or comes from its stdin.

What such code does can't be read from a command line, so a person decides where a rule could be about it. Files of code
aren't inline: an approval is bound to what they contain.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

_LETTERS: Mapping[str, str] = {
    **dict.fromkeys(("python", "pythonw", "pypy", "ipython", "jython", "micropython", "expect"), "c"),
    **dict.fromkeys(("perl", "ruby", "jruby", "lua", "luajit", "r", "rscript", "julia", "elixir", "groovy"), "eE"),
    **dict.fromkeys(("scala", "osascript", "dc", "erl", "raku", "crystal", "swift", "jshell", "ghc"), "eE"),
    **dict.fromkeys(("node", "nodejs", "deno", "bun", "qjs", "tsx", "ts-node", "coffee"), "ep"),
    **dict.fromkeys(("guile", "racket", "sbcl", "clojure", "clj", "gosh"), "ce"),
    **dict.fromkeys(("vim", "vi", "nvim", "view", "ex", "emacs", "gdb", "lldb"), "cex"),
    **dict.fromkeys(("pwsh", "powershell"), "ceCE"),
    "php": "rBRE",
    "tclsh": "",
    "wish": "",
}
"""Programs that run code, without their versions, and the letters of the options that are followed by it."""
_LONG = re.compile(
    r"--?(eval|print|exec|execute|expr|command|code|eval-command|init-eval-command|cmd|encodedcommand)(=.*)?|--eval=.*",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d[\d.]*[a-z]?(-\w+)?$|\.exe$")
_ONLY_TELLS = frozenset(("--version", "-V", "-v", "--help", "-h", "-version", "--list", "-l"))
_SCRIPT = re.compile(
    r".*\.(pyw?|pyz|rb|p[lm]|[cm]?[jt]s|[jt]sx|php|lua|r|jl|exs?|groovy|scala|tcl|scm|rkt|lisp|clj)", re.IGNORECASE
)
_FOLDER_OR_MODULE = re.compile(r"-[IMm][\w:./=,-]*")
"""An option of perl and ruby that is followed by a name."""
_EDITORS = frozenset(("vim", "vi", "nvim", "view", "ex", "emacs", "gdb", "lldb"))
"""Without code in their arguments, people use them."""
_AWK = re.compile(r"system|getline|(?<!\|)\|(?!\|)|@|ARGV")
"""What makes awk run a command, or read or write a file that isn't among its arguments."""
_ADDRESS = r"(?:(?:\d+|\$|/(?:\\.|[^/\\\n])*/I?)(?:\s*,\s*(?:[+~]?\d+|\$|/(?:\\.|[^/\\\n])*/I?))?\s*!?\s*)?"
_SUBSTITUTE = r"([sy])([^\w\s\\])(?:\\.|(?!\2)[^\\])*\2(?:\\.|(?!\2)[^\\])*\2[gpiIM0-9]*"
_SED = re.compile(
    rf"\s*{_ADDRESS}(?:{_SUBSTITUTE}|[dDpPqQ=nNGghHxlz]\s*\d*|[aic]\\?[^\n]*|#[^\n]*)\s*(?:[;\n]\s*|$)", re.DOTALL
)
"""One command of sed that runs nothing, and reads and writes no other file."""
_SHELL_ESCAPE = re.compile(r"\\!|^\s*\.(shell|system|sh)\b|\bsystem\b|COPY\b.*\bPROGRAM\b", re.IGNORECASE)


def runs_code(program: str, arguments: Sequence[str]) -> bool:
    """Whether a program, named without its folder, runs code that its arguments or its stdin have."""
    name = _VERSION.sub("", program).lower()
    if (special := _SPECIAL.get(name)) is not None:
        return special(arguments)
    return name in _LETTERS and _interpreter(name, arguments)


def is_interpreter(program: str) -> bool:
    """Whether a program runs code of some language."""
    return _VERSION.sub("", program).lower() in _LETTERS


def _interpreter(name: str, arguments: Sequence[str]) -> bool:
    is_code = re.compile(rf"-[a-zA-Z0-9]*[{_LETTERS[name]}].*" if _LETTERS[name] else r"(?!)")
    operands: list[str] = []
    for at, word in enumerate(arguments):
        if word == "-m" and name in ("python", "pypy", "ipython"):
            return at + 1 < len(arguments) and arguments[at + 1] in ("timeit", "pdb", "code")
        if word == "-" or (word == "eval" and not operands):
            return True
        if word.startswith("+") and name in _EDITORS and not word[1:].isdigit():
            return True
        if word.startswith("-"):
            names = name in ("perl", "ruby") and _FOLDER_OR_MODULE.fullmatch(word)
            if _LONG.fullmatch(word) or (is_code.fullmatch(word) and not names and not word.startswith(("-X", "-W"))):
                return True
        elif "\0" not in word:
            operands.append(word)
            if _SCRIPT.fullmatch(word):
                return False
    return not operands and name not in _EDITORS and not _ONLY_TELLS.intersection(arguments)


def _awk(arguments: Sequence[str]) -> bool:
    statements = [statement for word in arguments for statement in re.split("[;}\n]", word)]
    writes = any(">" in statement.partition("print")[2] for statement in statements)
    return writes or any(_AWK.search(word) for word in arguments) or "-i" in arguments


def _sed(arguments: Sequence[str]) -> bool:
    scripts = [after for word, after in pairwise(arguments) if word in ("-e", "--expression")]
    scripts += [word.partition("=")[2] for word in arguments if word.startswith("--expression=")]
    scripts += [word[2:] for word in arguments if re.match(r"-e.", word)]
    is_file = any(re.match(r"-f|--file", word) for word in arguments)
    if not scripts and not is_file:
        scripts = [word for word in arguments if not word.startswith("-")][:1]
    for script in scripts:
        at = 0
        while at < len(script):
            if (match := _SED.match(script, at)) is None or match.end() == at:
                return True
            at = match.end()
    return False


def _database(arguments: Sequence[str]) -> bool:
    operands = [word for word in arguments if not word.startswith("-")]
    has_code = len(operands) > 1 or any(re.match(r"-[cef]|--(command|execute|file)", word) for word in arguments)
    return not has_code or any(_SHELL_ESCAPE.search(word) for word in arguments)


def _make(arguments: Sequence[str]) -> bool:
    is_given = any(
        before in ("-f", "--file") and re.match("-|/dev/|/proc/", word) for before, word in pairwise(arguments)
    )
    return is_given or any(re.match(r"-E|--eval|-f-|-f/dev/", word) for word in arguments)


_SPECIAL: Mapping[str, Callable[[Sequence[str]], bool]] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("sqlite", "psql", "mysql", "mariadb"), _database),
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("at", "batch", "crontab"), lambda words: not {"-l", "-r", "-c", "-V"}.intersection(words)),
    **dict.fromkeys(("less", "more"), lambda words: any(word.startswith("+") for word in words)),
    **dict.fromkeys(("m", "ed"), lambda _: True),  # m4
}
