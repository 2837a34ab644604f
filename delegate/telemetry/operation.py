"""What is traced now, and where to. Nothing of OpenTelemetry is imported here."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from delegate.telemetry import conventions as names
from delegate.types import Provenance, TaskResult, Usage, Verdict
from delegate.types.ports import ChatReply, ToolOutput

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, Tracer


class Operation:
    """One operation, which is the current span inside its `with` block. This one does nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        pass

    def finished(self, result: TaskResult) -> None:
        """Record the result of a task, and its verdict."""

    def judged(self, verdict: Verdict) -> None:
        """Record the verdict on work that was done elsewhere."""

    def replied(self, reply: ChatReply, usage: Usage, cost_usd: float | None, provenance: Provenance) -> None:
        """Record the reply of a model, and what it cost."""

    def returned(self, output: ToolOutput) -> None:
        """Record the output of a tool."""


class Instruments:
    """The metrics."""

    def __init__(self, meter: "Meter") -> None:
        self.verdicts = meter.create_counter(names.VERDICTS_METRIC, "{verdict}", "Verdicts, by their code.")
        self.share = meter.create_histogram(
            names.SHARE_METRIC,
            "1",
            "The share of a task's cost that was spent on judges.",
            explicit_bucket_boundaries_advisory=names.SHARE_BUCKETS,
        )
        self.judge = meter.create_histogram(
            names.JUDGE_METRIC,
            "s",
            "The duration of a judge's model calls.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )


@dataclass(frozen=True, slots=True)
class Signals:
    """The receivers. Without a logger, events are attached to their spans."""

    tracer: "Tracer"
    logger: "Logger | None"
    instruments: Instruments | None


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known about everything that is traced inside one operation."""

    signals: Signals
    content_in_spans: bool
    content_in_events: bool
    batch: "Span | None" = None
    """The span of the batch, directly below it."""
    role: Literal["child", "judge"] | None = None
    handle: str | None = None
    """The handle of the task that runs."""


OFF = Operation()
current: ContextVar[Scope | None] = ContextVar("delegate_telemetry", default=None)
"""What is traced now; None if nothing is."""
