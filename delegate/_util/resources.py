"""Finds the definitions that ship with the package: `schemas/` and `judges/`.

In the wheel they lie inside `delegate/`; in a checkout beside it. They are data, not import packages, because
`judges` and `schemas` as import names collide with packages on PyPI and with users' own files.
"""

import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal


def folder(name: Literal["judges", "schemas"]) -> Traversable:
    """The folder `name`, wherever this copy of delegate keeps it."""
    packaged = files("delegate").joinpath(name)
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / name


@cache
def text(where: Literal["judges", "schemas"], name: str) -> str:
    """The text of one definition."""
    return folder(where).joinpath(name).read_text(encoding="utf-8")


def schema(name: str) -> dict[str, Any]:
    """One of `schemas/*.json`, parsed anew, so that the caller may change it."""
    return json.loads(text("schemas", f"{name}.json"))
