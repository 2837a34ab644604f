"""Compares paths and checks with the files that a criterion names."""

import re
from collections.abc import Sequence
from functools import lru_cache
from posixpath import basename

from delegate.sandbox.filesystem.search import glob_pattern
from delegate.types import AnyCriterion, FileCriterion, ShellCriterion


def same_file(path: str, name: str) -> bool:
    """Whether a path is the file that a criterion names: by path, name, folder or glob, or as README for README.md."""
    path, name = path.removeprefix("./"), name.removeprefix("./").rstrip("/")
    if path == name or path.endswith(f"/{name}") or path.startswith(f"{name}/") or _glob(name).fullmatch(path):
        return True
    return "." not in name and basename(path).partition(".")[0] == basename(name)


def is_named(path: str, statement: str) -> bool:
    """Whether a path, or its name, stands in a statement that nobody read. Only what looks like a file's name counts,
    since a child may name its files as it likes.
    """
    names = [re.escape(name) for name in (path, basename(path)) if re.fullmatch(r".+\.[A-Za-z]\w{0,4}", name)]
    return any(re.search(rf"(?<![\w@/.-]){name}(?!\w)", statement, re.ASCII) for name in names)


def is_check_of(criterion: AnyCriterion, files: Sequence[str]) -> bool:
    """Whether a check is one of these files: a `file` check of one, or a command that names one or whose `deliverables`
    do, which are what it tests. Deliverables that are every file name none. Without files, it may be any.
    """
    if isinstance(criterion, FileCriterion):
        return not files or any(same_file(criterion.path, name) for name in files)
    if not isinstance(criterion, ShellCriterion):
        return False
    paths = [path for path in files if not re.search(r"[*?\[]", path)]
    tested = with_names(criterion.deliverables)
    return not paths or any(
        basename(path) in criterion.command or any(same_file(path, glob) for glob in tested) for path in paths
    )


def with_names(globs: Sequence[str] | None) -> tuple[str, ...]:
    """The globs that name something: all but `**` and the like, which any file matches."""
    return tuple(glob for glob in globs or () if glob.strip("*/."))


@lru_cache(256)
def _glob(name: str) -> re.Pattern[str]:
    return re.compile(glob_pattern(name))
