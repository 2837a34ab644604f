"""The finished work as it is judged: frozen once, so that nothing that a check does is seen by another one.

workspace ──▶ snapshot ──▶ a copy for each command: the work as it was left, or parts of it on the files of before
"""

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from delegate._util.redaction import logger
from delegate._util.threads import run_in_thread
from delegate.judging.submission import Submission
from delegate.sandbox.commands.commands import Approve, CommandResult, Commands
from delegate.sandbox.filesystem import files
from delegate.types import ShellCriterion
from delegate.types.errors import CallError, ToolError

if TYPE_CHECKING:
    from delegate.sandbox.workspace.snapshot import Frozen, Snapshot

_SCANNED_BYTES = 16 << 20
_log = logger(__name__)


class FrozenWork:
    """The frozen work of one submission. Nothing is copied before `open`; `close` removes what was."""

    def __init__(self, submission: Submission, commands: Commands) -> None:
        self._submission, self._commands = submission, commands
        self._frozen: Frozen | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._approvals: dict[str, str | None] = {}
        self.problem: str | None = None
        """Why the work can't be frozen, or why no command on a copy of it proves anything."""
        self.changed: str | None = None
        """A file that changed between the end of the child and the snapshot."""

    async def open(self) -> "Frozen | None":
        """The snapshot, which is taken at the first call; None if there is none (see `problem`)."""
        async with self._opening:
            if not self._is_open:
                self._is_open = True
                await self._freeze()
        return self._frozen

    async def _freeze(self) -> None:
        folder = self._submission.folder
        assert folder is not None
        try:
            self._frozen = frozen = await folder.freeze()
        except (CallError, OSError) as error:
            _log.warning("%s can't be copied: %s", folder.root, error)
            self.problem = f"the workspace can't be copied: {error}"
            return
        self.changed = await run_in_thread(partial(self._changed_meanwhile, frozen.end))
        if not self._submission.by_child:
            return
        if not frozen.knows_start:
            self.problem = "nobody knows what the workspace was before"
        elif await self._commands.mechanism() == "process" and await self._names_its_path(frozen.start):
            self.problem = "files of before refer to the workspace by its path, so a copy isn't independent of it"

    def _changed_meanwhile(self, end: "Snapshot") -> str | None:
        """An artifact of which the snapshot has something else than what was listed."""
        for artifact in self._submission.run.artifacts:
            if artifact.sha256 is not None and artifact.path in end.origin:
                with suppress(ToolError, OSError):
                    if files.digest(end.tree, end.tree / artifact.path, artifact.bytes) != artifact.sha256:
                        return artifact.path
        return None

    async def needs_its_path(self) -> bool:
        """Whether commands see a copy under another path, and files of the work refer to the workspace by its own."""
        if self._frozen is None or await self._commands.mounts_copies():
            return False
        return await self._names_its_path(self._frozen.end)

    async def _names_its_path(self, snapshot: "Snapshot | None") -> bool:
        """Whether a file of it contains the path of the workspace, among the first ones."""
        folder = self._submission.folder
        if snapshot is None or folder is None:
            return False
        text = os.fsencode(folder.root)

        def contains() -> bool:
            room = _SCANNED_BYTES
            for path, state in snapshot.origin.items():
                if state.size <= room:
                    room -= state.size
                    at = snapshot.tree / path
                    with suppress(OSError):
                        if not at.is_symlink() and text in at.read_bytes():
                            return True
            return False

        return await run_in_thread(contains)

    @property
    def on_path(self) -> frozenset[str]:
        """Folders of the workspace in which programs are looked up."""
        folder = self._submission.folder
        if folder is None or folder.owned:
            return frozenset()
        from delegate.sandbox.tampering.machinery import folders_on_path  # loaded only where commands run

        return folders_on_path(str(folder.root), os.environ.get("PATH", ""))

    async def run(self, criterion: ShellCriterion, kept: Collection[str] | None = None) -> CommandResult | ToolError:
        """Run a check in a copy of its own: of the work, or of the files of before and only the changes in `kept`.

        Where the work can't be copied, it runs in the workspace.
        """
        try:
            if (frozen := await self.open()) is None:
                return await self.run_in(None, criterion)
            async with frozen.copy(kept) as tree:
                return await self.run_in(tree, criterion)
        except (CallError, OSError) as error:
            return ToolError(f"the workspace can't be copied: {error}")

    async def run_in(self, tree: Path | None, criterion: ShellCriterion) -> CommandResult | ToolError:
        """Run a check in this copy, or in the workspace itself."""
        submission = self._submission
        assert submission.folder is not None
        try:
            return await self._commands.run_check(
                criterion.command,
                cwd=submission.folder.root,
                timeout_seconds=criterion.timeout_seconds,
                author=submission.author,
                network=criterion.network,
                by_child=submission.by_child,
                copy=tree,
                approve=self._approve if submission.approve is not None else None,
            )
        except ToolError as error:
            return error

    async def _approve(self, command: str) -> str | None:
        """Ask a person once about a command that runs several times."""
        approve: Approve | None = self._submission.approve
        assert approve is not None
        if command not in self._approvals:
            self._approvals[command] = await approve(command)
        return self._approvals[command]

    async def close(self) -> None:
        """Remove the snapshot."""
        if self._frozen is not None:
            with suppress(OSError, asyncio.CancelledError):  # the caller raises a pending cancellation again
                await self._frozen.end.remove()
