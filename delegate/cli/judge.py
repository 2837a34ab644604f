"""`delegate judge`: gives a verdict on existing work."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegate.cli.options import Format, FormatOption
from delegate.cli.run import CriteriaOption

if TYPE_CHECKING:
    from delegate._util.cancellation import Cancellation
    from delegate.cli.workfile import LocatedCriterion
    from delegate.ports import EventSink
    from delegate.types import Verdict


class Status(StrEnum):
    """How the work ended."""

    completed = "completed"
    failed = "failed"
    timeout = "timeout"
    cancelled = "cancelled"
    budget_exceeded = "budget_exceeded"
    max_steps = "max_steps"


def judge(
    goal: Annotated[str, typer.Option(help="The goal of the work.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The report that the worker wrote.")],
    criteria: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The criteria: a JSON, YAML or TOML list, or lines of text.")
    ] = None,
    criterion: CriteriaOption = None,
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder with the work, whose files are evidence.")
    ] = None,
    receipts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The worker's tool calls, as JSON lines or a JSON list.")
    ] = None,
    status: Annotated[Status, typer.Option(help="How the work ended; anything but completed is a FAIL.")] = (
        Status.completed
    ),
    worker_model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model that did the work; no higher tier judges it."),
    ] = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Judge existing work without running a child: print PASS or FAIL and the evidence.

    Criteria are given with -c as for `delegate run`, or in a file: one per line
    in the same forms, or a list of sentences and typed objects. Commands in
    them run in --workspace itself, without a copy.

    A receipt is `{"tool": …, "args": {…}, "status": …, "output": …}`; its
    status is ok, error, denied or timeout. The messages of a transcript with
    OpenAI's or Anthropic's models are accepted too.

    One of the files may be `-` for stdin. Exits with 0 on PASS, 1 on FAIL, and
    2 if the input is invalid.
    """
    from delegate.cli.output import console, print_json, print_jsonl, refusals_as, verdict_text

    files = (criteria, output, receipts)
    with refusals_as(format):
        _refuse_stdin_twice(files)
        verdict = _verdict(
            goal, files, criterion or [], workspace=workspace, status=status.value, worker_model=worker_model
        )
    if format is Format.pretty:
        console().print(verdict_text(verdict, goal), soft_wrap=True)
    elif format is Format.json:
        print_json(verdict.model_dump(mode="json"))
    else:
        print_jsonl([verdict.model_dump(mode="json")])
    raise typer.Exit(0 if verdict.verdict == "PASS" else 1)


Files = tuple[Path | None, Path, Path | None]
"""Criteria, output, receipts."""


def _refuse_stdin_twice(files: Files) -> None:
    from delegate.cli.documents import STDIN
    from delegate.errors import CallError

    if files.count(STDIN) > 1:
        hint = "write the others to files"
        raise CallError("one_stdin", "only one of --criteria, --output and --receipts can be `-`", hint=hint)


def _verdict(goal: str, files: Files, typed: list[str], **options: Any) -> "Verdict":
    from delegate.cli.documents import read_text
    from delegate.cli.workfile import read_criteria, read_receipts, to_task
    from delegate.errors import CallError

    criteria = read_criteria(files[0], typed)
    if not criteria:
        hint = "add -c CRITERION, or a --criteria FILE with at least one"
        raise CallError("empty", "there are no criteria to judge by", field="acceptance_criteria", hint=hint)
    task = to_task(goal, criteria)
    receipts = read_receipts(files[2]) if files[2] else ()
    output = read_text(files[1])
    work = {"goal": task.goal, "acceptance_criteria": task.acceptance_criteria, "output": output, "receipts": receipts}
    return _judged(criteria, {**work, **options})


def _judged(criteria: "list[LocatedCriterion]", work: dict[str, Any]) -> "Verdict":
    from delegate.cli.work import stoppable
    from delegate.cli.workfile import with_location
    from delegate.delegator import Delegator
    from delegate.errors import CallError

    delegator = Delegator()

    async def judging(*, on_event: "EventSink | None", cancellation: "Cancellation") -> "Verdict":
        return await delegator.judge(**work, cancellation=cancellation)

    try:
        return stoppable(delegator, judging)
    except CallError as error:
        raise with_location(error, criteria) from None
