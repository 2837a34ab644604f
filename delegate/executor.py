"""Runs the tasks of one call side by side and gives each exactly one result, with its verdict.

    task ──▶ workspace ──▶ child, under its deadline ──▶ artifacts ──▶ verdict ──▶ result, stored

A child is run once. Whatever happens to it (an error, a timeout, a limit) becomes its result; only a cancel from
outside travels up. Each result is judged as soon as its child ends, in a lane of its own: a judge never holds a
child's place.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from delegate.catalog import Model
from delegate.child.fetch import FetchPolicy
from delegate.child.job import ChildRunner, Job
from delegate.child.toolbox import toolbox
from delegate.errors import BudgetExceeded, DelegateError, ProviderError
from delegate.judging import Case, Judging
from delegate.judging.case import Author
from delegate.judging.output import parse_json
from delegate.ledger import Ledger
from delegate.ports import ChatClient, Event, EventKind, EventSink, Notify, Tool
from delegate.recorder import Recorder, encodable
from delegate.records import Records, new_run_id
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import Folder
from delegate.settings import Settings
from delegate.types import (
    ChildRun,
    ErrorDetail,
    Receipt,
    ReceiptCounts,
    Report,
    Task,
    TaskResult,
    Totals,
    Usage,
    Verdict,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task and the model that will work on it. Both are None-able for runners that bring their own model."""

    task: Task
    model: Model | None
    client: ChatClient | None


@dataclass(frozen=True, slots=True)
class Executor:
    """What all runs of one delegator share."""

    settings: Settings
    runner: ChildRunner
    judging: Judging
    commands: Commands
    records: Records
    host_tools: tuple[Tool, ...] | None = None
    """Tools that children get in place of the toolbox."""

    async def execute(
        self, assignments: Sequence[Assignment], *, author: Author, on_event: EventSink | None = None
    ) -> Report:
        """Run all assignments; the report's results stand in their order."""
        started = time.monotonic()
        run = _Run(
            Ledger({"cost_usd": self.settings.max_cost_usd}),
            asyncio.Semaphore(self.settings.max_concurrent),
            author,
            on_event,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(run, index, one)) for index, one in enumerate(assignments)]
        results = tuple(task.result() for task in tasks)
        return Report(results=results, totals=_totals(results, time.monotonic() - started), run_id=run.id, error=None)

    async def _one(self, run: "_Run", index: int, assignment: Assignment) -> TaskResult:
        """One task's one result: a fault of ours costs this task, and neither its siblings nor the host."""
        try:
            return await self._work(run, index, assignment)
        except Exception as error:
            _log.exception("task %d failed inside delegate", index)
            detail = ErrorDetail(code="internal_error", message=f"{type(error).__name__}: {error}")
            return TaskResult(verdict=None, task_index=index, status="failed", summary="", error=detail)

    async def _work(self, run: "_Run", index: int, assignment: Assignment) -> TaskResult:
        """One task from its workspace to its stored result."""
        notify = run.notify(index)
        started = time.monotonic()
        folder, left_files = None, False
        try:
            async with run.slots:
                folder, child = await self._child(run, index, assignment, notify)
            left_files = any(artifact.change != "deleted" for artifact in child.artifacts)
            notify("child_ended", child.status)
            verdict = await self._verdict(run, assignment, folder, child, notify)
            notify("judged", verdict.verdict if verdict else "no criteria")
        finally:
            if folder is not None:
                await folder.close(keep=left_files)
        seconds = time.monotonic() - started
        result = self._result(f"{run.id}-{index}", index, assignment, folder, child, verdict, seconds)
        return await self.records.save(run.id, assignment.task, child, result)

    async def _child(
        self, run: "_Run", index: int, assignment: Assignment, notify: Notify
    ) -> tuple[Folder | None, ChildRun]:
        """Open the workspace, run the child in it, and see what it left there."""
        recorder = Recorder(None if assignment.model is None else 0.0)
        try:
            folder = await Folder.open(assignment.task.workspace, home=self.settings.home / "workspaces")
        except (DelegateError, OSError) as error:
            return None, recorder.finish("failed", error=ErrorDetail(code="workspace", message=str(error)))
        job = self._job(run, index, assignment, folder, recorder, notify)
        notify("child_started", assignment.model.id if assignment.model else "")
        child = await self._run_child(job)
        artifacts = await folder.artifacts()
        return folder, child.model_copy(update={"artifacts": artifacts}) if artifacts else child

    async def _run_child(self, job: Job) -> ChildRun:
        """The isolation boundary: whatever the runner raises becomes the run's status, with all it had so far."""
        limit = min(job.task.timeout_seconds or math.inf, self.settings.timeout_seconds)
        finish = job.recorder.finish
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                return await self.runner.run(job)
        except BudgetExceeded as error:
            return finish("budget_exceeded", error=ErrorDetail(code="budget_exceeded", message=str(error)))
        except ProviderError as error:
            return finish("failed", error=ErrorDetail(code=error.fault, message=str(error)))
        except Exception as error:
            if deadline.expired():
                return finish("timeout", error=ErrorDetail(code="timeout", message=f"ran longer than {limit:g} s"))
            _log.exception("the child of task %d crashed", job.task_index)
            return finish("failed", error=ErrorDetail(code="crashed", message=f"{type(error).__name__}: {error}"))

    def _job(
        self, run: "_Run", index: int, assignment: Assignment, folder: Folder, recorder: Recorder, notify: Notify
    ) -> Job:
        task, settings = assignment.task, self.settings
        tools = self.host_tools
        if tools is None:
            tools = toolbox(folder, self.commands, fetch=FetchPolicy(allowed_hosts=settings.fetch_hosts))
        return Job(
            task=task,
            task_index=index,
            run_id=run.id,
            model=assignment.model,
            client=assignment.client,
            folder=folder,
            tools=tuple(tool for tool in tools if task.tools is None or tool.name in task.tools),
            recorder=recorder,
            ledger=Ledger({"cost_usd": task.max_cost_usd, "tokens": settings.max_tokens}, parent=run.ledger),
            max_steps=min(task.max_steps or settings.max_steps, settings.max_steps),
            max_output_tokens=settings.max_output_tokens,
            notify=notify,
        )

    async def _verdict(
        self, run: "_Run", assignment: Assignment, folder: Folder | None, child: ChildRun, notify: Notify
    ) -> Verdict | None:
        case = Case(assignment.task, child, folder, run.author, assignment.model)
        ledger = Ledger({"cost_usd": assignment.task.max_cost_usd}, parent=run.ledger)
        return await self.judging.verdict(case, ledger, notify)

    def _result(
        self,
        handle: str,
        index: int,
        assignment: Assignment,
        folder: Folder | None,
        child: ChildRun,
        verdict: Verdict | None,
        seconds: float,
    ) -> TaskResult:
        return TaskResult(
            verdict=verdict,
            task_index=index,
            status=child.status,
            summary=_cut(child.output, self.settings.result_chars, handle),
            structured_output=_structured(assignment.task, child),
            artifacts=child.artifacts,
            receipts=_counts(child.receipts),
            error=child.error,
            model=child.model or (assignment.model.id if assignment.model else None),
            tier=assignment.model.tier if assignment.model else None,
            usage=child.usage,
            cost_usd=_cost(child, verdict),
            seconds=round(seconds, 6),
            workspace=str(folder.root) if folder and folder.root.is_dir() else None,
            handle=handle,
        )


