"""`delegate batch`: runs each task of a file once and writes one result per task."""

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from delegate._util.cancellation import Cancellation
from delegate.batch.backend import Backend, DeferredBackend
from delegate.batch.batch import Batch
from delegate.batch.journal import Rerun
from delegate.batch.sources import TaskFile
from delegate.batch.templates import Templates
from delegate.cli import exits
from delegate.cli.input.options import Format, FormatOption, PlanOption, TierName, TraceOption
from delegate.cli.input.recorded import complete_batch, run_id_of
from delegate.cli.input.task_trust import refuse_untrusted, requests_of
from delegate.cli.input.taskfile import located_tasks, read_schema, read_task, typed_criterion
from delegate.cli.screen.approvals import at_terminal
from delegate.cli.screen.batch_plan import show
from delegate.cli.screen.batch_progress import run_with_progress, summary
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.cli.work import stoppable, work
from delegate.delegator import Delegator, engine_of
from delegate.errors import CallError
from delegate.events import EventSink
from delegate.settings import Settings


class EngineName(StrEnum):
    """The backend that runs the tasks."""

    local = "local"
    ray = "ray"


class RerunName(StrEnum):
    """Which finished tasks to run again."""

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
    float | None, typer.Option(min=0.01, help="Time limit of this session; tasks that are still running are canceled.")
]
EngineOption = Annotated[EngineName, typer.Option(help="local: in this process. ray: on a Ray cluster.")]
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
    engine: EngineOption = EngineName.local,
    address: Annotated[str | None, typer.Option(help="With --engine ray: the cluster's address.")] = None,
    plan: PlanOption = False,
    trace: TraceOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Run a file of tasks, several at a time, and write one result per task as it finishes, verdict first.

    In a .jsonl, .json or .yaml file, a task has the fields of `delegate run
    --file`. It may also have an `id`, `needs` (ids of tasks that must PASS
    before it starts), and `when: always` to run it whatever their outcome. Its
    goal may refer to the results that it needs with `{{ id.output }}` and `{{
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
    args = _Arguments(
        tasks, results, goal, tuple(criteria or ()), output_schema, tier, model, concurrency, max_cost, max_minutes,
        stop_after_failures, skip_bad, resume, tuple(rerun or ()), again, engine, address, plan, trace,
    )  # fmt: skip
    _refuse_conflicts(args)
    if plan:
        with refusals_as(format):
            return _plan(args, format)
    with refusals_as(format):
        finished = _run(args)
    _print(finished, format)
    raise typer.Exit(exits.of_batch(finished.tally))


class _Arguments(NamedTuple):
    """The arguments of the command."""

    tasks: Path | None
    results: Path | None
    goal: str | None
    criteria: tuple[str, ...]
    output_schema: Path | None
    tier: TierName | None
    model: str | None
    concurrency: int
    max_cost: float | None
    max_minutes: float | None
    stop_after_failures: int | None
    skip_bad: bool
    resume: str | None
    rerun: tuple[RerunName, ...]
    again: bool
    engine: EngineName
    address: str | None
    plan: bool
    trace: Path | None

    @property
    def templates(self) -> dict[str, Any]:
        """The options given for the tasks of a CSV."""
        options = {
            "--goal": self.goal,
            "--criterion": self.criteria,
            "--output-schema": self.output_schema,
            "--tier": self.tier,
            "--model": self.model,
        }
        return {option: value for option, value in options.items() if value}


def _refuse_conflicts(args: _Arguments) -> None:
    if args.address is not None and args.engine is not EngineName.ray:
        raise typer.BadParameter("can only be used with --engine ray", param_hint="--address")
    if args.resume is None:
        if args.rerun:
            raise typer.BadParameter("can only be used with --resume RUN", param_hint="--rerun")
        if args.tasks is None:
            raise typer.BadParameter("give a file of tasks, or a batch with --resume RUN", param_hint="TASKS")
        if args.results is None and not args.plan:
            raise typer.BadParameter("give a .jsonl or .csv file for the results", param_hint="-o")
        return
    conflicting = {
        "TASKS": args.tasks,
        **args.templates,
        "--skip-bad": args.skip_bad,
        "--again": args.again,
        "--plan": args.plan,
    }
    if conflicts := [option for option, value in conflicting.items() if value]:
        message = f"can't be used with {conflicts[0]}; remove {conflicts[0]}, since the tasks are stored with the batch"
        raise typer.BadParameter(message, param_hint="--resume")


def _run(args: _Arguments) -> Batch:
    _raise_file_limit(args.concurrency)
    delegator = Delegator(on_approval=at_terminal())
    engine = _engine(args, delegator.settings)

    async def call(*, on_event: EventSink | None, cancellation: Cancellation) -> Batch:
        try:
            batch = await _batch(delegator, args, engine, cancellation)
            await run_with_progress(batch)
        finally:
            if engine is not None:
                await engine.aclose()
        return batch

    return stoppable(delegator, call, titles=None, trace=args.trace)  # a batch shows its own progress


def _plan(args: _Arguments, format: Format) -> None:
    delegator, source = Delegator(), _source(_options(args))
    plan = work(delegator, lambda _: delegator.batches.plan(source, max_cost_usd=args.max_cost, skip_bad=args.skip_bad))
    file = None if source.is_table else source.path
    show(plan, requests_of(file, located_tasks(source), delegator.settings), format, file)


async def _batch(delegator: Delegator, args: _Arguments, engine: Backend | None, cancellation: Cancellation) -> Batch:
    options, results, resume = _options(args), args.results, args.resume
    if resume is not None:
        resume = await run_id_of(delegator, resume, only_batches=True)
        before = await delegator.batches.summary(resume)
        options = _stored_options(before.options)
        results = results or (Path(before.results) if before.results else None)
    source = _source(options)
    if not source.is_table:
        refuse_untrusted(source.path, located_tasks(source), delegator.settings)
    rerun: list[Rerun] = [name.value for name in args.rerun]
    return delegator.batches.run(
        source,
        concurrency=args.concurrency,
        max_cost_usd=args.max_cost,
        max_minutes=args.max_minutes,
        stop_after_failures=args.stop_after_failures,
        resume=resume,
        rerun=rerun,
        skip_bad=bool(options["skip_bad"]),
        once=not args.again,
        results=results,
        options=json.dumps(options),
        engine=engine,
        cancellation=cancellation,
    )


def _engine(args: _Arguments, settings: Settings) -> Backend | None:
    """The backend that runs the tasks; None for this process."""
    if args.engine is EngineName.local:
        return None
    from delegate.batch.ray import RayBackend

    return DeferredBackend(
        partial(RayBackend, partial(engine_of, settings), concurrency=args.concurrency, address=args.address)
    )


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


def _options(args: _Arguments) -> dict[str, Any]:
    """The options that the tasks are made from, to be stored with the batch."""
    fields = {"tier": args.tier.value if args.tier else None, "model": args.model}
    return {
        "tasks": str(args.tasks.absolute()) if args.tasks else None,
        "name": str(args.tasks),
        "goal": args.goal,
        "criteria": [typed_criterion(text) for text in args.criteria],
        "output_schema": read_schema(args.output_schema) if args.output_schema else None,
        "fields": {name: value for name, value in fields.items() if value is not None},
        "skip_bad": args.skip_bad,
    }


def _stored_options(options: str) -> dict[str, Any]:
    """Parse the options stored with a batch. Raises CallError if a program started the batch."""
    document = json.loads(options)
    if "tasks" not in document:
        message = "this batch was started by a program, so its tasks aren't in a file"
        raise CallError(
            "not_a_file", message, field="resume", hint="resume it with Delegator.batches.run(tasks, resume=…)"
        )
    return document


def _source(options: dict[str, Any]) -> TaskFile:
    templates = None
    if options["goal"] or options["criteria"] or options["output_schema"] or options["fields"]:
        templates = Templates(
            options["goal"] or Templates().goal, tuple(options["criteria"]), options["output_schema"], options["fields"]
        )
    return TaskFile(Path(options["tasks"]), read_task, templates, options["name"])


def _print(batch: Batch, format: Format) -> None:
    document = {
        "run_id": batch.run_id,
        "total": batch.tally.total,
        "settled": batch.tally.settled,
        "passed": batch.tally.passed,
        "below_seen": batch.tally.below_seen,
        "failed": batch.tally.failed,
        "unjudged": batch.tally.unjudged,
        "other": batch.tally.other,
        "bad_work": batch.tally.bad_work,
        "outcome_unknown": batch.tally.unknown,
        "cost_known_usd": batch.tally.cost_known_usd,
        "unpriced": batch.tally.unpriced,
        "stopped": batch.stopped,
    }
    if not print_as_json(format, document):
        console().print(Prose(Text(summary(batch)), hang=2))
