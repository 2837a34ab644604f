"""Decides shell checks, and finds out by trying what a success is worth.

    the work as it was left ──▶ fails: not met
        └──▶ succeeds ──▶ nothing but deliverables changed: proven
                     └──▶ the files of before and the deliverables ──▶ succeeds: proven
                              └──▶ fails ──▶ and what else may be needed ──▶ succeeds: own_tests_only
                                                  └──▶ and all other changes ──▶ fails: no_clean_room
                                                          └──▶ succeeds, not without deliverables: own_tests_only
                                                          └──▶ succeeds, also without: check_tampered

Each command runs in a copy of its own. Deliverables are what the task asked for (`deliverables.py`). A command that
succeeded before the child began, or that ran nothing, shows nothing of the work.

What this can't see: deliverables that end the program or patch the test framework when they are imported, and files
outside the workspace.
"""

import asyncio
import re
from collections.abc import Collection, Sequence
from functools import partial

from delegate._util.redaction import redactor
from delegate.judging.checks.before import ChecksBefore
from delegate.judging.checks.nothing_ran import ran_nothing, says_failed
from delegate.judging.frozen import FrozenWork
from delegate.judging.submission import Submission, result
from delegate.sandbox.commands.commands import CommandResult
from delegate.sandbox.filesystem.files import shown
from delegate.sandbox.tampering.deliverables import Deliverables, found_no_tests, named
from delegate.sandbox.workspace.snapshot import Difference, Frozen
from delegate.types import CriterionResult, Finding, ShellCriterion
from delegate.types.codes import VerdictCode
from delegate.types.errors import ToolError

TAIL_LINES = 5
ERROR_LINES = 2
_NAMES_ERROR = re.compile(
    r"^E {2,}\S|^\s*[\w.]*(?:Error|Exception)\b(?=:|$)|\b(?:error|panicked|fatal)\b[:\[ ]", re.ASCII
)
"""A line that says what went wrong, as pytest, unittest, compilers and interpreters write it."""
_AT_ONCE = 2
_MOST_TRIED = 6
"""So many more runs may find out which of several changes a check needs."""
_MANY = 40
"""Among more changes, it isn't tried."""
_IGNORED = ("node_modules", ".venv", ".git")
"""Folders that artifacts don't list."""


