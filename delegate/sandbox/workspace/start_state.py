"""Stores what a workspace was before a child started, so that another process can go on with the child's work.

Without it, whatever the child had changed by then would look as if it had been there before: its own files would be no
artifacts, and a check that it bent would be taken for the check. The files of before are kept in a copy.
"""

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from delegate._util.threads import run_in_thread
from delegate.sandbox.filesystem.changes import FileState
from delegate.sandbox.tampering.git_config import Named
from delegate.sandbox.tampering.git_files import Repository
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.inputs import Inputs, is_in_inputs
from delegate.sandbox.workspace.snapshot import Snapshot
from delegate.sandbox.workspace.worktree import Worktree
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import JsonObject
from delegate.types.errors import CallError

MAX_STORED = 20_000
"""Most files whose state is stored."""


def start_state(folder: Folder) -> JsonObject | None:
    """The state of a folder that was just opened, as JSON; None if it has too many files. Blocks."""
    before, repository, worktree, git = folder.before, folder.repository, folder.worktree, None
    if len(folder.states_before) + (len(before.origin) if before is not None else 0) > MAX_STORED:
        return None
    if repository is not None:  # what git runs there, by digests: configuration may contain passwords
        own = Repository.of(repository.root, named=repository.named) or repository
        git = {
            "own": _digest(sorted(own.state.items())),
            "state": {str(path): _digest(found) for path, found in repository.state.items()},
            "named": [[str(path) for path in paths] for paths in repository.named],
        }
    return {
        "owned": folder.owned,
        "files": folder.states_before,
        "bytes": folder.bytes_before,
        "inputs": folder.inputs is not None,
        "worktree": worktree and [str(worktree.repository), worktree.base, str(worktree.admin)],
        "copy": folder.is_copy,
        "before": before and _snapshots().dump_python(before, mode="json"),
        "knows_start": folder.knows_start,
        "git": git,
    }


@cache
def _snapshots() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)


def _digest(found: object) -> str:
    return hashlib.sha256(repr(found).encode()).hexdigest()[:32]


def _repository(root: Path, stored: JsonObject) -> Repository | None:
    """The repository as it was before the child started, by which later changes are noticed.

    Raises CallError if what git runs there has changed: what was planted must not be taken for what was there.
    """
    files, folders = stored["named"]
    named = Named(tuple(map(Path, files)), tuple(map(Path, folders)))
    own, now = Repository.of(root, named=named), Repository.of(root, nested=True, named=named)
    if own is None or now is None or _digest(sorted(own.state.items())) != stored["own"]:
        message = f"what git runs in {root} (configuration, hooks) isn't what it was when its child began"
        raise CallError("cannot_resume", message, hint="look at it, and run the task anew")
    state = {Path(path): now.state.get(Path(path), (0, b"")) for path in stored["state"]}
    changed = {path for path, found in state.items() if _digest(found) != stored["state"][str(path)]}
    return replace(now, state={path: (0, b"") if path in changed else found for path, found in state.items()})


def refuse_lost(root: Path, stored: Mapping[str, Any]) -> None:
    """Raise CallError if the folder of a child that was lost can't be opened again. Blocks."""
    if not (os.path.isdir(root) or _is_fresh(stored)):
        raise CallError("cannot_resume", f"the workspace {root} isn't there any more", hint="run the task anew")
    if stored.get("git"):
        _repository(root, stored["git"])


def _is_fresh(stored: Mapping[str, Any]) -> bool:
    return bool(stored["owned"] and not stored["worktree"] and not stored["files"])


async def reopen(
    root: Path, stored: Mapping[str, Any], *, home: Path, write_locks: WriteLocks, who: str, max_bytes: float = math.inf
) -> Folder:
    """Open the folder of a child that was lost, as it is now, measured against what it was before that child started.

    Raises CallError and OSError if that isn't possible.
    """
    if _is_fresh(stored):
        root.mkdir(0o700, parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing may have been written yet
    worktree, git = stored["worktree"], stored.get("git")
    states = {path: FileState(*state) for path, state in stored["files"].items()}
    inputs: dict[str, FileState] = {path: state for path, state in states.items() if is_in_inputs(path)}
    return Folder(
        root,
        owned=stored["owned"],
        before=_snapshots().validate_python(stored["before"]) if stored.get("before") else None,
        knows_start=bool(stored.get("knows_start")),
        repository=await run_in_thread(partial(_repository, root, git)) if git else None,
        # What another process gave can't be given again: what was changed is removed.
        inputs=Inputs(root, home, {}, states=inputs) if stored.get("inputs") else None,
        max_bytes=max_bytes,
        home=home,
        states_before=states,
        bytes_before=stored["bytes"],
        worktree=Worktree(root, Path(worktree[0]), worktree[1], Path(worktree[2])) if worktree else None,
        is_copy=stored.get("copy", False),
        writer=None if stored["owned"] else write_locks.join(who),
    )
