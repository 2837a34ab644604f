"""`delegate run`: runs tasks from the command line or a file."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from delegate._util.cancellation import Cancellation
from delegate.batch.sources import Listed
from delegate.child.command import CommandRunner
from delegate.cli import exits
from delegate.cli.input.options import CriteriaOption, Format, FormatOption, PlanOption, TierName, TraceOption
from delegate.cli.input.recorded import records_of
from delegate.cli.input.runner import RunnerEnvOption, RunnerOption, RunnerOutputOption, runner_of
from delegate.cli.input.task_trust import refuse_untrusted, requests_of
from delegate.cli.input.taskfile import read_schema, read_task, read_tasks
from delegate.cli.input.workfile import at_criteria, read_criteria, validated
from delegate.cli.screen.approvals import at_terminal
from delegate.cli.screen.batch_plan import show
from delegate.cli.screen.out import Out
from delegate.cli.screen.output import print_result, print_result_as, refusals_as
from delegate.cli.work import stoppable, work
from delegate.delegator import Delegator
from delegate.policy.settings import Settings, load_settings
from delegate.sandbox.workspace.folder import existing
from delegate.sandbox.workspace.worktree import source_of
from delegate.types import RunResult, Task
from delegate.types.errors import CallError
from delegate.types.events import EventSink
from delegate.types.faults import located
from delegate.types.request import MAX_ATTEMPTS

LONG_CHARS = 100_000
"""Characters of a goal and its context from which on a person is told of the cost: each call of a child sends them."""
_NOT_OF_PROGRAMS = ("tier", "model", "tools", "max_steps", "max_cost_usd")
_log = logging.getLogger(__name__)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--in",
        "--workspace",
        metavar="FOLDER",
        help="The folder that the child gets, such as a project. By default a new, empty one. Without --worktree or "
        "--copy, the child works in it directly.",
    ),
]
WorktreeOption = Annotated[
    bool,
    typer.Option(
        "--worktree",
        help="Give the child a git worktree of the folder (by default of the working folder), without uncommitted "
        "changes.",
    ),
]
CopyOption = Annotated[
    bool, typer.Option("--copy", help="Give the child a copy of the folder (by default of the working folder).")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Copy the files that the child created or changed to this folder, also after a FAIL. With several tasks, "
        "those of task 1 go to FOLDER/1, and so on.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Let --out replace files that exist.")]
UntilVerifiedOption = Annotated[
    bool,
    typer.Option(
        "--until-verified",
        help="Let the child go on until its claim to be done is verified, it gives up, or a limit ends it.",
    ),
]
MaxClaimsOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="With --until-verified: how often the child may claim to be done [3]."),
]
AttemptsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=MAX_ATTEMPTS,
        help="Let N children do the task side by side, on models of the tier in turn, each in a folder of its own, and "
        "take the one with the best verdict [1]. --max-cost is for all of them.",
    ),
]
RoleOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Let the child work in a role, which narrows what it may do.")
]
FileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run the tasks of a .json, .yaml or .toml file instead of GOAL.")
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="HANDLE",
        help="Go on with a task whose process was lost, in its folder as it is and within what is left of its limits.",
    ),
]


def run(
    goal: Annotated[str | None, typer.Argument(help="What the child is to do.")] = None,
    criteria: CriteriaOption = None,
    context: Annotated[str | None, typer.Option(help="Background for the child, which sees nothing else.")] = None,
    tier: Annotated[TierName | None, typer.Option(help="The tier of the child's model.")] = None,
    model: Annotated[str | None, typer.Option(help="The child's model.")] = None,
    folder: FolderOption = None,
    worktree: WorktreeOption = False,
    copy: CopyOption = False,
    out: OutOption = None,
    force: ForceOption = False,
    output_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON Schema for the child's report.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time limit of the child.")] = None,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="Maximum number of model calls.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Maximum cost of the task.")] = None,
    attempts: AttemptsOption = None,
    until_verified: UntilVerifiedOption = False,
    max_claims: MaxClaimsOption = None,
    file: FileOption = None,
    runner: RunnerOption = None,
    runner_output: RunnerOutputOption = None,
    runner_env: RunnerEnvOption = None,
    plan: PlanOption = False,
    role: RoleOption = None,
    trace: TraceOption = None,
    resume: ResumeOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    r"""Run one task, or a file of tasks, and print each result, verdict first.

    A criterion is a sentence that a judge decides, or a check that code runs:

        -c 'shell: pytest -q'     the command exits with 0 in the child's folder

        -c 'file: report.md'      the file exists

        -c 'regex: total \d+'     the child's report contains the pattern

        -c 'json: total === 3'    the expression is true for the report's JSON

        -c 'called: run_shell'    the child called this tool successfully

        -c 'never called: fetch_url'  the child didn't call this tool

        -c 'rubric: code_change'  the judge's scores reach the rubric's threshold

        -c 'question: is it polite?'     -c 'manual: looks right on my phone'

        -c 'text: any sentence'   a sentence that isn't read as one of these forms

        -c 'file a.md: is polite' a sentence about this file

        -c '{"kind": "citations"}'   as JSON, like probe and json_schema

    A task file is a list of tasks, or an object with the list as `tasks`. A
    task has the fields goal, context, acceptance_criteria, deliverables,
    min_level, output_schema, tier, model, effort, tools, workspace, max_steps,
    timeout_seconds, max_cost_usd, mode, max_claims, steps, role, instructions,
    id, needs and attempts. A criterion in it is a sentence or a typed object,
    and a relative workspace is resolved against the folder of the file. What
    reaches further than it or your settings needs `delegate trust FILE`.

    The child gets a new, empty folder; with --in, --worktree or --copy, it gets
    a project. Its files stay there; --out copies them to a folder of yours. It
    never copies links, nor files into a `.git`, and replaces none without
    --force; if a file couldn't be copied, the exit code is 1.

    With --until-verified (in a file: `mode: goal`), the child can't just stop.
    It claims to be done, and if anything doesn't hold, it gets back what failed
    and goes on, up to --max-claims times and within all other limits.

    With --runner, a program is the child. It runs in the task's folder as an
    ordinary process, reads goal, context and criteria from stdin (or as the
    argument `{prompt}`, or only the goal as `{goal}`), and prints its report.
    The command isn't run by a shell, and relative paths in it refer to the
    task's folder. It gets only the API keys named with --runner-env. Its tool
    calls aren't recorded, so verify its work with checks; if all criteria are
    checks, no model is called and no API key is needed.

    Exits with 0 if every verdict is PASS, 1 if any work is bad, 2 if it was
    refused before anything ran (an invalid option, file or setting, or no model
    for the children, such as without a key), and 3 if no work is bad, but a
    child couldn't run or nobody could look at its work.
    """
    worker = runner_of(runner, runner_output, runner_env)
    if worktree and copy:
        raise typer.BadParameter("can't be used with --copy; leave out one of them", param_hint="--worktree")
    given = read_criteria(None, criteria or ())
    workspace = {"mode": "worktree" if worktree else "copy" if copy else "shared", "path": folder or Path.cwd()}
    fields: dict[str, Any] = {
        "context": context,
        "acceptance_criteria": criteria and list(map(validated, given)),
        "output_schema": output_schema,
        "tier": tier,
        "model": model,
        "workspace": workspace if folder is not None or worktree or copy else None,
        "timeout_seconds": timeout,
        "max_steps": max_steps,
        "max_cost_usd": max_cost,
        "attempts": attempts,
        "mode": "goal" if until_verified else None,
        "max_claims": max_claims,
        "role": role,
    }
    options = {name: value for name, value in fields.items() if value is not None}
    of_task = ({"GOAL": goal} if goal is not None else {}) | options
    if resume is not None:
        others = {"--file": file, "--runner": runner, "--out": out, "--plan": plan or None}
        _refuse("--resume", of_task | others, "the task is on record")
        _resume(resume, format)
    if max_claims is not None and not until_verified:
        raise typer.BadParameter("can only be used with --until-verified", param_hint="--max-claims")
    if force and out is None:
        raise typer.BadParameter("can only be used with --out", param_hint="--force")
    if file is not None:
        _refuse("--file", of_task, "write {} into the file")
    with refusals_as(format), at_criteria(given, "the command line: row 1: "):
        tasks = read_tasks(file) if file is not None else (_task_from_options(goal, options),)
        _refuse_unusable(tasks, worker)
        if plan:
            _plan(tasks, file, worker, format)
        if file is not None:
            refuse_untrusted(file, _located(tasks), load_settings())
        _run(tasks, format, worker, out, force=force, trace=trace)


def _refuse(option: str, others: dict[str, Any], instead: str) -> None:
    """Raise BadParameter if one of the others is given, which can't be used with this option."""
    if conflict := next((name for name, value in others.items() if value is not None), None):
        message = f"can't be used with {conflict}; {instead.format(conflict)}"
        raise typer.BadParameter(message, param_hint=option)


