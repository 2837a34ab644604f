"""Judges existing work that was done outside delegate."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import pydantic

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate._util.redaction import redactor
from delegate._util.threads import run_in_thread_if
from delegate.budget.runs import RunContext
from delegate.judging.reading.reader import CallReading, PendingReading, TaskToRead
from delegate.judging.reading.statements import ToolInfo
from delegate.judging.report_json import MAX_DEPTH, is_within_depth
from delegate.judging.submission import Submission
from delegate.judging.transcripts.messages import is_message, receipts_in, text_of
from delegate.judging.validate import refuse_undecidable
from delegate.judging.verdict import Judging
from delegate.models.catalog import Model
from delegate.records import candidate_lists
from delegate.records.recorder import LARGE_CHARS, MAX_REPORT_CHARS, Recorder, encodable, ends, is_large
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.folder import Folder
from delegate.telemetry import operations
from delegate.types import Author, ChildRun, CitationsCriterion, Receipt, RunStatus, Task, Tier, Verdict
from delegate.types.errors import CallError
from delegate.types.events import ignore_event
from delegate.types.faults import error_text, path_of
from delegate.types.ports import Tool

_TOOL_NAME = re.compile(r"[\w.:/-]{1,64}")
_MAX_TOOLS = 200
_ABOUT_THE_REPORT = ("regex", "json_predicate", "json_schema")
"""Kinds of criteria that only a report can meet."""


async def submission_of(
    goal: str,
    acceptance_criteria: Sequence[Any],
    report: str | None,
    *,
    workspace: str | Path | None,
    receipts: Sequence[Receipt | Mapping[str, Any]] | None,
    recorded: bool,
    author: Author,
    status: RunStatus,
    conversation: str | Sequence[str | Mapping[str, Any]],
    tools: Sequence[Tool],
    worker: Model | None,
    ceiling: Tier,
    strict_commands: Commands | None,
) -> Submission:
    """The work as a finished run. `report=None` means that there is no report, `receipts=None` that tool calls weren't
    recorded. What isn't `recorded` is only what the worker says. With `strict_commands`, criteria that can't fail are
    refused, which is tried with these.

    Raises CallError for a criterion, a receipt or a workspace that can't be used.
    """
    items = receipts or ()
    messages = [cast("Mapping[str, Any]", item) for item in items if is_message(item)]
    if messages and len(messages) == len(items):  # those of a transcript
        items = receipts_in(messages)
    _refuse_unrecordable(items)
    try:
        task = Task.model_validate({"goal": goal, "acceptance_criteria": tuple(acceptance_criteria)})
        record = tuple(map(Receipt.model_validate, items))
    except pydantic.ValidationError as error:
        field = path_of(error.errors()[0]) or "acceptance_criteria"
        hint = "see docs/criteria.md for the kinds of criteria and their fields"
        raise CallError("invalid_criterion", error_text(error), field=field, hint=hint) from None
    if not task.criteria:
        hint = "give at least one criterion"
        raise CallError("empty", "there are no criteria to judge by", field="acceptance_criteria", hint=hint)
    if report is None:
        _refuse_without_report(task, has_evidence=workspace is not None or receipts is not None or bool(conversation))
    place = Path(workspace) if workspace is not None else None
    refuse_undecidable(task, tools={tool.name: tool.read_only for tool in tools}, folder=place)
    from delegate.judging.checks import can_fail

    await can_fail.refuse_vacuous(task, strict_commands, author=author, folder=place, is_start=False)
    numbered = tuple(receipt.model_copy(update={"n": n}) for n, receipt in enumerate(record, start=1))
    folder = Folder.of_existing(place) if place is not None else None
    artifacts = await folder.artifacts() if folder else ()
    if status not in get_args(RunStatus):
        hint = f"use one of {', '.join(get_args(RunStatus))}"
        raise CallError("wrong_type", f"`status` is {status!r}, which is not a status", field="status", hint=hint)
    text = report or ""
    if len(text) > MAX_REPORT_CHARS:
        message = f"`report` has {len(text):,} characters; at most {MAX_REPORT_CHARS:,} can be judged"
        raise CallError("report_too_long", message, field="report", hint="put long texts into files of the workspace")
    run = ChildRun(status=status, report=text, receipts=numbered)
    run = await run_in_thread_if(is_large(run), partial(Recorder().redacted, run))
    run = run.model_copy(update={"artifacts": artifacts}) if artifacts else run
    said = ends(text_of(conversation), MAX_REPORT_CHARS)
    return Submission(
        task,
        run,
        folder,
        author,
        worker,
        ceiling,
        by_child=False,
        has_receipts=recorded and receipts is not None,
        has_report=report is not None,
        said=await run_in_thread_if(len(said) > LARGE_CHARS, lambda: redactor.text(encodable(said))),
        probe_tools=tuple(tools),
        state_tools=tuple(tool for tool in tools if tool.read_only),
    )


def _refuse_without_report(task: Task, *, has_evidence: bool) -> None:
    """Raise CallError if there is nothing to judge, or for the first criterion that only a report can meet."""
    if not has_evidence:
        hint = "give `report`, or the folder with the work as `workspace`"
        raise CallError("empty", "there is no work to judge: no report and no workspace", field="report", hint=hint)
    for n, criterion in enumerate(task.acceptance_criteria):
        cites = isinstance(criterion, CitationsCriterion) and criterion.file is None
        if cites or criterion.kind in _ABOUT_THE_REPORT:
            message = f"`{criterion.kind}` is about the report, and there is none"
            other = "name the `file` that cites" if cites else "use a `file` or `shell` criterion"
            hint = f"give `report`, or {other}"
            raise CallError("invalid_criterion", message, field=f"acceptance_criteria[{n}]", hint=hint)


def _refuse_unrecordable(receipts: Sequence[Receipt | Mapping[str, Any]]) -> None:
    for n, receipt in enumerate(receipts):
        value = receipt.args if isinstance(receipt, Receipt) else dict(receipt)
        try:
            is_recordable = is_within_depth(value) and bool(json.dumps(value, default=str))
        except (ValueError, TypeError):  # a number of over 4,300 digits, or a key that isn't text
            is_recordable = False
        if not is_recordable:
            message = f"receipts[{n}] is nested over {MAX_DEPTH} levels deep, or has a value that JSON doesn't have"
            hint = "give long or deep values as text"
            raise CallError("too_large", message, field=f"receipts[{n}]", hint=hint)


async def judge(
    judging: Judging, submission: Submission, context: RunContext, cancellation: Cancellation | None
) -> Verdict:
    """The verdict, charged to the caller's ledger and limited by the caller's time."""
    # A name is read only if it could be that of a tool: the record is what somebody else says was done.
    called = [receipt.tool for receipt in submission.run.receipts if _TOOL_NAME.fullmatch(receipt.tool)]
    tools = {name: ToolInfo(name) for name in called} | {
        tool.name: ToolInfo.of(tool) for tool in submission.probe_tools
    }
    traced = operations.workflow("judge", run_id=context.run.id, tasks=1, depth=context.depth)
    with traced as operation, (cancellation or Cancellation()).part() as own:
        reading = CallReading(
            judging.reader,
            [TaskToRead("", submission.task, has_user=bool(submission.said))],
            list(tools.values())[:_MAX_TOOLS],
            worker=submission.worker,
            ceiling=submission.ceiling,
            ledger=context.ledger,
        )
        reading.start()
        work = judging.verdict(
            submission,
            context.ledger,
            ignore_event,
            reading=PendingReading(reading, ""),
            seconds=context.seconds_left(),
            cancellation=own,
        )
        try:
            verdict = await run_to_completion(work, own)
        finally:
            await reading.close()
        assert verdict is not None
        operation.judged(verdict)
    # What comes from the catalog and the settings isn't searched.
    return redactor.model(verdict, apart=candidate_lists.OF_VERDICT)
