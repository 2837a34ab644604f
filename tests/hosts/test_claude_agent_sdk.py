"""What only the Claude Agent SDK has: Claude Code between the model and the tool, and servers in this process."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk isn't installed here: make hosts")

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, create_sdk_mcp_server, query
from claude_agent_sdk import tool as sdk_tool

from delegate import Delegator, Parent
from delegate.hosts import claude_agent_sdk
from delegate.hosts.host_tool import ToolAnswer
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatReply, ChatRequest
from delegate.types import JsonObject, Receipt
from tests.hosts.drivers.claude_agent_sdk import options
from tests.support.model_server import Call, ModelServer, Reply

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}
OURS = "mcp__delegate__delegate_task"


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


async def results(model: ModelServer, server: McpSdkServerConfig, *names: str) -> list[JsonObject]:
    """The tool results that the parent's model was sent last, after one run of Claude Code."""
    async for _ in query(prompt="go", options=options(model.anthropic_url, server, *names)):
        pass
    contents = [one["content"] for one in model.calls[-1].body["messages"] if isinstance(one["content"], list)]
    return [part for content in contents for part in content if part["type"] == "tool_result"]


# ----------------------------------------------------------------------------------------- what reaches Claude Code


async def test_a_refused_call_is_marked_as_an_error() -> None:
    with ModelServer(turns((OURS, {"gaol": "x"}), (OURS, GOAL))) as model:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            found = await results(model, claude_agent_sdk.server(delegator))
    assert [one.get("is_error", False) for one in found] == [True, False]


async def test_the_model_is_shown_the_whole_schema_of_a_server_that_checks_nothing() -> None:
    with ModelServer(turns()) as model:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await results(model, claude_agent_sdk.server(delegator))
            (shown,) = [one for one in model.calls[-1].body["tools"] if one["name"] == OURS]
            assert shown["input_schema"] == delegator.tool("mcp")["inputSchema"]


async def test_the_tool_alone_works_on_a_server_of_the_sdk_s() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        server = create_sdk_mcp_server("delegate", tools=[claude_agent_sdk.tool(delegator)])
        with ModelServer(turns((OURS, GOAL))) as model:
            (result,) = await results(model, server)
    assert "I looked it up." in str(result["content"])


async def test_report_and_tokens_are_handed_to_the_program() -> None:
    answers: list[ToolAnswer] = []
    with ModelServer(turns((OURS, GOAL))) as model:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await results(model, claude_agent_sdk.server(delegator, on_answer=answers.append))
    (answer,) = answers
    assert answer.structured
    assert answer.structured["results"][0]["summary"] == "I looked it up."
    assert answer.usage.total_tokens > 0


async def test_a_long_result_is_not_put_in_a_file() -> None:
    words = "word " * 40_000
    with ModelServer(turns((OURS, GOAL))) as model:
        async with Delegator(client=Scripted(lambda _: words), model=CHEAP, result_chars=210_000) as delegator:
            (result,) = await results(model, claude_agent_sdk.server(delegator))
    assert len(str(result["content"])) > 200_000


async def test_a_report_that_was_cut_can_be_read_on() -> None:
    reader = ""
    texts: list[str] = []

    def parent(call: Call) -> Reply:
        texts[:] = call.tool_results
        if not texts:
            return Reply(tool_calls=((OURS, GOAL),))
        if len(texts) == 2:
            return Reply("All done.")
        handle = texts[0].split("handle ")[-1].split()[0].strip("].,;:")
        return Reply(tool_calls=((reader, {"handle": handle, "offset": 2_500}),))

    client = Scripted(lambda _: "x" * 3_000 + " the end")
    with ModelServer(parent) as model:
        async with Delegator(client=client, model=CHEAP, result_chars=1_000) as delegator:
            read = claude_agent_sdk.read_tool(delegator)
            reader = f"mcp__delegate__{read.name}"
            await results(model, claude_agent_sdk.server(delegator, tools=[read]), "delegate_task", read.name)
    assert ["the end" in text for text in texts] == [False, True]