def _resume(text: str, format: Format) -> NoReturn:
    """Go on with a task on record, and print its result."""
    terminal = at_terminal()
    delegator = Delegator(on_approval=terminal, on_question=terminal and terminal.answer)

    async def resume(*, on_event: EventSink | None, cancellation: Cancellation) -> tuple[str, RunResult]:
        (record,) = await records_of(delegator, [text])
        result = await delegator.resume(record["handle"], on_event=on_event, cancellation=cancellation)
        return record["task"]["goal"], result

    with refusals_as(format):
        goal, result = stoppable(delegator, resume)
    print_any_result(result, [goal], format)
    raise typer.Exit(exits.of_result(result))


def print_any_result(result: RunResult, goals: Sequence[str], format: Format) -> None:
    if format is not Format.pretty:
        print_result_as(format, result)
    else:
        print_result(result, goals)


def _task_from_options(goal: str | None, options: dict[str, Any]) -> Task:
    if goal is None:
        raise typer.BadParameter("give a goal, or a file of tasks with --file", param_hint="GOAL")
    if "output_schema" in options:
        options["output_schema"] = read_schema(options["output_schema"])
    try:
        return read_task({"goal": goal, **options})
    except CallError as error:
        for option in ("timeout_seconds", "max_steps", "max_cost_usd"):
            name = option.removesuffix("_seconds").removesuffix("_usd").replace("_", "-")
            error.message = error.message.replace(f"`{option}`", f"--{name}")
        raise


