"""Opens the workspace of one task, anew or where a lost process left it."""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate.engine.scope import CallScope
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.worktree import merge_diff
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import JsonObject, Task
from delegate.types.errors import CallError

if TYPE_CHECKING:
    from delegate.engine.resume import Resumed


async def open_folder(call: CallScope, task: Task, index: int, resumed: "Resumed | None") -> Folder:
    """Open the workspace. In a shared folder, two running children can't write the same file."""
    settings = call.services.settings
    home, who = settings.home / "workspaces", f"task {index + 1} of this run"
    write_locks = call.services.write_locks.setdefault(call.context.run, WriteLocks())
    max_bytes = (math.inf if settings.max_workspace_mb is None else settings.max_workspace_mb) * 1e6
    if resumed is not None and resumed.workspace and resumed.start is not None:
        from delegate.sandbox.workspace.start_state import reopen  # loaded only where it is needed

        root = Path(resumed.workspace)
        return await reopen(root, resumed.start, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)
    return await Folder.open(task.workspace, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)


async def start_of(call: CallScope, folder: Folder) -> JsonObject | None:
    """What has to be stored of a folder that was just opened, so that its task can be resumed; None if it can't."""
    from delegate.sandbox.workspace.start_state import start_state

    state = await run_in_thread_if(not folder.is_empty, partial(start_state, folder))
    if state is None:
        return None
    tools = call.context.tools
    return {**state, "tier": call.context.tier, "tools": None if tools is None else sorted(tools)}


async def fill_from(folder: Folder, diff: Path) -> None:
    """Let a new worktree have what an earlier one of the same commit had. Raises CallError and OSError."""
    if problem := await merge_diff(folder.root, await run_in_thread(diff.read_bytes)):
        message = f"the work in {diff} can't be gone on with: {problem}"
        raise CallError("cannot_message", message, hint="delegate a new task")
