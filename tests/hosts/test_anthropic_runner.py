"""What only the anthropic SDK's tool runner has: spans, error marks, two kinds of tools, and a thread to interrupt."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable
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
from delegate.ports import ChatReply, ChatRequest
from delegate.types import JsonObject, Receipt
from tests.hosts.drivers.anthropic_runner import WATCHING
from tests.support.model_server import Call, ModelServer, Reply

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}
RUN: Any = {
    "model": "any",
    "max_tokens": 1_000,
    "messages": [{"role": "user", "content": "go"}],
    "max_iterations": 5,
    "thread": False,  # each request has all results
}


def turns(*made: tuple[str, JsonObject]) -> Callable[[Call], Reply]:
    """A parent that makes these calls, one in each turn, and then ends."""

    def answer(call: Call) -> Reply:
        done = len(call.tool_results)
        return Reply(tool_calls=(made[done],)) if done < len(made) else Reply("All done.")

    return answer


def calling(*calls: tuple[str, JsonObject]) -> Scripted:
    """A child that makes these calls in its first turn, and then reports."""

    def answer(request: ChatRequest) -> ChatReply | str:
        return "I looked it up." if len(request.messages) > 1 or not calls else Scripted.calls(*calls)

    return Scripted(answer)


async def run(server: ModelServer, *tools: Any, **options: Any) -> None:
    """One run of an async client's runner."""
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
    """The record of the only child's tool calls."""
    (answer,) = answers
    assert answer.report
    record = await delegator.read(answer.report.results[0].handle or "")
    assert record
    return [Receipt.model_validate(one) for one in record["run"]["receipts"]]


@beta_async_tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


@beta_tool
def count(word: str) -> Any:
    """Count a word's letters."""
    return [{"type": "text", "text": f"{len(word)} letters"}, {"type": "image", "source": {}}]


@beta_async_tool
async def break_down() -> str:
    """Never works."""
    raise ToolError("out of order")


# ------------------------------------------------------------------------------------------------ what the runner knows


async def test_a_refused_call_is_marked_as_an_error() -> None:
    with ModelServer(turns(("delegate_task", {"gaol": "x"}), ("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await run(server, anthropic_runner.tool(delegator))
    assert [one.get("is_error", False) for one in results(server)] == [True, False]


async def test_report_and_tokens_are_handed_to_the_program() -> None:
    answers: list[ToolAnswer] = []
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await run(server, anthropic_runner.tool(delegator, on_answer=answers.append))
    (answer,) = answers
    assert answer.structured
    assert answer.structured["results"][0]["summary"] == "I looked it up."
    assert answer.usage.total_tokens > 0


@pytest.mark.parametrize("traced", [True, False])
async def test_the_calls_of_a_traced_run_share_its_limits_and_the_next_run_has_its_own(traced: bool) -> None:
    refused: list[list[bool]] = []
    with ModelServer(turns(("delegate_task", GOAL), ("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            tool = anthropic_runner.tool(delegator)
            for _ in range(2):
                await run(server, tool, open_telemetry={"traces": traced})
                refused.append(["budget_exceeded" in str(one["content"]) for one in results(server)])
    assert refused == [[False, traced], [False, traced]]


async def test_a_run_that_is_named_shares_its_limits_without_traces() -> None:
    with ModelServer(turns(("delegate_task", GOAL), ("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            tool = anthropic_runner.tool(delegator, parent=Parent(run_id="this one"))
            await run(server, tool, open_telemetry={"traces": False})
    assert ["budget_exceeded" in str(one["content"]) for one in results(server)] == [False, True]


async def test_a_parent_gets_no_child_of_a_tier_above_its_own() -> None:
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model="gpt-6.1-terra") as delegator:
            await run(server, anthropic_runner.tool(delegator, parent=Parent(model=CHEAP)))
    assert "tier" in str(results(server)[0]["content"])


async def test_spans_say_what_happens_and_none_of_the_model_s_words() -> None:
    WATCHING.said.clear()
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await run(server, anthropic_runner.tool(delegator))
    said = "\n".join(WATCHING.said)
    assert "task 0 thinks" in said
    assert "looked it up" not in said


async def test_a_report_that_was_cut_can_be_read_on_in_a_later_run() -> None:
    answers: list[ToolAnswer] = []
    client = Scripted(lambda request: "x" * 3_000 + " the end")
    async with Delegator(client=client, model=CHEAP, result_chars=1_000) as delegator:
        with ModelServer(turns(("delegate_task", GOAL))) as server:
            await run(server, anthropic_runner.tool(delegator, on_answer=answers.append))
        assert answers[0].report
        reader = anthropic_runner.read_tool(delegator)
        wanted = {"handle": answers[0].report.results[0].handle, "offset": 2_500}
        with ModelServer(turns((reader.name, wanted))) as server:
            await run(server, reader)
            (result,) = results(server)
    assert ["the end" in answers[0].text, "the end" in str(result["content"])] == [False, True]


# ----------------------------------------------------------------------------------------- the runner that is not async


def test_an_interrupt_of_a_sync_runner_stops_its_children() -> None:
    begun = threading.Event()
    ended: list[str] = []

    async def hang(request: ChatRequest) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the child")
        return ""

    def interrupt() -> None:
        begun.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ModelServer(turns(("delegate_task", GOAL))) as server, Delegator(client=Scripted(hang), model=CHEAP) as host:
        watching = threading.Thread(target=interrupt)
        watching.start()
        with pytest.raises(KeyboardInterrupt):
            run_sync(server, anthropic_runner.tool_sync(host))
        watching.join()
    assert ended == ["the child"]


def test_a_sync_runner_marks_errors_and_hands_over_reports_too() -> None:
    answers: list[ToolAnswer] = []
    script = turns(("delegate_task", {"gaol": "x"}), ("delegate_task", GOAL))
    with ModelServer(script) as server, Delegator(client=calling(), model=CHEAP) as host:
        run_sync(server, anthropic_runner.tool_sync(host, on_answer=answers.append))
    assert [one.get("is_error", False) for one in results(server)] == [True, False]
    assert [answer.is_error for answer in answers] == [True, False]


# ------------------------------------------------------------------------------------------------ tools for children


async def test_a_child_has_the_tools_of_its_parent_and_no_others() -> None:
    client = calling(("look_up", {"word": "tide"}), ("count", {"word": "tide"}), ("break_down", {}))
    answers: list[ToolAnswer] = []
    given = anthropic_runner.child_tools([look_up, count, break_down])
    with ModelServer(turns(("delegate_task", GOAL))) as server:
        async with Delegator(client=client, model=CHEAP, tools=given) as delegator:
            await run(server, look_up, anthropic_runner.tool(delegator, on_answer=answers.append))
            found = await receipts(delegator, answers)
    assert [tool.name for tool in client.requests[0].tools] == ["look_up", "count", "break_down"]
    told = [(one.status, one.output) for one in found]
    assert told == [("ok", "tide: found"), ("ok", "4 letters\n[image]"), ("error", "out of order")]


async def test_our_own_tools_and_those_of_the_api_are_never_among_the_children_s() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        own = [anthropic_runner.tool(delegator), anthropic_runner.tool_sync(delegator)]
        own += [anthropic_runner.read_tool(delegator), anthropic_runner.read_tool_sync(delegator)]
        own += [anthropic_runner.think_tool(delegator), anthropic_runner.think_tool_sync(delegator)]
        web = {"type": "web_search_20250305", "name": "web_search"}
        assert [tool.name for tool in anthropic_runner.child_tools([*own, web, look_up])] == ["look_up"]
