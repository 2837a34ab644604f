"""Runs the checks, which are the criteria that code decides. One function per kind returns one result and never raises.

The result is `met` or `not_met` if the check could be made, else `error` with a code. An error never counts as met.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delegate._util.patterns import pattern_fault
from delegate._util.redaction import redactor
from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate.contract.matchers import tools_in
from delegate.judging.checks.json_schema import SchemaProblem, validate, validate_text
from delegate.judging.report_json import parse_json
from delegate.judging.submission import Submission, result
from delegate.records.recorder import LARGE_CHARS
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.folder import Folder
from delegate.types import (
    AnyCriterion,
    ChildRun,
    CriterionResult,
    FileCriterion,
    JsonPredicateCriterion,
    JsonSchemaCriterion,
    ManualCriterion,
    ProbeCriterion,
    ReceiptCriterion,
    RegexCriterion,
    ShellCriterion,
)
from delegate.types.errors import ToolError

if TYPE_CHECKING:
    from delegate.judging.checks.guard import CheckGuard

REGEX_SECONDS = 1.0
FILE_BYTES = 5_000_000


def is_check(criterion: AnyCriterion) -> bool:
    """Whether code decides this criterion."""
    return criterion.kind == "shell" or criterion.kind in _CHECKS


async def run_checks(
    submission: Submission, criteria: Sequence[AnyCriterion], commands: Commands, guard: "CheckGuard | None" = None
) -> list[CriterionResult]:
    """Decide criteria of kinds that code decides, in their order. Shell checks need `guard`, which runs them."""

    def check(criterion: AnyCriterion) -> Coroutine[Any, Any, CriterionResult]:
        if not isinstance(criterion, ShellCriterion):
            return _CHECKS[criterion.kind](criterion, submission, commands)
        assert guard is not None
        return guard.check(criterion)

    if len(criteria) == 1:
        return [await check(criteria[0])]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(check(criterion)) for criterion in criteria]
    return [task.result() for task in tasks]


async def _json_schema(criterion: JsonSchemaCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    try:
        value = await _output_as_json(submission)
    except ValueError as error:
        return _not_met(criterion, str(error))
    return await _fits(criterion, validate(value, criterion.schema_))


async def _output_as_json(submission: Submission) -> Any:
    report = submission.run.report
    return await run_in_thread_if(len(report) > LARGE_CHARS, partial(parse_json, report))


async def _file(criterion: FileCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    current, folder = await _file_now(criterion, submission), submission.folder
    if folder is None or not submission.by_child:
        return current
    with suppress(ToolError, OSError):  # which the check says by itself
        if not await run_in_thread(partial(folder.is_as_left, criterion.path)):
            reason = f"{criterion.path} changed after the child had ended"
            return result(criterion, "error", "check", "changed_after_check", reason)
    if current.outcome == "met" and _held_before(criterion, submission.run, folder):
        reason = f"{current.reason}; it held before the child began"
        return current.model_copy(update={"held_before": True, "reason": reason})
    return current


def _held_before(criterion: FileCriterion, run: ChildRun, folder: Folder) -> bool:
    """Whether the child didn't touch the file, or only its existence was asked for and it was there."""
    if folder.unlisted:
        return False
    path = os.path.relpath(os.path.normpath(folder.root / criterion.path), folder.root)
    change = next((artifact for artifact in run.artifacts if artifact.path == path), None)
    only_exists = criterion.min_bytes is None and criterion.contains is None and criterion.json_schema is None
    return change is None or (only_exists and change.change == "changed")


async def _file_now(criterion: FileCriterion, submission: Submission) -> CriterionResult:
    if submission.folder is None:
        return result(criterion, "error", "nobody", "no_workspace", "there is no workspace to check")
    try:
        size = await run_in_thread(partial(_size_of_file, submission.folder, criterion.path))
    except ToolError as error:
        return result(criterion, "error", "check", "path_refused", str(error))
    except OSError as error:  # a child may remove its own permissions
        return result(criterion, "error", "check", "unreadable", f"{criterion.path}: {error.strerror}")
    if (size is not None) != criterion.exists:
        return _not_met(criterion, f"{criterion.path} {'does not exist' if criterion.exists else 'exists'}")
    if size is None:
        return _met(criterion, f"{criterion.path} does not exist")
    if criterion.min_bytes is not None and size < criterion.min_bytes:
        return _not_met(criterion, f"{criterion.path} has {size} bytes, wanted at least {criterion.min_bytes}")
    if criterion.contains is None and criterion.json_schema is None:
        return _met(criterion, f"{size:,} byte{'' if size == 1 else 's'}")
    try:
        excerpt = await run_in_thread(partial(submission.folder.read, criterion.path, FILE_BYTES))
    except ToolError as error:
        return result(criterion, "error", "check", "unreadable", str(error))
    if excerpt.cut:
        return result(criterion, "error", "check", "too_large", f"{criterion.path} is larger than {FILE_BYTES} bytes")
    return await _file_content(criterion, await run_in_thread(lambda: excerpt.text))


