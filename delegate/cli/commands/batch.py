"""`delegate batch`: runs each task of a file once and writes one result per task."""

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from delegate._util.cancellation import Cancellation
from delegate.batch.backend import Backend
from delegate.batch.batch import Batch
from delegate.batch.results_file import ResultsFile
from delegate.batch.sources import TaskFile
from delegate.batch.templates import Templates
from delegate.cli import exits
from delegate.cli.input.options import Format, FormatOption, PlanOption, TierName, TraceOption
from delegate.cli.input.recorded import complete_batch, run_id_of
from delegate.cli.input.task_trust import refuse_untrusted, requests_of
from delegate.cli.input.taskfile import located_tasks, read_schema, read_task
from delegate.cli.screen.approvals import at_terminal
from delegate.cli.screen.batch_plan import show
from delegate.cli.screen.batch_progress import run_with_progress, summary
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.cli.work import stoppable, work
from delegate.delegator import Delegator, engine_of
from delegate.policy.settings import Settings
from delegate.types.errors import CallError
from delegate.types.events import EventSink
from delegate.types.short_forms import criterion_of


class RerunName(StrEnum):
    """Which finished tasks to run again. An enum, since typer takes no list of literals."""

    unknown = "unknown"
    fail = "fail"


TasksArgument = Annotated[
    Path | None, typer.Argument(metavar="TASKS", help="A .jsonl, .json, .yaml or .csv file of tasks.")
]
ResultsOption = Annotated[
    Path | None, typer.Option("-o", "--results", metavar="FILE", help="Write the results to this .jsonl or .csv file.")
]
CriteriaOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--criterion", metavar="CRITERION", help="For a CSV: an acceptance criterion; may be repeated."),
]
SchemaOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="For a CSV: a JSON Schema for the report of each task.")
]
GoalOption = Annotated[str | None, typer.Option(help="For a CSV: the goal of each task, with {column} placeholders.")]
TierOption = Annotated[TierName | None, typer.Option(help="For a CSV: the tier of the children's model.")]
CostOption = Annotated[float | None, typer.Option(min=0, metavar="USD", help="Maximum cost of the whole batch.")]
ConcurrencyOption = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Tasks that run at the same time.")]
FailuresOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Start no more tasks after this many failures.")
]
MinutesOption = Annotated[
    float | None, typer.Option(min=0.01, help="Time limit of this session; tasks that are still running are cancelled.")
]
EngineOption = Annotated[Literal["local", "ray"], typer.Option(help="local: in this process. ray: on a Ray cluster.")]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="Resume the batch with this run id, its first characters, or `last`.",
        autocompletion=complete_batch,
    ),
]
RerunOption = Annotated[
    list[RerunName] | None,
    typer.Option(help="With --resume: also run tasks again that failed (fail) or whose outcome is unknown (unknown)."),
]


