"""Decides shell checks, and confirms in a clean room those that succeed after the child changed what decides them.

    workspace ──▶ fails: not met
        └──▶ succeeds ──▶ nothing of the machinery changed: met
                     └──▶ clean room ──▶ succeeds: met
                                 └──▶ fails ──▶ with the changes that the task allows ──▶ succeeds: own_tests_only
                                                    └──▶ as the child left it ──▶ succeeds: check_tampered
                                                                          └──▶ fails: no_clean_room

The machinery of a check are the files that decide its result and aren't the work: tests, configuration, scripts. The
last run tells tampering from a copy in which the command can't succeed at all.

What this can't see: source code under test that ends the program or patches the test framework when it is imported,
and files outside the workspace.
"""

import asyncio
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress

from delegate._util.redaction import Redactor, logger
from delegate.errors import CallError, ToolError
from delegate.judging.checks.mentions import Mentions, named_in
from delegate.judging.checks.scripts import scripts_of
from delegate.judging.submission import Submission, result
from delegate.sandbox.baseline import MachineryChange
from delegate.sandbox.clean_room import CleanRoom
from delegate.sandbox.commands import CommandResult, Commands
from delegate.sandbox.files import shown
from delegate.sandbox.machinery import Machinery, folders_on_path
from delegate.sandbox.workspace import Folder
from delegate.types import CriterionResult, Finding, ShellCriterion, Task

TAIL_LINES = 5
ERROR_LINES = 2
_NAMES_ERROR = re.compile(
    r"^E {2,}\S|^\s*[\w.]*(?:Error|Exception)\b(?=:|$)|\b(?:error|panicked|fatal)\b[:\[ ]", re.ASCII
)
"""A line that says what went wrong, as pytest, unittest, compilers and interpreters write it."""
MAX_NAMED = 5
"""Most files that a reason or a finding names."""
_NO_TESTS_FOUND = (4, 5)
"""Exit codes of test runners that were asked for tests which don't exist."""

_log = logger(__name__)


async def record_baseline(task: Task, folder: Folder) -> None:
    """Remember what decides the shell checks of a task, if it has any. To be called before the child starts."""
    shell = [criterion for criterion in task.criteria if isinstance(criterion, ShellCriterion)]
    if shell:
        await folder.record_baseline(_machinery(shell, folder))


def _machinery(shell: Sequence[ShellCriterion], folder: Folder) -> Machinery:
    with os.scandir(folder.root) as entries:
        scripts = scripts_of(folder.root, [one.command for one in shell]) if any(entries) else {}
    return Machinery(
        protect=tuple(dict.fromkeys(glob for one in shell for glob in one.protect)),
        may_change=tuple(dict.fromkeys(glob for one in shell for glob in one.may_change)),
        scripts=scripts,
        on_path=frozenset() if folder.owned else folders_on_path(str(folder.root), os.environ.get("PATH", "")),
    )


