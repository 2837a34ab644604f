"""Features that only the Claude Agent SDK has: Claude Code between model and tool, and servers in this process."""

import asyncio
import subprocess
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk isn't installed here: make hosts")

from claude_agent_sdk import McpSdkServerConfig, create_sdk_mcp_server, query
from claude_agent_sdk import tool as sdk_tool

from delegate import Delegator, Parent
from delegate.hosts import claude_agent_sdk
from delegate.hosts.host_tool import ToolAnswer
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Receipt
from delegate.types.ports import ChatRequest
from tests.hosts.drivers.claude_agent_sdk import options
from tests.hosts.world import calling, turns
from tests.support.model_server import ModelServer

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}
TOOL = "mcp__delegate__delegate_task"


async def results(model: ModelServer, server: McpSdkServerConfig, *names: str) -> list[JsonObject]:
    """The tool results that the parent's model was sent last, after one run of Claude Code."""
    async for _ in query(prompt="go", options=options(model.anthropic_url, server, *names)):
        pass
    contents = [one["content"] for one in model.calls[-1].body["messages"] if isinstance(one["content"], list)]
    return [part for content in contents for part in content if part["type"] == "tool_result"]


# --------------------------------------------------------------------------------------------------- results and limits


async def test_the_model_gets_the_complete_schema_of_the_tool() -> None:
    with ModelServer(turns()) as model:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await results(model, claude_agent_sdk.server(delegator))
            (offered,) = [one for one in model.calls[-1].body["tools"] if one["name"] == TOOL]
            assert offered["input_schema"] == delegator.tool("mcp")["inputSchema"]


async def test_the_tool_works_on_a_server_that_the_sdk_created() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        server = create_sdk_mcp_server("delegate", tools=[claude_agent_sdk.tool(delegator)])
        with ModelServer(turns((TOOL, GOAL))) as model:
            (result,) = await results(model, server)
    assert "I looked it up." in str(result["content"])


async def test_children_work_in_the_repository_around_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("a\n")
    for command in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    client = calling(("write_file", {"path": "deep/a.txt", "content": "b\n"}))
    with ModelServer(turns((TOOL, GOAL))) as model:
        async with Delegator(client=client, model=CHEAP) as delegator:
            (result,) = await results(model, claude_agent_sdk.server(delegator, cwd=tmp_path / "deep"))
            (offered,) = [one for one in model.calls[-1].body["tools"] if one["name"] == TOOL]
    assert f"its own git worktree of {tmp_path}, with" in offered["description"]
    assert "take-over" in str(result["content"])
    assert (tmp_path / "deep" / "a.txt").read_text() == "a\n"


async def test_the_program_gets_the_tokens_of_children() -> None:
    answers: list[ToolAnswer] = []
    with ModelServer(turns((TOOL, GOAL))) as model:
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await results(model, claude_agent_sdk.server(delegator, on_answer=answers.append))
    (answer,) = answers
    assert answer.usage.total_tokens > 0


async def test_claude_code_does_not_write_a_long_result_to_a_file() -> None:
    report = "word " * 40_000
    with ModelServer(turns((TOOL, GOAL))) as model:
        async with Delegator(client=Scripted(lambda _: report), model=CHEAP, result_chars=210_000) as delegator:
            (result,) = await results(model, claude_agent_sdk.server(delegator))
    assert len(str(result["content"])) > 200_000


async def test_concurrent_sessions_have_their_own_ledgers() -> None:
    both = asyncio.Barrier(2)

    async def child(request: ChatRequest) -> str:
        await both.wait()
        return "I looked it up."

    with ModelServer(turns((TOOL, GOAL))) as model:
        async with Delegator(client=Scripted(child), model=CHEAP, max_children=1) as delegator:
            server = claude_agent_sdk.server(delegator)
            await asyncio.wait_for(asyncio.gather(results(model, server), results(model, server)), 20)
    texts = [call.tool_results[0] for call in model.calls if call.tool_results]
    assert ["I looked it up." in text for text in texts] == [True, True]


async def test_calls_of_a_run_with_an_id_share_a_ledger() -> None:
    with ModelServer(turns((TOOL, GOAL), (TOOL, GOAL))) as model:
        async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
            found = await results(model, claude_agent_sdk.server(delegator, parent=Parent(run_id="a run")))
    assert ["budget_exceeded" in str(one["content"]) for one in found] == [False, True]


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
async def test_a_child_uses_tools_with_every_form_of_schema(schema: Any) -> None:
    look_up = sdk_tool("look_up", "Look up a word.", schema)(_look_up)
    client = calling(*(("look_up", {"word": word}) for word in ("tide", "nothing", 3)))
    async with Delegator(client=client, model=CHEAP, tools=claude_agent_sdk.child_tools([look_up])) as delegator:
        result = await delegator.call(GOAL)
        record = await delegator.records.read(result.results[0].handle or "")
        assert record
    found = [Receipt.model_validate(one) for one in record["run"]["receipts"]]
    assert [tool.name for tool in client.requests[0].tools] == ["look_up", "read_earlier_result"]
    parameters = client.requests[0].tools[0].parameters
    assert (parameters["required"], parameters["properties"]["word"]["description"]) == (["word"], "What to look up")
    assert [(one.status, one.output) for one in found[:2]] == [("ok", "tide: found\n[image]"), ("error", "not found")]
    assert (found[2].status, "don't match its schema" in found[2].output) == ("error", True)
