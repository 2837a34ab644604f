"""A model call is counted once, also where an SDK is traced by an instrumentation of its own."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from tests.cli.command import worker
from tests.support.model_server import ModelServer
from tests.telemetry.spans import Span, Traced, to_file, to_sdk

OURS = ("chat ", "invoke_", "execute_tool ")
MODELS = {
    "openai": ("gpt-6.1-terra", "openai_url"),
    "anthropic": ("claude-haiku-4-5", "anthropic_url"),
    "google": ("gemini-3.8-flash", "google_url"),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(worker()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy-1234")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.google_url)
        monkeypatch.setenv("GEMINI_API_KEY", "dummy")
        yield server


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Traced]:
    with to_file(monkeypatch, tmp_path / "trace.jsonl") as spans:
        yield spans


async def run(model: str) -> None:
    async with Delegator(model=model) as delegator:
        result = await delegator.run(Task(goal="Write note.md."))
    assert result.all_pass, result


def with_tokens(traced: Traced) -> list[Span]:
    """The spans that a backend adds up."""
    names = ("gen_ai.usage.input_tokens", "llm.token_count.prompt")
    return [span for span in traced.spans if any(name in span.attributes for name in names)]


@pytest.mark.parametrize("provider", MODELS)
async def test_each_model_call_has_one_span(server: ModelServer, traced: Traced, provider: str) -> None:
    await run(MODELS[provider][0])
    assert len(with_tokens(traced)) == len(traced.chats) == len(server.calls) == 2
    names = {"openai": "openai", "anthropic": "anthropic", "google": "gcp.gen_ai"}
    assert {span.attributes["gen_ai.provider.name"] for span in traced.chats} == {names[provider]}


async def test_a_client_that_traces_itself_gets_no_second_span(traced: Traced) -> None:
    class Gateway(Scripted):
        traces_itself = True

    async with Delegator(client=Gateway(["I did it."]), model="gpt-6.1-terra") as delegator:
        await delegator.run(Task(goal="Do it."))
    assert traced.tree() == ["invoke_workflow delegate_task", "  invoke_agent child"]


def instrumentor(module: str, name: str) -> Any:
    """The instrumentation of a package that is rarely installed here."""
    package = pytest.importorskip(module, reason=f"{module} isn't installed", exc_type=ImportError)
    return getattr(package, name)()


@pytest.mark.parametrize(
    ("module", "name", "provider", "honors_suppression"),
    [
        ("opentelemetry.instrumentation.openai_v2", "OpenAIInstrumentor", "openai", True),
        ("openinference.instrumentation.openai", "OpenAIInstrumentor", "openai", True),
        ("opentelemetry.instrumentation.google_genai", "GoogleGenAiSdkInstrumentor", "google", False),
    ],
)
async def test_with_an_sdk_s_instrumentation_tokens_are_counted_once(
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
    provider: str,
    honors_suppression: bool,
) -> None:
    tracing = instrumentor(module, name)
    with to_sdk(monkeypatch) as traced:
        tracing.instrument(tracer_provider=trace.get_tracer_provider(), skip_dep_check=True)
        try:
            await run(MODELS[provider][0])
        finally:
            tracing.uninstrument()
        assert len(with_tokens(traced)) == len(traced.chats) == len(server.calls) == 2
        others = [span for span in traced.spans if not span.name.startswith(OURS)]
        assert len(others) == (0 if honors_suppression else 2)
        assert {span.parent for span in others} <= {chat.id for chat in traced.chats}
