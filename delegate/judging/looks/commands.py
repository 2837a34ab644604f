"""Lets a judge run a command in a copy of the workspace that is thrown away.

In the copy, the files that decide checks (tests, their configuration, hooks of programs) are as they were before the
child started, and what it added of them is missing, but for what the parent declared as deliverables. The command has
no network and no secrets, and it runs only in a sandbox.

What a command prints may be its own words. So what a judge quotes from it is looked for in what it prints without the
work, too: in an empty folder, and on the files of before.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from posixpath import basename
from typing import Any

from delegate.judging.frozen import FrozenWork
from delegate.judging.looks.look import Found
from delegate.judging.proof.files import with_names
from delegate.judging.submission import Submission
from delegate.sandbox.commands.commands import SANDBOXES, CommandResult, Commands
from delegate.sandbox.filesystem.files import shown
from delegate.sandbox.tampering.deliverables import Deliverables
from delegate.sandbox.tampering.scripts import scripts_of
from delegate.sandbox.workspace.snapshot import Frozen, copy_of
from delegate.types import ShellCriterion
from delegate.types.errors import ToolError
from delegate.types.ports import ToolSpec

SECONDS = 60.0
"""Time limit of one command."""
MAX_NAMED = 5
_PLACE = "in a copy of the workspace, without network; what it changes is gone afterwards"
_WORD = re.compile(r"[\w./@+~-]+")
_EXECUTABLE = 0o111

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
    """Runs commands of judges on one submission, each in a copy of its own, and the same one only once."""

    def __init__(self, submission: Submission, commands: Commands, work: FrozenWork) -> None:
        self._submission, self._commands, self._work = submission, commands, work
        self._running: defaultdict[tuple[str, bool], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._found: dict[tuple[str, bool], Found] = {}
        self._without_work: dict[tuple[str, bool], str] = {}

    async def run(self, args: Mapping[str, Any]) -> Found:
        """The exit code and the output of a command. Raises ToolError, CallError or OSError if it can't be run."""
        key = str(args["command"]), bool(args.get("own_checks"))
        async with self._running[key]:
            if key not in self._found:
                self._found[key] = await self._run(*key)
        return self._found[key]

    async def _run(self, command: str, own_checks: bool) -> Found:
        frozen = await self._frozen()
        deliverables, declared = self._sorted(command, frozen), self._declared(frozen)
        deciding = [change.path for change in frozen.changes if deliverables.role(change) not in (None, "program")]
        undone = [path for path in deciding if path not in declared]
        wants_own = own_checks and bool(undone)
        undone = [] if wants_own else undone
        paths = {change.path for change in frozen.changes} - set(undone) if undone else None
        result = await self._run_in(frozen.copy(paths), command)
        names = ", ".join(map(shown, undone[:MAX_NAMED]))
        names += f" and {len(undone) - MAX_NAMED} more" if len(undone) > MAX_NAMED else ""
        own = "with own_checks, they are as the worker left them"
        note = f"\n[\u2026 as before the worker began, or missing: {names}; {own} \u2026]" if undone else ""
        scripts, programs = self._made_by_child(command, frozen, declared) if self._submission.by_child else (False, ())
        return Found(
            _text(result),
            f"$ {command}{note}",
            status="timeout" if result.timed_out else "ok",
            sandbox=result.sandbox,
            own_checks=wants_own or scripts,
            own_programs=programs,
        )

    async def without_work(self, command: str, *, before: bool) -> str | None:
        """What the command prints in an empty folder, or on the files of `before`; None if those aren't known."""
        key = command, before
        async with self._running[command, False]:
            if key not in self._without_work:
                frozen = await self._frozen()
                if before and frozen.start is None:
                    return None
                copy = frozen.copy(()) if before else copy_of(None, frozen.home)
                self._without_work[key] = _text(await self._run_in(copy, command))
        return self._without_work[key]

    async def _frozen(self) -> Frozen:
        if self._submission.folder is None or await self._commands.mechanism() not in SANDBOXES:
            raise ToolError("no command can be run: no sandbox works here")
        if (frozen := await self._work.open()) is None:
            raise ToolError(f"no command can be run: {self._work.problem}")
        return frozen

    async def _run_in(self, copy: AbstractAsyncContextManager[Path], command: str) -> CommandResult:
        assert self._submission.folder is not None
        async with copy as tree:
            return await self._commands.run_check(
                command,
                cwd=self._submission.folder.root,
                timeout_seconds=SECONDS,
                author="model",
                network="none",
                by_child=True,
                copy=tree,
            )

    def _sorted(self, command: str, frozen: Frozen, declared: tuple[str, ...] | None = None) -> Deliverables:
        """The child's changes by what they are to the command."""
        assert self._submission.folder is not None
        criterion = ShellCriterion(kind="shell", command=command, deliverables=declared)
        root = str(self._submission.folder.root)
        return Deliverables(self._submission.task, criterion, root, frozen, self._work.on_path)

    def _declared(self, frozen: Frozen) -> frozenset[str]:
        """The changes that the parent declared to be work, for the task or for one of its commands, by their names."""
        task = self._submission.task
        shell = (criterion for criterion in task.criteria if isinstance(criterion, ShellCriterion))
        declared = (
            with_names(globs) for globs in (task.deliverables, *(criterion.deliverables for criterion in shell))
        )
        return frozenset[str]().union(*(self._sorted(":", frozen, globs).own for globs in declared if globs))

    def _made_by_child(self, command: str, frozen: Frozen, declared: frozenset[str]) -> tuple[bool, tuple[str, ...]]:
        """Whether scripts of the child decide the command, although the copy was cleaned of what usually does; and
        which other programs of it the command runs that weren't asked for. One may stand where another is meant, as
        `bin/python3`.
        """
        if self._work.problem is not None:
            return True, ()
        words = {basename(word) for word in _WORD.findall(command)}
        states = {
            change.path: frozen.end.origin[change.path] for change in frozen.changes if change.change != "deleted"
        }
        run = scripts_of(frozen.end.tree, [command])
        scripts = {path: role for path, role in run.items() if path in states and path not in declared}
        runnable = {path for path, state in states.items() if state.mode & _EXECUTABLE and basename(path) in words}
        # What the judge's own command names isn't what the task asked for.
        commands = [
            criterion.command for criterion in self._submission.task.criteria if isinstance(criterion, ShellCriterion)
        ]
        task = self._sorted("; ".join(commands) or ":", frozen)
        programs = tuple(sorted(path for path in {*scripts, *runnable} - declared if not task.is_named(path)))
        return "script" in scripts.values(), programs


def _text(result: CommandResult) -> str:
    end = f"stopped after {SECONDS:g} s" if result.timed_out else f"exit code: {result.exit_code}"
    return f"{end}\n{result.output.rstrip() or 'no output'}"