def batch(
    tasks: TasksArgument = None,
    results: ResultsOption = None,
    goal: GoalOption = None,
    criteria: CriteriaOption = None,
    output_schema: SchemaOption = None,
    tier: TierOption = None,
    model: Annotated[str | None, typer.Option(help="For a CSV: the model that the children run on.")] = None,
    concurrency: ConcurrencyOption = 3,
    max_cost: CostOption = None,
    max_minutes: MinutesOption = None,
    stop_after_failures: FailuresOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid rows and report them.")] = False,
    resume: ResumeOption = None,
    rerun: RerunOption = None,
    again: Annotated[bool, typer.Option("--again", help="Run these tasks even if they were run before.")] = False,
    engine: EngineOption = "local",
    address: Annotated[str | None, typer.Option(help="With --engine ray: the cluster's address.")] = None,
    plan: PlanOption = False,
    trace: TraceOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Run a file of tasks, several at a time, and write one result per task as it finishes, verdict first.

    In a .jsonl, .json or .yaml file, a task has the fields of `delegate run
    --file`. It may also have an `id`, `needs` (ids of tasks that must PASS
    before it starts), and `when: always` to run it whatever their outcome. Its
    goal may refer to the results that it needs with `{{ id.report }}` and `{{
    id.structured.field }}`. In a CSV, each row is a task:

        delegate batch tasks.csv -o r.jsonl --goal "Find the CEO of {company}"

    All rows are validated before anything is spent. Each task is recorded
    before it starts and runs at most once. If the batch is stopped or killed,
    --resume runs the tasks that haven't started. Tasks that were running when
    it was stopped or killed are `outcome_unknown` and run again only with
    --rerun unknown; failed tasks run again only with --rerun fail.

    The first Ctrl-C stops the running tasks and records what they cost. The
    second exits at once. Exits with 0 if every verdict is PASS, 1 if any work
    is bad, 2 if it was refused before anything ran (such as without a key), and
    3 if no work is bad, but some could not be looked at.
    """
    templates = {"--goal": goal, "--criterion": criteria, "--output-schema": output_schema, "--tier": tier}
    others = {"--model": model, "--skip-bad": skip_bad, "--again": again, "--plan": plan}
    if address is not None and engine != "ray":
        raise typer.BadParameter("can only be used with --engine ray", param_hint="--address")
    if resume is None:
        _refuse_missing(tasks, results, rerun, plan=plan)
    elif conflicts := [option for option, value in {"TASKS": tasks, **templates, **others}.items() if value]:
        message = f"can't be used with {conflicts[0]}; remove {conflicts[0]}, since the tasks are stored with the batch"
        raise typer.BadParameter(message, param_hint="--resume")
    with refusals_as(format):
        fields = {"tier": tier, "model": model}
        stored = {
            "tasks": str(tasks.absolute()) if tasks else None,
            "name": str(tasks),
            "goal": goal,
            "criteria": [criterion_of(text) for text in criteria or ()],
            "output_schema": read_schema(output_schema) if output_schema else None,
            "fields": {name: value for name, value in fields.items() if value is not None},
            "skip_bad": skip_bad,
        }
        if plan:
            if results is not None:
                ResultsFile(results).refuse_existing()
            return _plan(_source(stored), max_cost, format, skip_bad=skip_bad)
        _raise_file_limit(concurrency)
        limits = {"max_cost_usd": max_cost, "max_minutes": max_minutes, "stop_after_failures": stop_after_failures}
        options = {**limits, "concurrency": concurrency, "rerun": [name.value for name in rerun or ()]}
        backend = partial(_ray, address, concurrency) if engine == "ray" else None
        finished = _run(stored, results, resume, backend, **options, once=not again, trace=trace)
    _print(finished, format)
    raise typer.Exit(exits.of_batch(finished.tally))


def _refuse_missing(tasks: Path | None, results: Path | None, rerun: list[RerunName] | None, *, plan: bool) -> None:
    """Raise BadParameter for what a new batch lacks, or can't have."""
    if rerun:
        raise typer.BadParameter("can only be used with --resume RUN", param_hint="--rerun")
    if tasks is None:
        raise typer.BadParameter("give a file of tasks, or a batch with --resume RUN", param_hint="TASKS")
    if results is None and not plan:
        raise typer.BadParameter("give a .jsonl or .csv file for the results", param_hint="-o")


def _plan(source: TaskFile, max_cost: float | None, format: Format, *, skip_bad: bool) -> None:
    delegator = Delegator()
    plan = work(delegator, lambda _: delegator.batches.plan(source, max_cost_usd=max_cost, skip_bad=skip_bad))
    file = None if source.is_table else source.path
    show(plan, requests_of(file, located_tasks(source), delegator.settings), format, file)


def _ray(address: str | None, concurrency: int, settings: Settings) -> Backend:
    from delegate.batch.ray import RayBackend

    return RayBackend(partial(engine_of, settings), concurrency=concurrency, address=address)


def _run(
    stored: dict[str, Any],
    results: Path | None,
    resume: str | None,
    backend: Callable[[Settings], Backend] | None,
    *,
    trace: Path | None,
    **options: Any,
) -> Batch:
    """Run a batch with these options for its tasks, or those stored with the batch that is resumed."""
    delegator = Delegator(on_approval=at_terminal())
    engine = backend(delegator.settings) if backend else None

    async def begun(cancellation: Cancellation) -> Batch:
        run_id, file, of_tasks = resume, results, stored
        if resume is not None:
            run_id = await run_id_of(delegator, resume, only_batches=True)
            before = await delegator.batches.summary(run_id)
            of_tasks, file = json.loads(before.options), file or (Path(before.results) if before.results else None)
            if "tasks" not in of_tasks:
                message = "this batch was started by a program, so its tasks aren't in a file"
                hint = "resume it with Delegator.batches.run(tasks, resume=…)"
                raise CallError("not_a_file", message, field="resume", hint=hint)
        source = _source(of_tasks)
        if not source.is_table:
            refuse_untrusted(source.path, located_tasks(source), delegator.settings)
        return delegator.batches.run(
            source,
            resume=run_id,
            results=file,
            skip_bad=bool(of_tasks["skip_bad"]),
            options=json.dumps(of_tasks),
            engine=engine,
            cancellation=cancellation,
            **options,
        )

    async def call(*, on_event: EventSink | None, cancellation: Cancellation) -> Batch:
        try:
            batch = await begun(cancellation)
            await run_with_progress(batch)
        finally:
            if engine is not None:
                await engine.aclose()
        return batch

    return stoppable(delegator, call, titles=None, trace=trace)  # a batch shows its own progress


def _raise_file_limit(concurrency: int) -> None:
    """Allow one or two connections per running task; the default limit may be as low as 256 files."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 256 + 8 * concurrency
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _source(options: dict[str, Any]) -> TaskFile:
    templates = None
    if options["goal"] or options["criteria"] or options["output_schema"] or options["fields"]:
        templates = Templates(
            options["goal"] or Templates().goal, tuple(options["criteria"]), options["output_schema"], options["fields"]
        )
    return TaskFile(Path(options["tasks"]), read_task, templates, options["name"])


def _print(batch: Batch, format: Format) -> None:
    names = ("total", "settled", "passed", "below_seen", "failed", "unjudged", "states", "bad_work")
    tally = {name: getattr(batch.tally, name) for name in (*names, "cost_known_usd", "unpriced")}
    document = {"run_id": batch.run_id, **tally, "stopped": batch.stopped}
    if not print_as_json(format, document):
        console().print(Prose(Text(summary(batch)), hang=2))
