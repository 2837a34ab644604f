"""The public entry point: a `Delegator` provides the tool's definition, executes its calls and runs tasks."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from delegate import contract
from delegate._util.cancellation import Cancellation
from delegate._util.loopthread import LoopThread, blocking
from delegate._util.preparation import Preparation
from delegate._util.redaction import load_redaction, logger, redactor
from delegate.budget.runs import RunRegistry, current_context
from delegate.child.function import ChildFunction, runner_of
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.child.toolbox import toolbox_specs
from delegate.contract import Dialect, Variant
from delegate.engine.admission import Admission, refusal
from delegate.engine.consumers import as_consumer
from delegate.engine.delegation import Delegation
from delegate.engine.executor import Executor
from delegate.engine.scope import Services
from delegate.errors import CallError, ConfigError, DelegateError
from delegate.events import EventSink
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.judge.session import JudgePool
from delegate.judging.looks.limits import LookLimits
from delegate.judging.reading.reader import Reader
from delegate.judging.verdict import Judging, load_judging
from delegate.judging.versions import judge_version
from delegate.models.catalog import Model
from delegate.models.connections import connect, through_client, with_host_models
from delegate.models.false_pass import FalsePassTable
from delegate.models.overrides import effective_catalog
from delegate.ports import ChatClient, Tool, ToolOutput
from delegate.records.history import Records, RunSummary, TaskSummary
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.folder import discard
from delegate.settings import Settings, SettingsOptions, load_settings, override
from delegate.types import (
    ChildRun,
    JsonObject,
    Parent,
    Receipt,
    Report,
    Ruling,
    RulingWord,
    RunStatus,
    Sampling,
    Task,
    TaskResult,
    Verdict,
)

if TYPE_CHECKING:
    from delegate.batch.backend import Backend
    from delegate.batch.batch import Batch
    from delegate.batch.item import Item
    from delegate.batch.journal import BatchSummary, Journal, Rerun
    from delegate.batch.plan import BatchPlan
    from delegate.batch.sources import Source
    from delegate.calibration.detector import Detector
    from delegate.calibration.fitting import RuledRun
    from delegate.policy.approvals import OnApproval

_log = logger(__name__)
_LISTED_RUNS = 100
"""The number of runs in which a caller's latest tasks are looked for."""
_KEPT_DELEGATIONS = 100
"""The number of tasks in the background that are remembered; the oldest ones are dropped once they have ended."""
_CHILDREN, _JUDGING = 0, 1
"""The phases of the preparation."""
T = TypeVar("T")
Arguments = Mapping[str, Any] | str | bytes
"""A tool call's arguments, as JSON text or parsed."""


