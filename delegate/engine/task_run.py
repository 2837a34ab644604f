"""Runs one task of a call, from its workspace to its stored result."""

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec

from delegate._util.cancellation import (
    Cancellation,
    Deadline,
    LeftBehind,
    reraise_pending_cancel,
    run_stoppable,
)
from delegate._util.redaction import logger, redactor
from delegate._util.semaphore import Permit
from delegate.budget import costs
from delegate.budget.ledger import Ledger, RunningChild
from delegate.budget.runs import Run, RunContext, use_context
from delegate.child.fetch import FetchPolicy
from delegate.child.job import ChildRunner, Job
from delegate.child.loop import AgentLoop
from delegate.child.toolbox import read_only_tools, toolbox, toolbox_definitions
from delegate.engine import error_mapping
from delegate.engine.consumers import Consumer
from delegate.engine.results import build_result, internal_error_result
from delegate.errors import DelegateError, WorkspaceTooLarge
from delegate.events import (
    ChildDone,
    ChildStarted,
    ChildWaiting,
    Event,
    EventKind,
    TaskDone,
    TaskEvent,
    VerdictGiven,
    WaitReason,
    from_json,
    kind_of,
    reported_wait,
)
from delegate.judging.reading.reader import CallReading, PendingReading
from delegate.judging.reading.statements import ToolInfo
from delegate.judging.submission import Submission
from delegate.judging.verdict import Judging
from delegate.models.catalog import Model
from delegate.models.connections import Connection
from delegate.models.providers import BuiltInClient
from delegate.models.tiers import weaker
from delegate.ports import Incoming, Tool
from delegate.records.history import Records
from delegate.records.recorder import Recorder, is_large
from delegate.sandbox.commands import Author, Commands
from delegate.sandbox.media import readable_types
from delegate.sandbox.threads import run_in_thread, run_in_thread_if
from delegate.sandbox.workspace import Folder
from delegate.sandbox.write_locks import WriteLocks
from delegate.settings import Settings
from delegate.telemetry import operations
from delegate.types import ChildRun, JsonObject, ProbeCriterion, Task, TaskResult, Tier, Verdict

if TYPE_CHECKING:
    from delegate.child.permissions import Permissions
    from delegate.engine.claims import TaskClaims
    from delegate.engine.resume import Resumed
    from delegate.judging.checks.before import ChecksBefore
    from delegate.policy.approvals import OnApproval

GRACE_SECONDS = 10.0
"""How long a runner may take to stop after it was canceled."""

_log = logger(__name__)
_NOT_RECORDED = frozenset[EventKind]({"task.queued", "child.text", "child.tool.started", "check.started", "task.done"})
"""The task's record has its beginning and end, and whole texts. What has started needs no record once it has ended."""
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Services:
    """The services shared by all tasks of one delegator."""

    settings: Settings
    runner: ChildRunner
    judging: Judging
    commands: Commands
    records: Records
    child_delegate_tool: Callable[[], Tool]
    """Creates the tool with which a child can delegate, if the depth allows it."""
    host_tools: tuple[Tool, ...] | None
    """The tools of children, instead of the toolbox."""
    write_locks: MutableMapping[Run, WriteLocks]
    """The writers of the files in shared folders, per run."""
    on_approval: "OnApproval | None" = None
    """Asks a person about a call of a child, unless its own call says who does."""
    streams_text: bool = False
    """Whether consumers get a child's text while its model writes it."""

    @property
    def records_tools(self) -> bool:
        """Whether the runner records tool calls. Runners without the attribute are assumed not to."""
        return bool(getattr(self.runner, "records_tools", False))

    def tools_to_read(self) -> list[ToolInfo]:
        """What is known of the children's tools before they start. Those of a runner with tools of its own aren't."""
        if self.host_tools is not None:
            return list(map(ToolInfo.of, self.host_tools))
        if not getattr(self.runner, "uses_job_tools", False):
            return []
        return list(map(ToolInfo.of, toolbox_definitions(self.commands)))

    def tools_of(self, context: RunContext) -> dict[str, bool]:
        """The names of the tools that a caller may have called for it, and whether each is read-only."""
        tools = self.host_tools
        named = read_only_tools() if tools is None else {tool.name: tool.read_only for tool in tools}
        return {name: read_only for name, read_only in named.items() if context.tools is None or name in context.tools}


