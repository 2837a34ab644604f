"""`delegate judge`: gives a verdict on existing work."""

import os
import select
import stat
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from delegate._util.cancellation import Cancellation
from delegate._util.redaction import redactor
from delegate.cli import PROGRAM, exits
from delegate.cli.ci import github, junit, sarif
from delegate.cli.ci.logs import inert_markup, print_as_is
from delegate.cli.ci.problems import in_repository, paths_of, problems
from delegate.cli.input.documents import STDIN, name_of, read_text
from delegate.cli.input.options import CriteriaOption, Format, TraceOption
from delegate.cli.input.workfile import LocatedCriterion, read_criteria, read_receipts, to_task, with_location
from delegate.cli.screen.output import console, print_json, print_jsonl, refusals_as, verdict_text
from delegate.cli.work import stoppable
from delegate.delegator import Delegator
from delegate.errors import CallError
from delegate.events import EventSink
from delegate.judging.transcripts.sessions import Session, read_session
from delegate.types import Task, Verdict

PIPE_SECONDS = 2.0
"""Time without a word on stdin after which it is said that it is read."""


class Status(StrEnum):
    """How the work ended."""

    completed = "completed"
    failed = "failed"
    timeout = "timeout"
    cancelled = "cancelled"
    budget_exceeded = "budget_exceeded"
    max_steps = "max_steps"


class JudgeFormat(StrEnum):
    """The output format of a verdict."""

    pretty = "pretty"
    json = "json"
    jsonl = "jsonl"
    junit = "junit"
    github = "github"
    sarif = "sarif"


def judge(
    goal: Annotated[
        str | None, typer.Option(help="The goal of the work; with --transcript, by default what was asked for first.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report that the worker wrote; or pipe it to stdin.")
    ] = None,
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
    transcript: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The session of a coding agent (Claude Code, Codex, Gemini CLI, `opencode export`, `hermes sessions "
            "export`), an ATIF trajectory, or messages of OpenAI or Anthropic: calls, report (the last message) and "
            "model.",
        ),
    ] = None,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="The transcript lay where the worker couldn't write. Without it, its calls prove nothing.",
        ),
    ] = False,
    status: Annotated[Status, typer.Option(help="How the work ended; anything but completed is a FAIL.")] = (
        Status.completed
    ),
    worker_model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model that did the work; no higher tier judges it."),
    ] = None,
    trace: TraceOption = None,
    format: Annotated[
        JudgeFormat,
        typer.Option(
            "--format",
            help="pretty: text. json: one document. jsonl: one line. junit: JUnit XML. github: workflow commands and "
            "the summary of the step. sarif: SARIF 2.1.0.",
        ),
    ] = JudgeFormat.pretty,
) -> None:
    """Judge existing work without running a child: print PASS or FAIL and the evidence.

    Criteria are given with -c as for `delegate run`, or in a file: one per line
    in the same forms, or a list of sentences and typed objects. Commands in
    them run in --workspace itself, without a copy.

    The report is a file, or what is piped to stdin. Without one, --workspace is
    judged alone, by criteria about files, commands and tool calls.

    A receipt is `{"tool": …, "args": {…}, "status": …, "output": …}`; its
    status is ok, error, denied or timeout. The messages of a transcript with
    OpenAI's or Anthropic's models are accepted too.

    One of the files may be `-` for stdin. Exits with 0 on PASS, 1 if the work
    is bad, 2 if it was refused before anything ran (an invalid option, file or
    setting), and 3 if nobody could look: no judge, such as without a key, no
    budget, or a check that can't run here.
    """
    files = _Files(criteria, output, receipts, transcript)
    errors = Format(format.value) if format.value in tuple(Format) else Format.pretty
    with refusals_as(errors):
        _refuse_stdin_twice(files)
        located = _criteria(criteria, criterion or [])
        session = _session(transcript, receipts)
        task = to_task(_goal(goal, session), located)
        options = {"workspace": workspace, "status": status.value, "worker_model": worker_model}
        if session:
            options |= {"worker_model": worker_model or session.model, "recorded": recorded}
            options |= {"receipts": session.receipts} | ({"output": session.report} if output is None else {})
        verdict = _verdict(task, located, files, trace, **options)
    _print(verdict, task, files, workspace, format)
    raise typer.Exit(exits.of_verdict(verdict))


