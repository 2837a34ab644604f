"""`delegate judge`: gives a verdict on existing work."""

import os
import select
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from delegate._util.cancellation import Cancellation
from delegate._util.redaction import redactor
from delegate.cli import PROGRAM, exits
from delegate.cli.ci import github, junit, sarif
from delegate.cli.ci.logs import inert_markup, print_as_is
from delegate.cli.ci.problems import in_repository, paths_of, problems
from delegate.cli.input.documents import STDIN, name_of, read_text
from delegate.cli.input.options import CriteriaOption, Format, TraceOption
from delegate.cli.input.workfile import LocatedCriterion, at_criteria, read_criteria, read_receipts, to_task
from delegate.cli.screen.output import console, print_as_json, print_json, refusals_as
from delegate.cli.screen.screens import verdict_screen
from delegate.cli.work import stoppable
from delegate.delegator import Delegator
from delegate.judging.transcripts.sessions import Session, read_session
from delegate.types import RunStatus, Task, Verdict
from delegate.types.errors import CallError
from delegate.types.events import EventSink

PIPE_SECONDS = 1.0
"""Time without a word on stdin after which it is said that it is read."""
JudgeFormat = Literal["pretty", "json", "jsonl", "junit", "github", "sarif"]


def judge(
    goal: Annotated[
        str | None, typer.Option(help="The goal of the work; with --transcript, by default what was asked for first.")
    ] = None,
    report: Annotated[
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
    status: Annotated[
        RunStatus, typer.Option(help="How the work ended; anything but completed is a FAIL.")
    ] = "completed",
    worker_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model that did the work; no higher tier judges it.")
    ] = None,
    trace: TraceOption = None,
    format: Annotated[
        JudgeFormat,
        typer.Option(
            "--format",
            help="pretty: text. json: one document. jsonl: one line. junit: JUnit XML. github: workflow commands and "
            "the summary of the step. sarif: SARIF 2.1.0.",
        ),
    ] = "pretty",
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
    errors = Format(format) if format in tuple(Format) else Format.pretty
    with refusals_as(errors):
        if (criteria, report, receipts, transcript).count(STDIN) > 1:
            message = "only one of --criteria, --report, --receipts and --transcript can be `-`"
            raise CallError("one_stdin", message, hint="write the others to files")
        located = read_criteria(criteria, criterion or [])
        if not located:
            hint = "add -c CRITERION, or a --criteria FILE with at least one"
            raise CallError("empty", "there are no criteria to judge by", field="acceptance_criteria", hint=hint)
        session = _session(transcript, receipts)
        goal = session.prompts[0] if goal is None and session and session.prompts else goal
        if goal is None:
            raise CallError("empty", "there is no goal", field="goal", hint="give it with --goal TEXT")
        task = to_task(goal, located)
        work: dict[str, Any] = {"workspace": workspace, "status": status, "worker_model": worker_model}
        if session is not None:
            work |= {"worker_model": worker_model or session.model, "recorded": recorded, "receipts": session.receipts}
        elif receipts is not None:
            work["receipts"] = read_receipts(receipts)
        if session is not None and report is None:
            work["report"] = session.report
        else:
            needed = workspace is None and receipts is None
            work["report"] = _report(report, may_be_piped=STDIN not in (criteria, receipts, transcript), needed=needed)
        verdict = _verdict(task, located, trace, **work)
    task = redactor.model(task)
    if format in ("junit", "github", "sarif"):
        _print_for_ci(verdict, task, [path for path in (report, criteria, workspace) if path], workspace, format)
    elif not print_as_json(Format(format), verdict.model_dump(mode="json")):
        console().print(verdict_screen(verdict, task.goal), soft_wrap=True)
    raise typer.Exit(exits.of_verdict(verdict))


def _session(transcript: Path | None, receipts: Path | None) -> Session | None:
    if transcript is None:
        return None
    if receipts is not None:
        hint = "give one of them"
        raise CallError("wrong_type", "--transcript has receipts, as --receipts does", field="receipts", hint=hint)
    return read_session(read_text(transcript), name_of(transcript))


def _report(path: Path | None, *, may_be_piped: bool, needed: bool) -> str | None:
    """The report, from its file or as it was piped to stdin. None if there is none."""
    if path is not None:
        return read_text(path)
    text = _piped() if may_be_piped else ""
    if not text and needed:
        hint = "give it with --report FILE or pipe it to stdin, or name the folder with the work with --workspace"
        raise CallError("empty", "there is no report to judge", field="report", hint=hint)
    return text or None


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


def _verdict(task: Task, criteria: list[LocatedCriterion], trace: Path | None, **work: Any) -> Verdict:
    delegator = Delegator()

    async def judging(*, on_event: EventSink | None, cancellation: Cancellation) -> Verdict:
        return await delegator.judge(
            goal=task.goal, acceptance_criteria=task.acceptance_criteria, cancellation=cancellation, **work
        )

    with at_criteria(criteria):
        return stoppable(delegator, judging, trace=trace)


def _print_for_ci(verdict: Verdict, task: Task, files: list[Path], workspace: Path | None, format: JudgeFormat) -> None:
    """Print the verdict for a system of continuous integration. Problems that are about no file are about `files`."""
    failures = problems(verdict, paths_of(task, verdict, workspace))
    if format == "junit":
        print_as_is(inert_markup(junit.document(verdict, task.goal, failures)))
    elif format == "github":
        print_as_is("\n".join(github.commands(verdict, task.goal, failures)))
        github.write_summary(verdict, task.goal)
    else:
        places = (in_repository(path) for path in files if path != STDIN)
        elsewhere = next((place for place in places if place is not None), ".")
        exit_code = exits.of_verdict(verdict)
        print_json(sarif.document(verdict, task.goal, failures, exit_code=exit_code, elsewhere=elsewhere))
