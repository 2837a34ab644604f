"""Writes spans to a file as OTLP JSON, in the format of the OpenTelemetry Collector's file exporter.

Each line is one `ExportTraceServiceRequest`. A span is written when it ends, so a process that is killed leaves all
that had ended. It needs only OpenTelemetry's API: its SDK and its encoder are four more packages, and take three times
as long to import.
"""

import json
import os
import random
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, TraceFlags, Tracer, TracerProvider

from delegate._util.redaction import logger
from delegate.types import JsonObject

_KNOWN_PARENT, _REMOTE_PARENT = 0x100, 0x200
"""Flags of a span: whether it is known where its parent is, and whether that is another process."""
_log = logger(__name__)
_ids = random.SystemRandom()


class TraceFile(TracerProvider):
    """Appends to one file, and is the provider of what writes to it. Raises OSError if the file can't be written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as written:
                written.seek(-1, os.SEEK_END)
                if written.read() != b"\n":  # the line of a killed process
                    self._file.write("\n")
        self._lock = threading.Lock()
        service = os.environ.get("OTEL_SERVICE_NAME") or "delegate"
        self._resource = {"attributes": _attributes({"service.name": service})}

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Any = None,
    ) -> Tracer:
        """See TracerProvider."""
        return _FileTracer(self, {"name": instrumenting_module_name, "version": instrumenting_library_version or ""})

    def write(self, scope: JsonObject, span: JsonObject) -> None:
        """Write one span."""
        spans = {"resource": self._resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}
        line = json.dumps({"resourceSpans": [spans]}, separators=(",", ":")) + "\n"
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                _log.warning("the trace ends here: can't write %s: %s", self._file.name, error.strerror or error)
                with suppress(OSError):
                    self._file.close()

    def close(self) -> None:
        """Close the file. What ends later is lost."""
        with self._lock, suppress(OSError):  # that of a line that couldn't be written, which was logged
            self._file.close()


@dataclass(eq=False)
class _FileTracer(Tracer):
    _file: TraceFile
    _scope: JsonObject

    def start_span(
        self,
        name: str,
        context: Any = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None,
        links: Any = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        parent = trace.get_current_span(context).get_span_context()
        start = start_time or time.time_ns()
        return _FileSpan(self._file, self._scope, name, parent, kind, dict(attributes or {}), start)

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Generator[Span]:  # type: ignore[override]
        with self.start_span(name, *args, **kwargs) as span, trace.use_span(span):
            yield span


@dataclass(eq=False)
class _FileSpan(Span):
    """A span, which is written when it ends."""

    _file: TraceFile | None
    """None once it has ended."""
    _scope: JsonObject
    _name: str
    _parent: SpanContext
    _kind: SpanKind
    _attributes: JsonObject
    _start: int

    def __post_init__(self) -> None:
        trace_id = self._parent.trace_id if self._parent.is_valid else _ids.getrandbits(128) or 1
        self._context = SpanContext(trace_id, _ids.getrandbits(64) or 1, False, TraceFlags(TraceFlags.SAMPLED))
        self._events: list[JsonObject] = []
        self._status: JsonObject = {}

    def end(self, end_time: int | None = None) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        flags = int(self._context.trace_flags) | _KNOWN_PARENT | (_REMOTE_PARENT if self._parent.is_remote else 0)
        span = {
            "traceId": f"{self._context.trace_id:032x}",
            "spanId": f"{self._context.span_id:016x}",
            "parentSpanId": f"{self._parent.span_id:016x}" if self._parent.is_valid else "",
            "flags": flags,
            "name": self._name,
            "kind": self._kind.value + 1,
            "startTimeUnixNano": str(self._start),
            "endTimeUnixNano": str(end_time or time.time_ns()),
            "attributes": _attributes(self._attributes),
            "events": self._events,
            "status": self._status,
        }
        file.write(self._scope, span)

    def get_span_context(self) -> SpanContext:
        return self._context

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self._attributes |= attributes

    def set_attribute(self, key: str, value: Any) -> None:
        self._attributes[key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        event = {"timeUnixNano": str(timestamp or time.time_ns()), "name": name}
        self._events.append({**event, "attributes": _attributes(attributes or {})})

    def update_name(self, name: str) -> None:
        self._name = name

    def is_recording(self) -> bool:
        return self._file is not None

    def set_status(self, status: Any, description: str | None = None) -> None:
        self._status = {"code": (status.status_code if isinstance(status, trace.Status) else status).value}

    def record_exception(self, exception: BaseException, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Record its type. Its message may have content."""
        self.add_event("exception", {"exception.type": type(exception).__qualname__})


def _attributes(values: Mapping[str, Any]) -> list[JsonObject]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> JsonObject:
    """A value as OTLP's JSON has it: whole numbers are texts."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_value(item) for item in cast("Sequence[Any]", value)]}}
    return {"stringValue": str(value).encode("utf-8", "replace").decode()}
