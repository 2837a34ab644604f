"""Emits spans, events and metrics through OpenTelemetry's API. Imported only when somebody receives them.

* Parents: a span is current while its operation runs, in the context variables that asyncio hands on to tasks and
  threads. So a call is a child of the host's span, and what an SDK traces itself is a child of ours.
* Nothing twice: a model call whose client is traced by an instrumentation of the SDK gets no span here (see
  `ports.ChatClient`), and only the spans of model calls have token counts.
* No text: names, codes and numbers only, unless the operator asked for content. An exception is reported by its type;
  its message isn't.
* An error in here, or in the receiver, is logged and never reaches the delegation.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextvars import Token
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, LogRecord
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from delegate._util.redaction import logger, redactor
from delegate.models.catalog import Model
from delegate.models.connections import Connection
from delegate.telemetry import content
from delegate.telemetry import conventions as names
from delegate.telemetry.operation import Instruments, Operation, Scope, Signals, current
from delegate.types import CriterionResult, Provenance, TaskResult, Usage, Verdict
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, ToolOutput

P = ParamSpec("P")
S = TypeVar("S")
Attributes = Mapping[str, Any]
_log = logger(__name__)
_SUPPRESSED = "suppress_instrumentation"
"""The context key with which a program turns instrumentations off: `suppress_instrumentation()` sets it."""
_PLAIN = re.compile(r"[\w.:/@-]{1,100}")
"""What an identifier that a server or a model wrote may look like. Others could be any text, and are left out."""


@lru_cache(8)
def signals_of(tracers: TracerProvider | None, loggers: LoggerProvider | None, meters: MeterProvider | None) -> Signals:
    """The receivers of these providers."""
    own = version("delegate-task")
    return Signals(
        tracers.get_tracer(names.SCOPE, own) if tracers else trace.NoOpTracer(),
        loggers.get_logger(names.SCOPE, own) if loggers else None,
        Instruments(meters.get_meter(names.SCOPE, own)) if meters else None,
    )


def _plain(identifier: str | None) -> str | None:
    """An identifier that comes from outside, if it looks like one."""
    return redactor.text(identifier) if identifier and _PLAIN.fullmatch(identifier) else None


def _kind_of(error: BaseException) -> str:
    return error.fault if isinstance(error, ProviderError) else type(error).__name__


def is_suppressed() -> bool:
    """Whether the program has turned instrumentations off here."""
    return bool(otel_context.get_value(_SUPPRESSED))


def _guarded(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """`method`, whose errors are logged: those of a receiver must not fail a task."""

    def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            _log.warning("a span or an event could not be emitted", exc_info=True)

    return guarded


class Traced(Operation):
    """An operation with a span."""

    __slots__ = ("_attributes", "_kind", "_name", "_otel_token", "_scope", "_scope_token", "_span")

    def __init__(
        self,
        scope: Scope,
        operation: names.Operation,
        subject: str,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self._scope = scope
        self._name = f"{operation} {subject}"
        self._kind = kind
        self._attributes = {names.OPERATION: operation, **attributes}
        self._span: Span = trace.INVALID_SPAN
        self._otel_token: Token[Any] | None = None
        self._scope_token: Token[Scope | None] | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    @_guarded
    def _start(self) -> None:
        self._scope_token = current.set(self._scope)
        attributes = _known(self._attributes)
        self._span = self._scope.signals.tracer.start_span(self._name, kind=self._kind, attributes=attributes)
        self._otel_token = otel_context.attach(trace.set_span_in_context(self._span))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._end(error)

    @_guarded
    def _end(self, error: BaseException | None) -> None:
        if self._otel_token is not None:
            otel_context.detach(self._otel_token)
        if self._scope_token is not None:
            current.reset(self._scope_token)
        if error is not None:
            self._failed(_kind_of(error))
        self._span.end()

    def _failed(self, reason: str) -> None:
        self._span.set_attribute(names.ERROR_TYPE, reason)
        self._span.set_status(StatusCode.ERROR)

    def _set(self, attributes: Attributes) -> None:
        self._span.set_attributes(_known(attributes))

    @_guarded
    def judged(self, verdict: Verdict) -> None:
        """Emit an event for each criterion, and one for the verdict. They belong to the span of the judged work."""
        for result in verdict.criteria:
            self._emit(_criterion_attributes(result), result.reason)
        is_pass = verdict.verdict == "PASS"
        score = float(is_pass) if verdict.score is None else verdict.score
        decision: Attributes = {
            names.EVALUATION_NAME: "verdict",
            names.SCORE_LABEL: verdict.verdict,
            names.SCORE_VALUE: score,
            names.CODE: verdict.code,
            names.DECIDED_BY: verdict.decided_by,
            names.VERIFIED: verdict.verified,
            names.LEVEL: verdict.level,
        }
        self._emit(decision, verdict.reasoning)
        if instruments := self._scope.signals.instruments:
            instruments.verdicts.add(1, {names.VERDICT: verdict.verdict, names.CODE: verdict.code})

    def _emit(self, attributes: Attributes, explanation: str) -> None:
        attributes = _known(attributes)
        if self._scope.content_in_events and explanation:
            attributes = {**attributes, names.EXPLANATION: content.text_of(explanation)}
        receiver = self._scope.signals.logger
        if receiver is None:
            self._span.add_event(names.EVALUATION, attributes)
            return
        here = trace.set_span_in_context(self._span)  # since this span may not be the current one
        event = names.EVALUATION
        receiver.emit(LogRecord(timestamp=time.time_ns(), context=here, attributes=attributes, event_name=event))


def _criterion_attributes(result: CriterionResult) -> Attributes:
    score = float(result.outcome == "met") if result.score is None else result.score
    return {
        names.EVALUATION_NAME: result.kind,
        names.SCORE_LABEL: result.outcome,
        names.CRITERION_ID: redactor.text(result.id),
        names.CODE: result.code,
        names.DECIDED_BY: result.decided_by,
        names.SCORE_VALUE: score if result.outcome in ("met", "not_met") else None,
        names.LEVEL: result.level,
        names.ERROR_TYPE: result.code if result.outcome == "error" else None,
    }


def _known(attributes: Attributes) -> Attributes:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


class Workflow(Traced):
    """A call with its tasks, a batch, or a verdict on existing work.

    A call directly below the span of a batch is one item of it, and gets no span of its own.
    """

    __slots__ = ("_is_item",)

    def __init__(self, signals: Signals, name: str, *, run_id: str, tasks: int, depth: int) -> None:
        outer = current.get()
        self._is_item = outer is not None and outer.batch is not None and outer.batch is trace.get_current_span()
        scope = Scope(signals, *content.wanted())
        attributes = {
            names.AGENT_NAME: name,
            names.RUN_ID: redactor.text(run_id),
            names.TASKS: tasks,
            names.DEPTH: depth,
        }
        super().__init__(scope, "invoke_workflow", name, attributes)

    @_guarded
    def _start(self) -> None:
        if self._is_item:
            self._scope_token = current.set(self._scope)
            return
        super()._start()
        if self._attributes[names.AGENT_NAME] == "batch":
            current.set(replace(self._scope, batch=self._span))


class Agent(Traced):
    """One task."""

    __slots__ = ()

    def __init__(self, scope: Scope, name: str, index: int, handle: str, model: Model | None) -> None:
        attributes = {
            names.AGENT_NAME: name,
            names.CONVERSATION: handle,
            names.TASK_INDEX: index,
            names.TIER: model.tier if model else None,
            names.REQUEST_MODEL: model.id if model else None,
        }
        super().__init__(replace(scope, batch=None, role="child", handle=handle), "invoke_agent", name, attributes)

    @_guarded
    def finished(self, result: TaskResult) -> None:
        """Record how the task ended, its cost, and its verdict. Tokens are on the spans of the model calls alone."""
        attributes: dict[str, Any] = {
            names.STATUS: result.status,
            names.RESPONSE_MODEL: _plain(result.model),
            names.COST_USD: result.cost_usd,
            names.COST_PROVENANCE: result.cost_provenance,
        }
        if verdict := result.verdict:
            attributes |= {
                names.VERDICT: verdict.verdict,
                names.LEVEL: verdict.level,
                names.VERIFIED: verdict.verified,
                names.CODE: verdict.code,
            }
        self._set(attributes)
        if result.status != "completed":
            self._failed(result.error.code if result.error else result.status)
        if verdict is None:
            return
        self.judged(verdict)
        if (instruments := self._scope.signals.instruments) and result.verification_share is not None:
            instruments.share.record(result.verification_share)


class Chat(Traced):
    """One request to a model. It has no span if the client's SDK is traced itself, which emits one."""

    __slots__ = ("_request", "_started", "_traced_elsewhere")

    def __init__(self, scope: Scope, connection: Connection, request: ChatRequest) -> None:
        model = connection.model
        attributes = {
            names.PROVIDER: names.PROVIDERS.get(model.provider, model.provider),
            names.REQUEST_MODEL: model.id,
            names.REQUEST_MAX_TOKENS: request.max_output_tokens,
            names.OUTPUT_TYPE: None if request.reply_schema is None else "json",
            names.CONVERSATION: scope.handle if scope.role == "child" else None,
            names.ROLE: scope.role,
        }
        super().__init__(scope, "chat", model.id, attributes, SpanKind.CLIENT)
        self._request = request
        self._started = time.monotonic()
        self._traced_elsewhere = bool(getattr(connection.client, "traces_itself", False))

    @_guarded
    def _start(self) -> None:
        if self._traced_elsewhere:
            return
        super()._start()
        if self._scope.content_in_spans and self._span.is_recording():
            self._set(content.request_attributes(self._request))

    @_guarded
    def _end(self, error: BaseException | None) -> None:
        if not self._traced_elsewhere:
            super()._end(error)
        instruments = self._scope.signals.instruments
        if instruments is not None and self._scope.role == "judge":
            labels = {name: self._attributes[name] for name in (names.PROVIDER, names.REQUEST_MODEL)}
            if error is not None:
                labels[names.ERROR_TYPE] = _kind_of(error)
            instruments.judge.record(time.monotonic() - self._started, labels)

    @_guarded
    def replied(self, reply: ChatReply, usage: Usage, cost_usd: float | None, provenance: Provenance) -> None:
        """Record the reply's model, stop reason, tokens and cost."""
        if not self._span.is_recording():
            return
        self._set(
            {
                names.RESPONSE_MODEL: _plain(reply.model_served),
                names.FINISH_REASONS: (names.REASONS.get(reply.stop, reply.stop),),
                names.INPUT_TOKENS: usage.input_tokens,
                names.OUTPUT_TOKENS: usage.output_tokens,
                names.CACHE_READ_TOKENS: usage.cached_tokens or None,
                names.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
                names.REASONING_TOKENS: usage.reasoning_tokens or None,
                names.COST_USD: cost_usd,
                names.COST_PROVENANCE: provenance,
            }
        )
        if self._scope.content_in_spans:
            self._set(content.reply_attributes(reply))


class ToolCall(Traced):
    """One call of a tool."""

    __slots__ = ("_arguments",)

    def __init__(self, scope: Scope, name: str, call_id: str, arguments: Mapping[str, Any]) -> None:
        attributes = {names.TOOL_NAME: name, names.TOOL_TYPE: "function", names.TOOL_CALL_ID: _plain(call_id)}
        super().__init__(scope, "execute_tool", name, attributes)
        self._arguments = arguments

    @_guarded
    def _start(self) -> None:
        super()._start()
        if self._scope.content_in_spans and self._span.is_recording():
            self._set({names.TOOL_ARGUMENTS: content.json_of(self._arguments)})

    @_guarded
    def returned(self, output: ToolOutput) -> None:
        """Record the status of the call."""
        self._set({names.TOOL_STATUS: output.status})
        if output.status != "ok":
            self._failed(output.status)
        if self._scope.content_in_spans:
            self._set({names.TOOL_RESULT: content.text_of(output.text)})
