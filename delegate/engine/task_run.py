"""Runs one task of a call, from its workspace to its stored result."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from delegate._util.cancellation import Cancellation, contained, reraise_pending_cancel, run_stoppable
from delegate._util.redaction import logger, redactor
from delegate._util.semaphore import Permit
from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate.budget import costs
from delegate.budget.ledger import Amounts, Ledger, RunningChild
from delegate.budget.runs import RunContext, use_context
from delegate.child.job import Heard, Job, current_workspace
from delegate.child.loop import AgentLoop
from delegate.child.project_notes import ProjectNotes, is_own_project, read_notes
from delegate.engine import error_mapping
from delegate.engine.child_tools import ChildTools
from delegate.engine.deadline import ChildDeadline
from delegate.engine.fallback import MAX_MODELS, failed_model, has_done_nothing, next_connection
from delegate.engine.needs import obstacle
from delegate.engine.questions import Questions
from delegate.engine.results import goal_end, program, receipt_counts, report_of, structured_output
from delegate.engine.scope import CallScope
from delegate.engine.task_events import TaskEvents
from delegate.judging.reading.reader import PendingReading
from delegate.judging.submission import Submission
from delegate.models.catalog import Model
from delegate.models.connections import Connection
from delegate.models.providers import BuiltInClient
from delegate.models.tiers import weaker
from delegate.records.recorder import Recorder, is_large
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.worktree import merge_diff
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.telemetry import operations
from delegate.types import ChildRun, ErrorDetail, FailedModel, JsonObject, Task, TaskResult, Verdict
from delegate.types.errors import CallError, DelegateError, ProviderError, WorkspaceTooLarge
from delegate.types.events import ChildDone, ChildStarted, ChildText, MessageDelivered, VerdictGiven, WaitReason
from delegate.types.ports import Incoming

if TYPE_CHECKING:
    from delegate.engine.claims import TaskClaims
    from delegate.engine.resume import Resumed
    from delegate.judging.checks.before import ChecksBefore

GRACE_SECONDS = 10.0
"""How long a runner may take to stop after it was cancelled."""

_log = logger(__name__)


@dataclass(slots=True)
class TaskRun:
    """One task of a call and its state while it runs. `run` must be called only once."""

    call: CallScope
    index: int
    task: Task
    connection: Connection | None
    """The selected model and its client. None for runners that bring their own model."""
    handle: str
    resumed: "Resumed | None"
    ledger: Ledger
    """What it spends from, with other attempts at the task; within its own limits once it is created."""
    attempts: "Sequence[TaskRun]"
    """All attempts at the task, with this one. The criteria are read once for all of them, under the first handle."""
    needs: Mapping[str, "asyncio.Future[TaskResult]"] = field(default_factory=dict[str, "asyncio.Future[TaskResult]"])
    """The results of the tasks that must have a PASS before its child starts, by their names."""
    events: TaskEvents = field(init=False)
    permit: Permit = field(init=False)
    """The child's permit to run."""
    context: RunContext = field(init=False)
    """That of the calls that the child makes."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    """Stops this task alone."""
    folder: Folder | None = None
    result: TaskResult | None = None
    deadline: ChildDeadline | None = None
    _claims: "TaskClaims | None" = None
    _before: "ChecksBefore | None" = None
    """The shell checks on the files of before, while the child works."""
    _start: JsonObject | None = None
    """What is stored for a process that resumes it; None if the task can't be resumed."""
    _notes: ProjectNotes | None = None
    _tools: ChildTools | None = None
    _heard: list[Heard] = field(init=False)
    """The messages that the child has read, also before it was resumed, and on another model."""
    _questions: Questions | None = None
    _failed_models: list[FailedModel] = field(default_factory=list[FailedModel])
    _running_child: RunningChild | None = None
    """Its place among the children that make their own model calls."""

    def __post_init__(self) -> None:
        self.events = TaskEvents(self.call, self.index, self.handle)
        caller = self.call.context
        spent: Amounts = self.resumed.spent if self.resumed else {}  # the run has counted it
        self._heard = list(self.resumed.heard) if self.resumed else []
        # What a child with a model of its own spends is known only from a ledger of its own.
        ledger = self.ledger if self.connection else Ledger(parent=self.ledger)
        self.ledger = ledger.within("cost_usd", self.task.max_cost_usd, spent=spent.get("cost_usd", 0))
        self.permit = Permit(caller.run.permits)
        self.context = RunContext(
            caller.run,
            self.ledger.within("tokens", self.call.services.settings.max_tokens, spent=spent.get("tokens", 0)),
            caller.depth + 1,
            weaker(self._model.tier if self._model else None, caller.tier),
            self.permit,
            deadline=caller.deadline,
            on_approval=caller.on_approval,
        )

    async def run(self) -> TaskResult:
        """Run the task and store its result, however it ends. An error inside delegate fails only this task, never the
        host.
        """
        start, has_files, role = time.monotonic(), False, self.task.role
        traced = operations.agent(role=role, index=self.index, handle=self.handle, connection=self.connection)
        with self.call.cancellation.linked(self.cancellation), traced as operation:
            try:
                try:
                    child = await self._run_child()
                    has_files = any(artifact.change != "deleted" for artifact in child.artifacts)
                    self.events.notify(
                        ChildDone,
                        error=child.error.code if child.error else None,
                        artifacts=len(child.artifacts),
                        **shown(child, "status", "steps", "cost_usd", "seconds"),
                    )
                    child, verdict = self._claims.verdict_on(child) if self._claims else (child, None)
                    verdict = verdict or await self._judge(child, self.ledger)
                    verified = verdict is not None and verdict.verified
                    fields = shown(verdict, "verdict", "code", "decided_by", "level")
                    self.events.notify(VerdictGiven, verified=verified, **fields)
                finally:
                    if self._before is not None:
                        await self._before.close()
                    if self.folder is not None:
                        await self.folder.close(keep=has_files)
                result = await run_in_thread_if(is_large(child), partial(self._built, child, verdict, start))
                if self.call.context.depth:  # the costs of the root's tasks are in its result
                    self.call.context.delegated.append(costs.of_result(result))
                self.result = result = await self._save(child, result)
            except (Exception, SystemExit) as error:
                _log.exception("task %d failed inside delegate", self.index + 1)
                detail = ErrorDetail(code="internal_error", message=f"{type(error).__name__}: {error}")
                result = TaskResult(
                    verdict=None, task_index=self.index, status="failed", report="", error=detail, handle=self.handle
                )
                result = await self._save(ChildRun(status="failed", error=detail), result)
            else:
                reraise_pending_cancel()
            finally:
                self.events.done(self.result)
            operation.finished(result)
            return result

    def _built(self, child: ChildRun, verdict: Verdict | None, start: float) -> TaskResult:
        """The result of a task whose child has finished and, if the task has criteria, was judged."""
        settings, folder, requested, served = self.call.services.settings, self.folder, self._model, self._served(child)
        claims = tuple(self._claims.made) if self._claims else ()
        delegated = self.context.delegated
        below = costs.combined(delegated, sum(totals.seconds for totals in delegated)) if delegated else None
        judging = costs.of_judging(verdict, claims)
        whole = costs.of_task(child, judging, below)
        judging_usd = costs.sum_usd((judging.cost_usd, below.judge_cost_usd if below else 0))
        no_take_over = folder.no_take_over if folder else None
        return TaskResult(
            verdict=verdict,
            task_index=self.index,
            status=child.status,
            report=report_of(child, self.handle, settings.result_chars),
            structured_output=structured_output(self.task, child),
            artifacts=tuple(one for one in child.artifacts if one.path[:3] != "../"),  # without the diff of a worktree
            receipts=receipt_counts(child.receipts, recorded=self.call.services.runner_has("records_tools")),
            error=child.error,
            model=child.model or (requested.id if requested else None),
            requested_model=requested.id if requested else None,
            substituted=child.substituted,
            failed_models=tuple(self._failed_models),
            tier=served.tier if served else None,
            usage=child.usage,
            cost_usd=whole.cost_usd,
            cost_known_usd=whole.known_usd,
            cost_provenance=whole.provenance,
            verification_share=costs.share(judging_usd, whole.cost_usd),
            delegated=below,
            seconds=round(time.monotonic() - start, 6),
            goal_end=goal_end(self.task, child, verdict),
            claims=claims,
            workspace=str(folder.root) if folder and folder.root.is_dir() else None,
            take_over=f"{program()} take-over {self.handle}" if no_take_over == "" else None,
            no_take_over=no_take_over or None,
            handle=self.handle,
        )

    async def _save(self, child: ChildRun, result: TaskResult) -> TaskResult:
        self.result = result
        self.events.close()
        self.call.unfinished.discard(self.handle)
        return await self.call.services.records.save(child, result, now=not self.call.unfinished)

    def _judge(self, child: ChildRun, ledger: Ledger, task: Task | None = None) -> Awaitable[Verdict | None]:
        services, tools = self.call.services, self._tools
        others = [attempt for attempt in self.attempts if attempt is not self]
        known = (*services.known_tools(), *(self.context.tools or ())) if services.knows_tools else ()
        is_last = self._claims is None and all(other.result is not None for other in others)
        submission = Submission(
            task or self.task,
            child,
            self.folder,
            self.call.author,
            self._served(child),
            self.call.ceiling,
            has_receipts=services.runner_has("records_tools"),
            has_some_receipts=services.runner_has("records_some_tools"),
            tools=tools.offered if tools else None,
            known_tools=frozenset(known),
            probe_tools=tools.of_probes() if tools else (),
            state_tools=tools.of_judge() if tools else (),
            checks_before=self._before,
            approve=tools.permissions.check_approval() if tools and tools.permissions else None,
            messages=tuple(heard.text for heard in self._heard),
        )
        return services.judging.verdict(
            submission,
            ledger,
            self.events.notify,
            reading=PendingReading(self.call.reading, self.attempts[0].handle, is_last=is_last),
            seconds=self.call.context.seconds_left(),
            cancellation=self.cancellation,
        )

    async def _judge_claim(self, child: ChildRun, task: Task) -> Verdict | None:
        """Judge a claim, on the ledger of the child that waits for it. Others may run meanwhile."""
        async with self.permit.released():
            return await self._judge(child, self.context.ledger, task)

    async def _store_refusals(self, refusals: list[JsonObject]) -> None:
        """Store what judges refused, for another process that may have to go on with this task."""
        if self._start is not None and self.folder is not None:
            self._start["refusals"] = redactor.value(refusals)
            await self.call.services.records.opened(self.handle, self.folder.root, self._start)

    async def _run_child(self) -> ChildRun:
        """Run the child in its workspace, under its deadline: anew on another model, if one fails before the child has
        done anything.

        No exception of the runner gets past this method: it becomes the run's status, with everything recorded so far.
        This includes `CancelledError`, which is raised again after the result is stored (see `run`).
        """
        resumed = self.resumed
        recorder = Recorder(costs.UNOBSERVED if self.connection is None else None, journal=self.events.journal)
        if resumed is not None:
            recorder.restore(
                resumed.receipts, resumed.charge, steps=resumed.steps, report=resumed.report, seconds=resumed.seconds
            )
        try:
            job = await self._prepare(recorder)
            if isinstance(job, ChildRun):
                return job
            folder, deadline = job.folder, self.deadline
            assert deadline is not None
            try:
                async with deadline:
                    await self.call.services.records.opened(self.handle, folder.root, self._start)
                    child = recorder.finish("completed") if resumed and resumed.has_reported else None
                    with use_context(self.context):
                        while child is None:
                            try:
                                child = await self._started(job)
                            except ProviderError as error:
                                job = await self._job_on_other_model(job, error)
                child = await self._refuse_too_large(child, folder)
            except (Exception, asyncio.CancelledError) as error:
                status, detail = error_mapping.while_running(error, deadline, self.cancellation)
                if detail.code == "crashed":
                    _log.exception("the child of task %d crashed", self.index + 1)
                child = recorder.finish(status, error=detail)
            child = await run_in_thread_if(is_large(child), partial(recorder.redacted, child))
            artifacts = self._claims.artifacts_of(child) if self._claims else None
            if artifacts is None:
                artifacts = await folder.artifacts()
            found: dict[str, object] = {"artifacts": artifacts} if artifacts else {}
            found |= {"project_notes": self._notes.name} if self._notes else {}
            return child.model_copy(update=found) if found else child
        finally:
            if self._running_child is not None:
                self._running_child.leave()
            self.permit.release()

    async def _prepare(self, recorder: Recorder) -> Job | ChildRun:
        """Wait for a permit, and open the workspace. Returns what the child is to do, or why it can't start."""
        caller, cancellation, resumed = self.call.context, self.cancellation, self.resumed
        deadline = cancellation.deadline(caller.seconds_left())
        try:
            caller.refuse_if_over()
            async with deadline:
                if self.needs:
                    with self.events.reporting_wait("needs"):
                        await asyncio.wait(self.needs.values())
                obstacles = (obstacle(name, needed.result()) for name, needed in self.needs.items())
                if why := "; ".join(filter(None, obstacles)):
                    return recorder.finish("failed", error=ErrorDetail(code="blocked", message=why))
                with self.events.reporting_wait("permit" if caller.run.permits.is_full else None):
                    await self.permit.acquire()
                if self.connection is None:
                    self._running_child = await self.context.ledger.start_child(
                        may_wait=not caller.depth, while_waiting=self._waiting_for_budget
                    )
                folder = await self._open_folder()
        except (asyncio.CancelledError, DelegateError, OSError) as error:
            status, detail = error_mapping.before_start(error, deadline, cancellation)
            return recorder.finish(status, error=detail)
        own_seconds = min(self.task.timeout_seconds or math.inf, self.call.services.settings.timeout_seconds)
        own_seconds = max(0.0, own_seconds - resumed.seconds) if resumed else own_seconds
        self.deadline = ChildDeadline(folder, cancellation, own_seconds, caller.seconds_left())
        self._questions = self._asking()
        with use_context(self.context):
            job = self._job(folder, recorder, self.deadline.seconds)
        self.events.notify(ChildStarted, model=self._model.id if self._model else None, instead_of=None, reason=None)
        return job

    def _started(self, job: Job) -> Awaitable[ChildRun]:
        """The run of the child, which is awaited."""
        runner = self.call.services.runner
        if self._is_built_in:
            return runner.run(job)

        def left_behind() -> None:
            text = "the runner %s of task %d swallowed its cancel and was left behind after %g s"
            _log.warning(text, getattr(runner, "name", type(runner).__qualname__), self.index + 1, GRACE_SECONDS)

        # A task of its own can be left behind if it ignores a cancel.
        running = asyncio.ensure_future(contained(runner.run(job)))
        return run_stoppable(running, grace_seconds=GRACE_SECONDS, on_left_behind=left_behind)

    async def _job_on_other_model(self, job: Job, error: ProviderError) -> Job:
        """The job on another model of the tier. Raises the error of this one if there is none, or if the child may have
        done something.
        """
        services, connection = self.call.services, job.connection
        records_all = services.uses_job_tools and services.runner_has("records_tools")
        may_have_acted = self.context.delegated or not has_done_nothing(job.recorder.receipts, job.tools)
        if connection is None or not records_all or may_have_acted or len(self._failed_models) == MAX_MODELS - 1:
            raise error
        if (other := await next_connection(connection, error, services.connections, self.context.ledger)) is None:
            raise error
        self._failed_models.append(failed := failed_model(connection.model, error))
        self.events.notify(ChildStarted, model=other.model.id, instead_of=failed.model, reason=failed.error.message)
        self.connection = other
        seconds = self.deadline.seconds_left if self.deadline else None
        return self._job(job.folder, job.recorder, job.seconds if seconds is None else seconds)

    @property
    def _is_built_in(self) -> bool:
        """Whether the child runs no code of the host, so that a cancel is certain to end it."""
        services, connection = self.call.services, self.connection
        return (
            type(services.runner) is AgentLoop
            and services.host_tools is None
            and not self.call.server_tools
            and connection is not None
            and isinstance(connection.client, BuiltInClient)
            and (self._tools is None or self._tools.permissions is None)
            and self._claims is None
        )

    async def _refuse_too_large(self, child: ChildRun, folder: Folder) -> ChildRun:
        try:
            await folder.check_size()
        except WorkspaceTooLarge as error:
            if child.status == "completed":
                return child.model_copy(update={"status": "failed", "error": error_mapping.too_large(error)})
        return child

    @contextmanager
    def _waiting(self, reason: WaitReason | None = None) -> Generator[None]:
        """A wait of the child, which doesn't count as its own time."""
        assert self.deadline is not None
        with self.deadline.paused(), self.events.reporting_wait(reason):
            yield

    @asynccontextmanager
    async def _waiting_for_budget(self) -> AsyncGenerator[None]:
        with self.events.reporting_wait("budget"):
            async with self.permit.released():
                yield

    @property
    def _model(self) -> Model | None:
        return self.connection.model if self.connection else None

    def _served(self, child: ChildRun) -> Model | None:
        """Return the model that answered, or the selected one if the catalog doesn't have the reported name."""
        if self.connection is None:
            return None
        return self.connection.catalog.served(self.connection.model, child.model) or self.connection.model

    async def _open_folder(self) -> Folder:
        self.folder = folder = await self._own_folder()
        current_workspace.set(folder.root)  # until the asyncio task of this run ends, with checks and judge
        services, resumed = self.call.services, self.resumed
        if self.needs:
            await folder.give({name: needed.result() for name, needed in self.needs.items()})
        kinds = {criterion.kind for criterion in self.task.criteria}
        has_shell = "shell" in kinds
        # Where only our own tools use the folder, they make it when they need it.
        if has_shell or services.host_tools is not None or not services.uses_job_tools:
            folder.make()
        # A judge may run commands on what the child leaves, and there may be something now that decides them.
        may_be_run = not kinds.isdisjoint(("text", "question", "rubric")) and bool(services.settings.judge_looks)
        may_be_run = may_be_run and folder.exists and services.commands.confines()
        if (has_shell or may_be_run) and (resumed is None or resumed.start is None):
            await folder.record_start()
        if has_shell:
            from delegate.judging.checks.before import ChecksBefore  # loaded only where commands run

            self._before = ChecksBefore(self.task, folder, services.commands, self.call.author)
            self._before.start()
        if services.runner_has("reads_record") and not self.call.context.depth:
            self._start = (resumed.start if resumed else None) or await self._start_of(folder)
        if resumed is not None and (diff := resumed.diff) is not None:  # a new worktree gets what an earlier one had
            problem = await merge_diff(folder.root, await run_in_thread(diff.read_bytes))
            if problem:
                message = f"the work in {diff} can't be gone on with: {problem}"
                raise CallError("cannot_message", message, hint="delegate a new task")
        reads_them = isinstance(services.runner, AgentLoop) and services.settings.project_notes
        if reads_them and is_own_project(self.task.workspace):
            self._notes = await run_in_thread(partial(read_notes, folder.root))
        return folder

    async def _own_folder(self) -> Folder:
        """Open the workspace, anew or where a lost process left it. In a shared folder, two running children can't
        write the same file.
        """
        settings, resumed, run = self.call.services.settings, self.resumed, self.call.context.run
        home, who = settings.home / "workspaces", f"task {self.index + 1} of this run"
        locks = self.call.services.write_locks.setdefault(run, WriteLocks())
        max_bytes = (math.inf if settings.max_workspace_mb is None else settings.max_workspace_mb) * 1e6
        if resumed is not None and resumed.workspace and resumed.start is not None:
            from delegate.sandbox.workspace.start_state import reopen  # loaded only where it is needed

            root = Path(resumed.workspace)
            return await reopen(root, resumed.start, home=home, write_locks=locks, who=who, max_bytes=max_bytes)
        return await Folder.open(self.task.workspace, home=home, write_locks=locks, who=who, max_bytes=max_bytes)

    async def _start_of(self, folder: Folder) -> JsonObject | None:
        """What has to be stored of a folder that was just opened, so that its task can be resumed; None if it can't."""
        from delegate.sandbox.workspace.start_state import start_state

        tools = self.call.context.tools
        also = {"tier": self.call.context.tier, "tools": None if tools is None else sorted(tools)}
        state = await run_in_thread_if(not folder.is_empty, partial(start_state, folder))
        return state and {**state, **also}

    def _job(self, folder: Folder, recorder: Recorder, seconds: float) -> Job:
        settings = self.call.services.settings
        self._tools = ChildTools(self.call, self.task, self.connection, folder)
        tools = self._tools.offer(self.context, recorder, self.events, self._waiting, seconds)
        if self.task.mode == "goal":
            from delegate.engine.claims import Refusals, TaskClaims  # loaded only in goal mode

            refused_before = self._start.get("refusals", ()) if self._start else ()
            self._claims = TaskClaims(
                self.task,
                recorder,
                folder,
                self._judge_claim,
                self.events.notify,
                refusals=Refusals(self.task, tools, refused_before),
                store=self._store_refusals,
                made=list(self.resumed.claims) if self.resumed else [],
            )
        incoming = Incoming()
        if self.call.consumers_of(ChildText):
            from delegate.engine.live_text import LiveText  # loaded only where it is shown

            incoming = LiveText(self.events.notify, redactor.text)
        return Job(
            task=self.task,
            notes=self._notes,
            task_index=self.index,
            run_id=self.context.run.id,
            connection=self.connection,
            ceiling=self.call.ceiling,
            folder=folder,
            tools=tools,
            recorder=recorder,
            ledger=self.context.ledger,
            max_steps=min(self.task.max_steps or settings.max_steps, settings.max_steps),
            seconds=seconds,
            max_output_tokens=settings.max_output_tokens,
            effort=self.task.effort or settings.effort,
            notify=self.events.notify,
            waiting=self._waiting,
            claims=self._claims,
            readings=self.call.reading.known(self.attempts[0].handle).statements,
            done_before=self.resumed.transcript if self.resumed else "",
            heard=tuple(map(str, self._heard)),
            continues=self.resumed is not None and self.resumed.continues,
            messages=self._take_messages,
            ask_parent=self._questions.tool if self._questions else None,
            guarded=self._tools.guarded,
            flush=self.call.services.records.flush,
            incoming=incoming,
        )

    async def _take_messages(self) -> Sequence[str]:
        taken = await self.call.services.records.take_messages(self.handle)
        for id, text, n in taken:
            heard = self._questions.heard(n, text) if n and self._questions else Heard(text, "")
            self.events.notify(MessageDelivered, id=id, text=heard.text, question=heard.question)
            self._heard.append(heard)
        return [str(heard) for heard in self._heard[-len(taken) :]] if taken else ()

    def _asking(self) -> Questions | None:
        """By what the child asks its parent. None if its runner can't, or nobody could answer."""
        services, caller = self.call.services, self.call.context
        on_question, seconds = caller.on_question, services.settings.parent_answer_seconds
        if on_question is None or not seconds or caller.depth or not isinstance(services.runner, AgentLoop):
            return None

        def most() -> float:  # what comes after the answer needs time too
            left = caller.seconds_left()
            return seconds if left is None else min(seconds, left / 2)

        asked = list(self.resumed.asked) if self.resumed else []
        return Questions(
            self.task.goal, self.events, services.records, on_question, most, self._waiting, self.permit.released, asked
        )


def shown(of: ChildRun | TaskResult | Verdict | None, *names: str) -> JsonObject:
    """What is shown of a run, a result or a verdict; None for all of a verdict that there isn't."""
    return {name: getattr(of, name, None) for name in names}
