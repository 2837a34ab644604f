"""delegate, through its public interface: one `Delegator.call` for every three tasks."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from delegate import Delegator, Settings
from delegate.models.providers import Endpoint, connect
from delegate.types.ports import ChatClient, ChatRequest, Message, Tool, ToolCall, ToolReply, ToolSpec
from scripts.bench.workload import CRITERIA, FUNCTIONS, Json, Workload, answer, goal, use_function
from tests.support.model_server import Call, ModelServer

Criteria = Callable[[], list[str]]
"""Returns the criteria of the next task."""


def _same() -> list[str]:
    return list(CRITERIA)


class Ours:
    """Children, tools, records, checks and the judge, all as shipped."""

    def __init__(self, delegator: Delegator, url: str, work: Workload, criteria: Criteria) -> None:
        self._delegator = delegator
        self._criteria = criteria
        self._url = url
        self._client: ChatClient | None = None
        self._model = work.model
        self._system = work.child_system
        self._tools = tuple(_spec(tool["function"]) for tool in work.tools)
        self._messages = list(_messages(work.conversation[1:]))

    async def delegate(self, count: int) -> None:
        await asyncio.gather(
            *(_call(self._delegator, first, min(3, count - first), self._criteria) for first in range(0, count, 3))
        )

    async def converse(self, messages: int) -> None:
        if self._client is None:  # whose SDK isn't loaded earlier than by a call
            self._client = connect(Endpoint("openai", f"{self._url}/v1", "dummy"))
        turns = self._messages[: messages - 1]  # the system text is a message on the wire
        await self._client.complete(ChatRequest(self._model, self._system, turns, 1000, self._tools))

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


@asynccontextmanager
async def open_contender(
    url: str, work: Workload, folder: Path, criteria: Criteria = _same, tools: Sequence[Tool] | None = None
) -> AsyncGenerator[Ours]:
    """Open one delegator for all calls. Single model calls use a separate client of the same kind."""
    async with _delegator(url, folder, tools) as delegator:
        ours = Ours(delegator, url, work, criteria)
        yield ours
        await ours.aclose()


async def capture() -> Workload:
    """Run a delegation of each kind and record its requests for the other contenders."""
    return Workload.from_calls(await _calls(None), Workload.from_calls(await _calls(functions())))


async def _calls(tools: Sequence[Tool] | None) -> list[Call]:
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder, ModelServer(answer) as server:
        async with _delegator(server.url, Path(folder), tools) as delegator:
            await _call(delegator, 0, 1, _same)
        return server.calls


def functions() -> list[Tool]:
    """Return the children's tools where they are functions."""
    path = {"path": {"type": "string"}}
    given = ({**path, "content": {"type": "string"}}, path)
    return [_function(name, properties) for name, properties in zip(FUNCTIONS, given, strict=True)]


def _function(name: str, properties: Json) -> Tool:
    async def call(args: Mapping[str, Any]) -> str:
        return use_function(name, args)

    parameters: Json = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name, f"{name.replace('_', ' a ').capitalize()}.", parameters, call)


def _delegator(url: str, folder: Path, tools: Sequence[Tool] | None) -> Delegator:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        os.environ.pop(name, None)  # only the local server's models may judge
    os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "dummy"}
    return Delegator(Settings(home=folder), tools=tools)


async def _call(delegator: Delegator, first: int, count: int, criteria: Criteria) -> None:
    tasks = [{"goal": goal(first + n), "acceptance_criteria": criteria()} for n in range(count)]
    run = await delegator.call({"tasks": tasks})
    assert run.error is None, run.error
    for result in run.results:
        assert result.verdict is not None
        assert result.verdict.verdict == "PASS", f"{result.status}: {result.verdict.reasoning}"
        assert result.receipts.ok == 2, result.receipts


def _spec(function: Json) -> ToolSpec:
    return ToolSpec(function["name"], function["description"], function["parameters"])


def _messages(conversation: list[Json]) -> Iterator[Message]:
    """Convert the conversation to delegate's own messages."""
    for message in conversation:
        if message["role"] == "user":
            yield Message("user", message["content"])
        elif message["role"] == "assistant":
            (call,) = message["tool_calls"]
            raw = call["function"]["arguments"]
            yield Message(
                "assistant", tool_calls=(ToolCall(call["id"], call["function"]["name"], json.loads(raw), raw),)
            )
        else:
            reply = ToolReply(message["tool_call_id"], "read_file", message["content"])
            yield Message("tool", tool_replies=(reply,))
