"""The front door: one object per host, which gives the tool and answers its calls."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Self, TypeVar

import pydantic

from delegate import connections, contract
from delegate.catalog import Catalog, Model, declared_models
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.contract import Dialect, Limits, Variant
from delegate.errors import CallError
from delegate.executor import Assignment, Executor
from delegate.judging import Bench, Case, Judging, refuse_undecidable
from delegate.judging.case import Author
from delegate.judging.json_schema import check_schema
from delegate.ledger import Ledger
from delegate.ports import ChatClient, EventKind, EventSink, Tool
from delegate.records import Records
from delegate.routing import choose_child
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import Folder
from delegate.settings import Settings, load_settings
from delegate.types import ChildRun, ErrorDetail, JsonObject, Receipt, Report, Task, Verdict

T = TypeVar("T")


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
        self.catalog = Catalog.shipped().with_models(declared_models(self.settings.endpoints))
        self.connections = connections.all_through(client) if client else connections.connect(self.settings, os.environ)
        self._on_event = on_event
        self._records = Records(self.settings.home)
        self._runner = runner or AgentLoop()
        commands = Commands(sandbox=self.settings.sandbox, commands=self.settings.commands)
        self._judging = Judging(self._bench(), commands, self.settings.gate)
        self._executor = Executor(
            settings=self.settings,
            runner=self._runner,
            judging=self._judging,
            commands=commands,
            records=self._records,
            host_tools=None if tools is None else tuple(tools),
        )
        self._own_loop = _LoopThread()

    # ------------------------------------------------------------------------------------------ for hosts

    def tool(self, dialect: Dialect, *, variant: Variant = "compact") -> JsonObject:
        """The tool's definition in a host's dialect, with the limits that are in force now."""
        limits = Limits(max_steps=self.settings.max_steps, timeout_seconds=self.settings.timeout_seconds)
        return contract.tool(dialect, name=self.settings.tool_name, variant=variant, limits=limits)

    async def call(self, arguments: Mapping[str, Any] | str | bytes, *, on_event: EventSink | None = None) -> Report:
        """Execute one tool call as the parent's model wrote it. A call that can't be executed is `report.error`."""
        try:
            tasks = contract.parse_call(arguments, check_schema=check_schema)
            return await self._execute(tasks, "model", on_event)
        except CallError as error:
            return _refusal(error)

    async def answer(self, arguments: Mapping[str, Any] | str | bytes, *, on_event: EventSink | None = None) -> str:
        """Execute one tool call and write its report as the text that the parent's model reads, verdict first."""
        return contract.render(await self.call(arguments, on_event=on_event), limit=self.settings.result_chars)

    # --------------------------------------------------------------------------------------- for programs

    async def run(self, *tasks: Task, on_event: EventSink | None = None) -> Report:
        """Run tasks that a person or a program wrote: any number, with every field of `Task`."""
        try:
            return await self._execute(tasks, "person", on_event)
        except CallError as error:
            return _refusal(error)

    async def judge(
        self,
        *,
        goal: str,
        acceptance_criteria: Sequence[Any],
        output: str,
        workspace: str | Path | None = None,
        receipts: Sequence[Receipt | Mapping[str, Any]] | None = None,
        worker_model: str | None = None,
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
        run = ChildRun(status="completed", output=output, receipts=numbered, artifacts=artifacts)
        worker = self.catalog.find(worker_model) if worker_model else None
        case = Case(task, run, folder, "person", worker, has_receipts=receipts is not None)
        verdict = await self._judging.verdict(case, Ledger({"cost_usd": self.settings.max_cost_usd}), _say_nothing)
        assert verdict is not None
        return verdict

    async def read(self, handle: str) -> JsonObject | None:
        """The whole record of a result: `task`, `run` (full output, receipts) and `result`; None if there is none."""
        return await self._records.read(handle)

    # ----------------------------------------------------------------------------------- without an event loop

    def call_sync(self, arguments: Mapping[str, Any] | str | bytes, *, on_event: EventSink | None = None) -> Report:
        """`call` for code that isn't async. Works inside a running event loop too, which it then blocks."""
        return self._own_loop.run(self.call(arguments, on_event=on_event))

    def answer_sync(self, arguments: Mapping[str, Any] | str | bytes, *, on_event: EventSink | None = None) -> str:
        """`answer` for code that isn't async."""
        return self._own_loop.run(self.answer(arguments, on_event=on_event))

    def run_sync(self, *tasks: Task, on_event: EventSink | None = None) -> Report:
        """`run` for code that isn't async."""
        return self._own_loop.run(self.run(*tasks, on_event=on_event))

    # ------------------------------------------------------------------------------------------ life cycle

    async def aclose(self) -> None:
        """Close connections and files. Calls under way should have ended."""
        await asyncio.to_thread(self._own_loop.stop, self.connections.aclose)
        await self.connections.aclose()
        await self._records.aclose()

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

    async def _execute(self, tasks: Sequence[Task], author: Author, on_event: EventSink | None) -> Report:
        """Look at every task and find its model before anything is spent on one, then run them all."""
        models = [self._admit(task, n, len(tasks)) for n, task in enumerate(tasks)]
        clients = [await self.connections.client(model) if model else None for model in models]
        assignments = [Assignment(*one) for one in zip(tasks, models, clients, strict=True)]
        return await self._executor.execute(assignments, author=author, on_event=on_event or self._on_event)

    def _admit(self, task: Task, n: int, of: int) -> Model | None:
        """The model that will do the task; None where the runner brings its own. Raises CallError."""
        try:
            refuse_undecidable(task, strict_checks=self.settings.strict_checks)
            return self._model_for(task) if self._runner.needs_model else None
        except CallError as error:
            error.field = f"tasks[{n}].{error.field}" if error.field and of > 1 else error.field
            raise

    def _model_for(self, task: Task) -> Model:
        today = date.today()
        model = choose_child(
            self.catalog,
            tier=task.tier or self.settings.tier,
            model=task.model or self.settings.model,
            ceiling=self.settings.max_tier,
            available=self.connections.available,
            on=today,
        )
        if task.max_cost_usd is not None and model.price(today, 0) is None:
            message = f"max_cost_usd can't be kept: the price of {model.id} is unknown"
            hint = "declare its prices in delegate.toml, or leave max_cost_usd out"
            raise CallError("unknown_price", message, field="max_cost_usd", hint=hint)
        return model

    def _bench(self) -> Bench:
        settings = self.settings
        return Bench(
            self.catalog, self.connections.available, self.connections.client, settings.judge_model, settings.max_tier
        )


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


class _LoopThread:
    """An event loop of its own in a thread of its own, started when first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it; an interrupt of the wait cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` on the loop, then end the loop and its thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(last(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="delegate-loop", daemon=True)
                self._thread.start()
            return self._loop
