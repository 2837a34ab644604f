"""Features that only the anthropic SDK's tool runner has: spans, runs without traces, and a thread to interrupt."""

import asyncio
import signal
import threading
from collections.abc import Iterable
from typing import Any, cast

import pytest

pytest.importorskip("anthropic.lib.tools", reason="anthropic isn't installed here: make hosts")
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk isn't installed here: make hosts")

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.tools import BetaAsyncToolRunner, BetaToolRunner, ToolError

from delegate import Delegator, Parent
from delegate.hosts import anthropic_runner
from delegate.hosts.host_tool import ToolAnswer
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Receipt
from delegate.types.ports import ChatRequest
from tests.hosts.drivers.anthropic_runner import SPANS
from tests.hosts.world import calling, turns
from tests.support.model_server import ModelServer

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}
RUN: Any = {
    "model": "any",
    "max_tokens": 1_000,
    "messages": [{"role": "user", "content": "go"}],
    "max_iterations": 5,
    "thread": False,  # each request has all results
}


async def run(server: ModelServer, *tools: Any, **options: Any) -> None:
    """One run of an async client's runner. `options` are the client's."""
    async with AsyncAnthropic(base_url=server.anthropic_url, api_key="dummy", **options) as client:
        runner = cast("BetaAsyncToolRunner[Any]", client.beta.messages.tool_runner(tools=tools, **RUN))
        await runner.until_done()


def run_sync(server: ModelServer, *tools: Any) -> None:
    """One run of a sync client's runner."""
    with Anthropic(base_url=server.anthropic_url, api_key="dummy") as client:
        runner = cast("BetaToolRunner[Any]", client.beta.messages.tool_runner(tools=tools, **RUN))
        runner.until_done()


def results(server: ModelServer) -> list[JsonObject]:
    """The tool results that the parent's model was sent last."""
    content = [block for message in server.calls[-1].body["messages"] for block in message["content"]]
    return [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]


async def receipts(delegator: Delegator, answers: Iterable[ToolAnswer]) -> list[Receipt]:
    """The recorded tool calls of the only child."""
    (answer,) = answers
    assert answer.result
    record = await delegator.records.read(answer.result.results[0].handle or "")
    assert record
    return [Receipt.model_validate(one) for one in record["run"]["receipts"]]


@beta_async_tool
async def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: found"


@beta_tool
def count(word: str) -> Any:
    """Count the letters of a word."""
    return [{"type": "text", "text": f"{len(word)} letters"}, {"type": "image", "source": {}}]


@beta_async_tool
async def break_down() -> str:
    """Always fail."""
    raise ToolError("out of order")


# ------------------------------------------------------------------------------------------------------ runs and spans


async def test_each_call_of_an_untraced_run_has_its_own_ledger() -> None:
    with ModelServer(turns(("delegate_task", GOAL), ("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            await run(server, anthropic_runner.tool(delegator), open_telemetry={"traces": False})
    assert ["budget_exceeded" in str(one["content"]) for one in results(server)] == [False, False]


async def test_calls_of_an_untraced_run_with_an_id_share_a_ledger() -> None:
    with ModelServer(turns(("delegate_task", GOAL), ("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            tool = anthropic_runner.tool(delegator, parent=Parent(run_id="a run"))
            await run(server, tool, open_telemetry={"traces": False})
    assert ["budget_exceeded" in str(one["content"]) for one in results(server)] == [False, True]


async def test_spans_have_no_text_of_a_model() -> None:
    SPANS.names.clear()
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await run(server, anthropic_runner.tool(delegator))
    names = "\n".join(SPANS.names)
    assert "task 1 thinks" in names
    assert "looked it up" not in names


def test_interrupting_a_sync_runner_stops_its_children() -> None:
    started = threading.Event()
    ended: list[str] = []

    async def hang(request: ChatRequest) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the child")
        return ""

    def interrupt() -> None:
        started.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ModelServer(turns(("delegate_task", GOAL))) as server, Delegator(client=Scripted(hang), model=CHEAP) as host:
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run_sync(server, anthropic_runner.tool_sync(host))
        interrupter.join()
    assert ended == ["the child"]


# ------------------------------------------------------------------------------------------------ tools for children


async def test_receipts_have_the_text_of_a_result_or_error() -> None:
    client = calling(("look_up", {"word": "tide"}), ("count", {"word": "tide"}), ("break_down", {}))
    answers: list[ToolAnswer] = []
    tools = anthropic_runner.child_tools([look_up, count, break_down])
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=client, model=CHEAP, tools=tools) as delegator:
            await run(server, anthropic_runner.tool(delegator, on_answer=answers.append))
            recorded = [(one.status, one.output) for one in await receipts(delegator, answers)]
    assert recorded == [("ok", "tide: found"), ("ok", "4 letters\n[image]"), ("error", "out of order")]


def test_tools_that_run_at_anthropic_are_omitted() -> None:
    web = {"type": "web_search_20250305", "name": "web_search"}
    assert [tool.name for tool in anthropic_runner.child_tools([web, look_up])] == ["look_up"]
