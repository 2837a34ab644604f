"""Finds the files of a workspace that a command runs: scripts, modules, and what a Makefile or package.json runs.

Commands are split into words, without expanding anything: a script whose name is computed isn't found. A file counts
only if it exists, so a word that merely looks like a path does no harm.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from delegate.sandbox.filesystem import files, paths
from delegate.sandbox.tampering.machinery import Role
from delegate.types.errors import ToolError

MAX_DEPTH = 4
"""How far scripts that run other scripts are followed."""
MAX_SCRIPTS = 100
_MAX_BYTES = 200_000

_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "fish", "source", "."})
_INTERPRETERS = re.compile(r"(python|pypy)[\d.]*|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|lua|Rscript|julia|pwsh")
_TEST_RUNNERS = frozenset({"pytest", "py.test", "unittest", "nose2", "trial", "jest", "vitest", "mocha", "ava", "tap"})
_WRAPPERS = frozenset({
    "timeout", "env", "nice", "time", "nohup", "exec", "command", "sudo", "xargs", "stdbuf", "setsid", "npx", "bunx",
    "run", "uv", "poetry", "pipenv", "pdm", "hatch", "rye", "coverage", "bundle", "then", "do", "else", "if", "while",
    "until", "!", "{", "xvfb-run", "ionice", "chronic", "test", "[",
})  # fmt: skip
"""Words after which another command may come."""
_SUBSTITUTION = re.compile(r"\$\(([^()]+)\)|`([^`]+)`")
_READ_BY_A_SHELL = re.compile(r"\|\s*(\S*/)?(bash|sh|dash|zsh|python[\d.]*|node|perl|ruby)\b|\b(eval|exec|-c)\b")
_FILE_OPTION = frozenset({"awk", "gawk", "mawk", "sed", "jq", "psql", "expect"})
_PROGRAM_PATH = re.compile(r".*\.(sh|bash|zsh|py|[cm]?[jt]s|rb|pl|php|lua|R)|.*/[^/.]+")
_OPERATOR = re.compile(r"[;&|()<>\n]+")
_CHECK_LIKE = re.compile(
    r"check|verif|valid|test|spec|lint|assert|accept|grade|grading|score|eval|smoke|e2e|judge|gate|ready|audit|guard"
    r"|compare|diff|(^|[_/.-])(ci|qa)([_/.-]|$)|(^|/)(scripts|tools|bin|ci|hack)/",
    re.IGNORECASE,
)
_RULE = re.compile(r"^([^\s#:=][^:=]*?)\s*::?(?!=)\s*([^;#]*)(?:;(.*))?")
_VARIABLE = re.compile(r"^\s*(?:export\s+)?(\w+)\s*[:?+]?:?=\s*(.*)$")
_INCLUDE = re.compile(r"^-?s?include\s+(.*)$")


def scripts_of(root: Path, commands: Sequence[str]) -> dict[str, Role]:
    """The existing files in the workspace `root` that these commands run, directly or through others."""
    search = _Search(root)
    for command in commands:
        search.command(command, "", 0)
    return search.found


class _Search:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.found: dict[str, Role] = {}

    def command(self, text: str, folder: str, depth: int) -> None:
        """Add what a command line runs in `folder`, relative to the workspace (with a slash at the end, or empty)."""
        read_by_a_shell = _READ_BY_A_SHELL.search(text) is not None
        for words in _simple_commands(text):
            if words[0] == "cat" and read_by_a_shell:
                for word in words[1:]:
                    self._add(word, folder, depth, role="script")
            elif words[0] == "cd" and len(words) > 1:
                folder = self._joined(folder, words[1] + "/") or folder
            elif depth <= MAX_DEPTH:
                self._simple(words, folder, depth)

    def _simple(self, words: list[str], folder: str, depth: int) -> None:
        while words and (words[0] in _WRAPPERS or re.match(r"\w+=|-|[\d.]+[smh]?$", words[0])):
            words = words[1:]
        if not words:
            return
        program, arguments = words[0].rpartition("/")[2], words[1:]
        if program in _SHELLS:
            self._shell(arguments, folder, depth)
        elif program in ("make", "gmake"):
            self._make(arguments, folder, depth)
        elif program in ("npm", "yarn", "pnpm"):
            self._package_script(arguments, folder, depth)
        elif program in _TEST_RUNNERS:
            self._tests(arguments, folder)
        elif _INTERPRETERS.fullmatch(program):
            self._interpreter(arguments, folder, depth)
        elif program in _FILE_OPTION and "-f" in arguments[:-1]:
            self._add(arguments[arguments.index("-f") + 1], folder, depth)
        elif _PROGRAM_PATH.fullmatch(words[0]):  # also what follows `<`, as in `bash < check.sh`, but no data
            self._add(words[0], folder, depth)

    def _shell(self, arguments: list[str], folder: str, depth: int) -> None:
        for n, word in enumerate(arguments):
            if re.fullmatch(r"-\w*c", word):
                self.command(" ".join(arguments[n + 1 : n + 2]), folder, depth + 1)
                return
            if not word.startswith(("-", "+")):
                self._add(word, folder, depth)
                return

    def _interpreter(self, arguments: list[str], folder: str, depth: int) -> None:
        for n, word in enumerate(arguments):
            if word in ("-c", "-e", "-p", "--eval", "--print"):
                self._code(" ".join(arguments[n + 1 : n + 2]), folder, depth)
                return
            if word in ("-m", "--test", "run"):
                self._module(arguments[n + 1 :], folder, depth)
                return
            if word in ("-r", "--require", "--import", "-W", "-X"):
                continue
            if not word.startswith("-"):
                self._add(word, folder, depth)
                return

    def _code(self, text: str, folder: str, depth: int) -> None:
        """Add what a program that is part of the command opens by name, or imports if it is called like a check."""
        for path in re.findall(r"""['"]([\w./-]+\.(?:py|sh|[cm]?js|rb|pl))['"]""", text):
            self._add(path, folder, depth)
        for name in re.findall(r"\b(?:import|from)\s+([\w.]+)", text):
            if _CHECK_LIKE.search(name):
                self._add_module(name, folder, depth)

    def _module(self, words: list[str], folder: str, depth: int) -> None:
        """Add what `python -m …`, `node --test …` or `deno run …` runs."""
        if not words:
            return
        if words[0] in _TEST_RUNNERS:
            self._tests(words[1:], folder)
        elif not self._add_module(words[0], folder, depth):
            self._simple(words, folder, depth)
            for word in words:
                self._add(word, folder, depth)

    def _add_module(self, name: str, folder: str, depth: int) -> bool:
        path = name.replace(".", "/")
        return any(self._add(path + end, folder, depth) for end in (".py", "/__main__.py"))

    def _tests(self, words: list[str], folder: str) -> None:
        """Add test files by path, with a test's name behind it, or by module, class and test."""
        role: Role = "program" if any(word.startswith("--doctest") for word in words) else "test"
        for word in words:
            path = word.partition("::")[0]
            if self._add(path, folder, MAX_DEPTH, role=role):
                continue
            parts = path.split(".")
            for end in range(len(parts), 0, -1):
                if self._add("/".join(parts[:end]) + ".py", folder, MAX_DEPTH, role=role):
                    break

    def _add(self, word: str, folder: str, depth: int, *, role: Role | None = None) -> bool:
        """Add a file, and what it runs if it is a shell script. False if there is no such file."""
        path = self._joined(folder, word)
        if path is None or not os.path.isfile(self._root / path):
            return False
        if path not in self.found and len(self.found) < MAX_SCRIPTS:
            suffix = Path(path).suffix
            self.found[path] = role or ("script" if _CHECK_LIKE.search(path) else "program")
            if suffix in ("", ".sh", ".bash") and depth < MAX_DEPTH:
                self.command(self._text(path), folder, depth + 1)
        return True

    def _make(self, arguments: list[str], folder: str, depth: int) -> None:
        names, targets = list[str](), list[str]()
        words = iter(arguments)
        for word in words:
            if word in ("-f", "--file", "--makefile"):
                names = [next(words, "")]
            elif word in ("-C", "--directory"):
                folder = self._joined(folder, next(words, "") + "/") or folder
            elif word.startswith("-f") and len(word) > 2:
                names = [word[2:]]
            elif not word.startswith("-") and "=" not in word:
                targets.append(word)
        for name in names or ("GNUmakefile", "makefile", "Makefile"):
            if self._add(name, folder, MAX_DEPTH, role="script"):
                self._makefile(self._text(folder + name), targets, folder, depth)
                return

    def _makefile(self, text: str, targets: list[str], folder: str, depth: int) -> None:
        rules, variables = _rules(text)
        for line in text.splitlines():
            if include := _INCLUDE.match(line):
                for name in include[1].split():
                    if self._add(name, folder, MAX_DEPTH, role="script"):
                        more, more_variables = _rules(self._text(folder + name))
                        rules, variables = {**more, **rules}, {**more_variables, **variables}
        waiting = targets or [name for name in rules if not name.startswith(".")][:1]
        seen = set[str]()
        while waiting:
            target = waiting.pop()
            if target in seen or target not in rules:
                continue
            seen.add(target)
            needs, recipe = rules[target]
            waiting += needs
            for line in recipe:
                self.command(_expanded(line.lstrip("@-+ \t"), variables), folder, depth + 1)

    def _package_script(self, arguments: list[str], folder: str, depth: int) -> None:
        words = [word for word in arguments if not word.startswith("-") and word not in ("run", "run-script")]
        name = {"t": "test", "tst": "test"}.get(words[0], words[0]) if words else ""
        with suppress(ValueError, RecursionError):
            fields: Any = json.loads(self._text(f"{folder}package.json") or "{}")
            entries = cast("dict[str, object]", fields).get("scripts") if isinstance(fields, dict) else None
            scripts = cast("dict[str, object]", entries) if isinstance(entries, dict) else {}
            for script in (f"pre{name}", name, f"post{name}"):
                if isinstance(text := scripts.get(script), str) and depth < MAX_DEPTH:
                    self._add("package.json", folder, MAX_DEPTH, role="script")
                    self.command(text, folder, depth + 1)

    def _joined(self, folder: str, word: str) -> str | None:
        """A path that a command names, relative to the workspace; None if it is outside."""
        with suppress(ToolError, ValueError, OSError):
            path = word if word.startswith("/") else folder + word
            real = paths.resolve(self._root, path)
            # With links kept: a link to a script decides as much as the script.
            relative = os.path.relpath(os.path.join(self._root, path), self._root)
            inside = real if relative.startswith("..") else self._root / relative
            name = str(inside.relative_to(self._root))
            return "" if name == "." else name + ("/" if word.endswith("/") else "")
        return None

    def _text(self, path: str) -> str:
        with suppress(ToolError):
            excerpt = files.read(self._root, paths.resolve(self._root, path), _MAX_BYTES)
            return excerpt.text if excerpt.is_text else ""
        return ""


