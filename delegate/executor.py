"""Runs the tasks of one call side by side and gives each exactly one result, with its verdict.

    task ──▶ workspace ──▶ child, under its deadline ──▶ artifacts ──▶ verdict ──▶ result, stored

A child is run once. Whatever happens to it (an error, a timeout, a limit) becomes its result; only a cancel from
outside travels up. Each result is judged as soon as its child ends, in a lane of its own: a judge never holds a
child's place.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from delegate import bill
from delegate.cancellation import Cancellation, Limit, let_cancel_travel, to_its_end
from delegate.catalog import Model
from delegate.child.fetch import FetchPolicy
from delegate.child.job import ChildRunner, Job
from delegate.child.toolbox import toolbox
from delegate.errors import BudgetExceeded, CallError, DelegateError, ProviderError, TierExceeded
from delegate.judging import Case, Judging
from delegate.judging.case import Author
from delegate.judging.output import parse_json
from delegate.ledger import Ledger
from delegate.metered import Connection
from delegate.ports import Event, EventKind, EventSink, Tool
from delegate.recorder import Recorder, encodable
from delegate.records import Records
from delegate.redaction import Redactor, logger
from delegate.runs import Caller, Run, calling
from delegate.sandbox.claims import Claims
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import Folder
from delegate.settings import Settings
from delegate.slots import Seat
from delegate.tiers import weaker
from delegate.types import (
    ChildRun,
    ErrorDetail,
    JsonObject,
    Receipt,
    ReceiptCounts,
    Report,
    RunStatus,
    Task,
    TaskResult,
    Tier,
    Totals,
    Verdict,
)

_log = logger(__name__)

_SETTINGS = {
    "cost_usd": "max_cost_usd (of the task or in the settings)",
    "model_calls": "max_run_model_calls",
    "tokens": "max_tokens or max_run_tokens",
}
"""What an operator sets for a limit of the ledger."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task and the way to the model that will work on it; None for runners that bring their own."""

    task: Task
    connection: Connection | None

    @property
    def model(self) -> Model | None:
        """The model that was chosen."""
        return self.connection.model if self.connection else None

    def served(self, child: ChildRun) -> Model | None:
        """The model that really worked; the chosen one, where the provider's name for it isn't known."""
        way = self.connection
        return way and (way.catalog.served(way.model, child.model) or way.model)


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
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Run all assignments; the report's results stand in their order."""
        started = time.monotonic()
        ceiling = caller.bounds(self.settings).ceiling
        with (cancellation or Cancellation()).part() as own:
            call = _Call(caller, author, ceiling, own, self.records, Redactor(), on_event)
            orders = [_Order(call, n, assignment, caller.run.next_handle()) for n, assignment in enumerate(assignments)]
            results = await to_its_end(self._all(call, orders), own)
        totals = bill.totals(results, time.monotonic() - started)
        return Report(results=results, totals=totals, run_id=caller.run.id)

    async def _all(self, call: "_Call", orders: Sequence["_Order"]) -> tuple[TaskResult, ...]:
        """The results of all tasks, which are on record before the first begins."""
        tasks = [(order.handle, order.task) for order in orders]
        await self.records.begin(call.caller.run.id, tasks, depth=call.caller.depth, redactor=call.redactor)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._one(order)) for order in orders]
        return tuple(task.result() for task in running)

    async def _one(self, order: "_Order") -> TaskResult:
        """One task's one result: a fault of ours costs this task, and neither its siblings nor the host."""
        try:
            return await self._work(order)
        except Exception as error:
            _log.exception("task %d failed inside delegate", order.index)
            detail = ErrorDetail(code="internal_error", message=f"{type(error).__name__}: {error}")
            result = TaskResult(
                verdict=None, task_index=order.index, status="failed", summary="", error=detail, handle=order.handle
            )
            child = ChildRun(status="failed", error=detail)
            return await self.records.save(child, result, redactor=order.call.redactor)

    async def _work(self, order: "_Order") -> TaskResult:
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
        result = self._result(order, child, verdict, child_caller.delegated, time.monotonic() - started)
        order.caller.book(bill.of_result(result))
        result = await self.records.save(child, result, redactor=order.call.redactor)
        let_cancel_travel()
        return result

    async def _in_its_turn(self, order: "_Order", as_caller: Caller, seat: Seat) -> ChildRun:
        """Wait for a place, open the workspace, and run the child in it."""
        unseen = bill.UNSEEN if order.model is None else None
        recorder = Recorder(unseen, journal=order.journal, redactor=order.call.redactor)
        async with AsyncExitStack() as place:
            limit = order.call.cancellation.limit(order.caller.seconds_left())
            try:
                order.caller.refuse_if_over()
                async with limit:
                    await place.enter_async_context(seat)
                    order.folder = folder = await self._open(order)
            except (asyncio.CancelledError, DelegateError, OSError) as error:
                status, detail = _never_began(order, limit, error)
                return recorder.finish(status, error=detail)
            return await self._child(order, as_caller, folder, recorder)

    async def _child(self, order: "_Order", as_caller: Caller, folder: Folder, recorder: Recorder) -> ChildRun:
        """Run the child, and see what it left in its workspace."""
        self.records.opened(order.handle, folder.root)
        with calling(as_caller):
            job = self._job(order, as_caller, folder, recorder)
            order.notify("child_started", order.model.id if order.model else "")
            child = recorder.redacted(await self._run_child(order, job))
        artifacts = await folder.artifacts()
        return child.model_copy(update={"artifacts": artifacts}) if artifacts else child

    async def _open(self, order: "_Order") -> Folder:
        """The workspace. In a folder that several children share, the first to write a file keeps it."""
        claims = self.claims.setdefault(order.caller.run, Claims())
        who = f"task {order.index} of this run"
        return await Folder.open(order.task.workspace, home=self.settings.home / "workspaces", claims=claims, who=who)

    async def _run_child(self, order: "_Order", job: Job) -> ChildRun:
        """The isolation boundary: whatever the runner raises becomes the run's status, with all it had so far."""
        finish, left = job.recorder.finish, order.caller.seconds_left()
        own = min(job.task.timeout_seconds or math.inf, self.settings.timeout_seconds)
        seconds = own if left is None else min(own, left)
        limit = order.call.cancellation.limit(seconds)
        try:
            async with limit:
                return await self.runner.run(job)
        except asyncio.CancelledError:  # it travels up when what there is has been kept: see `_work`
            return finish("cancelled", error=_CANCELLED)
        except BudgetExceeded as error:
            return finish("budget_exceeded", error=_spent_up(error))
        except TierExceeded as error:
            return finish("failed", error=_detail("tier_above_parent", error))
        except ProviderError as error:
            return finish("failed", error=_detail(error.fault, error))
        except Exception as error:
            if limit.expired() and order.call.cancellation.cancelled:
                return finish("cancelled", error=_CANCELLED)
            if limit.expired():
                of_run = ", which the run had left" if seconds == left else ""
                message = f"ran longer than {seconds:.6g} s{of_run}"
                return finish("timeout", error=ErrorDetail(code="timeout", message=message))
            _log.exception("the child of task %d crashed", job.task_index)
            return finish("failed", error=ErrorDetail(code="crashed", message=f"{type(error).__name__}: {error}"))

    def _job(self, order: "_Order", as_caller: Caller, folder: Folder, recorder: Recorder) -> Job:
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

    def _tools(self, order: "_Order", as_caller: Caller, folder: Folder) -> tuple[Tool, ...]:
        """What the child may use: what the task names of what there is, and nothing that its parent hasn't."""
        tools = self.host_tools
        if tools is None:
            tools = toolbox(folder, self.commands, fetch=FetchPolicy(allowed_hosts=self.settings.fetch_hosts))
        if as_caller.depth < self.settings.max_depth:
            tools = (*tools, self.delegation())
        allowed = [names for names in (order.task.tools, order.caller.tools) if names is not None]
        return tuple(tool for tool in tools if all(tool.name in names for names in allowed))

    async def _verdict(self, order: "_Order", child: ChildRun, ledger: Ledger) -> Verdict | None:
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

    def _result(
        self,
        order: "_Order",
        child: ChildRun,
        verdict: Verdict | None,
        delegated: Sequence[Totals],
        seconds: float,
    ) -> TaskResult:
        below = bill.combined(delegated, sum(one.seconds for one in delegated)) if delegated else None
        whole = bill.of_task(child, verdict, below)
        return TaskResult(
            verdict=verdict,
            task_index=order.index,
            status=child.status,
            summary=_cut(child.output, self.settings.result_chars, order.handle),
            structured_output=_structured(order.task, child),
            artifacts=child.artifacts,
            receipts=_counts(child.receipts, recorded=self._records_tools),
            error=child.error,
            model=child.model or (order.model.id if order.model else None),
            requested_model=order.model.id if order.model else None,
            substituted=child.substituted,
            tier=worker.tier if (worker := order.assignment.served(child)) else None,
            usage=child.usage,
            cost_usd=whole.cost_usd,
            cost_known_usd=whole.known_usd,
            cost_provenance=whole.provenance,
            verification_share=bill.share(
                bill.sum_usd((bill.of_judge(verdict).cost_usd, below.judge_cost_usd if below else 0)), whole.cost_usd
            ),
            delegated=below,
            seconds=round(seconds, 6),
            workspace=str(order.folder.root) if order.folder and order.folder.root.is_dir() else None,
            handle=order.handle,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """What the tasks of one call share."""

    caller: Caller
    author: Author
    ceiling: Tier
    cancellation: Cancellation
    records: Records
    redactor: Redactor
    on_event: EventSink | None


@dataclass(slots=True)
class _Order:
    """One task of a call, on its way to its result."""

    call: _Call
    index: int
    assignment: Assignment
    handle: str
    folder: Folder | None = None
    """The workspace, once it is open."""

    @property
    def task(self) -> Task:
        return self.assignment.task

    @property
    def model(self) -> Model | None:
        return self.assignment.model

    @property
    def caller(self) -> Caller:
        return self.call.caller

    def as_caller(self, ledger: Ledger, seat: Seat) -> Caller:
        """The child as one that may delegate in its turn."""
        tier = weaker(self.model.tier if self.model else None, self.caller.tier)
        deadline = self.caller.deadline
        return Caller(self.caller.run, ledger, self.caller.depth + 1, tier, seat, deadline=deadline)

    def journal(self, kind: str, data: str | JsonObject) -> None:
        """Put on record what the child just did."""
        self.call.records.event(self.handle, kind, data)

    def notify(self, kind: EventKind, text: str = "", **data: Any) -> None:
        """Tell whoever shows progress what happened to this task."""
        text = self.call.redactor.text(text)
        if kind not in ("model_called", "tool_called"):  # those the recorder writes, in full
            self.journal(kind, {"text": text, **data})
        if self.call.on_event is None:
            return
        try:
            self.call.on_event(Event(kind, self.index, text, data))
        except Exception:  # a broken progress display must not cost the work
            _log.exception("the event sink failed")


_CANCELLED = ErrorDetail(code="cancelled", message="stopped from outside before it ended")
_TOO_LATE = ErrorDetail(code="budget_exceeded", message="the time was up before it could begin")


def _never_began(order: _Order, limit: Limit, error: BaseException) -> tuple[RunStatus, ErrorDetail]:
    """How a child ended that didn't get a place or a workspace."""
    if isinstance(error, asyncio.CancelledError) or (limit.expired() and order.call.cancellation.cancelled):
        return "cancelled", _CANCELLED
    if limit.expired():
        return "budget_exceeded", _TOO_LATE
    if isinstance(error, BudgetExceeded):
        return "budget_exceeded", _spent_up(error)
    if isinstance(error, CallError):
        return "failed", ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)
    return "failed", _detail("workspace", error)


