"""Reads what was traced, from a file as the OpenTelemetry Collector writes it or from the SDK's in-memory exporters."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delegate.telemetry.otlp_file import TraceFile

Attributes = Mapping[str, Any]


@dataclass
class Span:
    """One finished span with its events, which may have been log records."""

    name: str
    id: str
    parent: str
    trace: str
    attributes: Attributes
    failed: bool
    start: int
    events: list[Attributes] = field(default_factory=list[Attributes])


@dataclass
class Traced:
    """Everything that was traced."""

    read: Callable[[], list[Span]]

    @property
    def spans(self) -> list[Span]:
        return sorted(self.read(), key=lambda span: span.start)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def chats(self) -> list[Span]:
        return [span for span in self.spans if span.name.startswith("chat ")]

    @property
    def text(self) -> str:
        """All names and values, as one text."""
        return json.dumps([[span.name, span.attributes, span.events] for span in self.spans], ensure_ascii=False)

    def tree(self, parent: str = "", depth: int = 0) -> list[str]:
        """The names of the spans in the order in which they started, each indented below its parent."""
        lines: list[str] = []
        for span in self.spans:
            if span.parent == parent:
                lines += [f"{'  ' * depth}{span.name}", *self.tree(span.id, depth + 1)]
        return lines


def in_file(path: Path) -> Traced:
    """What a file has."""
    return Traced(lambda: _spans_in(path))


def _spans_in(path: Path) -> list[Span]:
    requests = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    spans = {
        span["spanId"]: Span(
            span["name"],
            span["spanId"],
            span["parentSpanId"],
            span["traceId"],
            _attributes(span),
            span["status"].get("code") == 2,
            int(span["startTimeUnixNano"]),
            [_attributes(event) for event in span["events"]],
        )
        for span in _parts(requests, "resourceSpans", "scopeSpans", "spans")
    }
    return list(spans.values())


def _parts(requests: Sequence[Any], *names: str) -> Sequence[Any]:
    found = requests
    for name in names:
        found = [part for one in found for part in one.get(name, ())]
    return found


def _attributes(holder: Any) -> Attributes:
    return {one["key"]: _value(one["value"]) for one in holder["attributes"]}


def _value(value: Any) -> Any:
    ((kind, given),) = value.items()
    if kind == "arrayValue":
        return [_value(one) for one in given["values"]]
    return int(given) if kind == "intValue" else given


@contextmanager
def set_for_the_program(monkeypatch: pytest.MonkeyPatch, **providers: Any) -> Generator[None]:
    """Set providers as a program does, for one test: OpenTelemetry's own functions can set them only once."""
    modules = {"trace": "trace", "logger": "_logs._internal", "meter": "metrics._internal"}
    variables = {"trace": "_TRACER_PROVIDER", "logger": "_LOGGER_PROVIDER", "meter": "_METER_PROVIDER"}
    with monkeypatch.context() as patched:
        for kind, provider in providers.items():
            patched.setattr(f"opentelemetry.{modules[kind]}.{variables[kind]}", provider)
        yield


@contextmanager
def to_file(monkeypatch: pytest.MonkeyPatch, path: Path) -> Generator[Traced]:
    """A program whose provider writes to a file."""
    file = TraceFile(path)
    try:
        with set_for_the_program(monkeypatch, trace=file):
            yield in_file(path)
    finally:
        file.close()


def sdk(module: str) -> Any:
    """A module of OpenTelemetry's SDK. Skips the test where it isn't installed."""
    return pytest.importorskip(f"opentelemetry.sdk.{module}", reason="opentelemetry-sdk isn't installed")


@contextmanager
def to_sdk(monkeypatch: pytest.MonkeyPatch) -> Generator[Traced]:
    """A program with OpenTelemetry's SDK and its in-memory exporters."""
    span_export, record_export = sdk("trace.export"), sdk("_logs.export")
    spans = sdk("trace.export.in_memory_span_exporter").InMemorySpanExporter()
    records = record_export.InMemoryLogRecordExporter()
    tracers = sdk("trace").TracerProvider(shutdown_on_exit=False)
    loggers = sdk("_logs").LoggerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(span_export.SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(record_export.SimpleLogRecordProcessor(records))

    def read() -> list[Span]:
        found = {
            f"{span.context.span_id:016x}": Span(
                span.name,
                f"{span.context.span_id:016x}",
                f"{span.parent.span_id:016x}" if span.parent else "",
                f"{span.context.trace_id:032x}",
                json.loads(json.dumps(dict(span.attributes))),  # whose lists are tuples
                not span.status.is_unset and not span.status.is_ok,
                span.start_time,
                [dict[str, Any](event.attributes) for event in span.events],
            )
            for span in spans.get_finished_spans()
        }
        for one in records.get_finished_logs():
            if one.log_record.event_name == "gen_ai.evaluation.result":
                found[f"{one.log_record.span_id:016x}"].events.append(dict(one.log_record.attributes))
        return list(found.values())

    try:
        with set_for_the_program(monkeypatch, trace=tracers, logger=loggers):
            yield Traced(read)
    finally:
        tracers.shutdown()
        loggers.shutdown()