@dataclass(slots=True)
class _Run:
    """What the tasks of one call share."""

    ledger: Ledger
    slots: asyncio.Semaphore
    author: Author
    on_event: EventSink | None
    id: str = field(default_factory=new_run_id)

    def notify(self, index: int) -> Notify:
        """Events of one task, on their way to whoever shows progress."""

        def send(kind: EventKind, text: str = "", **data: Any) -> None:
            if self.on_event is None:
                return
            try:
                self.on_event(Event(kind, index, text, data))
            except Exception:  # a broken progress display must not cost the work
                _log.exception("the event sink failed")

        return send


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


def _counts(receipts: Sequence[Receipt]) -> ReceiptCounts:
    statuses = [receipt.status for receipt in receipts]
    succeeded = [receipt.tool for receipt in receipts if receipt.status == "ok"]
    return ReceiptCounts(
        total=len(receipts),
        ok=statuses.count("ok"),
        error=statuses.count("error"),
        denied=statuses.count("denied"),
        timeout=statuses.count("timeout"),
        tools={tool: succeeded.count(tool) for tool in dict.fromkeys(succeeded)},
    )


def _cost(child: ChildRun, verdict: Verdict | None) -> float | None:
    judge = verdict.judge if verdict else None
    if judge is None or judge.model is None:
        return child.cost_usd
    return None if child.cost_usd is None or judge.cost_usd is None else child.cost_usd + judge.cost_usd


def _totals(results: Sequence[TaskResult], seconds: float) -> Totals:
    words = [result.verdict.verdict if result.verdict else None for result in results]
    judges = [result.verdict.judge for result in results if result.verdict and result.verdict.judge]
    costs = [result.cost_usd for result in results]
    known = [cost for cost in costs if cost is not None]
    return Totals(
        tasks=len(results),
        passed=words.count("PASS"),
        failed=words.count("FAIL"),
        unjudged=words.count(None),
        completed=sum(result.status == "completed" for result in results),
        gate=dict(Counter(result.verdict.gate for result in results if result.verdict and result.verdict.gate)),
        child_usage=sum((result.usage for result in results), Usage()),
        judge_usage=sum((judge.usage for judge in judges), Usage()),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        cost_known_usd=sum(known),
        seconds=round(seconds, 6),
    )
