"""Finds the JSON in a child's report: the last fenced block that is marked as JSON, else the whole text."""

import json
import re
from typing import Any

_BLOCK = re.compile(r"^```json[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def parse_json(output: str) -> Any:
    """The report's JSON value. Raises ValueError saying why there is none."""
    blocks = _BLOCK.findall(output)
    text = blocks[-1] if blocks else output
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        where = "the last JSON block of the output" if blocks else "the output"
        raise ValueError(f"{where} is not JSON: {error}") from None


def refuse_constant(word: str) -> None:
    """For `json.loads`: Python reads NaN and Infinity, which JSON doesn't have."""
    raise ValueError(f"{word} is not JSON")
