"""Gives a child what other tasks of its call left, in a folder of its workspace that isn't its own work.

<workspace>/inputs/<id>/report.md     the other child's report
<workspace>/inputs/<id>/files/…       the files that it created or changed, as they were judged

Files can't be written there with the child's own tools, and whatever commands do to them is undone before the work is
looked at. Only files whose content was digested are given: at most 1,000 of a task and 64 MiB in all, and no links.
"""

import os
import posixpath
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from delegate.sandbox.filesystem import changes, files, paths
from delegate.sandbox.filesystem.changes import FileState
from delegate.sandbox.filesystem.copy_out import copy_out
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.types import TaskResult
from delegate.types.errors import CallError, DelegateError

INPUTS = "inputs"
REPORT = "report.md"
_READ_ONLY = 0o444


@dataclass(slots=True)
class Inputs:
    """The folder `inputs` of the workspace `root`, with what is given there. `aside` is a folder beside it."""

    root: Path
    aside: Path
    given: Mapping[str, TaskResult]
    """What other tasks left, by their names."""
    reports: dict[str, str] = field(default_factory=dict[str, str])
    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    """The state of each file there, by its path in the workspace."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """How many files of a task weren't given, by its id."""
    changed: set[str] = field(default_factory=set[str])
    """What the child changed there, by paths in the workspace."""

    def place(self) -> None:
        """Create the folder. Blocks. Raises `CallError` if it exists, or can't be written."""
        try:
            os.mkdir(self.root / INPUTS)
            for name, result in self.given.items():
                report = self.reports.setdefault(name, _report_of(result))
                with paths.new_file(self.root, self.root / INPUTS / name / REPORT, replace=False) as descriptor:
                    files.write_all(descriptor, report.encode(errors="replace"))
                left = [artifact for artifact in result.artifacts if artifact.change != "deleted"]
                known = [artifact for artifact in left if artifact.sha256 is not None and result.workspace is not None]
                place = posixpath.join(INPUTS, name, "files")
                copied = copy_out(Path(result.workspace or self.root), known, self.root, within=place).copied
                self.left_out[name] = len(left) - len(copied)
            for path in (self.root / name for name in _states(self.root)):
                os.chmod(path, _READ_ONLY | (path.lstat().st_mode & 0o111))
        except OSError as problem:
            message = f"{INPUTS}/ can't be created in the workspace: {problem.strerror}"
            raise CallError("workspace_not_copied", message, field="needs") from problem
        self.states = _states(self.root)

    def put_back(self) -> bool:
        """Undo what was changed in the folder, and note it. Returns whether anything was. Blocks.

        Raises `CallError` if it can't be undone.
        """
        now = _states(self.root)
        changed = {path for path in self.states.keys() | now.keys() if self.states.get(path) != now.get(path)}
        if not changed:
            return False
        self.changed |= changed
        aside = self.aside / f"{secrets.token_hex(8)}.removed"
        with suppress(FileNotFoundError):
            os.rename(self.root / INPUTS, aside)  # a link is moved itself
            if stat.S_ISDIR(os.lstat(aside).st_mode):
                remove_tree(aside)
            else:
                os.unlink(aside)
        self.place()
        return True


def _report_of(result: TaskResult) -> str:
    with suppress(DelegateError):
        return result.whole_report
    return result.report  # its record can't be read: the report is cut then


def is_in_inputs(path: str) -> bool:
    """Whether a path in a workspace is in its folder `inputs`, or that folder."""
    return posixpath.normpath(path).split("/")[0] == INPUTS


def _states(root: Path) -> dict[str, FileState]:
    """The state of every file in the folder; nothing if it isn't a folder any more."""
    if (folder := changes.state_of(root, INPUTS)) is None or not stat.S_ISDIR(folder.mode):
        return {}
    return {f"{INPUTS}/{path}": state for path, state in changes.scan(root / INPUTS)}
