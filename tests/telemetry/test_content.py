"""Prompts, replies, arguments, results and reasons are traced only if the operator asks, and never with a secret."""

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task, Tool
from delegate.models.providers.scripted import Scripted
from delegate.telemetry import conventions
from delegate.testing import judge_reply
from delegate.types import Parent, Usage
from delegate.types.ports import ChatReply, ChatRequest, ToolCall
from tests.support.words import is_judge
from tests.telemetry.spans import Traced, to_file

KEY = "sk-ant-api03-" + "q7Zr" * 20
"""A key in a known format."""
PASSWORD = "correct-horse-battery-9"
"""The value of a secret variable."""
CAPTURE = conventions.CAPTURE_CONTENT


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    monkeypatch.delenv(CAPTURE, raising=False)


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Traced]:
    with to_file(monkeypatch, tmp_path / "trace.jsonl") as spans:
        yield spans


def reply(text: str, *calls: tuple[str, str, Any], served: str | None = None) -> ChatReply:
    made = tuple(ToolCall(id, name, arguments, str(arguments)) for id, name, arguments in calls)
    usage = Usage(model_calls=1, input_tokens=10, output_tokens=5)
    return ChatReply(text, "tool_calls" if made else "end", usage, made, model_served=served, stop_detail=text)


async def run(said: str, task: Task | None = None) -> RunResult:
    """Run a child, a judge and tools that put `said` wherever they can."""

    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return judge_reply(c1=("not_met", said), c2=("met", said))
        if len(request.messages) == 1:
            calls: list[tuple[str, Any]] = [
                ("echo", {"text": said, said: [said]}),
                (f"no {said}", {"text": said}),
                ("fail", {}),
                ("echo", None),
            ]
            made = [(f"call {said} {n}", name, arguments) for n, (name, arguments) in enumerate(calls)]
            return reply(said, *made, served=f"model {said}")
        return reply(f"I report {said}.")

    async def echo(arguments: Mapping[str, Any]) -> str:
        return f"echo of {arguments['text']}"

    async def fail(arguments: Mapping[str, Any]) -> str:
        raise ValueError(said)

    tools = [Tool(name, said, {"type": "object"}, call) for name, call in (("echo", echo), ("fail", fail))]
    task = task or Task.model_validate(
        {
            "goal": f"Do {said}.",
            "context": said,
            "acceptance_criteria": [f"report: It says {said}.", "report: It is there."],
        }
    )
    async with Delegator(
        client=Scripted(answer), tools=tools, model="gpt-6.1-terra", judge_model="gpt-6-luna"
    ) as delegator:
        return await delegator.run(task, parent=Parent(run_id=f"run of {said[:120]}" if said.isascii() else None))


async def test_without_the_operator_s_word_no_text_is_traced(traced: Traced) -> None:
    result = await run("quixotic")
    assert "quixotic" in str(result.results[0].report)
    kept = traced.text.replace("run of quixotic", "")  # the host's own id of its run
    assert "quixotic" not in kept
    assert "echo of" not in kept
    assert not {name for span in traced.spans for name in span.attributes} & {
        conventions.SYSTEM_INSTRUCTIONS,
        conventions.INPUT_MESSAGES,
        conventions.OUTPUT_MESSAGES,
        conventions.TOOL_ARGUMENTS,
        conventions.TOOL_RESULT,
    }
    assert [span.name for span in traced.spans if "tool" in span.name] == ["execute_tool echo", "execute_tool fail"]


async def test_a_crash_is_traced_by_its_code_and_without_its_message(traced: Traced) -> None:
    async def runner(job: Any) -> str:
        raise RuntimeError("quixotic")

    async with Delegator(runner=runner, judge_model="gpt-6-luna") as delegator:
        await delegator.run(Task(goal="Do it."))
    (agent,) = traced.named("invoke_agent child")
    assert (agent.failed, agent.attributes["error.type"]) == (True, "crashed")
    assert "quixotic" not in traced.text


async def test_on_request_messages_and_tool_calls_are_traced(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    await run("quixotic")
    first, second, judge = traced.chats
    (asked,) = json.loads(first.attributes[conventions.INPUT_MESSAGES])
    assert asked["role"] == "user"
    assert "Do quixotic." in asked["parts"][0]["content"]
    assert json.loads(first.attributes[conventions.SYSTEM_INSTRUCTIONS])[0]["type"] == "text"
    (answered,) = json.loads(first.attributes[conventions.OUTPUT_MESSAGES])
    assert answered["finish_reason"] == "tool_call"
    assert answered["parts"][1] == {
        "type": "tool_call",
        "id": "call quixotic 0",
        "name": "echo",
        "arguments": {"text": "quixotic", "quixotic": ["quixotic"]},
    }
    replies = json.loads(second.attributes[conventions.INPUT_MESSAGES])[-1]
    assert (replies["role"], replies["parts"][0]["type"]) == ("tool", "tool_call_response")
    assert "echo of quixotic" in replies["parts"][0]["response"]
    assert "quixotic" in judge.attributes[conventions.OUTPUT_MESSAGES]
    (tool,) = traced.named("execute_tool echo")
    assert json.loads(tool.attributes[conventions.TOOL_ARGUMENTS])["text"] == "quixotic"
    assert tool.attributes[conventions.TOOL_RESULT] == "echo of quixotic"
    (agent,) = traced.named("invoke_agent child")
    assert all(event[conventions.EXPLANATION] for event in agent.events)


@pytest.mark.parametrize("secret", [KEY, PASSWORD])
async def test_with_content_on_no_secret_is_traced(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv(CAPTURE, "SPAN_AND_EVENT")
    await run(secret)
    assert traced.chats[0].attributes[conventions.OUTPUT_MESSAGES]
    assert secret not in traced.text
    assert secret[-20:] not in traced.text
    assert "[redacted]" in traced.text


@pytest.mark.parametrize(
    ("value", "in_spans", "in_events"),
    [("span_only", True, False), ("event_only", False, True), ("yes", False, False)],
)
async def test_the_variable_says_where_content_goes(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, value: str, in_spans: bool, in_events: bool
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    await run("quixotic")
    (agent,) = traced.named("invoke_agent child")
    assert (conventions.INPUT_MESSAGES in traced.chats[0].attributes) is in_spans
    assert (conventions.EXPLANATION in agent.events[-1]) is in_events


async def test_long_and_unencodable_texts_are_cut_and_written(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    await run("\ud800 ÿ" + "word " * 20_000, Task(goal="Write."))
    (answered,) = json.loads(traced.chats[0].attributes[conventions.OUTPUT_MESSAGES])
    text = answered["parts"][0]["content"]
    assert text.startswith("? ÿ")
    assert text.endswith("characters left out]")
    assert len(text) < 21_000
    (tool,) = traced.named("execute_tool echo")
    assert len(tool.attributes[conventions.TOOL_ARGUMENTS]) < 21_000