class _Files(NamedTuple):
    """The files that are read."""

    criteria: Path | None
    output: Path | None
    receipts: Path | None
    transcript: Path | None


def _session(transcript: Path | None, receipts: Path | None) -> Session | None:
    if transcript is None:
        return None
    if receipts is not None:
        hint = "give one of them"
        raise CallError("wrong_type", "--transcript has receipts, as --receipts does", field="receipts", hint=hint)
    return read_session(read_text(transcript), name_of(transcript))


def _goal(goal: str | None, session: Session | None) -> str:
    if goal is None and session and session.prompts:
        return session.prompts[0]
    if goal is None:
        raise CallError("empty", "there is no goal", field="goal", hint="give it with --goal TEXT")
    return goal


def _refuse_stdin_twice(files: _Files) -> None:
    if files.count(STDIN) > 1:
        hint = "write the others to files"
        message = "only one of --criteria, --output, --receipts and --transcript can be `-`"
        raise CallError("one_stdin", message, hint=hint)


def _criteria(file: Path | None, texts: list[str]) -> list[LocatedCriterion]:
    if criteria := read_criteria(file, texts):
        return criteria
    hint = "add -c CRITERION, or a --criteria FILE with at least one"
    raise CallError("empty", "there are no criteria to judge by", field="acceptance_criteria", hint=hint)


def _report(files: _Files, *, has_workspace: bool) -> str | None:
    """The report, from its file or as it was piped to stdin. None if there is none."""
    if files.output is not None:
        return read_text(files.output)
    if STDIN not in files and (piped := _piped()):
        return piped
    if not has_workspace and files.receipts is None:
        hint = "give it with --output FILE or pipe it to stdin, or name the folder with the work with --workspace"
        raise CallError("empty", "there is no report to judge", field="output", hint=hint)
    return None


def _piped() -> str:
    """All that is piped to stdin, or redirected to it from a file. Empty if stdin is a terminal or a device.

    A pipe that stays open without a word would be waited for in silence, so that is said once.
    """
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  (it is closed)
        return ""
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)):
        return ""
    if os.name == "posix" and not select.select([0], [], [], PIPE_SECONDS)[0]:
        print(f"{PROGRAM}: reading the report from stdin; without one, add `< /dev/null`", file=sys.stderr, flush=True)
    return read_text(STDIN)


def _verdict(
    task: Task, criteria: list[LocatedCriterion], files: _Files, trace: Path | None, **options: Any
) -> Verdict:
    work: dict[str, Any] = {"goal": task.goal, "acceptance_criteria": task.acceptance_criteria, **options}
    if files.receipts:
        work["receipts"] = read_receipts(files.receipts)
    if "output" not in options:
        work["output"] = _report(files, has_workspace=options["workspace"] is not None)
    delegator = Delegator()

    async def judging(*, on_event: EventSink | None, cancellation: Cancellation) -> Verdict:
        return await delegator.judge(**work, cancellation=cancellation)

    try:
        return stoppable(delegator, judging, trace=trace)
    except CallError as error:
        raise with_location(error, criteria) from None


def _print(verdict: Verdict, task: Task, files: _Files, workspace: Path | None, format: JudgeFormat) -> None:
    task = redactor.model(task)
    match format:
        case JudgeFormat.pretty:
            console().print(verdict_text(verdict, task.goal), soft_wrap=True)
        case JudgeFormat.json:
            print_json(verdict.model_dump(mode="json"))
        case JudgeFormat.jsonl:
            print_jsonl([verdict.model_dump(mode="json")])
        case _:
            _print_for_ci(verdict, task, files, workspace, format)


def _print_for_ci(verdict: Verdict, task: Task, files: _Files, workspace: Path | None, format: JudgeFormat) -> None:
    failures = problems(verdict, paths_of(task, verdict, workspace))
    if format is JudgeFormat.junit:
        print_as_is(inert_markup(junit.document(verdict, task.goal, failures)))
    elif format is JudgeFormat.github:
        print_as_is("\n".join(github.commands(verdict, task.goal, failures)))
        github.write_summary(verdict, task.goal)
    else:
        places = (
            in_repository(path) for path in (files.output, files.criteria, workspace) if path not in (None, STDIN)
        )
        elsewhere = next((place for place in places if place is not None), ".")
        exit_code = exits.of_verdict(verdict)
        print_json(sarif.document(verdict, task.goal, failures, exit_code=exit_code, elsewhere=elsewhere))
