"""`delegate batch`: a file of tasks, each run once, with one result each."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from delegate.cli.options import Format, FormatOption
from delegate.cli.run import TierName

if TYPE_CHECKING:
    from delegate._util.cancellation import Cancellation
    from delegate.batch.backend import Backend
    from delegate.batch.batch import Batch
    from delegate.batch.journal import Rerun
    from delegate.batch.sources import TaskFile
    from delegate.delegator import Delegator
    from delegate.ports import EventSink
    from delegate.settings import Settings


class EngineName(StrEnum):
    """Where the tasks run."""

    local = "local"
    ray = "ray"


class RerunName(StrEnum):
    """What is run again."""

    unknown = "unknown"
    fail = "fail"


TasksArgument = Annotated[
    Path | None, typer.Argument(metavar="[TASKS]", help="A .jsonl, .json, .yaml or .csv file of tasks.")
]
ResultsOption = Annotated[
    Path | None, typer.Option("-o", "--results", metavar="FILE", help="Where results go: a .jsonl or .csv file.")
]
CriteriaOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--criterion", metavar="CRITERION", help="For a CSV: what must hold; may be repeated."),
]
SchemaOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="For a CSV: a JSON Schema that each report must fit.")
]
ConcurrencyOption = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Tasks at work at a time.")]
FailuresOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Start nothing more after so many failures.")
]
MinutesOption = Annotated[
    float | None, typer.Option(min=0.01, help="Wall time of this session; what is at work then is stopped.")
]
EngineOption = Annotated[EngineName, typer.Option(help="local: in this process. ray: on a Ray cluster.")]
RerunOption = Annotated[
    list[RerunName] | None,
    typer.Option(help="With --resume, run again: what was in flight (unknown), or what has failed (fail)."),
]


def batch(
    tasks: TasksArgument = None,
    results: ResultsOption = None,
    goal: Annotated[str | None, typer.Option(help="For a CSV: the goal of every row, with {column} in it.")] = None,
    criteria: CriteriaOption = None,
    output_schema: SchemaOption = None,
    tier: Annotated[TierName | None, typer.Option(help="For a CSV: how strong a model each child gets.")] = None,
    model: Annotated[str | None, typer.Option(help="For a CSV: the model that the children run on.")] = None,
    concurrency: ConcurrencyOption = 3,
    max_cost: Annotated[float | None, typer.Option(min=0, metavar="USD", help="What all may cost together.")] = None,
    max_minutes: MinutesOption = None,
    stop_after_failures: FailuresOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out, and report them.")] = False,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a batch that was stopped.")] = None,
    rerun: RerunOption = None,
    again: Annotated[bool, typer.Option("--again", help="Run these tasks although they were run before.")] = False,
    engine: EngineOption = EngineName.local,
    address: Annotated[str | None, typer.Option(help="With --engine ray: the cluster's address.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be done, and about its cost. Nothing is run.")
    ] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """Run a file of tasks, so many at a time, and write one result per task as it comes: the verdict first.

    In a .jsonl, .json or .yaml file a task has the fields of `delegate run --file`, and may have an `id`, `needs` (ids
    of tasks that must PASS before it), and `when: always` to run it in any case; its goal may hold `{{ id.output }}`
    and `{{ id.structured.field }}` of what it needs. Of a CSV, each row becomes a task:

        delegate batch companies.csv -o found.jsonl --goal "Find the CEO of {company}" -c "names a person"

    Nothing is spent before every row is known to be good. Each task is on record before it starts and runs once: when
    the batch was stopped or killed, --resume goes on with what hasn't started. What was in flight then is
    `outcome_unknown`, and is run again only with --rerun unknown; what has failed, only with --rerun fail.

    The first Ctrl-C starts nothing more and stops what is at work, and all of that is on record; the second leaves.
    """
    from delegate.cli.output import refusals_as

    asked = _Asked(
        tasks, results, goal, tuple(criteria or ()), output_schema, tier, model, concurrency, max_cost, max_minutes,
        stop_after_failures, skip_bad, resume, tuple(rerun or ()), again, engine, address, plan,
    )  # fmt: skip
    _refuse_what_does_not_fit(asked)
    if plan:
        with refusals_as(format):
            return _plan(asked, format)
    with refusals_as(format):
        ended = _run(asked)
    _print(ended, format)
    raise typer.Exit(0 if ended.tally.all_good else 1)


class _Asked(NamedTuple):
    """The command as it was typed."""

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

    @property
    def templates(self) -> dict[str, Any]:
        """What was said about the tasks, by option."""
        given = {
            "--goal": self.goal,
            "--criterion": self.criteria,
            "--output-schema": self.output_schema,
            "--tier": self.tier,
            "--model": self.model,
        }
        return {option: value for option, value in given.items() if value}


def _refuse_what_does_not_fit(asked: _Asked) -> None:
    if asked.address is not None and asked.engine is not EngineName.ray:
        raise typer.BadParameter("is for --engine ray", param_hint="--address")
    if asked.resume is None:
        if asked.rerun:
            raise typer.BadParameter("is for a batch that is resumed: name it with --resume", param_hint="--rerun")
        if asked.tasks is None:
            raise typer.BadParameter("name a file of tasks, or a batch to --resume", param_hint="TASKS")
        if asked.results is None and not asked.plan:
            raise typer.BadParameter("name a .jsonl or .csv file for the results", param_hint="-o")
        return
    given = {
        "TASKS": asked.tasks,
        **asked.templates,
        "--skip-bad": asked.skip_bad,
        "--again": asked.again,
        "--plan": asked.plan,
    }
    if beside := [option for option, value in given.items() if value]:
        raise typer.BadParameter(f"{beside[0]} can't stand beside it; the batch knows its tasks", param_hint="--resume")


# -------------------------------------------------------------------------------------------------------------- running


def _run(asked: _Asked) -> "Batch":
    from delegate.cli.batch_progress import shown
    from delegate.cli.work import stoppable
    from delegate.delegator import Delegator

    _allow_files(asked.concurrency)
    delegator = Delegator()
    engine = _engine(asked, delegator.settings)

    async def call(*, on_event: "EventSink | None", cancellation: "Cancellation") -> "Batch":
        try:
            batch = await _batch(delegator, asked, engine, cancellation)
            await shown(batch)
        finally:
            if engine is not None:
                await engine.aclose()
        return batch

    return stoppable(delegator, call, display=_no_tree)


def _plan(asked: _Asked, format: Format) -> None:
    from delegate.cli.batch_plan import show
    from delegate.cli.work import work
    from delegate.delegator import Delegator

    delegator, source = Delegator(), _source(_options(asked))
    show(work(delegator, lambda _: delegator.plan(source, skip_bad=asked.skip_bad)), format)


def _no_tree(titles: Sequence[str]) -> Any:
    """A batch has a display of its own."""
    from contextlib import nullcontext

    return nullcontext()


async def _batch(
    delegator: "Delegator", asked: _Asked, engine: "Backend | None", cancellation: "Cancellation"
) -> "Batch":
    import json

    options, results = _options(asked), asked.results
    if asked.resume is not None:
        before = await delegator.batch_on_record(asked.resume)
        options = _of_this_command(before.options)
        results = results or (Path(before.results) if before.results else None)
    rerun: list[Rerun] = [one.value for one in asked.rerun]
    return delegator.batch(
        _source(options),
        concurrency=asked.concurrency,
        max_cost_usd=asked.max_cost,
        max_minutes=asked.max_minutes,
        stop_after_failures=asked.stop_after_failures,
        resume=asked.resume,
        rerun=rerun,
        skip_bad=bool(options["skip_bad"]),
        once=not asked.again,
        results=results,
        options=json.dumps(options),
        engine=engine,
        cancellation=cancellation,
    )


def _engine(asked: _Asked, settings: "Settings") -> "Backend | None":
    """What runs the tasks elsewhere; None: this process does."""
    if asked.engine is EngineName.local:
        return None
    from functools import partial

    from delegate.batch.backend import DeferredBackend
    from delegate.batch.ray import RayBackend
    from delegate.delegator import engine_of

    opening = partial(RayBackend, partial(engine_of, settings), concurrency=asked.concurrency, address=asked.address)
    return DeferredBackend(opening)


def _allow_files(concurrency: int) -> None:
    """Each task at work has a connection or two, and systems allow as few as 256 by default."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + 8 * concurrency
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# ------------------------------------------------------------------------------------------------------- what it is of


