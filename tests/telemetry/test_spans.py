"""What is traced of calls, batches and verdicts: which spans, below which parents, with which attributes."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.telemetry import conventions
from delegate.types import Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.cli.command import worker
from tests.support.model_server import ModelServer
from tests.support.words import met_by, words
from tests.telemetry.spans import Traced, set_for_the_program, to_file, to_sdk

GREETS = "file note.md: The note greets the reader."
WRITES = Scripted.call("write_file", path="note.md", content="hello reader\n")
CHILD = (WRITES, "I greeted them.")
TERRA, LUNA = "chat gpt-6.1-terra", "chat gpt-6-luna"
ONE_TASK = ["  invoke_agent child", f"    {TERRA}", "    execute_tool write_file", f"    {TERRA}", f"    {LUNA}"]


def greeting(**fields: Any) -> Task:
    return Task.model_validate({"goal": "Write note.md.", "acceptance_criteria": [GREETS]} | fields)


def delegator(client: Scripted | None = None) -> Delegator:
    client = client or words(CHILD, met_by("hello reader"))
    return Delegator(client=client, model="gpt-6.1-terra", judge_model="gpt-6-luna", max_depth=2)


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Traced]:
    with to_file(monkeypatch, tmp_path / "trace.jsonl") as spans:
        yield spans


@pytest.fixture(params=["file", "sdk"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Traced]:
    """Once in a file, and once in the SDK's in-memory exporters."""
    to = to_sdk(monkeypatch) if request.param == "sdk" else to_file(monkeypatch, tmp_path / "trace.jsonl")
    with to as spans:
        yield spans


async def test_a_batch_of_three_is_one_tree(anywhere: Traced) -> None:
    async with delegator() as own:
        outcomes = [one async for one in own.batches.run([greeting() for _ in range(3)], concurrency=1)]
    assert [one.passed for one in outcomes] == [True] * 3
    assert anywhere.tree() == ["invoke_workflow batch", *ONE_TASK * 3]
    assert len({span.trace for span in anywhere.spans}) == 1
    (batch,) = anywhere.named("invoke_workflow batch")
    assert batch.attributes["delegate.tasks"] == 3


async def test_a_child_is_named_by_its_role(anywhere: Traced) -> None:
    client, roles = words(CHILD, met_by("hello reader")), {"writer": {"description": "Writes."}}
    async with Delegator(client=client, model="gpt-6.1-terra", judge_model="gpt-6-luna", roles=roles) as own:
        await own.run(greeting(role="writer"), greeting())
    (agent,) = anywhere.named("invoke_agent writer")
    assert agent.attributes["gen_ai.agent.name"] == "writer"
    assert len(anywhere.named("invoke_agent child")) == 1


async def test_parallel_items_of_a_batch_keep_their_own_spans(traced: Traced) -> None:
    async with delegator() as own:
        async for _ in own.batches.run([greeting() for _ in range(6)], concurrency=3):
            assert not trace.get_current_span().get_span_context().is_valid  # the consumer's own context
    agents = traced.named("invoke_agent child")
    handles = {span.id: span.attributes["gen_ai.conversation.id"] for span in agents}
    assert len(agents) == len(set(handles.values())) == 6
    children = [span for span in traced.chats if span.attributes["delegate.role"] == "child"]
    assert len(children) == 12
    assert all(span.attributes["gen_ai.conversation.id"] == handles[span.parent] for span in children)


async def test_a_call_has_a_workflow_with_an_agent_per_task(anywhere: Traced) -> None:
    async with delegator() as own:
        result = await own.call({"tasks": [{"goal": "Write note.md."}]})
    assert anywhere.tree() == ["invoke_workflow delegate_task", *ONE_TASK[:-1]]
    workflow, agent, *_ = anywhere.spans
    assert workflow.attributes == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "delegate_task",
        "delegate.run.id": result.run_id,
        "delegate.tasks": 1,
        "delegate.depth": 0,
    }
    assert agent.attributes["gen_ai.conversation.id"] == result.results[0].handle
    assert agent.events == []


