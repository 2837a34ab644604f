"""Lets a judge run a command in a copy of the workspace that is thrown away.

In the copy, the files that decide checks (tests, their configuration, hooks of programs) are as they were before the
child started, and what it added of them is missing. The command has no network and no secrets, and it runs only in a
sandbox.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from delegate.errors import ToolError
from delegate.judging.checks.deliverables import Deliverables
from delegate.judging.checks.scripts import scripts_of
from delegate.judging.frozen import FrozenWork
from delegate.judging.looks.look import Found
from delegate.judging.submission import Submission
from delegate.ports import ToolSpec
from delegate.sandbox.commands import SANDBOXES, CommandResult, Commands
from delegate.sandbox.files import shown
from delegate.sandbox.snapshot import Frozen
from delegate.types import ShellCriterion

SECONDS = 60.0
"""Time limit of one command."""
MAX_NAMED = 5
_PLACE = "in a copy of the workspace, without network; what it changes is gone afterwards"

RUN = ToolSpec(
    "run",
    f"Run a shell command {_PLACE}. Tests and their configuration are as before the worker began; what it added of "
    "them is missing unless own_checks is true. Shows the exit code and the output.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "own_checks": {
                "type": "boolean",
                "description": "With the tests and configuration that the worker wrote or changed. Shows less.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)


def may_run(submission: Submission, commands: Commands) -> bool:
    """Whether there is a workspace, and commands of a model run here only in a sandbox, as far as that is known."""
    return submission.folder is not None and submission.folder.exists and commands.confines()


class SealedCommands:
    """Runs commands of judges on one submission, each in a copy of its own."""

    def __init__(self, submission: Submission, commands: Commands, work: FrozenWork) -> None:
        self._submission, self._commands, self._work = submission, commands, work

    async def run(self, args: Mapping[str, Any]) -> Found:
        """The exit code and the output of a command. Raises ToolError, CallError or OSError if it can't be run."""
        folder, command = self._submission.folder, str(args["command"])
        if folder is None or await self._commands.mechanism() not in SANDBOXES:
            raise ToolError("no command can be run: no sandbox works here")
        if (frozen := await self._work.open()) is None:
            raise ToolError(f"no command can be run: {self._work.problem}")
        undone = self._machinery(command, frozen)
        wants_own = bool(args.get("own_checks")) and bool(undone)
        undone = () if wants_own else undone
        kept = {one.path for one in frozen.changes} - set(undone) if undone else None
        async with self._work.copy(kept) as tree:
            ran = await self._commands.run_check(
                command,
                cwd=folder.root,
                timeout_seconds=SECONDS,
                author="model",
                network="none",
                by_child=True,
                copy=tree,
            )
        own = wants_own or self._is_own(command, frozen)
        return Found(
            self._text(command, ran, undone),
            status="timeout" if ran.timed_out else "ok",
            sandbox=ran.sandbox,
            own_checks=own,
        )

    def _machinery(self, command: str, frozen: Frozen) -> Sequence[str]:
        """The child's changes of what decides commands: tests, configuration, hooks of programs."""
        assert self._submission.folder is not None
        criterion = ShellCriterion(kind="shell", command=command)
        sorted_by = Deliverables(
            self._submission.task, criterion, str(self._submission.folder.root), frozen, self._work.on_path
        )
        return [one.path for one in frozen.changes if sorted_by.role(one) not in (None, "program")]

    def _is_own(self, command: str, frozen: Frozen) -> bool:
        """Whether something that decides the command may be the child's, although the copy was cleaned of that."""
        if not self._submission.by_child:  # nobody knows what was there before: the work is all that there is
            return False
        if self._work.problem is not None:
            return True
        changed = {one.path for one in self._submission.run.artifacts}
        scripts = scripts_of(frozen.end.tree, [command])
        return any(role == "script" and path in changed for path, role in scripts.items())

    def _text(self, command: str, ran: CommandResult, undone: Sequence[str]) -> str:
        more = f" and {len(undone) - MAX_NAMED} more" if len(undone) > MAX_NAMED else ""
        named = ", ".join(map(shown, undone[:MAX_NAMED])) + more
        without = [f"[\u2026 as before the worker began, or missing: {named} \u2026]"] if undone else []
        end = f"stopped after {SECONDS:g} s" if ran.timed_out else f"exit code: {ran.exit_code}"
        return "\n".join([f"$ {command}", *without, end, ran.output.rstrip() or "no output"])
