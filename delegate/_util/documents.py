"""Parses JSON, YAML and TOML that others may have written, within bounds on depth and size; replaces files.

A kilobyte of YAML can stand for more values than fit into memory: its aliases name parts that contain aliases.
"""

import json
import os
import secrets
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from delegate._util.fencing import quoted

Format = Literal["json", "yaml", "toml"]
MAX_DEPTH = 100
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def loads(text: str, format: Format) -> object:
    """The value of a document. Raises ValueError that says in one line what is wrong."""
    if format == "yaml":
        from delegate._util.bounded_yaml import load  # takes a while, and most documents aren't YAML

        return load(text, MAX_DEPTH)
    try:
        document: object = strict.decode(text) if format == "json" else tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    ahead: list[tuple[object, int]] = [(document, 0)]
    while ahead:
        value, depth = ahead.pop()
        if isinstance(value, (dict, list)):
            if depth == MAX_DEPTH:
                raise ValueError(_TOO_DEEP)
            within = cast("Iterable[object]", value.values() if isinstance(value, dict) else value)
            ahead += ((part, depth + 1) for part in within)
    return document


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: Python would keep only the last value of a key. Raises ValueError that names the key."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        key = next(key for n, (key, _) in enumerate(pairs) if key in dict(pairs[:n]))
        first = json.dumps(dict(pairs[:1]), ensure_ascii=False)[:-1]
        raise ValueError(f"the key {quoted(key, 60)} is twice in the object that begins with {quoted(first, 60)}")
    return fields


def refuse_constant(word: str) -> NoReturn:
    """For `json.loads`: Python parses NaN and Infinity, which JSON doesn't have."""
    raise ValueError(f"{word} is not JSON")


strict = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=refuse_constant)


def replace_text(path: Path, text: str, mode: int | None = None) -> None:
    """Replace a file, or a link in its place, in one step, so that nobody reads half of it. Raises OSError.

    `mode` is that of the new file; None for the usual one.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(new, flags, 0o666 if mode is None else mode), "w", encoding="utf-8") as file:
            file.write(text)
        if mode is not None:
            new.chmod(mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