class CheckGuard:
    """Decides the shell checks of one submission. `open` it before the first one."""

    def __init__(self, submission: Submission, work: FrozenWork) -> None:
        self._submission, self._work = submission, work
        self._before: ChecksBefore | None = submission.checks_before
        self._few = asyncio.Semaphore(_AT_ONCE)
        self.findings: list[Finding] = []

    async def open(self) -> None:
        """Freeze the work, and name what the child changed that artifacts don't list."""
        if self._submission.folder is None or (frozen := await self._work.open()) is None:
            return
        ignored = {folder for change in frozen.changes if (folder := _ignored_folder(change.path))}
        if ignored:
            folders = named([f"{path}/" for path in sorted(ignored)])
            message = f"the child changed {folders}, which artifacts don't list"
            self.findings.append(Finding(severity="info", code="ignored_folder_changed", message=message))

    async def check(self, criterion: ShellCriterion) -> CriterionResult:
        """The result of one criterion. Never raises, except on cancellation."""
        if self._submission.folder is None:
            return result(criterion, "error", "nobody", "no_workspace", "there is no workspace to check")
        async with self._few:
            frozen = await self._work.open()
            run = await self._work.run(criterion)
            if frozen is not None and not _succeeded(criterion, run) and await self._work.needs_its_path():
                in_place = await self._work.run_in(None, criterion)
                if _succeeded(criterion, in_place):
                    why = "it succeeds only in the workspace itself, and not in a copy at another path"
                    return self._not_shown(criterion, self._result(criterion, in_place), why)
            decision = self._result(criterion, run)
            if decision.outcome != "met" or not isinstance(run, CommandResult):
                return decision
            if self._before is not None and await self._before.held(criterion):
                decision = self._held_before(criterion, decision)
            if frozen is None or self._work.problem is not None:
                decision = self._not_shown(criterion, decision, self._work.problem or "")
            elif frozen.knows_start:
                decision = await self._confirmed(criterion, decision, frozen)
            elif criterion.protect:
                why = "nobody recorded what the files in `protect` were before"
                decision = self._not_shown(criterion, decision, why)
            return _by_its_words(decision, run.output) if decision.code == "met" else decision

    def _held_before(self, criterion: ShellCriterion, met: CriterionResult) -> CriterionResult:
        assert self._before is not None
        if self._before.cannot_fail(criterion):
            message = f"{criterion.id}: it succeeds in an empty folder too"
            self.findings.append(Finding(severity="major", code="vacuous_check", message=message))
        reason = f"{met.reason}; it held before the child began"
        return met.model_copy(update={"held_before": True, "reason": reason})

    async def _confirmed(self, criterion: ShellCriterion, met: CriterionResult, frozen: Frozen) -> CriterionResult:
        """The result of a check that succeeds on the work, from what it does without the child's other changes."""
        root = str(self._submission.folder.root) if self._submission.folder else ""
        deliverables = Deliverables(self._submission.task, criterion, root, frozen, self._work.on_path)
        own = deliverables.own | deliverables.others_work
        changes = [change for change in frozen.changes if change.path not in own]
        if not changes:
            return met
        run = await self._work.run(criterion, own)
        if _succeeded(criterion, run):
            assert isinstance(run, CommandResult)
            return self._without_changes(criterion, met, run, changes)
        if not isinstance(run, CommandResult) or run.timed_out:
            return self._result(criterion, run, "on the files of before and the deliverables, it ")
        nothing_ran = found_no_tests(run.exit_code) or ran_nothing(run.output)
        harmless = [change for change in changes if deliverables.may_be_needed(change, nothing_ran=nothing_ran)]
        paths, everything = {change.path for change in harmless}, {change.path for change in changes}
        if harmless and _succeeded(criterion, await self._work.run(criterion, own | paths)):
            needed = await self._needed(criterion, own, harmless)
            is_asked = not deliverables.asks_for_code or any(deliverables.is_named(change.path) for change in needed)
            if not is_asked and _succeeded(criterion, await self._work.run(criterion, paths)):
                return self._tampered(criterion, met, run, needed)
            return self._own_checks(criterion, met, f"it needs {_changes(needed)}")
        if len(harmless) == len(changes) or not _succeeded(
            criterion, await self._work.run(criterion, own | everything)
        ):
            return self._not_shown(criterion, met, "it doesn't succeed in a copy of the workspace, whatever is in it")
        needed = await self._needed(criterion, own, changes)
        needed = [change for change in needed if change.path not in paths] or needed
        asked_paths = {change.path for change in harmless if deliverables.is_asked(change)}
        may_be_asked = not any(deliverables.role(change) in ("hook", "protected") for change in needed)
        without_asked = partial(self._work.run, criterion, everything - asked_paths)
        if may_be_asked and own | asked_paths and not _succeeded(criterion, await without_asked()):
            # Red on the work of before: the child's own checks tell its work from none.
            return self._own_checks(criterion, met, f"it needs {_changes(needed)}")
        return self._tampered(criterion, met, run, needed)

    def _without_changes(
        self, criterion: ShellCriterion, met: CriterionResult, run: CommandResult, changes: Sequence[Difference]
    ) -> CriterionResult:
        """The result of a check that succeeds without these changes too."""
        if not ran_nothing(run.output):
            return met
        if ran_nothing(met.evidence or ""):
            return _lowered(met, "nothing_ran", "it runs nothing")
        return self._own_checks(criterion, met, f"without {_changes(changes)}, it runs nothing")

    def _tampered(
        self, criterion: ShellCriterion, met: CriterionResult, run: CommandResult, needed: Sequence[Difference]
    ) -> CriterionResult:
        why = (
            f"it needs {_changes(needed)}, and nothing that was asked for. Without, {self._reason(criterion, run)}. "
            "If the child was meant to change it, name it in `deliverables`"
        )
        return _lowered(met, "check_tampered", why)

    def _own_checks(self, criterion: ShellCriterion, met: CriterionResult, why: str) -> CriterionResult:
        why = f"{why}, so it only shows that the child agrees with itself"
        self.findings.append(Finding(severity="major", code="own_tests_only", message=f"{criterion.id}: {why}"))
        return _lowered(met, "own_tests_only", why)

    async def _needed(
        self, criterion: ShellCriterion, own: Collection[str], changes: Sequence[Difference]
    ) -> Sequence[Difference]:
        """Those of the changes that the check needs, as far as a few runs can tell."""
        rest, trials = list(changes), 0
        size = len(rest) // 2
        while size >= 1 and len(changes) <= _MANY and trials < _MOST_TRIED and len(rest) > 1:
            for start in range(0, len(rest), size):
                without = rest[:start] + rest[start + size :]
                trials += 1
                paths = {*own, *(change.path for change in without)}
                if without and _succeeded(criterion, await self._work.run(criterion, paths)):
                    rest = without
                    break
                if trials >= _MOST_TRIED:
                    break
            else:
                size //= 2
                continue
            size = min(size, max(1, len(rest) // 2))
        return rest

    def _not_shown(self, criterion: ShellCriterion, met: CriterionResult, why: str) -> CriterionResult:
        self.findings.append(Finding(severity="major", code="no_clean_room", message=f"{criterion.id}: {why}"))
        return _lowered(met, "no_clean_room", why)

    def _result(self, criterion: ShellCriterion, run: CommandResult | ToolError, where: str = "") -> CriterionResult:
        if isinstance(run, ToolError):
            return result(criterion, "error", "nobody", getattr(run, "code", "command_failed"), f"{where}{run}")
        if run.timed_out:
            reason = f"{where}ran longer than {criterion.timeout_seconds:g} s"
            return result(criterion, "error", "check", "timeout", reason)
        tail, source = "\n".join(_output(run).splitlines()[-TAIL_LINES:])[-1_000:], f"check:{criterion.id}"
        reason = self._reason(criterion, run)
        outcome = "met" if run.exit_code == criterion.exit_code else "not_met"
        return result(criterion, outcome, "check", outcome, reason, evidence=tail, source=source)

    def _reason(self, criterion: ShellCriterion, run: CommandResult) -> str:
        lines = _telling_lines(run)
        note = "" if run.exit_code == criterion.exit_code else f", wanted {criterion.exit_code}"
        return f"exit code {run.exit_code}{note}" + (f": {lines}" if lines else "")


def _lowered(met: CriterionResult, code: VerdictCode, why: str) -> CriterionResult:
    return met.model_copy(update={"code": code, "reason": f"{met.reason}; {why}"})


def _by_its_words(met: CriterionResult, output: str) -> CriterionResult:
    """The result of a command that says in its output that something failed, or that it ran nothing."""
    if says_failed(output):
        return _lowered(met, "says_failed", "by its own words, something failed")
    return _lowered(met, "nothing_ran", "by its own words, it ran nothing") if ran_nothing(output) else met


def _succeeded(criterion: ShellCriterion, run: CommandResult | ToolError) -> bool:
    return isinstance(run, CommandResult) and not run.timed_out and run.exit_code == criterion.exit_code


def _changes(changes: Sequence[Difference]) -> str:
    """Changes in words: "`tests/conftest.py`, which the child added"."""
    how = {change.change for change in changes}
    did = how.pop() if len(how) == 1 else "changed"
    return f"{named([f'`{shown(change.path)}`' for change in changes])}, which the child {did}"


def _ignored_folder(path: str) -> str:
    """The outermost folder of `path` that artifacts don't list; empty if there is none."""
    parts = path.split("/")[:-1]
    place = next((n for n, part in enumerate(parts) if part in _IGNORED), None)
    return "" if place is None else "/".join(parts[: place + 1])


def _telling_lines(run: CommandResult) -> str:
    """The last lines that a person would read for the result: if it failed, those that name an error before others.

    Empty lines and the rules that test runners draw are left out.
    """
    lines = [line for line in _output(run).splitlines() if re.search(r"\w", line)]
    errors = [n for n, line in enumerate(lines) if run.exit_code and _NAMES_ERROR.search(line)]
    last = range(max(0, len(lines) - TAIL_LINES), len(lines))
    numbers = sorted({*errors[-ERROR_LINES:], *last[-2:]} if errors else last)
    return "\n".join(lines[n].strip() for n in numbers)[-1_000:]


def _output(run: CommandResult) -> str:
    return redactor.text(run.stderr.strip() or run.stdout.strip())  # before a cut makes a secret unrecognizable
