"""Encodes as JSON what models and tools wrote, which may contain anything."""

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json


def json_bytes(value: Any, *, fallback: Callable[[Any], Any] | None = None) -> bytes:
    """Compact JSON. Lone surrogates (from file names and models' escapes) become `?`, since UTF-8 doesn't have them.

    `fallback` converts what JSON doesn't have. Without it, TypeError is raised.
    """
    try:
        return to_json(value, fallback=fallback)  # rejects lone surrogates and deep nesting
    except ValueError:
        encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=fallback)
        return encoder.encode(value).encode("utf-8", "replace")
