"""Tool arguments that are nested too deeply, or ambiguous, are an error of the call, and the child continues."""

from typing import Any

import pytest

from delegate import Delegator, Task
from tests.support.model_server import Call, ModelServer, Reply

WAYS = {
    "openai": ("gpt-6-luna", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("claude-haiku-5-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "google": ("gemini-2.5-flash-lite", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"thought": value}
    return value


def script(call: Call) -> Reply:
    if call.tool_results:
        return Reply("did the work as asked")
    return Reply(tool_calls=(("think", nested(400)),))


@pytest.mark.parametrize("provider", WAYS)
async def test_a_call_with_endless_arguments_is_answered_with_an_error(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, key, url = WAYS[provider]
    with ModelServer(script) as server:
        monkeypatch.setenv(key, "dummy-key")
        monkeypatch.setenv(url, getattr(server, f"{provider}_url"))
        async with Delegator() as delegator:
            run = await delegator.run(Task(goal="do the work", model=model))
    (result,) = run.results
    assert (result.status, result.report) == ("completed", "did the work as asked"), result.error
    assert (result.receipts.total, result.receipts.error) == (1, 1)


class Twice(dict[str, Any]):
    """Is written as an object with the same key twice."""

    def items(self) -> Any:
        return [("path", "a.md"), ("path", "b.md"), ("content", "x")]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_call_with_an_argument_twice_is_answered_with_an_error(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def reply(call: Call) -> Reply:
        told.extend(call.tool_results)
        return Reply("done") if call.tool_results else Reply(tool_calls=(("write_file", Twice(path="a.md")),))

    model, key, url = WAYS[provider]
    with ModelServer(reply) as server:
        monkeypatch.setenv(key, "dummy-key")
        monkeypatch.setenv(url, getattr(server, f"{provider}_url"))
        async with Delegator() as delegator:
            (result,) = (await delegator.run(Task(goal="do the work", model=model))).results
    assert (result.receipts.total, result.receipts.error, result.artifacts) == (1, 1, ())
    assert "with each key once" in str(told)
