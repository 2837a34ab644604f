"""`--trace FILE`: OTLP JSON as the OpenTelemetry Collector's file exporter writes and its receiver reads it."""

import base64
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from typer.testing import CliRunner

from delegate.cli.app import app
from delegate.telemetry.operations import written_to
from delegate.telemetry.otlp_file import TraceFile
from delegate.types.errors import ConfigError
from tests.cli.command import openai_at, worker
from tests.support.model_server import ModelServer
from tests.telemetry.spans import in_file

GREETS = "file note.md: The note greets the reader."
CALL = json.dumps({"tasks": [{"goal": "Write note.md.", "acceptance_criteria": [GREETS]}]})
COMMANDS = {
    "run": ["run", "Write note.md.", "-c", GREETS],
    "batch": ["batch", "tasks.jsonl", "-o", "results.jsonl"],
    "judge": ["judge", "--goal", "Greet.", "--report", "report.md", "-c", "report: The report greets the reader."],
    "call": ["call", CALL],
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ModelServer(worker()) as server:
        for name, value in openai_at(server).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_run_models_append_their_spans(server: ModelServer, name: str) -> None:
    task = {"goal": "Write note.md.", "acceptance_criteria": [GREETS]}
    Path("tasks.jsonl").write_text(f"{json.dumps(task)}\n" * 3, encoding="utf-8")
    Path("report.md").write_text("hello reader", encoding="utf-8")
    arguments = [*COMMANDS[name], "--trace", "trace.jsonl"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    tree = in_file(Path("trace.jsonl")).tree()
    calls = [line for line in tree if line.strip().startswith("chat ")]
    assert tree[0] == f"invoke_workflow {name if name in ('batch', 'judge') else 'delegate_task'}"
    assert tree.count("  invoke_agent child") == {"run": 1, "batch": 3, "judge": 0, "call": 1}[name]
    assert len(calls) == len(server.calls)


def test_a_file_that_can_t_be_written_is_refused_before_anything_runs(server: ModelServer) -> None:
    arguments = ["run", "Do it.", "--trace", "nowhere/trace.jsonl"]
    ran = CliRunner().invoke(app, arguments)
    assert isinstance(ran.exception, ConfigError)
    assert str(ran.exception) == (
        "--trace: can't write nowhere/trace.jsonl: No such file or directory; name a file in an existing folder"
    )
    assert server.calls == []


def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("opentelemetry", "delegate.telemetry.otlp_file"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'"), written_to(tmp_path / "t.jsonl"):
        pass


def filled(path: Path) -> None:
    """Write every kind of span, event and value."""
    file = TraceFile(path)
    tracer = file.get_tracer("test", "1.0")
    with tracer.start_as_current_span("parent", kind=trace.SpanKind.CLIENT) as span:
        span.set_attributes({"text": "ÿ\ud800\x00", "flag": True, "whole": 2**53 + 1, "part": 0.5, "list": ["a", 1]})
        span.add_event("event", {"n": 1})
        span.update_name("renamed")
        child = tracer.start_span("child")
        child.record_exception(ValueError("a secret of the message"))
        child.set_status(trace.Status(trace.StatusCode.ERROR, "a secret of the description"))
        child.end()
        child.end()
    file.close()
    tracer.start_span("after the end").end()


def test_each_line_is_a_request_of_the_protocol(tmp_path: Path) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format", reason="opentelemetry-proto isn't installed")
    traces = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    filled(path := tmp_path / "trace.jsonl")
    spans: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        request = json_format.Parse(hexed(line), traces.ExportTraceServiceRequest())
        (span,) = request.resource_spans[0].scope_spans[0].spans
        spans[span.name] = span
        assert request.resource_spans[0].resource.attributes[0].value.string_value == "delegate"
    parent, child = spans["renamed"], spans["child"]
    assert child.parent_span_id == parent.span_id
    assert child.trace_id == parent.trace_id
    assert [event.name for event in parent.events] == ["event"]
    assert (parent.kind, child.status.code) == (3, 2)
    assert parent.start_time_unix_nano < parent.end_time_unix_nano
    values = {one.key: one.value for one in parent.attributes}
    assert values["whole"].int_value == 2**53 + 1
    assert values["list"].array_value.values[1].int_value == 1


def hexed(line: str) -> str:
    """The line as protobuf's own JSON has it: OTLP writes ids in hexadecimal digits instead of base64."""

    def encoded(found: re.Match[str]) -> str:
        return f'"{found[1]}":"{base64.b64encode(bytes.fromhex(found[2])).decode()}"'

    return re.sub(r'"(traceId|spanId|parentSpanId)":"([0-9a-f]*)"', encoded, line)


def test_messages_of_exceptions_and_late_spans_are_not_written(tmp_path: Path) -> None:
    filled(path := tmp_path / "trace.jsonl")
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 2
    assert "secret" not in text
    assert "ValueError" in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_ends_the_trace_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    file = TraceFile(Path("/dev/full"))
    for name in ("first", "second"):
        file.get_tracer("test").start_span(name).end()
    file.close()
    (warning,) = caplog.messages
    assert warning == "the trace ends here: can't write /dev/full: No space left on device"


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    tracer = file.get_tracer("test")

    def write() -> None:
        for _ in range(50):
            tracer.start_span("span", attributes={"text": "long " * 500}).end()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    assert len(in_file(tmp_path / "trace.jsonl").spans) == 400


def test_an_earlier_trace_in_the_file_stays(tmp_path: Path) -> None:
    for name in ("first", "second"):
        file = TraceFile(tmp_path / "trace.jsonl")
        file.get_tracer("test").start_span(name).end()
        file.close()
    assert [span.name for span in in_file(tmp_path / "trace.jsonl").spans] == ["first", "second"]


def test_a_line_that_a_killed_process_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"resourceSpans": [{"re', encoding="utf-8")
    file = TraceFile(path)
    file.get_tracer("test").start_span("second").end()
    file.close()
    cut, whole = path.read_text(encoding="utf-8").splitlines()
    assert cut == '{"resourceSpans": [{"re'
    assert '"name":"second"' in whole
