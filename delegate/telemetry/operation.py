"""One operation that may be traced, and what is traced now."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from delegate.models.catalog import Model
from delegate.models.connections import Connection
from delegate.ports import ChatReply, ChatRequest, ToolOutput
from delegate.types import Provenance, TaskResult, Tier, Usage, Verdict

Role = Literal["child", "judge"]


class Operation:
    """One operation, which is the current span inside its `with` block. This one does nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def finished(self, result: TaskResult) -> None:
        """Record the result of a task, and its verdict."""

    def judged(self, verdict: Verdict) -> None:
        """Record the verdict on work that was done elsewhere."""

    def replied(self, reply: ChatReply, usage: Usage, cost_usd: float | None, provenance: Provenance) -> None:
        """Record the reply of a model, and what it cost."""

    def returned(self, output: ToolOutput) -> None:
        """Record the output of a tool."""


OFF = Operation()


class Tracing(Protocol):
    """Makes the operations inside one that is traced."""

    @property
    def batch(self) -> object | None:
        """The span of the batch, directly below it."""
        ...

    def judge(self) -> "Tracing":
        """The same for a verdict."""
        ...

    def agent(self, name: str, index: int, handle: str, model: Model | None, tier: Tier | None) -> Operation:
        """See `operations.agent`."""
        ...

    def chat(self, connection: Connection, request: ChatRequest) -> Operation:
        """See `operations.chat`."""
        ...

    def tool(self, name: str, call_id: str, arguments: Mapping[str, Any]) -> Operation:
        """See `operations.tool`."""
        ...


current: ContextVar[Tracing | None] = ContextVar("delegate_telemetry", default=None)
"""What is traced now; None if nothing is."""
