"""Compares paths with the files that a criterion names."""

import re
from functools import lru_cache
from posixpath import basename

from delegate.sandbox.filesystem.search import glob_pattern


def same_file(path: str, name: str) -> bool:
    """Whether a path is the file that a criterion names: by path, name, folder or glob, or as README for README.md."""
    path, name = path.removeprefix("./"), name.removeprefix("./").rstrip("/")
    if path == name or path.endswith(f"/{name}") or path.startswith(f"{name}/") or _glob(name).fullmatch(path):
        return True
    return "." not in name and basename(path).partition(".")[0] == basename(name)


@lru_cache(256)
def _glob(name: str) -> re.Pattern[str]:
    return re.compile(glob_pattern(name))
