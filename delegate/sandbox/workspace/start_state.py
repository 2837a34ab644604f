"""Stores what a workspace was before a child started, so that another process can go on with the child's work.

Without it, whatever the child had changed by then would look as if it had been there before: its own files would be no
artifacts, and a check that it bent would be taken for the check. The files of before are kept in a copy.
"""

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from delegate._util.threads import run_in_thread
from delegate.errors import CallError
from delegate.sandbox.filesystem.changes import FileState
from delegate.sandbox.tampering.git_files import Repository
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.inputs import Inputs, is_in_inputs
from delegate.sandbox.workspace.snapshot import Snapshot
from delegate.sandbox.workspace.worktree import Worktree
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import JsonObject

MAX_STORED = 20_000
"""Most files whose state is stored."""


def start_state(folder: Folder) -> JsonObject | None:
    """The state of a folder that was just opened, as JSON; None if it has too many files. Blocks."""
    stored, before = folder.start, folder.before
    if len(stored["files"]) + (len(before.origin) if before is not None else 0) > MAX_STORED:
        return None
    return {**stored, "before": before and before.to_json(), "knows_start": folder.knows_start}


async def reopen(
    root: Path, stored: Mapping[str, Any], *, home: Path, write_locks: WriteLocks, who: str, max_bytes: float = math.inf
) -> Folder:
    """Open the folder of a child that was lost, as it is now, measured against what it was before that child started.

    Raises CallError if it isn't there any more.
    """
    if not os.path.isdir(root):  # noqa: ASYNC240 - one lstat call
        if not stored["owned"] or stored["worktree"] or stored["files"]:
            message = f"the workspace {root} isn't there any more"
            raise CallError("cannot_resume", message, hint="run the task anew")
        root.mkdir(0o700, parents=True)  # noqa: ASYNC240 - a fresh one, in which nothing was written yet
    worktree = stored["worktree"]
    folder = Folder(
        root,
        owned=stored["owned"],
        max_bytes=max_bytes,
        repository=await run_in_thread(partial(Repository.of, root, nested=True)),
        _bytes_before=stored["bytes"],
        _home=home,
        _before={path: FileState(*state) for path, state in stored["files"].items()},
        _writer=None if stored["owned"] else write_locks.join(who),
        _worktree=Worktree(root, *(Path(worktree[0]), worktree[1], Path(worktree[2]))) if worktree else None,
    )
    folder.before = Snapshot.from_json(stored["before"]) if stored.get("before") else None
    folder.knows_start = bool(stored.get("knows_start"))
    if stored.get("inputs"):  # what another process gave can't be given again: what was changed is removed
        states = {path: state for path, state in folder.start["files"].items() if is_in_inputs(path)}
        folder.inputs = Inputs(root, home, (), states)
    return folder
