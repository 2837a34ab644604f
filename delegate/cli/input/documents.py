"""Reads texts and documents from files that are named on the command line, or from stdin for `-`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delegate._util.documents import Format, loads
from delegate._util.windows_paths import windows_path_hint
from delegate.types.errors import CallError

STDIN = Path("-")
FORMATS: Mapping[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
"""By the suffixes of files that contain one document."""


def is_document(path: Path) -> bool:
    """Whether the file has the suffix of a document."""
    return path.suffix.lower() in FORMATS


def name_of(path: Path) -> str:
    """The name of the file in messages."""
    return "stdin" if path == STDIN else str(path)


def read_text(path: Path) -> str:
    """The text of a file without a byte order mark. Raises CallError."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason, hint = "it is not UTF-8", "save it as UTF-8"
        if isinstance(error, OSError):
            reason, hint = error.strerror, "name a file that you can read"
        if isinstance(error, FileNotFoundError):
            hint = f"name a file that exists; relative paths start at {Path.cwd()}"
        hint = windows_path_hint(str(path)) or hint
        raise CallError("unreadable_file", f"{name_of(path)} can't be read: {reason}", hint=hint) from None


def read_document(path: Path) -> Any:
    """The value in a JSON, YAML or TOML file. Raises CallError."""
    if not is_document(path):
        message = f"{path}: can't tell its format; use a name that ends in {', '.join(FORMATS)}"
        raise CallError("unreadable_file", message)
    format = FORMATS[path.suffix.lower()]
    try:
        return loads(read_text(path), format)
    except ValueError as error:
        message = f"{path} is not valid {format.upper()}: {error}"
        raise CallError("unreadable_file", message, hint="correct the file at this place") from None
