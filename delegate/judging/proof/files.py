"""Compares paths with the files that a criterion names."""

import re
from functools import lru_cache

from delegate.sandbox.filesystem.search import glob_pattern


def same_file(path: str, named: str) -> bool:
    """Whether a path is the file that a criterion names: by path, name, folder or glob, or as README for README.md."""
    path, named = path.removeprefix("./"), named.removeprefix("./").rstrip("/")
    if path == named or path.endswith(f"/{named}") or path.startswith(f"{named}/") or _glob(named).fullmatch(path):
        return True
    return "." not in named and base(path).partition(".")[0] == base(named)


@lru_cache(256)
def _glob(named: str) -> re.Pattern[str]:
    return re.compile(glob_pattern(named))


def base(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
