"""Copies what children left in their workspaces to the folder of `delegate run --out`, and says what came of it."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delegate._util.fencing import one_line, visible
from delegate.cli import PROGRAM
from delegate.contract.amounts import counted
from delegate.sandbox.filesystem.copy_out import CopiedOut, copy_out, open_target
from delegate.types import RunResult, Task

SHOWN = 5
"""How many paths a message names."""


@dataclass(frozen=True, slots=True)
class Out:
    """A folder for the files of some tasks. Open it before they run."""

    folder: Path
    target: Path
    """The real path of the folder."""
    force: bool
    is_split: bool
    """Whether each task has a folder of its own in it."""

    @classmethod
    def open(cls, folder: Path, tasks: Sequence[Task], *, force: bool) -> "Out":
        """Create the folder. Raises CallError if it can't be used for these tasks."""
        spaces = (task.workspace for task in tasks)
        shared = [space.path for space in spaces if space and space.mode == "shared" and space.path]
        return cls(folder, open_target(folder, shared=shared), force, len(tasks) > 1)

    def bring(self, run: RunResult, *, quiet: bool) -> bool:
        """Copy the files of all tasks, and print how many. Returns whether no file is left behind.

        With `quiet`, only problems are printed, on stderr.
        """
        complete = True
        for result in run.results:
            name = str(result.task_index + 1) if self.is_split else ""
            folder, copies = self.folder / name, CopiedOut()
            if result.workspace:
                copies = copy_out(Path(result.workspace), result.artifacts, self.target, within=name, force=self.force)
            if not quiet:
                more = f"; to apply all changes: {one_line(result.take_over, 600)}" if result.take_over else ""
                files = counted(len(copies.copied), "file") if copies.copied else "no files"
                print(f"{files} copied to {one_line(str(folder), 300)}{more}")
            for problem in _problems(copies, folder):
                print(f"{PROGRAM}: {problem}", file=sys.stderr)
            complete = complete and not copies.exists and not copies.refused
        return complete


def _problems(copies: CopiedOut, folder: Path) -> list[str]:
    lines: list[str] = []
    if copies.exists:
        lines.append(
            f"not copied, because they exist in {shlex.quote(str(folder))}: {_listed(copies.exists)}; "
            "name another folder, or replace them with --force"
        )
    lines += [f"not copied: {_name(path)}: {why}" for path, why in list(copies.refused.items())[:SHOWN]]
    if (more := len(copies.refused) - SHOWN) > 0:
        lines.append(f"not copied: {counted(more, 'file')} more, for such reasons")
    if copies.links:
        lines.append(f"links aren't copied: {_listed(copies.links)}")
    return lines


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(map(_name, paths[:SHOWN])) + more


def _name(path: str) -> str:
    return one_line(visible(path), 120)
