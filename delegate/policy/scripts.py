"""Finds the files that a script runs in turn, as far as it names them: what it sources, calls, imports or includes.

Nothing is run, and no language is read properly: what looks like the name of a file of code, and is one, counts.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from os.path import dirname

from delegate.policy.paths import real_path

MOST_FILES = 200
"""So many files are found. What they name isn't looked at any more then."""
_MOST_BYTES = 200_000
_MOST_NAMES = 2_000
_NAME = re.compile(r"[\w./@+-]*\w")
_SOURCED = re.compile(
    r"(?:^|[;&|({\n]|\bthen\b|\bdo\b)\s*(?:\.|source)\s+[\"']?(?:\$\w*|\$\{\w+\}|\$\([^)]*\))?([\w./@+-]+)"
)
_IMPORTED = re.compile(r"^\s*(?:from\s+(\.*[\w.]*)\s+import\s+\(?([\w, \t]*)|import\s+([\w., \t]+))", re.MULTILINE)
_CODE = re.compile(
    r".*\.(sh|bash|zsh|ksh|fish|bat|cmd|ps1|pyw?|rb|p[lm]|[cm]?[jt]s|[jt]sx|php|lua|r|jl|exs?|awk|sed|tcl|mk|mak|cmake|gradle|kts)"
    r"|(.*/)?(GNUm|m|M)akefile|(.*/)?(Justfile|justfile|Rakefile|Gemfile|Dockerfile|package\.json)",
    re.IGNORECASE,
)
_ENDINGS = (".js", ".mjs", ".cjs", ".ts", "/index.js")


def named_by(scripts: Sequence[str], root: str, folders: Collection[str]) -> Iterator[str]:
    """The real paths of the files of code in `root` that scripts name, and that these name in turn.

    A name may be relative to the script, to the workspace, or to `folders`, where the scripts run.
    """
    seen, waiting = set(scripts), list(scripts)
    while waiting and len(seen) < MOST_FILES:
        script = waiting.pop(0)
        places = dict.fromkeys((dirname(script), root, *folders))
        for name, is_code in _names(_text(script)).items():
            for path in (real_path(place, name) for place in places):
                if path.startswith(f"{root}/") and path not in seen and _is_file(path, any_name=is_code):
                    seen.add(path)
                    waiting.append(path)
                    yield path


def _names(text: str) -> dict[str, bool]:
    """The names of files in a text, and whether what they name is certain to be code."""
    files: dict[str, bool] = {}
    for name in _NAME.findall(text)[: _MOST_NAMES * 5]:
        files.setdefault(name.lstrip("/") if name.startswith("/") else name, False)
        if name.startswith(("./", "../")):
            files.update(dict.fromkeys((name + ending for ending in _ENDINGS), True))
        if len(files) > _MOST_NAMES:
            break
    for name in _SOURCED.findall(text):
        files[name.lstrip("/")] = True
    for package, names, modules in _IMPORTED.findall(text):
        dotted = [package, *(f"{package}.{name}" for name in _first_words(names))] if package else []
        for module in (*dotted, *_first_words(modules)):
            path = module.strip(".").replace(".", "/")
            files.update(dict.fromkeys((f"{path}.py", f"{path}/__init__.py"), True))
    return files


def _first_words(items: str) -> list[str]:
    return [item.split()[0] for item in items.split(",") if item.strip()]


def _text(path: str) -> str:
    with suppress(OSError, ValueError), open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        data = file.read(_MOST_BYTES)
        return "" if b"\0" in data else data.decode("utf-8", "replace")
    return ""


def _is_file(path: str, *, any_name: bool) -> bool:
    """Whether it is a regular file of code: by its name, or because it may be executed."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and (any_name or bool(status.st_mode & 0o111) or bool(_CODE.fullmatch(path)))