# --------------------------------------------------------------------------------------------------- what it knows


async def test_two_sessions_at_once_have_their_own_limits() -> None:
    both = asyncio.Barrier(2)

    async def child(request: ChatRequest) -> str:
        await both.wait()
        return "I looked it up."

    with ModelServer(turns((OURS, GOAL))) as model:
        async with Delegator(client=Scripted(child), model=CHEAP, max_children=1) as delegator:
            server = claude_agent_sdk.server(delegator)
            await asyncio.wait_for(asyncio.gather(results(model, server), results(model, server)), 20)
    told = [call.tool_results[0] for call in model.calls if call.tool_results]
    assert ["I looked it up." in text for text in told] == [True, True]


async def test_calls_of_a_run_that_is_named_share_its_limits() -> None:
    with ModelServer(turns((OURS, GOAL), (OURS, GOAL))) as model:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            found = await results(model, claude_agent_sdk.server(delegator, parent=Parent(run_id="this one")))
    assert ["budget_exceeded" in str(one["content"]) for one in found] == [False, True]


async def test_a_parent_gets_no_child_of_a_tier_above_its_own() -> None:
    with ModelServer(turns((OURS, GOAL))) as model:
        async with Delegator(client=calling(), model="gpt-6.1-terra") as delegator:
            (result,) = await results(model, claude_agent_sdk.server(delegator, parent=Parent(model=CHEAP)))
    assert "tier" in str(result["content"])


# ------------------------------------------------------------------------------------------------ tools for children


class Word(TypedDict):
    word: Annotated[str, "What to look up"]
    times: NotRequired[int]


async def _look_up(arguments: JsonObject) -> JsonObject:
    if arguments["word"] == "nothing":
        return {"content": [{"type": "text", "text": "not found"}], "is_error": True}
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": f"{arguments['word']}: found"}, image]}


WORD: JsonObject = {"type": "string", "description": "What to look up"}
FORMS: list[Any] = [
    Word,
    {"word": Annotated[str, "What to look up"]},
    {"type": "object", "properties": {"word": WORD}, "required": ["word"]},
]


@pytest.mark.parametrize("schema", FORMS, ids=["typed dict", "types", "JSON schema"])
async def test_a_child_uses_tools_of_the_program_s_and_no_others(schema: Any) -> None:
    look_up = sdk_tool("look_up", "Looks a word up.", schema)(_look_up)
    client = calling(*(("look_up", {"word": word}) for word in ("tide", "nothing", 3)))
    async with Delegator(client=client, model=CHEAP, tools=claude_agent_sdk.child_tools([look_up])) as delegator:
        report = await delegator.call(GOAL)
        record = await delegator.read(report.results[0].handle or "")
        assert record
    found = [Receipt.model_validate(one) for one in record["run"]["receipts"]]
    assert [tool.name for tool in client.requests[0].tools] == ["look_up"]
    shown = client.requests[0].tools[0].parameters
    assert (shown["required"], shown["properties"]["word"]["description"]) == (["word"], "What to look up")
    told = [(one.status, one.output) for one in found[:2]]
    assert told == [("ok", "tide: found\n[image]"), ("error", "not found")]
    assert (found[2].status, "don't match its schema" in found[2].output) == ("error", True)


async def test_our_own_tools_are_never_among_the_children_s() -> None:
    look_up: SdkMcpTool[Any] = sdk_tool("look_up", "Looks a word up.", {"word": str})(_look_up)
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        own = [claude_agent_sdk.tool, claude_agent_sdk.read_tool, claude_agent_sdk.think_tool]
        given = [*(make(delegator) for make in own), look_up]
        assert [tool.name for tool in claude_agent_sdk.child_tools(given)] == ["look_up"]
