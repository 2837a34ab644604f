"""Runs the tasks of one call side by side and gives each exactly one result, with its verdict.

    task ──▶ workspace ──▶ child, under its deadline ──▶ artifacts ──▶ verdict ──▶ result, stored

A child is run once. Whatever happens to it (an error, a timeout, a limit) becomes its result; only a cancel from
outside travels up. Each result is judged as soon as its child ends, in a lane of its own: a judge never holds a
child's place. A task on its way is an `orders.Order`; what an error comes to is in `endings`, how a result is made in
`results`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from delegate._util.cancellation import Cancellation, let_cancel_travel, to_its_end
from delegate._util.redaction import Redactor, logger
from delegate._util.semaphore import Seat
from delegate.budget import costs
from delegate.budget.ledger import Ledger
from delegate.budget.runs import Caller, Run, calling
from delegate.child.fetch import FetchPolicy
from delegate.child.job import ChildRunner, Job
from delegate.child.toolbox import toolbox
from delegate.engine import error_mapping
from delegate.engine.results import result_of, result_of_a_fault
from delegate.engine.task_run import Assignment, Call, Order
from delegate.errors import DelegateError
from delegate.judging import Case, Judging
from delegate.judging.submission import Author
from delegate.ports import EventSink, Tool
from delegate.records.history import Records
from delegate.records.recorder import Recorder
from delegate.sandbox.claims import Claims
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import Folder
from delegate.settings import Settings
from delegate.types import ChildRun, Report, TaskResult, Verdict

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Executor:
    """What all runs of one delegator share."""

    settings: Settings
    runner: ChildRunner
    judging: Judging
    commands: Commands
    records: Records
    delegation: Callable[[], Tool]
    """Makes the tool with which a child may delegate in its turn, where the depth allows it."""
    host_tools: tuple[Tool, ...] | None = None
    """Tools that children get in place of the toolbox."""
    claims: WeakKeyDictionary[Run, Claims] = field(default_factory=WeakKeyDictionary[Run, Claims])
    """Which task writes which file of a shared folder."""

    @property
    def _records_tools(self) -> bool:
        """Whether the runner records tool calls; one that doesn't say so, as a host's may not, doesn't."""
        return bool(getattr(self.runner, "records_tools", False))

    async def execute(
        self,
        assignments: Sequence[Assignment],
        *,
        caller: Caller,
        author: Author,
        first: int = 0,
        sinks: tuple[EventSink, ...] = (),
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Run all assignments; the report's results stand in their order, and are numbered from `first`."""
        started = time.monotonic()
        ceiling = caller.bounds(self.settings).ceiling
        with (cancellation or Cancellation()).part() as own:
            call = Call(caller, author, ceiling, own, self.records, Redactor(), sinks)
            orders = [Order(call, n, one, caller.run.next_handle()) for n, one in enumerate(assignments, first)]
            results = await to_its_end(self._all(call, orders, first), own)
        totals = costs.totals(results, time.monotonic() - started)
        return Report(results=results, totals=totals, run_id=caller.run.id)

    async def _all(self, call: Call, orders: Sequence[Order], first: int) -> tuple[TaskResult, ...]:
        """The results of all tasks, which are on record before the first begins."""
        run_id, depth = call.caller.run.id, call.caller.depth
        tasks = [(order.handle, order.task) for order in orders]
        await self.records.begin(run_id, tasks, first=first, depth=depth, redactor=call.redactor)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._one(order)) for order in orders]
        return tuple(task.result() for task in running)

    async def _one(self, order: Order) -> TaskResult:
        """One task's one result: a fault of ours costs this task, and neither its siblings nor the host."""
        try:
            return await self._work(order)
        except Exception as error:
            _log.exception("task %d failed inside delegate", order.index)
            result = result_of_a_fault(order, error)
            child = ChildRun(status="failed", error=result.error)
            return await self.records.save(child, result, redactor=order.call.redactor)

    async def _work(self, order: Order) -> TaskResult:
        """One task from its workspace to its stored result."""
        started = time.monotonic()
        left_files = False
        ledger = Ledger({"cost_usd": order.task.max_cost_usd}, parent=order.caller.ledger)
        seat = Seat(order.caller.run.slots)
        child_caller = order.as_caller(Ledger({"tokens": self.settings.max_tokens}, parent=ledger), seat)
        try:
            child = await self._in_its_turn(order, child_caller, seat)
            left_files = any(artifact.change != "deleted" for artifact in child.artifacts)
            order.notify("child_ended", child.status)
            verdict = await self._verdict(order, child, ledger)
            order.notify("judged", verdict.verdict if verdict else "no criteria")
        finally:
            if order.folder is not None:
                await order.folder.close(keep=left_files)
        result = result_of(
            order,
            child,
            verdict,
            delegated=child_caller.delegated,
            recorded=self._records_tools,
            seconds=time.monotonic() - started,
            chars=self.settings.result_chars,
        )
        order.caller.book(costs.of_result(result))
        result = await self.records.save(child, result, redactor=order.call.redactor)
        let_cancel_travel()
        return result

    async def _in_its_turn(self, order: Order, as_caller: Caller, seat: Seat) -> ChildRun:
        """Wait for a place, open the workspace, and run the child in it."""
        unseen = costs.UNSEEN if order.model is None else None
        recorder = Recorder(unseen, journal=order.journal, redactor=order.call.redactor)
        async with AsyncExitStack() as place:
            limit = order.call.cancellation.limit(order.caller.seconds_left())
            try:
                order.caller.refuse_if_over()
                async with limit:
                    await place.enter_async_context(seat)
                    order.folder = folder = await self._open(order)
            except (asyncio.CancelledError, DelegateError, OSError) as error:
                status, detail = error_mapping.before_it_began(error, limit, order.call.cancellation)
                return recorder.finish(status, error=detail)
            return await self._child(order, as_caller, folder, recorder)

    async def _child(self, order: Order, as_caller: Caller, folder: Folder, recorder: Recorder) -> ChildRun:
        """Run the child, and see what it left in its workspace."""
        self.records.opened(order.handle, folder.root)
        with calling(as_caller):
            job = self._job(order, as_caller, folder, recorder)
            order.notify("child_started", order.model.id if order.model else "")
            child = recorder.redacted(await self._run_child(order, job))
        artifacts = await folder.artifacts()
        return child.model_copy(update={"artifacts": artifacts}) if artifacts else child

    async def _open(self, order: Order) -> Folder:
        """The workspace. In a folder that several children share, the first to write a file keeps it."""
        claims = self.claims.setdefault(order.caller.run, Claims())
        who = f"task {order.index} of this run"
        return await Folder.open(order.task.workspace, home=self.settings.home / "workspaces", claims=claims, who=who)

    async def _run_child(self, order: Order, job: Job) -> ChildRun:
        """The isolation boundary: whatever the runner raises becomes the run's status, with all it had so far."""
        own, left = job.task.timeout_seconds or math.inf, order.caller.seconds_left()
        seconds = min(own, self.settings.timeout_seconds, math.inf if left is None else left)
        limit = order.call.cancellation.limit(seconds)
        try:
            async with limit:
                return await self.runner.run(job)
        except (Exception, asyncio.CancelledError) as error:  # a cancel travels up when all is kept: see `_work`
            allowed = f"{seconds:.6g} s{', which the run had left' if seconds == left else ''}"
            status, detail = error_mapping.at_work(error, limit, order.call.cancellation, allowed=allowed)
            if detail.code == "crashed":
                _log.exception("the child of task %d crashed", order.index)
            return job.recorder.finish(status, error=detail)

    def _job(self, order: Order, as_caller: Caller, folder: Folder, recorder: Recorder) -> Job:
        task, settings = order.task, self.settings
        tools = self._tools(order, as_caller, folder)
        as_caller.tools = frozenset(tool.name for tool in tools)
        return Job(
            task=task,
            task_index=order.index,
            run_id=order.caller.run.id,
            connection=order.assignment.connection,
            ceiling=order.call.ceiling,
            folder=folder,
            tools=tools,
            recorder=recorder,
            ledger=as_caller.ledger,
            max_steps=min(task.max_steps or settings.max_steps, settings.max_steps),
            max_output_tokens=settings.max_output_tokens,
            notify=order.notify,
        )

    def _tools(self, order: Order, as_caller: Caller, folder: Folder) -> tuple[Tool, ...]:
        """What the child may use: what the task names of what there is, and nothing that its parent hasn't."""
        tools = self.host_tools
        if tools is None:
            tools = toolbox(folder, self.commands, fetch=FetchPolicy(allowed_hosts=self.settings.fetch_hosts))
        if as_caller.depth < self.settings.max_depth:
            tools = (*tools, self.delegation())
        allowed = [names for names in (order.task.tools, order.caller.tools) if names is not None]
        return tuple(tool for tool in tools if all(tool.name in names for names in allowed))

    async def _verdict(self, order: Order, child: ChildRun, ledger: Ledger) -> Verdict | None:
        worker = order.assignment.served(child)
        case = Case(
            order.task,
            child,
            order.folder,
            order.call.author,
            worker,
            order.call.ceiling,
            has_receipts=self._records_tools,
            redactor=order.call.redactor,
        )
        return await self.judging.verdict(
            case, ledger, order.notify, seconds=order.caller.seconds_left(), cancellation=order.call.cancellation
        )
