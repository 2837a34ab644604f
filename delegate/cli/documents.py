"""Texts and documents that a person names by their file, or sends to stdin as `-`. What can't be read is named."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from delegate.errors import CallError

STDIN = Path("-")
SUFFIXES = (".json", ".yaml", ".yml", ".toml")
"""Files whose name ends so hold one document."""


def is_document(path: Path) -> bool:
    """Whether the name says that the file holds a document, and in which format."""
    return path.suffix.lower() in SUFFIXES


def name_of(path: Path) -> str:
    """The file as messages call it."""
    return "stdin" if path == STDIN else str(path)


def read_text(path: Path) -> str:
    """The whole text of a file, without a byte-order mark. Raises CallError."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CallError("unreadable_file", f"{name_of(path)} can't be read: {reason}") from None


def read_document(path: Path) -> Any:
    """The value in a JSON, YAML or TOML file. Raises CallError."""
    if not is_document(path):
        message = f"{path}: can't tell its format; the name must end in {', '.join(SUFFIXES)}"
        raise CallError("unreadable_file", message)
    suffix, text = path.suffix.lower(), read_text(path)
    try:
        return _loads(suffix, text)
    except (ValueError, RecursionError) as error:
        raise CallError("unreadable_file", f"{path} is not valid {suffix[1:].upper()}: {error}") from None


def _loads(suffix: str, text: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return tomllib.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