async def test_a_model_call_has_its_model_tokens_and_cost(anywhere: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(worker()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy-1234")
        async with Delegator(model="gpt-6.1-terra", judge_model="gpt-6-luna") as own:
            result = await own.run(greeting())
    _, second, judge = anywhere.chats
    assert second.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-6.1-terra",
        "gen_ai.request.max_tokens": 32_000,
        "gen_ai.conversation.id": result.results[0].handle,
        "gen_ai.response.model": "gpt-6.1-terra",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 400,
        "gen_ai.usage.output_tokens": 30,
        "delegate.role": "child",
        "delegate.cost_usd": pytest.approx(0.00055),
        "delegate.cost_provenance": "observed",
    }
    assert judge.attributes["delegate.role"] == "judge"
    assert judge.attributes["gen_ai.output.type"] == "json"
    spent = sum(span.attributes["delegate.cost_usd"] for span in anywhere.chats)
    assert spent == pytest.approx(result.results[0].cost_usd)
    agents = [span for span in anywhere.spans if not span.name.startswith("chat ")]
    assert not any(name.startswith("gen_ai.usage") for span in agents for name in span.attributes)


async def test_criteria_and_verdict_are_events_of_the_judged_work(anywhere: Traced) -> None:
    task = greeting(acceptance_criteria=[GREETS, {"kind": "file", "path": "note.md"}])
    async with delegator() as own:
        await own.run(task)
    (agent,) = anywhere.named("invoke_agent child")
    evaluated = {
        (one["gen_ai.evaluation.name"], one.get("delegate.criterion.id")): one["gen_ai.evaluation.score.label"]
        for one in agent.events
    }
    assert evaluated == {("text", "c1"): "met", ("file", "c2"): "met", ("verdict", None): "PASS"}
    assert agent.events[-1] == {
        "gen_ai.evaluation.name": "verdict",
        "gen_ai.evaluation.score.label": "PASS",
        "gen_ai.evaluation.score.value": 1.0,
        "delegate.code": "met",
        "delegate.decided_by": "judge",
        "delegate.verified": True,
        "delegate.level": "seen",
    }
    assert (agent.attributes["delegate.verdict"], agent.failed) == ("PASS", False)


async def test_a_verdict_on_existing_work_is_a_workflow(traced: Traced) -> None:
    async with delegator(words((), met_by("hello reader"))) as own:
        await own.judge(goal="Greet.", acceptance_criteria=[GREETS], report="hello reader")
    assert traced.tree() == ["invoke_workflow judge", f"  {LUNA}"]
    assert [one["gen_ai.evaluation.name"] for one in traced.spans[0].events] == ["text", "verdict"]


async def test_what_a_child_delegates_is_below_its_tool_call(traced: Traced) -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        goal = request.messages[0].text
        if "boss" in goal and len(request.messages) == 1:
            return Scripted.call("delegate_task", goal="part")
        return "done as asked"

    async with delegator(Scripted(answer)) as own:
        await own.run(Task(goal="boss"))
    assert traced.tree() == [
        "invoke_workflow delegate_task",
        "  invoke_agent child",
        f"    {TERRA}",
        "    execute_tool delegate_task",
        "      invoke_workflow delegate_task",
        "        invoke_agent child",
        f"          {TERRA}",
        f"    {TERRA}",
    ]
    assert [one.attributes["delegate.depth"] for one in traced.named("invoke_workflow delegate_task")] == [0, 1]


def test_the_host_s_span_is_the_parent_on_every_way_in(traced: Traced) -> None:
    tracer = trace.get_tracer("host")
    with tracer.start_as_current_span("host"), delegator() as own:
        own.run_sync(greeting())  # on a loop in another thread
    assert traced.tree() == ["host", "  invoke_workflow delegate_task", *[f"  {line}" for line in ONE_TASK]]


async def test_a_call_in_the_background_is_below_the_host_s_span(traced: Traced) -> None:
    async with delegator() as own:
        with trace.get_tracer("host").start_as_current_span("host"):
            delegation = await own.background.start(greeting())
        await delegation
    assert traced.tree()[:2] == ["host", "  invoke_workflow delegate_task"]
    assert len({span.trace for span in traced.spans}) == 1


async def test_a_remote_parent_s_trace_goes_on(traced: Traced) -> None:
    remote = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
    token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    try:
        async with delegator() as own:
            await own.run(greeting())
    finally:
        otel_context.detach(token)
    assert {span.trace for span in traced.spans} == {f"{0xABC:032x}"}
    assert traced.spans[0].parent == f"{0xDEF:016x}"


async def test_a_failed_child_and_its_model_calls_have_codes(traced: Traced) -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        raise ProviderError("auth", "the key is wrong", provider="openai")

    async with delegator(Scripted(answer)) as own:
        await own.run(greeting())
    _, agent, chat = traced.spans
    assert (chat.failed, chat.attributes["error.type"]) == (True, "auth")
    assert (agent.failed, agent.attributes["error.type"], agent.attributes["delegate.code"]) == (
        True,
        "auth",
        "run_failed",
    )


async def test_a_failed_tool_call_has_its_status(traced: Traced) -> None:
    async with delegator(words([Scripted.call("read_file", path="nowhere.txt"), "There is none."])) as own:
        await own.run(greeting(acceptance_criteria=[]))
    (called,) = traced.named("execute_tool read_file")
    assert (called.failed, called.attributes["error.type"]) == (True, "error")


async def test_suppressed_instrumentation_traces_nothing(traced: Traced) -> None:
    token = otel_context.attach(otel_context.set_value("suppress_instrumentation", True))
    try:
        async with delegator() as own:
            await own.run(greeting())
    finally:
        otel_context.detach(token)
    assert traced.spans == []


async def test_a_receiver_that_fails_does_not_fail_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(trace.TracerProvider):
        def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
            return BrokenTracer()

    class BrokenTracer(trace.NoOpTracer):
        def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
            raise RuntimeError("no space left")

    with set_for_the_program(monkeypatch, trace=Broken()):
        async with delegator() as own:
            result = await own.run(greeting())
    assert result.all_pass
    assert "could not be emitted" in caplog.text


async def test_a_batch_that_is_left_early_ends_all_its_spans(traced: Traced) -> None:
    async with delegator() as own:
        async with aclosing(own.batches.run([greeting() for _ in range(3)], concurrency=1).outcomes()) as outcomes:
            await anext(outcomes)
        assert traced.tree()[:6] == ["invoke_workflow batch", *ONE_TASK]


async def test_usage_that_a_provider_reports_of_its_cache_is_told(traced: Traced) -> None:
    usage = Usage(
        model_calls=1, input_tokens=100, cached_tokens=60, cache_write_tokens=20, output_tokens=9, reasoning_tokens=4
    )
    async with delegator(Scripted([ChatReply("done as asked", "end", usage)])) as own:
        await own.run(greeting(acceptance_criteria=[]))
    (chat,) = traced.chats
    told = {name: value for name, value in chat.attributes.items() if name.startswith("gen_ai.usage.")}
    assert told == {
        conventions.INPUT_TOKENS: 100,
        conventions.CACHE_READ_TOKENS: 60,
        conventions.CACHE_WRITE_TOKENS: 20,
        conventions.OUTPUT_TOKENS: 9,
        conventions.REASONING_TOKENS: 4,
    }


async def test_a_run_that_starts_while_a_thread_loads_opentelemetry_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry.trace", "opentelemetry._logs", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # as far as it is loaded
    async with Delegator(client=Scripted(["I did it."])) as delegator:
        (result,) = (await delegator.run(Task(goal="Do it."))).results
    assert result.status == "completed"


def test_nothing_of_opentelemetry_is_loaded_while_nobody_listens() -> None:
    code = """
import sys
from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
with Delegator(client=Scripted(["I did all that was asked."])) as delegator:
    print(delegator.run_sync(Task(goal="Do it.")).results[0].status)
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["completed", "[]"]
