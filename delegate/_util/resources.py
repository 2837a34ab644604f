"""Finds the data files that ship with the package: `schemas/` and `judges/`.

In the wheel they are inside `delegate/`; in a checkout they are next to it. They aren't import packages, because the
import names `judges` and `schemas` would collide with packages on PyPI and with users' own files.
"""

import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal


def folder(name: Literal["judges", "schemas"]) -> Traversable:
    """The folder `name` of this installation or checkout."""
    packaged = files("delegate").joinpath(name)
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / name


@cache
def text(where: Literal["judges", "schemas"], name: str) -> str:
    """The content of one file. Cached."""
    return folder(where).joinpath(name).read_text(encoding="utf-8")


def schema(name: str) -> dict[str, Any]:
    """One of `schemas/*.json`, parsed on each call, so that the caller may change the result."""
    return json.loads(text("schemas", f"{name}.json"))


@cache
def reply_schema(kind: Literal["citations", "judge", "reading", "rubric"]) -> dict[str, Any]:
    """The form of a model's reply. Cached, since each request has it: not to be changed."""
    return schema(f"{kind}_reply")