def _options(asked: _Asked) -> dict[str, Any]:
    """All that the tasks are made of, to be kept with the batch."""
    from delegate.cli.taskfile import read_schema, typed_criterion

    fields = {"tier": asked.tier.value if asked.tier else None, "model": asked.model}
    return {
        "tasks": str(asked.tasks.absolute()) if asked.tasks else None,
        "name": str(asked.tasks),
        "goal": asked.goal,
        "criteria": [typed_criterion(text) for text in asked.criteria],
        "output_schema": read_schema(asked.output_schema) if asked.output_schema else None,
        "fields": {name: value for name, value in fields.items() if value is not None},
        "skip_bad": asked.skip_bad,
    }


def _of_this_command(options: str) -> dict[str, Any]:
    """Raises CallError for a batch that a program began."""
    import json

    from delegate.errors import CallError

    found = json.loads(options)
    if "tasks" not in found:
        message = "a program began this batch, with tasks that the command doesn't know"
        raise CallError("not_a_file", message, field="resume", hint="resume it there: Delegator.batch(tasks, resume=…)")
    return found


def _source(options: dict[str, Any]) -> "TaskFile":
    from delegate.batch.sources import TaskFile
    from delegate.batch.templates import Templates
    from delegate.cli.taskfile import read_task

    templates = None
    if options["goal"] or options["criteria"] or options["output_schema"] or options["fields"]:
        templates = Templates(
            options["goal"] or Templates().goal, tuple(options["criteria"]), options["output_schema"], options["fields"]
        )
    return TaskFile(Path(options["tasks"]), read_task, templates, options["name"])


# -------------------------------------------------------------------------------------------------------------- the end


def _print(batch: "Batch", format: Format) -> None:
    from delegate.cli.batch_progress import summary
    from delegate.cli.output import print_json, print_jsonl

    document = {
        "run_id": batch.run_id,
        "total": batch.tally.total,
        "settled": batch.tally.settled,
        "passed": batch.tally.passed,
        "failed": batch.tally.failed,
        "unjudged": batch.tally.unjudged,
        "other": batch.tally.other,
        "outcome_unknown": batch.tally.unknown,
        "cost_known_usd": batch.tally.cost_known_usd,
        "unpriced": batch.tally.unpriced,
        "stopped": batch.stopped,
    }
    if format is Format.json:
        print_json(document)
    elif format is Format.jsonl:
        print_jsonl([document])
    else:
        print(summary(batch))