def _run(
    tasks: Sequence[Task],
    format: Format,
    runner: CommandRunner | None,
    folder: Path | None,
    *,
    force: bool,
    trace: Path | None,
) -> NoReturn:
    """Run the tasks, print the result, and copy the files of the children to `folder` if there is one."""
    settings, terminal = _raise_limits(load_settings(), tasks), at_terminal()
    for n, task in enumerate(tasks, start=1):
        if (chars := len(task.goal) + len(task.context or "")) > LONG_CHARS:
            delegator = Delegator(load_settings(), runner=runner)
            alone = Listed([task.model_copy(update={"needs": ()})], f"task {n}", is_call=True)
            estimate = work(delegator, lambda _, plan=delegator.batches.plan, alone=alone: plan(alone)).estimate
            _log.warning(
                f"task {n}: goal and context have {chars:,} characters, which each call of its child sends again (cost:"
                f" {estimate}); to save cost, put long text into a file in the workspace and name it in the goal"
            )
    goals = [task.goal for task in tasks]
    delegator = Delegator(settings, runner=runner, on_approval=terminal, on_question=terminal and terminal.answer)
    out = Out.open(folder, tasks, force=force) if folder is not None else None
    result = stoppable(delegator, partial(delegator.run, *tasks), titles=goals, trace=trace)
    print_any_result(result, goals, format)
    complete = out.bring(result, quiet=format is not Format.pretty) if out else True
    raise typer.Exit(exits.of_result(result) or (0 if complete else 1))


def _plan(tasks: Sequence[Task], file: Path | None, runner: CommandRunner | None, format: Format) -> NoReturn:
    """Print what would be run."""
    settings = load_settings()
    delegator = Delegator(_raise_limits(settings, tasks), runner=runner)
    source = Listed(tasks, str(file) if file else "the command line", is_call=True)
    plan = work(delegator, lambda _: delegator.batches.plan(source))
    show(plan, requests_of(file, _located(tasks), settings), format, file)
    raise typer.Exit


def _located(tasks: Sequence[Task]) -> Iterator[tuple[str, Task]]:
    return ((f"task {n}", task) for n, task in enumerate(tasks, start=1))


def _refuse_unusable(tasks: Sequence[Task], runner: CommandRunner | None) -> None:
    """Raise CallError for a folder that can't be used, or a limit on a program, which makes its own calls."""
    for n, task in enumerate(tasks, start=1):
        with located(f"task {n}" if len(tasks) > 1 else ""):
            for field in _NOT_OF_PROGRAMS if runner is not None else ():
                if getattr(task, field) is not None:
                    message = f"`{field}` can't be enforced with --runner, because the program calls its own model"
                    hint = "remove this field; pass it as an option of the program instead"
                    raise CallError("bad_task", message, field=field, hint=hint)
            if task.workspace is not None and task.workspace.path is not None:
                path = existing(task.workspace.path)
                if task.workspace.mode == "worktree":
                    asyncio.run(source_of(path, task.workspace.base or "HEAD"))


def _raise_limits(settings: Settings, tasks: Sequence[Task]) -> Settings:
    """Raise the limits of the settings, which are meant for models, to what the person asked for."""
    seconds = max([settings.timeout_seconds, *(task.timeout_seconds or 0 for task in tasks)])
    steps = max([settings.max_steps, *(task.max_steps or 0 for task in tasks)])
    return settings.model_copy(update={"timeout_seconds": seconds, "max_steps": steps})
