"""Reads texts and documents from files that are named on the command line, or from stdin for `-`."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from delegate._util.windows_paths import windows_path_hint
from delegate.errors import CallError

STDIN = Path("-")
SUFFIXES = (".json", ".yaml", ".yml", ".toml")
"""Suffixes of files that contain one document."""


def is_document(path: Path) -> bool:
    """Whether the file has the suffix of a document."""
    return path.suffix.lower() in SUFFIXES


def name_of(path: Path) -> str:
    """The name of the file in messages."""
    return "stdin" if path == STDIN else str(path)


def read_text(path: Path) -> str:
    """The text of a file without a byte order mark. Raises CallError."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        hint = windows_path_hint(str(path)) or _advice(error)
        raise CallError("unreadable_file", f"{name_of(path)} can't be read: {reason}", hint=hint) from None


def _advice(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"name a file that exists; relative paths start at {Path.cwd()}"
    return "name a file that you can read" if isinstance(error, OSError) else "save it as UTF-8"


def read_document(path: Path) -> Any:
    """The value in a JSON, YAML or TOML file. Raises CallError."""
    if not is_document(path):
        message = f"{path}: can't tell its format; use a name that ends in {', '.join(SUFFIXES)}"
        raise CallError("unreadable_file", message)
    suffix, text = path.suffix.lower(), read_text(path)
    try:
        return _loads(suffix, text)
    except (ValueError, RecursionError) as error:
        message = f"{path} is not valid {suffix[1:].upper()}: {error}"
        raise CallError("unreadable_file", message, hint="correct the file at this place") from None


def _loads(suffix: str, text: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return tomllib.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(_yaml_problem(error)) from None


def _yaml_problem(error: Exception) -> str:
    """What is wrong, and where: the library's own text also quotes the line, below each other."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem or mark is None:
        return " ".join(str(error).split())
    context, begin = getattr(error, "context", None), getattr(error, "context_mark", None)
    text = f"{problem}: line {mark.line + 1} column {mark.column + 1}"
    return f"{text} ({context} from line {begin.line + 1} column {begin.column + 1})" if context and begin else text