class CheckGuard:
    """Decides the shell checks of one submission. `open` it before the first one, and `close` it after the verdict."""

    def __init__(self, submission: Submission, commands: Commands) -> None:
        self._submission, self._commands = submission, commands
        self._changes: tuple[MachineryChange, ...] = ()
        self._unknown: str | None = None
        """Why nothing that succeeds can be verified."""
        self._recompile = True
        """Whether compiled files in the workspace may be the child's."""
        self._is_open = False
        self._room: CleanRoom | None = None
        self._one_at_a_time = asyncio.Lock()
        self.findings: list[Finding] = []

    async def open(self) -> None:
        """Find what the child changed, and copy the workspace if that is part of the machinery.

        Only the first call counts. It comes before the first check, since checks may change the workspace.
        """
        folder = self._submission.folder
        if self._is_open or folder is None:
            return
        self._is_open = True
        found = await folder.machinery_changes()
        if found is None:
            return
        self._changes, self._recompile = found.files, found.compiled
        if found.ignored_folders:
            named = _named([f"{path}/" for path in found.ignored_folders])
            message = f"the child changed {named}, which artifacts don't list"
            self.findings.append(Finding(severity="info", code="ignored_folder_changed", message=message))
        if not found.complete:
            self._unknown = "the workspace has too many files to compare, or folders that can't be read"
        if found.files:
            await self._open_room(folder)

    async def _open_room(self, folder: Folder) -> None:
        unknown = [change.path for change in self._changes if not change.restorable]
        if unknown:
            self._unknown = f"what {_named(unknown)} was before is not known, because it is too large to keep"
        elif await self._commands.mechanism() != "bubblewrap" and (why := self._leads_back(folder)):
            self._unknown = why
        try:
            self._room = await folder.open_clean_room(self._changes)
        except (CallError, OSError) as error:
            _log.warning("no clean room for %s: %s", folder.root, error)
            self._unknown = f"the workspace can't be copied: {error}"

    def _leads_back(self, folder: Folder) -> str | None:
        """Why a command in a copy could still use the workspace, where the copy has another path."""
        assert folder.baseline is not None
        if any(one.role == "environment" and "node_modules/" not in one.path for one in self._changes):
            return "installed programs refer to the workspace by its path, so a copy isn't independent of it"
        path = os.fsencode(folder.root)
        if any(path in content for content in folder.baseline.kept()):
            return "files that decide the check refer to the workspace by its path, so a copy isn't independent of it"
        return None

    async def close(self) -> None:
        """Remove the clean room."""
        if self._room is not None:
            with suppress(OSError, asyncio.CancelledError):  # the caller raises a pending cancellation again
                await self._room.close()

    async def check(self, criterion: ShellCriterion) -> CriterionResult:
        """The result of one criterion. Never raises, except on cancellation."""
        folder = self._submission.folder
        if folder is None:
            return result(criterion, "error", "nobody", "no_workspace", "there is no workspace to check")
        ran = await self._run(criterion)
        decided = self._result(criterion, ran)
        if decided.outcome != "met":
            return decided
        if folder.baseline is None and criterion.protect:
            why = "nobody recorded what the files in `protect` were before"
            return self._not_shown(criterion, decided, why)
        if self._room is None:
            return decided if self._unknown is None else self._not_shown(criterion, decided, self._unknown)
        async with self._one_at_a_time:
            return await self._confirmed(criterion, decided, self._room)

    async def _confirmed(self, criterion: ShellCriterion, met: CriterionResult, room: CleanRoom) -> CriterionResult:
        """The result of a check that succeeds in the workspace, from what it does in the clean room."""
        ran = await self._run_in(room, criterion)
        if _succeeded(criterion, ran):
            return met if self._unknown is None else self._not_shown(criterion, met, self._unknown)
        if not isinstance(ran, CommandResult) or ran.timed_out:
            return self._result(criterion, ran, "with the files that decide it as they were before, it ")
        allowed = [change.path for change in self._changes if self._is_allowed(change, criterion, ran)]
        if allowed and _succeeded(criterion, await self._run_in(room, criterion, keep=allowed)):
            why = f"it needs the child's own {_named(allowed)}, so it only shows that the child agrees with itself"
            message = f"{criterion.id}: {why}"
            self.findings.append(Finding(severity="major", code="own_tests_only", message=message))
            return _unverified(met, code="own_tests_only", why=why)
        everything = [change.path for change in self._changes]
        if len(allowed) == len(everything) or not _succeeded(
            criterion, await self._run_in(room, criterion, keep=everything)
        ):
            why = self._unknown or "it doesn't succeed in a copy of the workspace, whatever is in it"
            return self._not_shown(criterion, met, why)
        return self._tampered(criterion, ran, [change for change in self._changes if change.path not in allowed])

    def _is_allowed(self, change: MachineryChange, criterion: ShellCriterion, ran: CommandResult) -> bool:
        """Whether the child may have changed this honestly: the check then shows little, but isn't refused."""
        assert self._submission.folder is not None
        assert self._submission.folder.baseline is not None
        baseline, is_test = self._submission.folder.baseline, change.role == "test"
        if change.role == "program" or Mentions(self._submission.task).allow(change.path, is_test=is_test):
            return True
        if change.change != "added":
            return False
        if change.role == "environment":  # packages that were installed because there were none
            top = _environment_of(change.path)
            return not any(path.startswith(top) for path in baseline.pieces)
        if is_test and (ran.exit_code in _NO_TESTS_FOUND or named_in(criterion.command, change.path)):
            return True
        return change.role in ("test", "config") and not baseline.has_checks

    def _tampered(
        self, criterion: ShellCriterion, ran: CommandResult, changes: Sequence[MachineryChange]
    ) -> CriterionResult:
        order = ("hook", "protected", "script", "test", "config", "environment", "program")
        ranked = sorted(changes, key=lambda one: (one.change == "deleted", order.index(one.role)))
        named = _named([f"{shown(one.path)} ({one.change})" for one in ranked])
        reason = (
            f"it succeeds only because the child changed what decides it: {named}. With that as it was before, "
            f"{self._reason(criterion, ran)}. If the child was meant to change it, name it in `may_change`"
        )
        tail = _last_lines(ran, self._submission.redactor)
        source = f"check:{criterion.id}"
        return result(criterion, "not_met", "check", "check_tampered", reason, evidence=tail, source=source)

    def _not_shown(self, criterion: ShellCriterion, met: CriterionResult, why: str) -> CriterionResult:
        self.findings.append(Finding(severity="major", code="no_clean_room", message=f"{criterion.id}: {why}"))
        return _unverified(met, code="no_clean_room", why=why)

    # ------------------------------------------------------------------------------------------------- running

    async def _run(self, criterion: ShellCriterion, room: CleanRoom | None = None) -> CommandResult | ToolError:
        assert self._submission.folder is not None
        try:
            return await self._commands.run_check(
                criterion.command,
                cwd=self._submission.folder.root,
                timeout_seconds=criterion.timeout_seconds,
                author=self._submission.author,
                network=criterion.network,
                by_child=self._submission.by_child,
                copy=room.tree if room is not None else None,
                recompile=self._recompile,
                approve=self._submission.approve,
            )
        except ToolError as error:
            return error

    async def _run_in(
        self, room: CleanRoom, criterion: ShellCriterion, *, keep: Collection[str] = ()
    ) -> CommandResult | ToolError:
        """Run the check in the clean room, with the files in `keep` as the child left them."""
        try:
            await room.restore_all_but(keep)
        except OSError as error:
            return ToolError(f"the clean room can't be set up: {error}")
        return await self._run(criterion, room)

    def _result(self, criterion: ShellCriterion, ran: CommandResult | ToolError, where: str = "") -> CriterionResult:
        if isinstance(ran, ToolError):
            return result(criterion, "error", "nobody", getattr(ran, "code", "command_failed"), f"{where}{ran}")
        if ran.timed_out:
            reason = f"{where}ran longer than {criterion.timeout_seconds:g} s"
            return result(criterion, "error", "check", "timeout", reason)
        tail, source = _last_lines(ran, self._submission.redactor), f"check:{criterion.id}"
        reason = self._reason(criterion, ran)
        if ran.exit_code == criterion.exit_code:
            return result(criterion, "met", "check", "met", reason, evidence=tail, source=source)
        return result(criterion, "not_met", "check", "not_met", reason, evidence=tail, source=source)

    def _reason(self, criterion: ShellCriterion, ran: CommandResult) -> str:
        lines = _telling_lines(ran, self._submission.redactor)
        wanted = "" if ran.exit_code == criterion.exit_code else f", wanted {criterion.exit_code}"
        return f"exit code {ran.exit_code}{wanted}" + (f": {lines}" if lines else "")


