"""The front door: one object per host, which gives the tool and answers its calls."""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import pydantic

from delegate import connections, contract
from delegate.cancellation import Cancellation, to_its_end
from delegate.catalog import Model
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.contract import Dialect, Limits, Variant
from delegate.declared import catalog_in_force
from delegate.errors import BudgetExceeded, CallError, DelegateError
from delegate.executor import Assignment, Executor
from delegate.fanout.batch import Batch, BatchLimits, Setup
from delegate.fanout.engine import Engine, LocalEngine
from delegate.fanout.journal import BatchSummary, Journal, Rerun
from delegate.fanout.plan import BatchPlan, plan
from delegate.fanout.results import ResultsFile
from delegate.fanout.sources import Source, source_of
from delegate.fanout.work import Item
from delegate.judging import Bench, Case, Judging, refuse_undecidable
from delegate.judging.case import Author
from delegate.judging.json_schema import check_schema
from delegate.loopthread import LoopThread
from delegate.ports import ChatClient, Event, EventKind, EventSink, Tool, ToolOutput
from delegate.recorder import Recorder
from delegate.records import Records, RunSummary, TaskSummary
from delegate.redaction import Redactor, declare
from delegate.routing import ChildRequest, choose_child, usual_child_usd
from delegate.runs import Caller, RunRegistry
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import Folder, discard
from delegate.settings import Settings, load_settings
from delegate.types import ChildRun, ErrorDetail, JsonObject, Parent, Receipt, Report, Task, TaskResult, Verdict

T = TypeVar("T")
Arguments = Mapping[str, Any] | str | bytes
"""A tool call's arguments: as the model's JSON text, or parsed."""


