"""Opens the workspace of one task, anew or where a lost process left it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from delegate.engine.scope import CallScope
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import Task

if TYPE_CHECKING:
    from delegate.engine.resume import Resumed


async def open_folder(call: CallScope, task: Task, index: int, resumed: "Resumed | None") -> Folder:
    """Open the workspace. In a shared folder, two running children can't write the same file."""
    settings = call.services.settings
    home, who = settings.home / "workspaces", f"task {index + 1} of this run"
    write_locks = call.services.write_locks.setdefault(call.context.run, WriteLocks())
    max_bytes = (math.inf if settings.max_workspace_mb is None else settings.max_workspace_mb) * 1e6
    if resumed is not None and resumed.workspace:
        from delegate.sandbox.workspace.start_state import reopen  # loaded only in goal mode

        root = Path(resumed.workspace)
        return await reopen(root, resumed.start, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)
    return await Folder.open(task.workspace, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)


def may_be_run(call: CallScope, task: Task, folder: Folder) -> bool:
    """Whether a judge may run commands on what the child leaves, and there is something now that decides them."""
    services = call.services
    in_words = any(criterion.kind in ("text", "question", "rubric") for criterion in task.criteria)
    return in_words and bool(services.settings.judge_looks) and folder.exists and services.commands.confines()
