"""The front door: one object per host, which gives the tool and answers its calls."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date
from typing import Any, Self, TypeVar

from delegate import connections, contract
from delegate.catalog import Catalog, declared_models
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.contract import Dialect, Limits, Variant
from delegate.errors import CallError
from delegate.executor import Assignment, Executor
from delegate.judging import Bench, Judging
from delegate.judging.case import Author
from delegate.judging.json_schema import check_schema
from delegate.ports import ChatClient, EventSink, Tool
from delegate.records import Records
from delegate.routing import choose_child
from delegate.sandbox.commands import Commands
from delegate.settings import Settings, load_settings
from delegate.types import ErrorDetail, JsonObject, Report, Task

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
        self._commands = Commands(sandbox=self.settings.sandbox, commands=self.settings.commands)
        self._executor = Executor(
            settings=self.settings,
            runner=self._runner,
            judging=Judging(self._bench(), self._commands, self.settings.gate),
            commands=self._commands,
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
        """Find a model for every task before anything is spent on one, then run them all."""
        assignments = [self._assign(task, n, len(tasks)) for n, task in enumerate(tasks)]
        return await self._executor.execute(assignments, author=author, on_event=on_event or self._on_event)

    def _assign(self, task: Task, n: int, of: int) -> Assignment:
        if not self._runner.needs_model:
            return Assignment(task, None, None)
        try:
            model = choose_child(
                self.catalog,
                tier=task.tier or self.settings.tier,
                model=task.model or self.settings.model,
                ceiling=self.settings.max_tier,
                available=self.connections.available,
                on=date.today(),
            )
        except CallError as error:
            error.field = f"tasks[{n}].{error.field}" if error.field and of > 1 else error.field
            raise
        return Assignment(task, model, self.connections.client(model))

    def _bench(self) -> Bench:
        settings = self.settings
        return Bench(
            self.catalog, self.connections.available, self.connections.client, settings.judge_model, settings.max_tier
        )


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
