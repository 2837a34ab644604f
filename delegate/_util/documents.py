"""Parses JSON, YAML and TOML that others may have written, within bounds on depth and size.

A kilobyte of YAML can stand for more values than fit into memory: its aliases name parts that contain aliases.
"""

import json
import tomllib
from collections.abc import Iterable
from typing import Literal, cast

Format = Literal["json", "yaml", "toml"]
MAX_DEPTH = 100
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def loads(text: str, format: Format) -> object:
    """The value of a document. Raises ValueError that says in one line what is wrong."""
    if format == "yaml":
        from delegate._util.bounded_yaml import load  # takes a while, and most documents aren't YAML

        return load(text, MAX_DEPTH)
    try:
        document: object = json.loads(text) if format == "json" else tomllib.loads(text)
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