def _unverified(met: CriterionResult, *, code: str, why: str) -> CriterionResult:
    return met.model_copy(update={"code": code, "reason": f"{met.reason}; not verified: {why}"})


def _succeeded(criterion: ShellCriterion, ran: CommandResult | ToolError) -> bool:
    return isinstance(ran, CommandResult) and not ran.timed_out and ran.exit_code == criterion.exit_code


def _environment_of(path: str) -> str:
    """The outermost folder of installed packages."""
    parts = path.split("/")
    machinery = Machinery()
    place = next((n for n, part in enumerate(parts) if machinery.folder_role("", part) == "environment"), 0)
    return "/".join(parts[: place + 1]) + "/"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(shown(path) for path in paths[:MAX_NAMED]) + more


def _last_lines(ran: CommandResult, redactor: Redactor) -> str:
    return "\n".join(_output(ran, redactor).splitlines()[-TAIL_LINES:])[-1_000:]


def _telling_lines(ran: CommandResult, redactor: Redactor) -> str:
    """The last lines that a person would read for the result: if it failed, those that name an error before others.

    Empty lines and the rules that test runners draw are left out.
    """
    lines = [line for line in _output(ran, redactor).splitlines() if re.search(r"\w", line)]
    errors = [n for n, line in enumerate(lines) if ran.exit_code and _NAMES_ERROR.search(line)]
    last = range(max(0, len(lines) - TAIL_LINES), len(lines))
    kept = sorted({*errors[-ERROR_LINES:], *last[-2:]} if errors else last)
    return "\n".join(lines[n].strip() for n in kept)[-1_000:]


def _output(ran: CommandResult, redactor: Redactor) -> str:
    return redactor.text(ran.stderr.strip() or ran.stdout.strip())  # before a cut makes a secret unrecognizable