@dataclass(frozen=True, slots=True)
class CallScope:
    """The values shared by all tasks of one call."""

    services: Services
    context: RunContext
    """The caller."""
    author: Author
    ceiling: Tier
    """The caller's tier, which neither a child's model nor a judge may exceed."""
    cancellation: Cancellation
    reading: CallReading
    """How the criteria of the tasks are read, by their handles."""
    consumers: tuple[Consumer[Event], ...] = ()
    """Who receives the events."""
    unfinished: set[str] = field(default_factory=set[str])
    """The handles of the tasks that have no result yet."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    thread: int = field(default_factory=threading.get_ident)
    """The thread of the loop, where consumers are called."""

    def consumers_of(self, kind: EventKind) -> list[Consumer[Event]]:
        """Those who receive events of this kind."""
        if kind == "child.text" and not self.services.streams_text:
            return []
        return [one for one in self.consumers if one.kinds is None or kind in one.kinds]

    def deliver(self, event: Event) -> None:
        """Deliver an event, on the loop of the call. Safe to call from any thread."""
        if threading.get_ident() != self.thread:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.deliver, event)
            return
        for consumer in self.consumers_of(event.kind):
            consumer(event)


@dataclass(slots=True)
class TaskRun:
    """One task of a call and its state while it runs. `run` must be called only once."""

    call: CallScope
    index: int
    """The task's position in the call or in the batch, from 0."""
    task: Task
    connection: Connection | None
    """The selected model and its client. None for runners that bring their own model."""
    handle: str
    resumed: "Resumed | None" = None
    """What its child did in a process that was lost, if it goes on with that."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    """Stops this task alone."""
    folder: Folder | None = None
    """The workspace, once it is open."""
    result: TaskResult | None = None
    """The result, once there is one."""
    _deadline: "_ChildDeadline | None" = None
    """The child's deadline, once it may start."""
    _offered: tuple[Tool, ...] | None = None
    """The child's tools, if its runner gives it exactly those of the job."""
    _claims: "TaskClaims | None" = None
    """In goal mode, what the child claimed."""
    _before: "ChecksBefore | None" = None
    """The shell checks on the files of before, while the child works."""
    _start: JsonObject | None = None
    """In goal mode, what is stored for another process; None if the task can't be resumed."""
    _permissions: "Permissions | None" = None
    """What the child may do, if anything could be refused."""

    async def run(self) -> TaskResult:
        """Run the task and store its result, however it ends."""
        tier = self._model.tier if self._model else None
        traced = operations.agent(index=self.index, handle=self.handle, connection=self.connection, tier=tier)
        with self.call.cancellation.linked(self.cancellation), traced as operation:
            try:
                result = await self._run()
                operation.finished(result)
                return result
            finally:
                self._report_end()

    def look(self) -> None:
        """Look how large the workspace of the running child is. To be called now and then."""
        if self._deadline is not None:
            self._deadline.look()

    async def _run(self) -> TaskResult:
        """Run the task and store its result. An error inside delegate fails only this task, never the host."""
        services, context, started = self.call.services, self.call.context, time.monotonic()
        has_files = False
        try:
            # What a child with a model of its own spends is known only from a ledger of its own.
            ledger = context.ledger if self.connection else Ledger(parent=context.ledger)
            ledger = ledger.within("cost_usd", self.task.max_cost_usd)
            permit = Permit(context.run.permits)
            child_context = self._child_context(permit, ledger.within("tokens", services.settings.max_tokens))
            if self.resumed is not None:
                child_context.ledger.reserve({}).settle(self.resumed.spent)
            try:
                child = await self._run_child(child_context, permit)
                has_files = any(artifact.change != "deleted" for artifact in child.artifacts)
                self.notify(
                    ChildDone,
                    status=child.status,
                    error=child.error.code if child.error else None,
                    steps=child.steps,
                    artifacts=len(child.artifacts),
                    cost_usd=child.cost_usd,
                    seconds=child.seconds,
                )
                child, verdict = self._claims.verdict_on(child) if self._claims else (child, None)
                verdict = verdict or await self._judge(child, ledger)
                self.notify(
                    VerdictGiven,
                    verdict=verdict.verdict if verdict else None,
                    code=verdict.code if verdict else None,
                    decided_by=verdict.decided_by if verdict else None,
                    level=verdict.level if verdict else None,
                    verified=verdict is not None and verdict.verified,
                )
            finally:
                if self._before is not None:
                    await self._before.close()
                if self.folder is not None:
                    await self.folder.close(keep=has_files)
            build = partial(
                build_result,
                self.task,
                child,
                verdict,
                claims=self._claims.made if self._claims else (),
                index=self.index,
                handle=self.handle,
                requested=self._model,
                served=self._served(child),
                workspace=self.folder.root if self.folder else None,
                take_over=self.folder.take_over if self.folder else None,
                delegated=child_context.delegated,
                tools_recorded=services.records_tools,
                seconds=time.monotonic() - started,
                summary_chars=services.settings.result_chars,
            )
            result = await run_in_thread_if(is_large(child), build)
            if context.depth:  # the costs of the root's tasks are in the report
                context.delegated.append(costs.of_result(result))
            self.result = result
            self.result = result = await self._save(child, result)
        except Exception as error:
            _log.exception("task %d failed inside delegate", self.index + 1)
            result = internal_error_result(error, index=self.index, handle=self.handle)
            child, self.result = ChildRun(status="failed", error=result.error), result
            return await self._save(child, result)
        reraise_pending_cancel()
        return result

    async def _save(self, child: ChildRun, result: TaskResult) -> TaskResult:
        self.call.unfinished.discard(self.handle)
        is_last = not self.call.unfinished
        return await self.call.services.records.save(child, result, now=is_last)

    async def _judge(self, child: ChildRun, ledger: Ledger, task: Task | None = None) -> Verdict | None:
        """Judge a run, by the task or by a part of its criteria."""
        return await self.call.services.judging.verdict(
            self._submission(child, task or self.task),
            ledger,
            self.notify,
            reading=PendingReading(self.call.reading, self.handle, is_last=self._claims is None),
            seconds=self.call.context.seconds_left(),
            cancellation=self.cancellation,
        )

    async def _judge_claim(self, child: ChildRun, task: Task, *, context: RunContext) -> Verdict | None:
        """Judge a claim, on the ledger of the child that waits for it. Others may run meanwhile."""
        assert context.permit is not None
        async with context.permit.released():
            return await self._judge(child, context.ledger, task)

    async def _store_refusals(self, refusals: list[JsonObject]) -> None:
        """Store what judges refused, for another process that may have to go on with this task."""
        if self._start is not None:
            self._start["refusals"] = redactor.value(refusals)
            await self.call.services.records.started(self.handle, self._start)

    async def _run_child(self, context: RunContext, permit: Permit) -> ChildRun:
        """Wait for a permit, open the workspace, and run the child in it under its deadline.

        No exception of the runner gets past this method: it becomes the run's status, with everything recorded so far.
        This includes `CancelledError`, which is raised again after the result is stored (see `run`).
        """
        services, cancellation, caller = self.call.services, self.cancellation, self.call.context
        recorder = Recorder(costs.UNOBSERVED if self.connection is None else None, journal=self._journal)
        if (resumed := self.resumed) is not None:
            recorder.restore(
                resumed.receipts, resumed.charge, steps=resumed.steps, output=resumed.output, seconds=resumed.seconds
            )
        started: RunningChild | None = None
        try:
            deadline = cancellation.deadline(caller.seconds_left())
            try:
                caller.refuse_if_over()
                async with deadline:
                    with self._reporting_wait("permit" if context.run.permits.is_full else None):
                        await permit.acquire()
                    if self.connection is None:
                        started = await context.ledger.start_child(
                            may_wait=not caller.depth, while_waiting=partial(self._waiting_for_budget, permit)
                        )
                    folder = await self._prepare_folder()
            except (asyncio.CancelledError, DelegateError, OSError) as error:
                status, detail = error_mapping.before_start(error, deadline, cancellation)
                return recorder.finish(status, error=detail)
            run_seconds = caller.seconds_left()
            own_seconds = min(self.task.timeout_seconds or math.inf, services.settings.timeout_seconds)
            own_seconds = max(0.0, own_seconds - resumed.seconds) if resumed else own_seconds
            seconds = own_seconds if run_seconds is None else min(own_seconds, run_seconds)
            self._deadline = deadline = _ChildDeadline(folder, cancellation, own_seconds, run_seconds)
            with use_context(context):
                job = self._job(context, folder, recorder, seconds)
            self.notify(ChildStarted, model=self._model.id if self._model else None)
            try:
                async with deadline:
                    await services.records.opened(self.handle, folder.root)
                    with use_context(context):
                        child = await self._run_job(job)
                child = await self._refuse_too_large(child, folder)
            except (Exception, asyncio.CancelledError) as error:
                self._warn_if_left_behind(error)
                allowed = f"{seconds:.6g} s{', the time that the run had left' if seconds == run_seconds else ''}"
                status, detail = error_mapping.while_running(error, deadline, cancellation, allowed=allowed)
                if detail.code == "crashed":
                    _log.exception("the child of task %d crashed", self.index + 1)
                child = recorder.finish(status, error=detail)
            child = await run_in_thread_if(is_large(child), partial(recorder.redacted, child))
            judged = self._claims.artifacts_of(child) if self._claims else None
            artifacts = await folder.artifacts() if judged is None else judged
            return child.model_copy(update={"artifacts": artifacts}) if artifacts else child
        finally:
            if started is not None:
                started.leave()
            permit.release()

    async def _run_job(self, job: Job) -> ChildRun:
        """Run the child: in a task of its own if it may ignore a cancel, since that task can be left behind."""
        running = self.call.services.runner.run(job)
        if self._is_built_in:
            return await running
        return await run_stoppable(asyncio.ensure_future(running), grace_seconds=GRACE_SECONDS)

    @property
    def _is_built_in(self) -> bool:
        """Whether the child runs no code of the host, so that a cancel is certain to end it."""
        services, connection = self.call.services, self.connection
        return (
            type(services.runner) is AgentLoop
            and services.host_tools is None
            and connection is not None
            and isinstance(connection.client, BuiltInClient)
            and self._permissions is None
            and self._claims is None
        )

    async def _refuse_too_large(self, child: ChildRun, folder: Folder) -> ChildRun:
        """The run, failed if the child has left too much in its workspace."""
        try:
            await folder.check_size()
        except WorkspaceTooLarge as error:
            if child.status == "completed":
                return child.model_copy(update={"status": "failed", "error": error_mapping.too_large(error)})
        return child

    def _warn_if_left_behind(self, error: BaseException) -> None:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, LeftBehind):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            runner = self.call.services.runner
            name = getattr(runner, "name", type(runner).__qualname__)
            text = "the runner %s of task %d swallowed its cancel and was left behind after %g s"
            _log.warning(text, name, self.index + 1, GRACE_SECONDS)

    def notify(self, make: Callable[_P, TaskEvent], /, *args: _P.args, **fields: _P.kwargs) -> None:
        """Record an event of this task, and deliver it. It isn't built if nobody needs it."""
        if self.result is not None and make is not TaskDone:  # of a child that was left behind
            return
        kind = kind_of(make)
        has_consumers = bool(self.call.consumers_of(kind))
        if kind in _NOT_RECORDED and not has_consumers:
            return
        redact, at = redactor.value, time.time()
        values = {name: redact(value) for name, value in fields.items()}
        if kind not in _NOT_RECORDED:
            self.call.services.records.event(self.handle, kind, values, at=at)
        if has_consumers:
            self._deliver(make, values, at)

    def _journal(self, make: Callable[..., TaskEvent], text: str) -> None:
        """Record an event whose fields are the JSON `text`, which has no secrets, and deliver it."""
        if self.result is not None:  # of a child that was left behind
            return
        kind, at = kind_of(make), time.time()
        self.call.services.records.event(self.handle, kind, text, at=at)
        if self.call.consumers_of(kind):
            self._deliver(make, text, at)

    def _deliver(self, make: Callable[..., TaskEvent], values: JsonObject | str, at: float) -> None:
        run_id = self.call.context.run.id
        try:
            read = json.loads(values) if isinstance(values, str) else values
            event = from_json(make, read, run_id=run_id, task_index=self.index, handle=self.handle, at=at)
        except RecursionError:  # a model's arguments can be nested very deeply
            _log.warning("an event of task %d is nested too deeply to be delivered", self.index + 1)
            return
        self.call.deliver(event)

    def _report_end(self) -> None:
        result = self.result
        self.notify(
            TaskDone,
            status=result.status if result else None,
            verdict=result.verdict.verdict if result and result.verdict else None,
            cost_usd=result.cost_usd if result else None,
        )

    @contextmanager
    def _reporting_wait(self, reason: WaitReason | None = None) -> Generator[None]:
        """Report the beginning and the end of a wait, if it has a reason."""
        if reason is None:
            yield
            return
        with reported_wait(lambda seconds: self.notify(ChildWaiting, reason=reason, seconds=seconds)):
            yield

    @contextmanager
    def _waiting(self, reason: WaitReason | None = None) -> Generator[None]:
        """A wait of the child, which doesn't count as its own time."""
        assert self._deadline is not None
        with self._deadline.paused(), self._reporting_wait(reason):
            yield

    @asynccontextmanager
    async def _waiting_for_budget(self, permit: Permit) -> AsyncGenerator[None]:
        with self._reporting_wait("budget"):
            async with permit.released():
                yield

    @property
    def _model(self) -> Model | None:
        return self.connection.model if self.connection else None

    def _served(self, child: ChildRun) -> Model | None:
        """Return the model that answered, or the selected one if the catalog doesn't have the reported name."""
        if self.connection is None:
            return None
        return self.connection.catalog.served(self.connection.model, child.model) or self.connection.model

    def _child_context(self, permit: Permit, ledger: Ledger) -> RunContext:
        """Return the context of the child's own calls, which are charged to `ledger` and limited to its tier."""
        caller = self.call.context
        return RunContext(
            caller.run,
            ledger,
            caller.depth + 1,
            weaker(self._model.tier if self._model else None, caller.tier),
            permit,
            deadline=caller.deadline,
            on_approval=caller.on_approval,
        )

    async def _prepare_folder(self) -> Folder:
        """Open the workspace, and remember what there is before the child starts."""
        self.folder = folder = await self._open_folder()
        has_shell = any(criterion.kind == "shell" for criterion in self.task.criteria)
        if has_shell or not self._uses_toolbox:
            folder.make()
        if self.resumed is None and (has_shell or self._may_be_run(folder)):
            await folder.record_start()
        if has_shell:
            from delegate.judging.checks.before import ChecksBefore  # loaded only where commands run

            self._before = ChecksBefore(self.task, folder, self.call.services.commands, self.call.author)
            self._before.start()
        if self.resumed is not None:  # what there was is on record
            self._start = self.resumed.start
        elif self.task.mode == "goal":
            from delegate.sandbox.start_state import start_state  # loaded only in goal mode

            self._start = start = await run_in_thread(partial(start_state, folder))
            if start is not None:
                await self.call.services.records.started(self.handle, start)
        return folder

    def _may_be_run(self, folder: Folder) -> bool:
        """Whether a judge may run commands on what the child leaves, and there is something now that decides them."""
        services = self.call.services
        in_words = any(criterion.kind in ("text", "question", "rubric") for criterion in self.task.criteria)
        return in_words and bool(services.settings.judge_looks) and folder.exists and services.commands.confines()

    async def _open_folder(self) -> Folder:
        """Open the workspace. In a shared folder, two running children can't write the same file."""
        settings = self.call.services.settings
        home, who = settings.home / "workspaces", f"task {self.index + 1} of this run"
        write_locks = self.call.services.write_locks.setdefault(self.call.context.run, WriteLocks())
        max_bytes = (math.inf if settings.max_workspace_mb is None else settings.max_workspace_mb) * 1e6
        if self.resumed is not None:
            from delegate.sandbox.start_state import reopen  # loaded only in goal mode

            root, start = Path(self.resumed.workspace), self.resumed.start
            return await reopen(root, start, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)
        return await Folder.open(self.task.workspace, home=home, write_locks=write_locks, who=who, max_bytes=max_bytes)

    def _job(self, context: RunContext, folder: Folder, recorder: Recorder, seconds: float) -> Job:
        settings = self.call.services.settings
        tools = self._permitted_tools(context, folder, recorder, seconds)
        self._offered = tools if getattr(self.call.services.runner, "uses_job_tools", False) else None
        context.tools = frozenset(tool.name for tool in tools)
        if self.task.mode == "goal":
            from delegate.engine.claims import TaskClaims  # loaded only in goal mode
            from delegate.engine.refusals import Refusals

            refused_before = self.resumed.start.get("refusals", ()) if self.resumed else ()
            judge = partial(self._judge_claim, context=context)
            read_only = frozenset(tool.name for tool in tools if tool.read_only)
            self._claims = TaskClaims(
                self.task,
                recorder,
                folder,
                judge,
                self.notify,
                refusals=Refusals(self.task, tools, refused_before),
                store=self._store_refusals,
                only_reads=read_only.__contains__,
                before=self.resumed.claims if self.resumed else (),
            )
        return Job(
            task=self.task,
            task_index=self.index,
            run_id=context.run.id,
            connection=self.connection,
            ceiling=self.call.ceiling,
            folder=folder,
            tools=tools,
            recorder=recorder,
            ledger=context.ledger,
            max_steps=min(self.task.max_steps or settings.max_steps, settings.max_steps),
            seconds=seconds,
            max_output_tokens=settings.max_output_tokens,
            effort=self.task.effort or settings.effort,
            notify=self.notify,
            waiting=self._waiting,
            claims=self._claims,
            readings=self.call.reading.known(self.handle).statements,
            done_before=self.resumed.transcript if self.resumed else "",
            incoming=self._incoming(),
        )

    def _incoming(self) -> Incoming:
        if not self.call.consumers_of("child.text"):
            return Incoming()
        from delegate.engine.live_text import LiveText  # loaded only where it is shown

        return LiveText(self.notify, redactor.text)

    def _permitted_tools(
        self, context: RunContext, folder: Folder, recorder: Recorder, seconds: float
    ) -> tuple[Tool, ...]:
        """The child's tools. If the policy could refuse one of their calls, they ask it."""
        settings = self.call.services.settings
        if not (settings.policy.restricts or settings.commands == "ask" or self.task.steps):
            return self._tools(context, folder)
        from delegate.child.permissions import Asker, Permissions  # loaded only where anything could be refused
        from delegate.child.steps import Steps

        ends = time.monotonic() + seconds
        steps = Steps(lambda: recorder.receipts, self.notify) if self.task.steps else None
        asker = Asker(
            on_approval=self.call.context.on_approval or self.call.services.on_approval,
            run_id=context.run.id,
            handle=self.handle,
            task_index=self.index,
            goal=self.task.goal,
            workspace=str(folder.root),
            notify=self.notify,
            waiting=self._waiting,
            waiting_for_check=self._reporting_wait,
            while_waiting=context.permit.released if context.permit else nullcontext,
        )
        self._permissions = permissions = Permissions(
            settings.policy,
            asker,
            ledger=context.ledger,
            seconds_left=lambda: ends - time.monotonic(),
            steps=steps,
        )
        tools = tuple(map(permissions.guarded, self._tools(context, folder)))
        return tools if steps is None else (*tools, *steps.offered(tools))

    def _tools(self, context: RunContext, folder: Folder) -> tuple[Tool, ...]:
        """Return the available tools that the task names, except those that its parent doesn't have."""
        services = self.call.services
        tools = self._host_tools(folder)
        if context.depth < services.settings.max_depth:
            tools = (*tools, services.child_delegate_tool())
            folder.expect_writers()  # the child's own children may work in it
        allowed = [names for names in (self.task.tools, self.call.context.tools) if names is not None]
        return tuple(tool for tool in tools if all(tool.name in names for names in allowed))

    def _host_tools(self, folder: Folder) -> tuple[Tool, ...]:
        services = self.call.services
        if services.host_tools is not None:
            return services.host_tools
        hosts = services.settings.fetch_hosts
        fetch = FetchPolicy(allowed_hosts=hosts) if hosts else None
        approve = self._permissions.command_approval() if self._permissions else None
        return toolbox(folder, services.commands, fetch=fetch, attachments=self._readable_media(), approve=approve)

    @property
    def _uses_toolbox(self) -> bool:
        """Whether only our own tools use the workspace, so that it is created when they need it."""
        services = self.call.services
        return services.host_tools is None and bool(getattr(services.runner, "uses_job_tools", False))

    def _readable_media(self) -> frozenset[str]:
        """Return the media types of files that the child's model can read, besides text."""
        model = self._model
        return frozenset() if model is None else readable_types(images=model.images, pdfs=model.pdfs)

    def _probe_tools(self) -> tuple[Tool, ...]:
        """Return the read-only tools that the caller may have called after the run."""
        has_probes = any(isinstance(criterion, ProbeCriterion) for criterion in self.task.criteria)
        if self.folder is None or not has_probes:
            return ()
        allowed = self.call.services.tools_of(self.call.context)
        return tuple(tool for tool in self._host_tools(self.folder) if tool.read_only and tool.name in allowed)

    def _state_tools(self) -> tuple[Tool, ...]:
        """Return the child's own tools with which a judge may look how things are: unguarded, since it only reads.

        The files of a workspace are looked at in another way, so of the toolbox only what reaches out is left.
        """
        services = self.call.services
        if self.folder is None or not services.settings.judge_looks or self._offered is None:
            return ()
        names = {tool.name for tool in self._offered}
        tools = [tool for tool in self._host_tools(self.folder) if tool.name in names]
        if services.host_tools is None:
            tools = [tool for tool in tools if tool.effects == frozenset(("network",))]
        if services.settings.policy.restricts:  # what reaches out may need an approval
            tools = [tool for tool in tools if tool.read_only]
        return tuple(tools)

    def _submission(self, child: ChildRun, task: Task) -> Submission:
        return Submission(
            task,
            child,
            self.folder,
            self.call.author,
            self._served(child),
            self.call.ceiling,
            has_receipts=self.call.services.records_tools,
            tools=self._offered,
            probe_tools=self._probe_tools(),
            state_tools=self._state_tools(),
            checks_before=self._before,
            approve=self._permissions.check_approval() if self._permissions else None,
        )


class _ChildDeadline(Deadline):
    """A child's deadline, which also expires when its workspace gets too large. It raises `WorkspaceTooLarge` then.

    That is found by `look`, which needs a task only where something may be too large.
    """

    def __init__(self, folder: Folder, cancellation: Cancellation, seconds: float, at_most: float | None) -> None:
        super().__init__(cancellation, seconds, at_most)
        self._folder = folder
        self._error: WorkspaceTooLarge | None = None
        self._is_running = False
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        await super().__aenter__()
        self._is_running = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        try:
            await super().__aexit__(kind, error, trace)
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            if self._looking is not None:
                self._looking.cancel()
                await asyncio.wait([self._looking])

    def look(self) -> None:
        """Look how large the workspace is, unless that is being done."""
        is_looking = self._looking is not None and not self._looking.done()
        if self._is_running and not is_looking and self._folder.may_be_too_large:
            self._looking = self._loop.create_task(self._check())

    async def _check(self) -> None:
        try:
            await self._folder.check_size(soon=False)
        except WorkspaceTooLarge as error:
            if not self.expired():
                self._error = error
                self.cancel()
