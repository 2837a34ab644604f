"""Runs the shell checks of a task on the files of before, beside the child: what succeeds there shows nothing of its
work.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from delegate._util.threads import run_in_thread
from delegate.sandbox.commands.commands import SANDBOXES, Commands
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.snapshot import copy_of
from delegate.types import Author, ShellCriterion, Task
from delegate.types.errors import CallError, ToolError


class ChecksBefore:
    """The checks that succeed on the files of before. `start` it before the child, and `close` it after the verdict.

    They run only in a sandbox, and a person isn't asked about them.
    """

    def __init__(self, task: Task, folder: Folder, commands: Commands, author: Author) -> None:
        self._folder, self._commands = folder, commands
        self._author: Author = author
        self._criteria = [criterion for criterion in task.criteria if isinstance(criterion, ShellCriterion)]
        self._running: dict[str, asyncio.Task[bool | None]] = {}
        self._everywhere: dict[str, bool] = {}
        self._few = asyncio.Semaphore(1)

    def start(self) -> None:
        """Begin to run them."""
        if self._folder.knows_start:
            self._running = {
                criterion.id or "": asyncio.create_task(self._succeeds(criterion)) for criterion in self._criteria
            }

    async def held(self, criterion: ShellCriterion) -> bool | None:
        """Whether the command succeeded before the child began; None if it couldn't run then."""
        running = self._running.get(criterion.id or "")
        return None if running is None else await asyncio.shield(running)

    def cannot_fail(self, criterion: ShellCriterion) -> bool:
        """Whether the command succeeds in an empty folder and in one with what it names. Known once `held` is."""
        return self._everywhere.get(criterion.id or "", False)

    async def _succeeds(self, criterion: ShellCriterion) -> bool | None:
        before = self._folder.before
        async with self._few:
            held = await self._run(criterion, is_empty=before is None)
            if held:
                on_nothing = before is None or await self._run(criterion, is_empty=True)
                everywhere = on_nothing and await self._run(criterion, is_empty=True, fill=True)
                self._everywhere[criterion.id or ""] = bool(everywhere)
            return held

    async def _run(self, criterion: ShellCriterion, *, is_empty: bool, fill: bool = False) -> bool | None:
        from delegate.judging.checks.can_fail import filled  # loaded only where there is a command

        try:
            if await self._commands.mechanism() not in SANDBOXES:
                return None
            async with copy_of(None if is_empty else self._folder.before, self._folder.copies) as tree:
                result = await self._commands.run_check(
                    await run_in_thread(partial(filled, tree, criterion.command)) if fill else criterion.command,
                    cwd=self._folder.root,
                    timeout_seconds=criterion.timeout_seconds,
                    author=self._author,
                    network=criterion.network,
                    copy=tree,
                )
        except (ToolError, CallError, OSError):
            return None
        return not result.timed_out and result.exit_code == criterion.exit_code

    async def close(self) -> None:
        """Stop what still runs."""
        running: Sequence[asyncio.Task[bool | None]] = tuple(self._running.values())
        for task in running:
            task.cancel()
        with suppress(asyncio.CancelledError):  # the caller raises a pending cancellation again
            await asyncio.gather(*running, return_exceptions=True)
