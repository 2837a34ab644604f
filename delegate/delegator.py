"""The front door: one object per host, which gives the tool and answers its calls."""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from delegate import contract
from delegate._util.cancellation import Cancellation
from delegate._util.loopthread import LoopThread, blocking
from delegate._util.redaction import Redactor
from delegate.batch.backend import Backend, LocalBackend
from delegate.batch.batch import Batch, BatchConfig, BatchLimits
from delegate.batch.item import Item
from delegate.batch.journal import BatchSummary, Journal, Rerun
from delegate.batch.plan import BatchPlan
from delegate.batch.results_file import ResultsFile
from delegate.batch.runner import BatchRunner
from delegate.batch.sources import Source, source_of
from delegate.budget.runs import RunRegistry
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.contract import Dialect, Variant
from delegate.engine.admission import Admission, refusal
from delegate.engine.executor import Executor
from delegate.engine.task_run import Services
from delegate.errors import CallError, DelegateError
from delegate.judging import standalone
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.judge.session import JudgePool
from delegate.judging.verdict import Judging
from delegate.models.connections import connect, through_client
from delegate.models.overrides import effective_catalog
from delegate.ports import ChatClient, EventSink, Tool, ToolOutput
from delegate.records.history import Records, RunSummary, TaskSummary
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import discard
from delegate.settings import Settings, load_settings
from delegate.types import JsonObject, Parent, Receipt, Report, Task, Verdict

T = TypeVar("T")
Arguments = Mapping[str, Any] | str | bytes
"""A tool call's arguments: as the model's JSON text, or parsed."""


