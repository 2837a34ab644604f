"""The operations that are traced. Each is a context manager, and does nothing without a receiver.

There is a receiver if the program has set a provider of OpenTelemetry, or inside `written_to`. Until then nothing of
OpenTelemetry is imported: a call looks for the providers once, and whatever runs within it looks at a context variable.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

from delegate.models.connections import Connection
from delegate.telemetry.operation import OFF, Operation, Signals, current
from delegate.types.errors import ConfigError
from delegate.types.ports import ChatRequest

_receivers: ContextVar[Signals | None] = ContextVar("delegate_telemetry_receivers", default=None)
"""The receivers inside `written_to`, instead of those that the program has set."""
_GETTERS = (
    ("opentelemetry.trace", "get_tracer_provider"),
    ("opentelemetry._logs", "get_logger_provider"),
    ("opentelemetry.metrics", "get_meter_provider"),
)


def workflow(name: str, *, run_id: str, tasks: int, depth: int = 0) -> Operation:
    """A call with its tasks, or a verdict on existing work."""
    if (signals := _signals()) is None:
        return OFF
    from delegate.telemetry.tracing import Workflow

    return Workflow(signals, name, run_id=run_id, tasks=tasks, depth=depth)


class BatchTrace:
    """The span of a batch. It is current in `context`, and not where the batch is iterated.

    A generator can't have a current span of its own: it would be that of its consumer, too, between two outcomes.
    """

    __slots__ = ("_context", "_operation")

    def __init__(self, *, run_id: str, tasks: int) -> None:
        self._operation = workflow("batch", run_id=run_id, tasks=tasks)
        self._context: Context | None = None
        if self._operation is not OFF:
            self._context = copy_context()
            self._context.run(self._operation.__enter__)

    def context(self) -> Context | None:
        """The context for a task of the batch; None for that of the caller."""
        return None if self._context is None else self._context.copy()

    def end(self) -> None:
        """End the span."""
        if self._context is not None:
            self._context.run(self._operation.__exit__, None, None, None)


def agent(*, role: str | None, index: int, handle: str, connection: Connection | None) -> Operation:
    """One task, from its wait for a permit to its stored result. Without a connection, its runner has its own model.

    It is named by its role, if it has one: unlike goals, roles are the operator's words, and there are few.
    """
    if (scope := current.get()) is None:
        return OFF
    from delegate.telemetry.tracing import Agent

    return Agent(scope, role or "child", index, handle, connection.model if connection else None)


def chat(connection: Connection, request: ChatRequest) -> Operation:
    """One request to a model."""
    if (scope := current.get()) is None:
        return OFF
    from delegate.telemetry.tracing import Chat

    return Chat(scope, connection, request)


def tool(name: str, call_id: str, arguments: Mapping[str, Any]) -> Operation:
    """One call of a tool that the child was offered."""
    if (scope := current.get()) is None:
        return OFF
    from delegate.telemetry.tracing import ToolCall

    return ToolCall(scope, name, call_id, arguments)


@contextmanager
def judging() -> Generator[None]:
    """Model calls inside the block are those of a judge."""
    if (scope := current.get()) is None:
        yield
        return
    token = current.set(replace(scope, role="judge"))
    try:
        yield
    finally:
        current.reset(token)


@contextmanager
def written_to(path: Path | None) -> Generator[None]:
    """Append the spans of everything inside the block, with their events, to a file. Does nothing without a path.

    Raises:
        ConfigError: OpenTelemetry isn't installed, or the file can't be written.
    """
    if path is None:
        yield
        return
    try:
        from delegate.telemetry.otlp_file import TraceFile
        from delegate.telemetry.tracing import signals_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ConfigError("--trace needs OpenTelemetry: run `pip install '.[otel]'` in a clone of delegate") from None
    try:
        file = TraceFile(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"--trace: can't write {path}: {reason}; name a file in an existing folder") from None
    token = _receivers.set(signals_of(file, None, None))
    try:
        yield
    finally:
        _receivers.reset(token)
        file.close()


def _signals() -> Signals | None:
    """Where to send spans, events and metrics; None if there is no receiver."""
    if (signals := _receivers.get()) is not None:
        return signals
    providers = [_provider(module, getter) for module, getter in _GETTERS]
    if not any(providers):
        return None
    from delegate.telemetry.tracing import is_suppressed, signals_of

    return None if is_suppressed() else signals_of(*providers)


def _provider(module: str, getter: str) -> Any:
    """The provider that the program has set for one kind of signal. None if there is none, or only a placeholder."""
    get: Callable[[], object] | None = getattr(sys.modules.get(module), getter, None)
    if get is None:  # not loaded, or another thread is loading it, so no provider is set
        return None
    try:
        provider = get()
    except Exception:  # the environment names a provider that can't be loaded; OpenTelemetry has logged it
        return None
    return None if type(provider).__name__.lstrip("_").startswith(("Proxy", "NoOp")) else provider