def _simple_commands(text: str) -> Iterator[list[str]]:
    """The words of every simple command, without quotes. What can't be split exactly is split at spaces."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:
            words = [word.strip("'\"`") for word in re.split(r"([;&|()<>]+)|\s+", line) if word]
        current: list[str] = []
        for word in words:
            for inner in _SUBSTITUTION.finditer(word):
                yield from _simple_commands(inner[1] or inner[2])
            word = word.removeprefix("$").strip("`{}") or word
            if not _OPERATOR.fullmatch(word):
                current.append(word)
            elif current:
                yield current
                current = []
        if current:
            yield current


Rules = dict[str, tuple[list[str], list[str]]]
"""Per target of a Makefile: what it needs, and its recipe."""


def _rules(text: str) -> tuple[Rules, dict[str, str]]:
    rules: Rules = {}
    variables: dict[str, str] = {}
    current: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            for recipe in current:
                recipe.append(line[1:])
        elif variable := _VARIABLE.match(line):
            variables[variable[1]] = variable[2].strip()
        elif rule := _RULE.match(line):
            current = []
            for target in _expanded(rule[1], variables).split():
                needs, recipe = rules.setdefault(target, ([], []))
                needs += _expanded(rule[2], variables).split()
                recipe += [rule[3]] if rule[3] else []
                current.append(recipe)
    return rules, variables


def _expanded(text: str, variables: dict[str, str]) -> str:
    for _ in range(3):
        text = re.sub(r"\$[({](\w+)[)}]", lambda match: variables.get(match[1], _USUAL.get(match[1], "")), text)
    return text


_USUAL = {"MAKE": "make", "SHELL": "sh", "PYTHON": "python3"}