def _size_of_file(folder: Folder, path: str) -> int | None:
    """Bytes of a regular file; None if there is none. Raises OSError for a folder."""
    try:
        status = os.stat(folder.resolve(path), follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file")
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _file_content(criterion: FileCriterion, content: str) -> CriterionResult:
    text = criterion.contains
    if text is not None and not await run_in_thread(lambda: text in content):
        return _not_met(criterion, f"{criterion.path} does not contain {criterion.contains!r}")
    if criterion.json_schema is None:
        return _met(criterion, f"{criterion.path} contains {criterion.contains!r}", evidence=criterion.contains)
    try:
        return await _fits(criterion, validate_text(content.removeprefix("\ufeff"), criterion.json_schema))
    except ValueError as error:
        return _not_met(criterion, f"{criterion.path} is not JSON: {error}")


async def _regex(criterion: RegexCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    if fault := pattern_fault(criterion.pattern):
        return result(criterion, "error", "check", "invalid_criterion", fault)

    def search() -> Any:
        import regex  # loaded only where something is searched

        return regex.search(criterion.pattern, submission.run.report, timeout=REGEX_SECONDS, concurrent=True)

    try:
        match = await asyncio.to_thread(search)
    except TimeoutError:
        return result(criterion, "error", "check", "timeout", f"matching took longer than {REGEX_SECONDS:g} s")
    if match is None:
        return _not_met(criterion, "no match in the report")
    return _met(criterion, "found in the report", evidence=match.group()[:200])


async def _json_predicate(
    criterion: JsonPredicateCriterion, submission: Submission, commands: Commands
) -> CriterionResult:
    from delegate.judging.checks.predicate.evaluate import PredicateError, evaluate

    try:
        value = await _output_as_json(submission)
        outcome = await evaluate(criterion.expr, value)
    except ValueError as error:
        return _not_met(criterion, str(error))
    except PredicateError as error:
        return result(criterion, "error", "check", "invalid_criterion", str(error))
    return _met(criterion, outcome.reason) if outcome.holds else _not_met(criterion, outcome.reason)


async def _receipt(criterion: ReceiptCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    if not (submission.has_receipts or submission.has_some_receipts):
        return result(criterion, "error", "nobody", "no_receipts", submission.why_no_receipts)
    from delegate.judging.checks import receipts  # loaded only for such criteria
    from delegate.judging.proof.calls import recorded

    calls = recorded(submission)
    check = partial(receipts.check, criterion, calls.receipts, calls)
    decision = await run_in_thread_if(bool(calls.receipts), check)
    there = {*submission.known_tools, *calls.tools, *(receipt.tool for receipt in calls.receipts)}
    unknown = [redactor.beginning(name, 100) for name in tools_in(criterion) if name not in there]
    if unknown and decision.outcome == "met":
        reason = f"no call of {unknown[0]!r} is on record, but it isn't known whether the child had such a tool"
        decision = replace(decision, code="unknown_tool", reason=reason)
    shown = {"at_least": "met", "none": "not_met"}  # what a record shows also if it isn't complete
    if not submission.has_receipts and decision.outcome != shown.get(criterion.mode):
        reason = f"{decision.reason}; {submission.why_no_receipts}"
        return result(criterion, "error", "nobody", "no_receipts", reason)
    source = None if decision.outcome == "error" else f"check:{criterion.id}"
    source = f"receipt:{decision.receipts[0].n}" if decision.receipts else source
    return result(criterion, decision.outcome, "check", decision.code, decision.reason, source=source)


async def _manual(criterion: ManualCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    return result(criterion, "trusted", "trust", "trusted", "only a person can confirm this, and it wasn't checked")


async def _probe(criterion: ProbeCriterion, submission: Submission, commands: Commands) -> CriterionResult:
    from delegate.judging.checks import probe  # loaded only for such criteria

    return await probe.check(criterion, submission)


_Check = Callable[[Any, Submission, Commands], Coroutine[Any, Any, CriterionResult]]
_CHECKS: dict[str, _Check] = {
    "json_schema": _json_schema,
    "file": _file,
    "regex": _regex,
    "json_predicate": _json_predicate,
    "receipt": _receipt,
    "probe": _probe,
    "manual": _manual,
}


async def _fits(criterion: AnyCriterion, validation: Awaitable[str | None]) -> CriterionResult:
    try:
        problem = await validation
    except SchemaProblem as error:
        return result(criterion, "error", "check", "invalid_schema", str(error))
    return _not_met(criterion, problem) if problem else _met(criterion, "matches the schema")


def _met(criterion: AnyCriterion, reason: str, evidence: str | None = None) -> CriterionResult:
    return result(criterion, "met", "check", "met", reason, evidence=evidence, source=f"check:{criterion.id}")


def _not_met(criterion: AnyCriterion, reason: str) -> CriterionResult:
    return result(criterion, "not_met", "check", "not_met", reason, source=f"check:{criterion.id}")