class Delegator:
    """Hands tasks to children and gives back what they did, with a verdict on each.

    Args:
        settings: what the operator decides; by default from the environment and `delegate.toml`.
        client: answers for every model, in place of the providers' own endpoints. For scripted models
            (`delegate.models.providers.scripted`), and for hosts that have a model access of their own.
        runner: runs the children, in place of the built-in loop.
        tools: what children may use, in place of the built-in toolbox.
        on_event: is told what happens in every call while it happens, beside the sink that a call may bring.
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
        self.settings = settings = settings or load_settings(**options)
        self.child_tools = None if tools is None else tuple(tools)
        """What children may use; None: the built-in toolbox."""
        self.catalog = catalog = effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy)
        self.connections = (
            through_client(client, catalog)
            if client is not None
            else connect(catalog, settings.endpoints, os.environ, timeout_seconds=settings.call_timeout_seconds)
        )
        runner = runner or AgentLoop()
        self._secret_variables = frozenset(
            {endpoint.key_env for endpoint in settings.endpoints if endpoint.key_env}
            | set(getattr(runner, "secret_variables", ()))
        )
        self._records = Records(settings.home, keep_days=settings.keep_days, keep_mb=settings.keep_mb, discard=discard)
        self._journal = Journal(settings.home, keep_days=settings.keep_days)
        self._runs = RunRegistry(settings, catalog)
        commands = Commands(sandbox=settings.sandbox, commands=settings.commands, hidden=(settings.home,))
        judges = JudgePool(
            catalog=catalog,
            available=self.connections.available,
            connect=self.connections.open,
            pinned=settings.judge_model,
            min_accuracy=settings.min_judge_accuracy,
            escalate=settings.escalate,
        )
        self._judging = Judging(judges, commands, settings.gate)
        services = Services(
            settings=settings,
            runner=runner,
            judging=self._judging,
            commands=commands,
            records=self._records,
            child_delegate_tool=self._child_delegate_tool,
            host_tools=self.child_tools,
            secret_variables=self._secret_variables,
            write_locks=WeakKeyDictionary(),
        )
        self._admission = Admission(settings, catalog, self.connections, Executor(services), on_event)
        self._own_loop = LoopThread()

    # ------------------------------------------------------------------------------------------ for hosts

    def tool(self, dialect: Dialect, *, variant: Variant = "compact", parent: Parent | None = None) -> JsonObject:
        """The tool's definition in a host's dialect, with the limits that are in force now for `parent`'s run.

        Its text changes as the run's limits are used up, and a parent whose tools change loses its provider's prompt
        cache. Hosts that care for the cache make it once per run: a call beyond a limit is refused, at no cost.
        """
        limits = self._admission.limits_of(self._runs.context(parent))
        return contract.tool(dialect, name=self.settings.tool_name, variant=variant, limits=limits)

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
            return await self._admission.execute(
                tasks, "model", self._runs.context(parent), on_event=on_event, cancellation=cancellation
            )
        except CallError as error:
            return refusal(error)

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
            record = await self.read(wanted.handle)
            result, report = contract.report_in(record, self._runs.known_run(parent))
            return contract.render_slice(wanted, result, report, limit=self.settings.result_chars)
        except CallError as error:
            return self.render(refusal(error))
        except DelegateError as error:
            unreadable = CallError("unreadable", str(error), field="handle", hint="do without it")
            return self.render(refusal(unreadable))

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
            return self.render(refusal(error))

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
            return await self._admission.execute(
                tasks, "person", self._runs.context(parent), on_event=on_event, cancellation=cancellation
            )
        except CallError as error:
            return refusal(error)

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
        engine: Backend | None = None,
        on_event: Callable[[Item], EventSink] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Batch:
        """Run any number of tasks, `concurrency` of them side by side: `async for outcome in delegator.batch(tasks)`.

        Outcomes come in any order, and aren't kept. Each task is journalled before it starts, and is run at most once:
        a batch that was killed or stopped goes on with `resume`, its `run_id`, given the same tasks; what was in flight
        is `outcome_unknown` then, and is run again only with `rerun`. For the limits see `fanout.batch.BatchLimits`.
        `results` names a JSONL or CSV file to write; `engine` runs the tasks elsewhere. Raises CallError.
        """
        context = self._runs.batch(concurrency=concurrency, id=resume, max_cost_usd=max_cost_usd)
        items = BatchRunner(self._admission, self._records, context)
        setup = BatchConfig(
            source=source_of(tasks),
            engine=engine or LocalBackend(items.run),
            journal=self._journal,
            run_id=context.run.id,
            admit=items.admit if engine is None else items.check,
            limits=BatchLimits(
                concurrency, context.run.ledger.limits.get("cost_usd"), max_minutes, stop_after_failures
            ),
            resume=resume is not None,
            rerun=rerun,
            resumed=items.resume,
            skip_bad=skip_bad,
            once=once,
            results=ResultsFile(results) if results is not None else None,
            options=options,
            on_event=on_event,
            redactor=Redactor(secret_variables=self._secret_variables),
            cancellation=cancellation,
        )
        return Batch(setup)

    async def plan(self, tasks: Iterable[Task | Item] | Source, *, skip_bad: bool = False) -> BatchPlan:
        """What a batch of these tasks would do and about cost. Nothing is spent. Raises CallError as `batch` does."""
        items = BatchRunner(self._admission, self._records, self._runs.batch(concurrency=1))
        return await items.plan(source_of(tasks), skip_bad=skip_bad)

    def engine(self, concurrency: int) -> Backend:
        """Runs items of a batch whose journal is elsewhere, in a run of their own. Closing it closes the delegator."""
        items = BatchRunner(self._admission, self._records, self._runs.batch(concurrency=concurrency))
        return LocalBackend(items.run, close=self.aclose)

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
        context = self._runs.context(parent)
        submission = await standalone.submission_of(
            goal,
            acceptance_criteria,
            output,
            workspace=workspace,
            receipts=receipts,
            worker=self.catalog.find(worker_model) if worker_model else None,
            ceiling=context.bounds(self.settings).ceiling,
            strict_checks=self.settings.strict_checks,
            redactor=Redactor(secret_variables=self._secret_variables),
        )
        return await standalone.judge(self._judging, submission, context, cancellation)

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

    call_sync = blocking(
        call, "`call` for code that isn't async. Works inside a running event loop too, which it then blocks."
    )
    answer_sync = blocking(answer, "`answer` for code that isn't async.")
    run_sync = blocking(run, "`run` for code that isn't async.")

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

    def _child_delegate_tool(self) -> Tool:
        """The tool as a child gets it."""
        definition = self.tool("mcp")

        async def call(arguments: Mapping[str, Any]) -> ToolOutput:
            report = await self.call(arguments)
            return ToolOutput(self.render(report), "error" if report.error else "ok")

        return Tool(definition["name"], definition["description"], definition["inputSchema"], call)


def engine_of(settings: Settings, concurrency: int) -> Backend:
    """What runs a batch's items here, with a delegator of its own: for workers of an engine in other processes."""
    return Delegator(settings).engine(concurrency)
