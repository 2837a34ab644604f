"""`delegate run`: tasks that a person wrote."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from delegate.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from delegate.child.command import CommandRunner
    from delegate.settings import Settings
    from delegate.types import Task


class TierName(StrEnum):
    """How strong a model is."""

    deep = "deep"
    standard = "standard"
    fast = "fast"


class RunnerOutput(StrEnum):
    """What a command given as --runner prints."""

    text = "text"
    json = "json"


CriteriaOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--criterion", metavar="CRITERION", help="What must hold in the end; may be repeated."),
]
WorkspaceOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder to work in, itself. By default a new, empty one.")
]
FileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Tasks from a .json, .yaml or .toml file, in place of GOAL.")
]
RunnerOption = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="The child is this program, such as `claude -p`, in place of our own."),
]
RunnerOutputOption = Annotated[
    RunnerOutput | None, typer.Option(help="What the program prints: its report, or JSON that holds it.")
]
RunnerEnvOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A variable that the program gets, such as its key; may be repeated."),
]


def run(
    goal: Annotated[str | None, typer.Argument(help="What is to be done.")] = None,
    criteria: CriteriaOption = None,
    context: Annotated[str | None, typer.Option(help="What the child must know; it sees nothing else.")] = None,
    tier: Annotated[TierName | None, typer.Option(help="How strong a model the child gets.")] = None,
    model: Annotated[str | None, typer.Option(help="The model that the child runs on.")] = None,
    workspace: WorkspaceOption = None,
    output_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON Schema that the child's report must fit.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Wall time of the child.")] = None,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="Model calls of the child.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="What the task may cost.")] = None,
    file: FileOption = None,
    runner: RunnerOption = None,
    runner_output: RunnerOutputOption = None,
    runner_env: RunnerEnvOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    r"""Run one task, or a file of them, and print what came of each: the verdict first.

    A criterion is a sentence that a judge decides, or one that code checks:

        -c 'shell: pytest -q'      the command exits with 0, in the child's folder

        -c 'file: report.md'       the file is there

        -c 'regex: total \d+'      the pattern is found in the child's report

        -c 'json: total === 3'     the expression holds for the report's JSON

        -c 'called: send_email'    the child did so, with success; or: -c 'never called: send_email'

        -c 'rubric: code_change'   the judge's scores on a rubric reach its threshold

        -c 'question: is it polite?'   -c 'manual: looks right on my phone'   -c 'text: any sentence'

        -c '{"kind": "shell", "command": "make", "exit_code": 2}'   any typed criterion, as JSON

    A task file is a list of tasks, or a table with `tasks`, with the fields goal, context, acceptance_criteria,
    output_schema, tier, model, tools, workspace, max_steps, timeout_seconds, max_cost_usd. There, a criterion
    is a sentence or a typed object, and a relative workspace is meant from the file's own folder.

    With --runner, the child is a program: it runs in the task's folder as an ordinary process, reads goal, context
    and criteria on stdin (or as an argument `{prompt}`, or the goal alone as `{goal}`), and prints its report. No
    shell runs the command, and files that it names lie in the task's folder unless their paths are absolute. It gets
    no key but those in --runner-env. Its tool calls aren't on record, so say with checks what it has to do; where
    checks are all there is, no model is asked and no key is needed.
    """
    from delegate.cli.taskfile import read_schema, read_tasks

    worker = _runner(runner, runner_output, runner_env)
    fields: dict[str, Any] = {
        "context": context,
        "acceptance_criteria": criteria,
        "output_schema": output_schema,
        "tier": tier.value if tier else None,
        "model": model,
        "workspace": workspace,
        "timeout_seconds": timeout,
        "max_steps": max_steps,
        "max_cost_usd": max_cost,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None:
        _refuse_beside_file(goal, given)
        _run(read_tasks(file), format, worker)
    if goal is None:
        raise typer.BadParameter("say what is to be done, or name a --file of tasks", param_hint="GOAL")
    if output_schema is not None:
        given["output_schema"] = read_schema(output_schema)
    _run((_typed_task(goal, given),), format, worker)


def _runner(command: str | None, output: RunnerOutput | None, env: list[str] | None) -> "CommandRunner | None":
    from delegate.child.command import CommandRunner

    if command is not None:
        return CommandRunner(command, output=output.value if output else "text", env=env or ())
    if output is not None or env:
        option = "--runner-output" if output is not None else "--runner-env"
        raise typer.BadParameter("is for the program that --runner names", param_hint=option)
    return None


def _refuse_beside_file(goal: str | None, given: dict[str, Any]) -> None:
    beside = "GOAL" if goal is not None else next(iter(given), None)
    if beside is not None:
        raise typer.BadParameter(f"{beside} can't stand beside --file; write it into the file", param_hint="--file")


def _typed_task(goal: str, given: dict[str, Any]) -> "Task":
    from delegate.cli.taskfile import read_task, typed_criterion

    criteria = [typed_criterion(text) for text in given.get("acceptance_criteria", ())]
    return read_task({"goal": goal, **given, "acceptance_criteria": criteria})


def _run(tasks: "Sequence[Task]", format: Format, runner: "CommandRunner | None") -> NoReturn:
    from functools import partial

    from delegate.cli.output import exit_code, print_report, print_report_as
    from delegate.cli.work import stoppable
    from delegate.delegator import Delegator
    from delegate.errors import CallError
    from delegate.settings import load_settings

    if runner is not None:
        _refuse_what_it_cannot_keep(tasks)
    goals = [task.goal for task in tasks]
    delegator = Delegator(_with_room(load_settings(), tasks), runner=runner)
    report = stoppable(delegator, partial(delegator.run, *tasks), titles=goals)
    if format is not Format.pretty:
        print_report_as(format, report)
    elif (error := report.error) is not None:
        raise CallError(error.code, error.message, field=error.field, hint=error.hint)
    else:
        print_report(report, goals)
    raise typer.Exit(exit_code(report))


def _refuse_what_it_cannot_keep(tasks: "Sequence[Task]") -> None:
    """A program makes its own model calls, with its own tools: a limit on them that nobody keeps is worse than none."""
    from delegate.errors import CallError

    for n, task in enumerate(tasks, start=1):
        for field in ("tier", "model", "tools", "max_steps", "max_cost_usd"):
            if getattr(task, field) is not None:
                where = f"task {n}: " if len(tasks) > 1 else ""
                message = f"{where}`{field}` can't be kept beside --runner, whose program makes its own model calls"
                raise CallError("bad_task", message, field=field, hint="give it as an option to the program itself")


def _with_room(settings: "Settings", tasks: "Sequence[Task]") -> "Settings":
    """The settings bound what models ask for; a person at the keyboard may ask for more time and more steps."""
    seconds = max([settings.timeout_seconds, *(task.timeout_seconds or 0 for task in tasks)])
    steps = max([settings.max_steps, *(task.max_steps or 0 for task in tasks)])
    return settings.model_copy(update={"timeout_seconds": seconds, "max_steps": steps})