class Delegator:
    """Hands tasks to children and gives back what they did, with a verdict on each.

    Args:
        settings: what the operator decides; by default from the environment and `delegate.toml`.
        client: answers for every model, in place of the providers' own endpoints. For scripted models
            (`delegate.providers.scripted`), and for hosts that have a model access of their own.
        runner: runs the children, in place of the built-in loop.
        tools: what children may use, in place of the built-in toolbox.
        on_event: is told what happens while it happens; a call may name another.
        **options: single settings, such as `model="…"` or `commands="allow"`; they outrank all other sources.

    Raises:
        ConfigError: settings, `delegate.toml` or the catalog are wrong. Nothing else is ever raised for what an
            operator, a parent model or a child did: the rest is in the `Report`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        client: ChatClient | None = None,
        runner: ChildRunner | None = None,
        tools: Sequence[Tool] | None = None,
        on_event: EventSink | None = None,
        **options: Any,
    ) -> None:
        self.settings = settings or load_settings(**options)
        self.catalog = catalog_in_force(self.settings)
        self.connections = (
            connections.all_through(client, self.catalog)
            if client
            else connections.connect(self.settings, os.environ, self.catalog)
        )
        declare(endpoint.key_env for endpoint in self.settings.endpoints if endpoint.key_env)
        self._runs = RunRegistry(self.settings, self.catalog)
        self._on_event = on_event
        self._records = Records(
            self.settings.home, keep_days=self.settings.keep_days, keep_mb=self.settings.keep_mb, discard=discard
        )
        self._journal = Journal(self.settings.home, keep_days=self.settings.keep_days)
        self._runner = runner or AgentLoop()
        commands = Commands(
            sandbox=self.settings.sandbox, commands=self.settings.commands, hidden=(self.settings.home,)
        )
        self._judging = Judging(self._bench(), commands, self.settings.gate)
        self.child_tools = None if tools is None else tuple(tools)
        self._executor = Executor(
            settings=self.settings,
            runner=self._runner,
            judging=self._judging,
            commands=commands,
            records=self._records,
            delegation=self._delegation,
            host_tools=self.child_tools,
        )
        self._own_loop = LoopThread()

    # ------------------------------------------------------------------------------------------ for hosts

    def tool(self, dialect: Dialect, *, variant: Variant = "compact", parent: Parent | None = None) -> JsonObject:
        """The tool's definition in a host's dialect, with the limits that are in force now for `parent`'s run.

        Its text changes as the run's limits are used up, and a parent whose tools change loses its provider's prompt
        cache. Hosts that care for the cache make it once per run: a call beyond a limit is refused, at no cost.
        """
        caller, settings = self._runs.caller(parent), self.settings
        tasks_left = caller.ledger.left("children")
        limits = Limits(
            max_steps=settings.max_steps,
            timeout_seconds=settings.timeout_seconds,
            tasks_left=None if tasks_left is None else int(tasks_left),
            usd_left=caller.ledger.left("cost_usd"),
            depth_left=settings.max_depth - caller.depth - 1 if settings.max_depth > 1 else None,
        )
        return contract.tool(dialect, name=settings.tool_name, variant=variant, limits=limits)

    async def call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Execute one tool call as the parent's model wrote it. A call that can't be executed is `report.error`.

        `parent` is what the host knows of the caller: calls with the same `run_id` share one ledger.
        """
        try:
            tasks = contract.parse_call(arguments, check_schema=check_schema)
            return await self._execute(tasks, "model", parent, on_event, cancellation)
        except CallError as error:
            return _refusal(error)

    async def answer(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> str:
        """Execute one tool call and write its report as the text that the parent's model reads, verdict first."""
        return self.render(await self.call(arguments, parent=parent, on_event=on_event, cancellation=cancellation))

    def render(self, report: Report) -> str:
        """A report as the text that the parent's model reads: what `answer` gives."""
        return contract.render(report, limit=self.settings.result_chars)

    def read_tool(self, dialect: Dialect) -> JsonObject:
        """The definition of a second tool, with which a parent reads a report that was cut in its result."""
        return contract.read_tool(dialect)

    async def read_answer(self, arguments: Arguments, *, parent: Parent | None = None) -> str:
        """Answer a call of the second tool, with a slice of a report as data, or with what is wrong with the call.

        A handle can't be guessed, so who has one may read. A call that belongs to a known run (the host named it, or it
        is made inside `root_run` or by a child) reads the reports of that run only.
        """
        try:
            wanted = contract.parse_read(arguments)
            result, report = await self._report(wanted.handle, self._runs.known_run(parent))
            return contract.render_slice(wanted, result, report, limit=self.settings.result_chars)
        except CallError as error:
            return self.render(_refusal(error))

    def think_tool(self, dialect: Dialect) -> JsonObject:
        """The definition of `think`, with which a parent holds a thought against its criteria.

        A call and its answer may be dropped from the conversation, both together, once the next turn is there.
        """
        return contract.think_tool(dialect)

    async def think_answer(self, arguments: Arguments) -> str:
        """Answer a call of `think` with a checklist, or with what is wrong with the call. No model is asked."""
        try:
            return contract.render_thought(contract.parse_think(arguments))
        except CallError as error:
            return self.render(_refusal(error))

    def root_run(self, parent: Parent | None = None) -> AbstractContextManager[str]:
        """`with delegator.root_run(): …` puts all calls made inside, however many at once, in one run; gives its id."""
        return self._runs.root_run(parent)

    # --------------------------------------------------------------------------------------- for programs

    async def run(
        self,
        *tasks: Task,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Run tasks that a person or a program wrote: any number, with every field of `Task`."""
        try:
            return await self._execute(tasks, "person", parent, on_event, cancellation)
        except CallError as error:
            return _refusal(error)

    def batch(
        self,
        tasks: Iterable[Task | Item] | Source,
        *,
        concurrency: int = 3,
        max_cost_usd: float | None = None,
        max_minutes: float | None = None,
        stop_after_failures: int | None = None,
        resume: str | None = None,
        rerun: Collection[Rerun] = (),
        skip_bad: bool = False,
        once: bool = False,
        results: Path | None = None,
        options: str = "{}",
        engine: Engine | None = None,
        on_event: Callable[[Item], EventSink] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Batch:
        """Run any number of tasks, `concurrency` of them side by side: `async for outcome in delegator.batch(tasks)`.

        Outcomes come in any order, and aren't kept. Each task is journalled before it starts, and is run at most once:
        a batch that was killed or stopped goes on with `resume`, its `run_id`, given the same tasks; what was in flight
        is `outcome_unknown` then, and is run again only with `rerun`. For the limits see `fanout.batch.BatchLimits`.
        `results` names a JSONL or CSV file to write; `engine` runs the tasks elsewhere. Raises CallError.
        """
        caller = self._runs.batch(concurrency=concurrency, id=resume, max_cost_usd=max_cost_usd)
        setup = Setup(
            source=source_of(tasks),
            engine=engine or LocalEngine(partial(self._run_item, caller)),
            journal=self._journal,
            run_id=caller.run.id,
            admit=partial(self._admit_item, caller if engine is None else None),
            limits=BatchLimits(concurrency, caller.run.ledger.limits.get("cost_usd"), max_minutes, stop_after_failures),
            resume=resume is not None,
            rerun=rerun,
            resumed=partial(self._go_on, caller),
            skip_bad=skip_bad,
            once=once,
            results=ResultsFile(results) if results is not None else None,
            options=options,
            on_event=on_event,
            cancellation=cancellation,
        )
        return Batch(setup)

    async def plan(self, tasks: Iterable[Task | Item] | Source, *, skip_bad: bool = False) -> BatchPlan:
        """What a batch of these tasks would do and about cost. Nothing is spent. Raises CallError as `batch` does."""
        today, caller = date.today(), self._runs.batch(concurrency=1)
        return await plan(
            source_of(tasks),
            model_for=lambda task: self._admit(task, 0, 1, caller),
            costs=self._records.costs,
            assumed_usd=lambda model: usual_child_usd(model, today),
            skip_bad=skip_bad,
        )

    def engine(self, concurrency: int) -> Engine:
        """Runs items of a batch whose journal is elsewhere, in a run of their own. Closing it closes the delegator."""
        caller = self._runs.batch(concurrency=concurrency)
        return LocalEngine(partial(self._run_item, caller), close=self.aclose)

    async def batches(self, limit: int = 20) -> list[BatchSummary]:
        """The latest batches on record, the newest first."""
        return await self._journal.latest(limit)

    async def batch_on_record(self, run_id: str) -> BatchSummary:
        """One batch. Raises CallError where there is none of this id."""
        return await self._journal.summary(run_id)

    async def judge(
        self,
        *,
        goal: str,
        acceptance_criteria: Sequence[Any],
        output: str,
        workspace: str | Path | None = None,
        receipts: Sequence[Receipt | Mapping[str, Any]] | None = None,
        worker_model: str | None = None,
        parent: Parent | None = None,
        cancellation: Cancellation | None = None,
    ) -> Verdict:
        """Judge work that exists already, whoever did it: `output` is its report, `workspace` the folder it left.

        All files of the workspace count as its artifacts. Receipts need only `tool`, `args`, `status` and `output`;
        they are numbered in their order. An empty list says that no tool was called, None that nobody recorded it.
        `worker_model` keeps judges above its tier out; unknown, the setting `max_tier` does.

        Raises:
            CallError: a criterion, a receipt or the workspace can't be used; says which, and the mend.
        """
        try:
            task = Task(goal=goal, acceptance_criteria=tuple(acceptance_criteria))
            record = tuple(Receipt.model_validate(one) for one in receipts or ())
        except pydantic.ValidationError as error:
            raise _unusable(error) from None
        if not task.criteria:
            hint = "give at least one criterion"
            raise CallError("empty", "there is nothing to judge by", field="acceptance_criteria", hint=hint)
        refuse_undecidable(task, strict_checks=self.settings.strict_checks)
        numbered = tuple(one.model_copy(update={"n": n}) for n, one in enumerate(record, start=1))
        folder = Folder.of_existing(Path(workspace)) if workspace is not None else None
        artifacts = await folder.artifacts() if folder else ()
        redactor = Redactor()
        run = Recorder(redactor=redactor).redacted(ChildRun(status="completed", output=output, receipts=numbered))
        run = run.model_copy(update={"artifacts": artifacts})
        worker = self.catalog.find(worker_model) if worker_model else None
        caller = self._runs.caller(parent)
        ceiling = caller.bounds(self.settings).ceiling
        recorded = receipts is not None
        case = Case(task, run, folder, "person", worker, ceiling, has_receipts=recorded, redactor=redactor)
        with (cancellation or Cancellation()).part() as own:
            judging = self._judging.verdict(
                case, caller.ledger, _say_nothing, seconds=caller.seconds_left(), cancellation=own
            )
            verdict = await to_its_end(judging, own)
        assert verdict is not None
        return redactor.model(verdict)

    async def read(self, handle: str) -> JsonObject | None:
        """All that is on record of a task, also while it runs: see `Records.read`; None if there is nothing."""
        return await self._records.read(handle)

    async def runs(self, limit: int = 20) -> list[RunSummary]:
        """The latest runs on record, the newest first."""
        return await self._records.runs(limit)

    async def tasks(self, run_id: str) -> list[TaskSummary]:
        """The tasks of a run on record, in the order in which they began."""
        return await self._records.tasks(run_id)

    # ----------------------------------------------------------------------------------- without an event loop

    def call_sync(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """`call` for code that isn't async. Works inside a running event loop too, which it then blocks."""
        return self._own_loop.run(self.call(arguments, parent=parent, on_event=on_event, cancellation=cancellation))

    def answer_sync(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> str:
        """`answer` for code that isn't async."""
        return self._own_loop.run(self.answer(arguments, parent=parent, on_event=on_event, cancellation=cancellation))

    def run_sync(
        self,
        *tasks: Task,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """`run` for code that isn't async."""
        return self._own_loop.run(self.run(*tasks, parent=parent, on_event=on_event, cancellation=cancellation))

    def wait_for(self, work: Coroutine[Any, Any, T], *, looking: Callable[[], None] | None = None) -> T:
        """Run any of the above from code that isn't async, on the delegator's own loop, and wait for its end.

        `looking` is called on the waiting thread about twenty times a second: there a host looks whether it was
        stopped, and cancels.
        """
        return self._own_loop.run(work, looking=looking)

    # ------------------------------------------------------------------------------------------ life cycle

    async def aclose(self) -> None:
        """Close connections and files. Calls under way should have ended."""
        await asyncio.to_thread(self._own_loop.stop, self.connections.aclose)
        await self.connections.aclose()
        await self._records.aclose()
        await self._journal.aclose()

    def close(self) -> None:
        """`aclose` for code that isn't async."""
        asyncio.run(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------------------------- inside

    async def _execute(
        self,
        tasks: Sequence[Task],
        author: Author,
        parent: Parent | None,
        on_event: EventSink | None,
        cancellation: Cancellation | None,
    ) -> Report:
        """Look at every task and find its model before anything is spent on one, then run them all."""
        return await self._execute_for(self._runs.caller(parent), tasks, author, on_event, cancellation)

    async def _execute_for(
        self,
        caller: Caller,
        tasks: Sequence[Task],
        author: Author,
        on_event: EventSink | None,
        cancellation: Cancellation | None,
    ) -> Report:
        self._refuse_too_deep(caller)
        models = [self._admit(task, n, len(tasks), caller) for n, task in enumerate(tasks)]
        ways = [await self.connections.open(model) if model else None for model in models]
        assignments = [Assignment(*one) for one in zip(tasks, ways, strict=True)]
        self._count(tasks, author, caller)
        # A child's own children are no tasks of the call that is watched.
        sink = on_event or (self._on_event if caller.depth == 0 else None)
        async with caller.seat.lent() if caller.seat else nullcontext():
            return await self._executor.execute(
                assignments, caller=caller, author=author, on_event=sink, cancellation=cancellation
            )

    async def _run_item(
        self, caller: Caller, item: Item, *, cancellation: Cancellation, on_event: EventSink | None
    ) -> TaskResult:
        """One task of a batch. Raises CallError where nothing of it was done, and it may as well be run later."""
        begun = False

        def watch(event: Event) -> None:
            nonlocal begun
            begun = begun or event.kind == "child_started"
            if on_event is not None:
                on_event(event)

        one = caller.of_one_task(self.settings)
        report = await self._execute_for(one, (item.task,), "person", watch, cancellation)
        (result,) = report.results
        refused = result.status == "budget_exceeded" and not result.usage.model_calls and item.task.max_cost_usd is None
        if refused or (result.status == "cancelled" and not begun):
            assert result.error is not None
            raise CallError(result.error.code, result.error.message, hint=result.error.hint)
        return result

    def _admit_item(self, caller: Caller | None, task: Task) -> None:
        """Raise CallError for what can't be run; without a caller, it is run elsewhere, and models are found there."""
        if caller is None:
            refuse_undecidable(task, strict_checks=self.settings.strict_checks)
        else:
            self._admit(task, 0, 1, caller)

    async def _go_on(self, caller: Caller, batch: BatchSummary) -> None:
        """Go on counting where the batch was left."""
        numbers = [int(task.handle.rpartition("-")[2]) for task in await self._records.tasks(batch.run_id)]
        caller.run.go_on(number=max(numbers, default=-1) + 1, spent_usd=batch.cost_known_usd)

    async def _report(self, handle: str, run_id: str | None) -> tuple[TaskResult, str]:
        """A task's result and its whole report. Raises CallError where they can't be read, now or here."""
        hint = "use a handle as it stands in a result of yours"
        try:
            record = await self.read(handle)
        except DelegateError as error:
            raise CallError("unreadable", str(error), field="handle", hint="do without it") from None
        if record is None:
            raise CallError("unknown_handle", "there is no record of this handle", field="handle", hint=hint)
        if run_id is not None and record["run_id"] != run_id:
            raise CallError("other_run", "this handle belongs to another run", field="handle", hint=hint)
        if record["run"] is None:
            words = {"running": "is still at work", "outcome_unknown": "was lost before it gave a result"}
            message = f"the child of this handle {words[record['state']]}"
            raise CallError(record["state"], message, field="handle", hint="there is no report to be read")
        return TaskResult.model_validate(record["result"]), record["run"]["output"]

    def _refuse_too_deep(self, caller: Caller) -> None:
        if caller.depth >= self.settings.max_depth:
            message = f"no further delegation: this is depth {caller.depth} of {self.settings.max_depth}"
            raise CallError("too_deep", message, hint="do the work yourself")

    def _count(self, tasks: Sequence[Task], author: Author, caller: Caller) -> None:
        """Count children that a model asked for: all of a call's or, where the run has no room for all, none."""
        try:
            caller.refuse_if_over()
            if author == "model":
                caller.ledger.reserve({"children": len(tasks)}).settle({"children": len(tasks)})
        except BudgetExceeded as error:
            left = f"ask for at most {error.left:g}" if error.limit == "children" and error.left else "do it yourself"
            raise CallError("budget_exceeded", str(error), hint=f"nothing was run; {left}") from None

    def _admit(self, task: Task, n: int, of: int, caller: Caller) -> Model | None:
        """The model that will do the task; None where the runner brings its own. Raises CallError."""
        try:
            refuse_undecidable(task, strict_checks=self.settings.strict_checks)
            return self._model_for(task, caller) if self._runner.needs_model else None
        except CallError as error:
            error.field = f"tasks[{n}].{error.field}" if error.field and of > 1 else error.field
            raise

    def _model_for(self, task: Task, caller: Caller) -> Model:
        cost_is_limited = task.max_cost_usd is not None or caller.ledger.left("cost_usd") is not None
        request = ChildRequest(
            tier=task.tier,
            model=task.model or self.settings.model,
            usual_tier=self.settings.tier,
            bounds=caller.bounds(self.settings),
            available=self.connections.available,
            on=date.today(),
            priced_only=cost_is_limited,
        )
        try:
            return choose_child(self.catalog, request)
        except CallError as error:
            if task.model is None and self.settings.model is not None:
                error.hint = "change the setting `model` (DELEGATE_MODEL), max_tier or min_tier"
            raise

    def _delegation(self) -> Tool:
        """The tool as a child gets it."""
        definition = self.tool("mcp")

        async def call(arguments: Mapping[str, Any]) -> ToolOutput:
            report = await self.call(arguments)
            return ToolOutput(self.render(report), "error" if report.error else "ok")

        return Tool(definition["name"], definition["description"], definition["inputSchema"], call)

    def _bench(self) -> Bench:
        settings = self.settings
        return Bench(
            catalog=self.catalog,
            available=self.connections.available,
            connect=self.connections.open,
            pinned=settings.judge_model,
            min_accuracy=settings.min_judge_accuracy,
            escalate=settings.escalate,
        )


def engine_of(settings: Settings, concurrency: int) -> Engine:
    """What runs a batch's items here, with a delegator of its own: for workers of an engine in other processes."""
    return Delegator(settings).engine(concurrency)


def _say_nothing(kind: EventKind, text: str = "", **data: Any) -> None:
    """Nobody watches a verdict that isn't part of a run."""


def _unusable(error: pydantic.ValidationError) -> CallError:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "acceptance_criteria"
    message = f"{place}: {first['msg'].removeprefix('Value error, ')}"
    return CallError("invalid_criterion", message, field=place, hint="see the README for the kinds and their fields")


def _refusal(error: CallError) -> Report:
    detail = ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)
    return Report(error=detail)