def _detail(code: str, error: BaseException) -> ErrorDetail:
    return ErrorDetail(code=code, message=str(error))


def _spent_up(error: BudgetExceeded) -> ErrorDetail:
    hint = f"raise {_SETTINGS.get(error.limit, error.limit)} to allow more"
    return ErrorDetail(code="budget_exceeded", message=str(error), hint=hint)


def _cut(output: str, limit: int, handle: str) -> str:
    if len(output) <= limit:
        return output
    return f"{output[:limit]}\n[cut here: {len(output) - limit} more characters, to be read by handle {handle}]"


def _structured(task: Task, child: ChildRun) -> Any:
    if task.output_schema is None or child.status != "completed":
        return None
    try:
        return encodable(parse_json(child.output))
    except ValueError:
        return None


def _counts(receipts: Sequence[Receipt], *, recorded: bool) -> ReceiptCounts:
    statuses = [receipt.status for receipt in receipts]
    succeeded = [receipt.tool for receipt in receipts if receipt.status == "ok"]
    return ReceiptCounts(
        recorded=recorded,
        total=len(receipts),
        ok=statuses.count("ok"),
        error=statuses.count("error"),
        denied=statuses.count("denied"),
        timeout=statuses.count("timeout"),
        tools={tool: succeeded.count(tool) for tool in dict.fromkeys(succeeded)},
    )