class Delegator:
    """Runs tasks in child agents and returns their results, each with a verdict.

    Args:
        settings: The operator's settings. By default, they are loaded from the environment and `delegate.toml`.
        client: A client for all models, instead of the providers' own endpoints. For scripted models
            (`delegate.models.providers.scripted`) and for hosts with their own model access.
        host_models: Models that the host calls itself, with the client for each, in addition to all others. They
            replace the catalog's entries with the same IDs, and need an `endpoint` that no other model has.
        runner: Runs the children, instead of the built-in agent loop. An async function, which gets a `Job` and
            returns the report, is run by a `FunctionRunner`.
        tools: The tools of children, instead of the built-in toolbox. A function with type hints becomes a tool as by
            `Tool.from_function`.
        on_event: Receives the events of all calls, in addition to the `on_event` of a single call. It may be an `async`
            function. See `delegate.events`.
        stream_text: Also send events with a child's text while its model writes it (`child.text`).
        on_approval: An async function that asks a person whether a child may make a call, where the settings `policy`
            or `commands` say so, unless a single call has its own. Without one, such calls are refused.
        **options: Single settings, such as `model="…"` or `commands="allow"`, which override all other sources and
            `settings`.

    Raises:
        ConfigError: The settings, `delegate.toml`, the catalog, the runner or a tool are invalid. Errors of parent
            models and children are never raised; they are part of the `Report`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        client: ChatClient | None = None,
        host_models: Mapping[Model, ChatClient] | None = None,
        runner: ChildRunner | ChildFunction | None = None,
        tools: Sequence[Tool | Callable[..., Any]] | None = None,
        on_event: EventSink | None = None,
        stream_text: bool = False,
        on_approval: "OnApproval | None" = None,
        **options: Unpack[SettingsOptions],
    ) -> None:
        self.settings = settings = load_settings(**options) if settings is None else override(settings, **options)
        self.child_tools = None if tools is None else tuple(map(_tool_of, tools))
        """The tools of children. None means the built-in toolbox."""
        catalog = effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy)
        self.catalog = catalog = catalog.with_models(host_models) if host_models else catalog
        connections = (
            through_client(client, catalog)
            if client is not None
            else connect(
                catalog,
                settings.endpoints,
                os.environ,
                timeout_seconds=settings.call_timeout_seconds,
                home=settings.home,
            )
        )
        self.connections = with_host_models(connections, host_models) if host_models else connections
        runner = AgentLoop() if runner is None else runner_of(runner)
        _refuse_unenforceable(settings, runner)
        redactor.add_variables({endpoint.key_env for endpoint in settings.endpoints if endpoint.key_env})
        redactor.add_variables(getattr(runner, "secret_variables", ()))
        self._preparation = preparation = Preparation(phases=2)
        self._records = Records(settings.home, keep_days=settings.keep_days, keep_mb=settings.keep_mb, discard=discard)
        self._runs = RunRegistry(settings, catalog)
        commands = Commands(
            sandbox=settings.sandbox,
            commands=settings.commands,
            network=settings.network,
            hidden=(settings.home,),
        )
        self._limits = None
        if settings.max_false_pass is not None:
            from delegate.calibration.limits import JudgeLimits  # only where it is needed

            self._limits = JudgeLimits(self._records, settings.max_false_pass, judge_version, catalog.models)
        judges = JudgePool(
            catalog=catalog,
            available=self.connections.available,
            connect=self.connections.open,
            pinned=settings.judge_model,
            min_accuracy=settings.min_judge_accuracy,
            escalate=settings.escalate,
            false_pass=self._limits.table if self._limits else None,
            page_tokens=settings.judge_page_tokens,
            looks=LookLimits(settings.judge_looks, settings.judge_turns),
            criteria_per_call=settings.criteria_per_call,
        )
        self._judging = Judging(
            judges,
            commands,
            Reader(judges, self._records),
            settings.gate,
            settings.min_level,
            cache(partial(_detector_in, settings.home)),
            partial(preparation.wait, _JUDGING),
        )
        services = Services(
            settings=settings,
            runner=runner,
            judging=self._judging,
            commands=commands,
            records=self._records,
            child_delegate_tool=self._child_delegate_tool,
            host_tools=self.child_tools,
            write_locks=WeakKeyDictionary(),
            on_approval=on_approval,
            streams_text=stream_text,
        )
        self._admission = Admission(
            settings,
            catalog,
            self.connections,
            Executor(services),
            as_consumer(on_event),
            partial(preparation.wait, _CHILDREN),
        )
        context = self._runs.context()

        def load_sdks() -> None:
            for model in self._admission.likely_models(context, judge=settings.judge_model):
                self.connections.prepare(model)

        key = (client is None, runner.needs_model, self.connections.available, settings.model, settings.judge_model)
        preparation.start((load_sdks, load_redaction, toolbox_specs, Task.model_rebuild), (load_judging,), key=key)
        self._own_loop = LoopThread()
        self._delegations = OrderedDict[str, Delegation]()
        """Calls in the background, by the handles of their tasks."""
        self.keeps_running = False
        """Whether calls in the background go on after the session that made them, so that parents can be told."""

    # ------------------------------------------------------------------------------------------ for hosts

    def tool(
        self,
        dialect: Dialect,
        *,
        variant: Variant = "compact",
        parent: Parent | None = None,
        background: bool = False,
    ) -> JsonObject:
        """Return the tool's definition in a host's dialect, with the current limits of `parent`'s run.

        The text changes as the limits are used up, and a change of its tools invalidates a parent's prompt cache. To
        keep the cache, create the definition once per run: a call beyond a limit is refused at no cost.

        `background` is for hosts that run calls by `start_call` where the parent asks for it.
        """
        limits = self._admission.limits_of(self._runs.context(parent))
        return contract.tool(
            dialect, name=self.settings.tool_name, variant=variant, limits=limits, background=background
        )

    async def call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Execute one tool call as the parent's model wrote it.

        A call that can't be executed is returned as `report.error`. Calls whose `parent` has the same `run_id` share
        one ledger.
        """
        await self._preparation.wait(_CHILDREN)
        try:
            tasks = contract.parse_call(arguments, check_schema=check_schema)
            context = self._runs.context(parent, author="model", on_approval=on_approval)
            return await self._admission.execute(
                tasks, "model", context, consumer=as_consumer(on_event), cancellation=cancellation
            )
        except CallError as error:
            return refusal(error)

    async def start_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
    ) -> Delegation:
        """Execute one tool call in the background. Returns when its tasks are recorded, or when it has been refused."""

        def run(sink: EventSink, cancellation: Cancellation) -> Coroutine[Any, Any, Report]:
            return self.call(
                arguments, parent=parent, on_event=sink, on_approval=on_approval, cancellation=cancellation
            )

        return await self._started(Delegation(run, on_event))

    async def answer(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> str:
        """Execute one tool call and return its report as text for the parent's model, with the verdict first."""
        return self.render(await self.call(arguments, parent=parent, on_event=on_event, cancellation=cancellation))

    def render(self, report: Report) -> str:
        """Return a report as text for the parent's model, as `answer` does."""
        return contract.render(report, limit=self.settings.result_chars)

    def read_tool(self, dialect: Dialect) -> JsonObject:
        """Return the definition of `read_delegation`, with which a parent waits for a task and reads its report."""
        return contract.read_tool(dialect)

    async def read_answer(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
    ) -> str:
        """Execute a call of `read_delegation`. Returns the result as text, or the call's error. See `read_call`."""
        try:
            return await self.read_call(arguments, parent=parent, may_read=may_read)
        except CallError as error:
            return self.render(refusal(error))

    async def read_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
        max_wait_seconds: float | None = None,
        on_event: EventSink | None = None,
    ) -> str:
        """Execute a call of `read_delegation` and return its result as text: what a task is doing, its result, a part
        of its report, or the list of the latest tasks.

        Handles can't be guessed, so any caller with a handle may read its report. However, a call that belongs to a
        known run (named by the host, made inside `root_run`, or made by a child) can only read reports of that run.

        Args:
            arguments: The arguments, as the parent's model wrote them.
            parent: The calling parent.
            may_read: For hosts with several callers that don't trust each other: gets the id of a run and decides
                whether this caller may read its reports. The answer to a handle of another run is that of an unknown
                handle.
            max_wait_seconds: The maximum of `wait_seconds`, and its default; without it, the default is 0.
            on_event: Receives the events of the task while it is waited for.

        Raises:
            CallError: The call is invalid, or there is no such report. The error says how to fix it.
        """
        wanted, run_id = contract.parse_read(arguments), self._runs.known_run(parent)
        if wanted.handle is None:
            return contract.render_list(await self._latest_tasks(run_id, may_read))
        # Asked before anything is read, so that not even the time of the answer shows whether there is a record.
        if may_read is not None and not may_read(contract.run_of(wanted.handle)):
            raise contract.unknown_handle()
        is_own = run_id in (None, contract.run_of(wanted.handle))
        delegation = self._delegations.get(wanted.handle) if is_own else None
        if delegation is not None:
            limits = [one for one in (wanted.wait_seconds, max_wait_seconds) if one is not None]
            with delegation.reported_to(on_event):
                if not (delegation.is_here and await delegation.wait(min(limits, default=0), handle=wanted.handle)):
                    return contract.render_running(delegation.progress, keeps_running=self.keeps_running)
        result, report = await self._result_of(wanted.handle, run_id, delegation)
        limit = self.settings.result_chars
        if wanted.offset is None:
            return contract.render_result(result.model_copy(update={"summary": report}), limit=limit)
        return contract.render_slice(wanted.handle, wanted.offset, result, report, limit=limit)

    def stop_tool(self, dialect: Dialect) -> JsonObject:
        """Return the definition of `stop_delegation`, with which a parent stops a task that runs in the background."""
        return contract.stop_tool(dialect)

    async def stop_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
    ) -> str:
        """Execute a call of `stop_delegation`: stop one task, wait until it has ended, and return its result as text.

        Raises:
            CallError: The call is invalid, or there is no such task. The error says how to fix it.
        """
        handle, run_id = contract.parse_stop(arguments), self._runs.known_run(parent)
        allowed = may_read is None or may_read(contract.run_of(handle))
        if allowed and run_id in (None, contract.run_of(handle)):
            await self.stop(handle)
        return await self.read_call({"handle": handle, "wait_seconds": 0}, parent=parent, may_read=may_read)

    def think_tool(self, dialect: Dialect) -> JsonObject:
        """Return the definition of `think`, with which a parent checks a thought against its criteria.

        A call and its result can be removed from the conversation, together, after the model's next turn.
        """
        return contract.think_tool(dialect)

    async def think_answer(self, arguments: Arguments) -> str:
        """Execute a call of `think`. Returns a checklist, or the call's error. No model is called."""
        try:
            return contract.render_thought(contract.parse_think(arguments))
        except CallError as error:
            return self.render(refusal(error))

    def root_run(self, parent: Parent | None = None) -> AbstractContextManager[str]:
        """Put all calls made inside `with delegator.root_run() as run_id: …` in one run, including concurrent calls."""
        return self._runs.root_run(parent)

    # --------------------------------------------------------------------------------------- for programs

    async def run(
        self,
        *tasks: Task,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Run any number of tasks written by a person or a program. They can use every field of `Task`."""
        try:
            return await self._admission.execute(
                tasks,
                "person",
                self._runs.context(parent, on_approval=on_approval),
                consumer=as_consumer(on_event),
                cancellation=cancellation,
            )
        except CallError as error:
            return refusal(error)

    async def resume(
        self, handle: str, *, on_event: EventSink | None = None, cancellation: Cancellation | None = None
    ) -> Report:
        """Go on with a task in goal mode whose process was lost, in its workspace as it is and within what is left of
        its limits.

        The child reads in its record what it did so far. Its work is measured against what there was before it began.
        """
        from delegate.engine.resume import read_record  # loaded only in goal mode

        try:
            record = await self.read(handle)
            tasks = {task.handle: task for task in await self.tasks(record["run_id"])} if record else {}
            resumed = read_record(record, tasks[handle].task_index if handle in tasks else 0)
            return await self._admission.execute(
                (resumed.task,),
                "person",
                self._runs.resumed(resumed.run_id),
                first_index=resumed.index,
                consumer=as_consumer(on_event),
                cancellation=cancellation,
                resumed=resumed,
            )
        except CallError as error:
            return refusal(error)

    async def start(self, *tasks: Task, parent: Parent | None = None, on_event: EventSink | None = None) -> Delegation:
        """Run tasks in the background. Returns when they are recorded, or when they have been refused.

            delegation = await delegator.start(task)
            report = await delegation

        `aclose` stops what still runs.
        """

        def run(sink: EventSink, cancellation: Cancellation) -> Coroutine[Any, Any, Report]:
            return self.run(*tasks, parent=parent, on_event=sink, cancellation=cancellation)

        return await self._started(Delegation(run, on_event))

    async def join(self) -> None:
        """Wait until all calls in the background have ended."""
        for delegation in set(self._delegations.values()):
            await delegation.wait()

    async def stop(self, handle: str) -> bool:
        """Stop one task that runs in this process, and wait until its result is recorded. False if it doesn't run."""
        task = self._admission.executor.running.get(handle)
        if task is None:
            return False
        task.cancellation.cancel()
        if delegation := self._delegations.get(handle):
            await delegation.wait(handle=handle)
        return True

    def batch(
        self,
        tasks: "Iterable[Task | Item] | Source",
        *,
        concurrency: int = 3,
        max_cost_usd: float | None = None,
        max_minutes: float | None = None,
        stop_after_failures: int | None = None,
        resume: str | None = None,
        rerun: "Collection[Rerun]" = (),
        skip_bad: bool = False,
        once: bool = False,
        results: str | Path | None = None,
        options: str = "{}",
        engine: "Backend | None" = None,
        on_event: "Callable[[Item], EventSink] | None" = None,
        cancellation: Cancellation | None = None,
    ) -> "Batch":
        """Run any number of tasks, up to `concurrency` at the same time.

            async for outcome in delegator.batch(tasks):
                ...

        Outcomes are yielded in the order in which they finish, and aren't kept. Each task is journaled before it starts
        and runs at most once. To continue a batch that was stopped or killed, pass its `run_id` as `resume`, together
        with the same tasks. Tasks that were running at that time are then `outcome_unknown`, and run again only if
        `rerun` says so.

        Args:
            tasks: The tasks, their items, or a file of tasks.
            concurrency: Maximum number of tasks running at the same time.
            max_cost_usd: Maximum cost in US dollars.
            max_minutes: Maximum wall time in minutes, after which running tasks are canceled.
            stop_after_failures: Number of failures after which no further task starts.
            resume: The `run_id` of the batch to continue.
            rerun: Which tasks of that batch to run again: those with an unknown outcome (`unknown`), those that failed
                (`fail`), or both.
            skip_bad: Whether to skip invalid rows instead of refusing the batch.
            once: Whether to refuse a batch of the same tasks that has already been run.
            results: A JSONL or CSV file to which a line is appended for each outcome, in the same order.
            options: The options of the caller, as JSON, to be kept in the journal.
            engine: A backend that runs the tasks elsewhere.
            on_event: Returns the receiver of an item's progress events.
            cancellation: Cancels the batch.

        Raises:
            CallError: The tasks or the options are invalid.
        """
        from delegate.batch.batch import Batch, BatchConfig  # only batches need these
        from delegate.batch.results_file import ResultsFile
        from delegate.batch.runner import BatchRunner
        from delegate.batch.sources import source_of

        context = self._runs.batch(concurrency=concurrency, id=resume, max_cost_usd=max_cost_usd)
        items = BatchRunner(self._admission, self._records, context)
        setup = BatchConfig(
            source=source_of(tasks),
            engine=engine or items,
            journal=self._journal,
            run_id=context.run.id,
            admit=items.admit if engine is None else items.check,
            concurrency=concurrency,
            max_cost_usd=context.run.ledger.limits.get("cost_usd"),
            max_minutes=max_minutes,
            stop_after_failures=stop_after_failures,
            resume=resume is not None,
            rerun=rerun,
            resumed=items.resume,
            skip_bad=skip_bad,
            once=once,
            results=ResultsFile(Path(results)) if results is not None else None,
            options=options,
            on_event=on_event,
            consumer=self._admission.consumer,
            cancellation=cancellation,
        )
        return Batch(setup)

    async def plan(self, tasks: "Iterable[Task | Item] | Source", *, skip_bad: bool = False) -> "BatchPlan":
        """Return what a batch of these tasks would run and its estimated cost. Nothing is spent.

        Raises:
            CallError: The tasks are invalid.
        """
        from delegate.batch.runner import BatchRunner
        from delegate.batch.sources import source_of

        items = BatchRunner(self._admission, self._records, self._runs.batch(concurrency=1))
        return await items.plan(source_of(tasks), skip_bad=skip_bad)

    def engine(self, concurrency: int) -> "Backend":
        """Return a backend that runs items of a batch journaled elsewhere, in a run of its own.

        Closing the backend closes the delegator.
        """
        from delegate.batch.runner import BatchRunner

        return BatchRunner(self._admission, self._records, self._runs.batch(concurrency=concurrency), self.aclose)

    @cached_property
    def _journal(self) -> "Journal":
        from delegate.batch.journal import Journal

        return Journal(self.settings.home, self._records, keep_days=self.settings.keep_days)

    async def batches(self, limit: int = 20) -> "list[BatchSummary]":
        """Return the latest recorded batches, newest first."""
        return await self._journal.latest(limit)

    async def batch_on_record(self, run_id: str) -> "BatchSummary":
        """Return one recorded batch.

        Raises:
            CallError: There is no batch with this id.
        """
        return await self._journal.summary(run_id)

    async def judge(
        self,
        *,
        goal: str,
        acceptance_criteria: Sequence[Any],
        output: str | None = None,
        workspace: str | Path | None = None,
        receipts: Sequence[Receipt | Mapping[str, Any]] | None = None,
        status: RunStatus = "completed",
        conversation: str | Sequence[str | Mapping[str, Any]] = "",
        tools: Sequence[Tool] = (),
        worker_model: str | None = None,
        parent: Parent | None = None,
        cancellation: Cancellation | None = None,
    ) -> Verdict:
        """Judge existing work, regardless of who did it.

        Args:
            goal: The goal of the work.
            acceptance_criteria: The criteria, as in `Task`.
            output: The report to judge. None means that there is none: the files and the tool calls are judged alone.
                An empty report is a FAIL with the code `empty_output`.
            workspace: The folder with the work's files. All of them count as artifacts.
            receipts: The tool calls that were made, in order. They need only `tool`, `args`, `status` and `output`. An
                empty list means that no tool was called, None that tool calls weren't recorded. The messages of a
                transcript, in the format of OpenAI's chat completions or of Anthropic, are accepted too.
            status: How the work ended. Work that wasn't `completed` is a FAIL with the code `run_failed`.
            conversation: All that was said, as text or as messages. It is evidence for what a user was told or
                confirmed, and proves no other deed.
            tools: The tools of the work. Their descriptions tell what its criteria are about, and `probe` criteria may
                call those that are `read_only`.
            worker_model: The model that did the work. No judge is above its tier. If it is unknown, the setting
                `max_tier` applies.
            parent: The calling parent, if there is one.
            cancellation: Cancels the judging.

        Raises:
            CallError: A criterion, a receipt or the workspace is invalid. The error names the field and how to fix it.
        """
        from delegate.judging import standalone  # loaded only where existing work is judged

        context = self._runs.context(parent)
        submission = await standalone.submission_of(
            goal,
            acceptance_criteria,
            output,
            workspace=workspace,
            receipts=receipts,
            status=status,
            conversation=conversation,
            tools=tools,
            worker=self.catalog.find(worker_model) if worker_model else None,
            ceiling=context.bounds(self.settings).ceiling,
            strict_commands=self._judging.commands if self.settings.strict_checks else None,
        )
        return await standalone.judge(self._judging, submission, context, cancellation)

    async def read(self, handle: str) -> JsonObject | None:
        """Return the record of a task, even while it is running, or None if there is none. See `Records.read`."""
        return await self._records.read(handle)

    async def runs(self, limit: int = 20) -> list[RunSummary]:
        """Return the latest recorded runs, newest first."""
        return await self._records.runs(limit)

    async def tasks(self, run_id: str, limit: int = -1) -> list[TaskSummary]:
        """Return the recorded tasks of a run, or the first ones, in the order in which they started."""
        return await self._records.tasks(run_id, limit)

    async def rule(
        self,
        handle: str,
        criterion: str,
        ruling: RulingWord,
        *,
        by: str,
        because: str = "",
        sampling: Sampling = "chosen",
    ) -> list[Ruling]:
        """Record the word of a person, or of a check that is trusted, on a criterion of a recorded verdict.

        The verdict stays as it is. Rulings measure the judges, and `max_false_pass` relies on those of criteria that
        were drawn at random. If two judges answered, there is a ruling for each.

        Args:
            handle: The handle of the task.
            criterion: The id of the criterion.
            ruling: Whether it is really met.
            by: Who ruled: a person's name, or that of a check. A second ruling by the same person replaces the first.
            because: The reason.
            sampling: `random` only if the criterion was drawn at random among all that judges decided.

        Raises:
            CallError: There is no such verdict or criterion, or an argument is invalid.
            DelegateError: The records can't be read or written.
        """
        from delegate.judging import rulings

        record = await self.read(handle)
        made = rulings.rulings_on(record, handle, criterion, ruling, because=because, by=by, sampling=sampling)
        await self._store_rulings(made)
        return made

    async def import_rulings(self, text: str, *, by: str, sampling: Sampling = "chosen", name: str = "rulings") -> int:
        """Record rulings from JSON lines, all of them or none, and return their number.

        A line has the fields of `Ruling`, of which `task`, `criterion` and `ruling` are needed. With `judged`, it is
        about work judged elsewhere. Otherwise, `task` is the handle of a recorded task.

        Args:
            text: The lines.
            by: Who ruled, for lines without `ruled_by`.
            sampling: For lines without `sampling`.
            name: The name of the file, for errors.

        Raises:
            CallError: A line is invalid, or there is no such verdict. The error names the line.
            DelegateError: The records can't be read or written.
        """
        from delegate.judging import rulings

        made = await rulings.imported(rulings.read_rows(text, name, by=by, sampling=sampling), self.read)
        await self._store_rulings(made)
        return len(made)

    async def rulings(self, handle: str | None = None) -> list[Ruling]:
        """Return the rulings on one task, by everybody; or all rulings, and of each criterion only the latest."""
        return await self._records.rulings(handle)

    async def draw(self, n: int | None = None, run_id: str | None = None) -> list[tuple[str, str]]:
        """Return the handles and ids of `n` recorded criteria that judges decided, drawn at random, to rule on.

        Those that were drawn and ruled on before are left out. With None, all that are left, in random order.
        """
        return await self._records.draw(n, run_id)

    async def false_pass(self) -> FalsePassTable | None:
        """Return the measured error rates by which judges may decide alone; None without `max_false_pass`."""
        return await self._limits.table() if self._limits else None

    async def disagreements(self) -> tuple[int, int]:
        """Return the number of criteria that several people ruled on, and on how many of them they disagree."""
        return await self._records.disagreements()

    async def verdicts(self, run_id: str | None = None) -> list[tuple[str, str, Verdict]]:
        """Return the handle, the run and the verdict of all tasks on record that have one, or of those of one run."""
        found: list[tuple[str, str, Verdict]] = []
        for handle, run, text in await self._records.verdicts(run_id):
            with suppress(ValidationError):  # of another version of delegate
                found.append((handle, run, Verdict.model_validate_json(text)))
        return found

    async def ruled_runs(self, rulings: Sequence[Ruling]) -> "list[RuledRun]":
        """Return the completed runs on record that these rulings are about, to fit a detector to.

        A report isn't true if a criterion was ruled not met that the run's report should meet.
        """
        from delegate.calibration.fitting import RuledRun

        by_task: dict[str, list[Ruling]] = {}
        for ruling in rulings:
            by_task.setdefault(ruling.task, []).append(ruling)
        found: list[RuledRun] = []
        for handle, about in by_task.items():
            record = await self.read(handle)
            run = None
            with suppress(ValidationError):  # of another version of delegate, or damaged
                run = ChildRun.model_validate(record["run"]) if record and record["run"] else None
            if run is not None and run.status == "completed":
                false = any(one.ruling == "not_met" for one in about)
                found.append(RuledRun(run, false, about[0].rubric_version or handle))
        return found

    async def _store_rulings(self, made: Sequence[Ruling]) -> None:
        if made:
            await self._records.rule(*made)
        if self._limits is not None:
            self._limits.refresh()

    # ----------------------------------------------------------------------------------- without an event loop

    call_sync = blocking(
        call, "Synchronous version of `call`. It also works inside a running event loop, which it then blocks."
    )
    answer_sync = blocking(answer, "Synchronous version of `answer`.")
    run_sync = blocking(run, "Synchronous version of `run`.")

    def wait_for(self, work: Coroutine[Any, Any, T], *, on_poll: Callable[[], None] | None = None) -> T:
        """Run any coroutine of the delegator from synchronous code, on the delegator's own event loop, and wait for it.

        `on_poll` is called on the waiting thread about twenty times per second. A host can check there whether it was
        stopped, and cancel the call.
        """
        return self._own_loop.run(work, on_poll=on_poll)

    # ------------------------------------------------------------------------------------------ life cycle

    async def aclose(self) -> None:
        """Stop what runs in the background, and close all connections and files. No other calls should be running.

        Connections that were opened on other event loops are closed when those end.
        """
        self._preparation.stop()
        for delegation in set(self._delegations.values()):
            await delegation.close()
        await asyncio.to_thread(self._own_loop.stop)
        await self.connections.aclose()
        await self._records.aclose()
        if "_journal" in vars(self):  # it was used
            await self._journal.aclose()

    def close(self) -> None:
        """Synchronous version of `aclose`. It also works inside a running event loop, which it then blocks."""
        closer = LoopThread()
        try:
            closer.run(self.aclose())
        finally:
            closer.stop()
        with suppress(RuntimeError):  # outside of an event loop
            self.connections.close_soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------- private

    async def _started(self, delegation: Delegation) -> Delegation:
        """Wait until the tasks of a call in the background are recorded, and remember them by their handles."""
        await delegation.wait_until_started()
        for handle in delegation.handles:
            self._delegations[handle] = delegation
        while len(self._delegations) > _KEPT_DELEGATIONS and next(iter(self._delegations.values())).done:
            self._delegations.popitem(last=False)
        return delegation

    async def _result_of(
        self, handle: str, run_id: str | None, delegation: Delegation | None
    ) -> tuple[TaskResult, str]:
        """Return a task's result and its whole report from its record, or as they were made if there is no record.

        Raises CallError if there is neither.
        """
        try:
            return contract.report_in(await self.read(handle), run_id)
        except DelegateError as error:
            if delegation is not None and (result := delegation.result(handle)) is not None:
                return result, result.report
            if isinstance(error, CallError):
                raise
            raise CallError("unreadable", str(error), field="handle", hint="continue without this report") from None

    async def _latest_tasks(self, run_id: str | None, may_read: Callable[[str], bool] | None) -> list[TaskSummary]:
        """Return the latest tasks on record that a caller may read, newest first."""
        runs = [run_id] if run_id else [run.run_id for run in await self.runs(_LISTED_RUNS)]
        runs = [run for run in runs if run_id or may_read is None or may_read(run)]
        found: list[TaskSummary] = []
        depth = context.depth if (context := current_context()) else 0
        for run in runs:
            found += [task for task in reversed(await self.tasks(run)) if task.depth == depth]
            if len(found) >= contract.MAX_LISTED:
                break
        return found

    def _child_delegate_tool(self) -> Tool:
        """Return the tool for a child that may delegate."""
        definition = self.tool("mcp")

        async def call(arguments: Mapping[str, Any]) -> ToolOutput:
            report = await self.call(arguments)
            return ToolOutput(self.render(report), "error" if report.error else "ok")

        return Tool(
            definition["name"],
            definition["description"],
            definition["inputSchema"],
            call,
            effects=frozenset({"delegation"}),
        )


def _refuse_unenforceable(settings: Settings, runner: ChildRunner) -> None:
    """Raise ConfigError for a policy over calls that nobody would ask it about."""
    if settings.policy.restricts and not getattr(runner, "uses_job_tools", False):
        name = getattr(runner, "name", type(runner).__qualname__)
        raise ConfigError(
            f"policy: it can't be enforced on the runner {name}, which calls tools of its own; unset `policy`, or use "
            "the built-in child, or a runner with `uses_job_tools = True`, which calls only `job.tools`"
        )


def _tool_of(given: Tool | Callable[..., Any]) -> Tool:
    return given if isinstance(given, Tool) else Tool.from_function(given)


def _detector_in(home: Path) -> "Detector | None":
    """The detector that was fitted to this project's rulings, if there is one. One that can't be used is none."""
    if not (home / "detector.json").exists():
        return None
    from delegate.calibration import detector

    try:
        return detector.load(home)
    except DelegateError as error:
        _log.warning("%s", error)
        return None


def engine_of(settings: Settings, concurrency: int) -> "Backend":
    """Return a backend with its own `Delegator`, for the worker processes of a batch engine."""
    return Delegator(settings).engine(concurrency)
