"""The built-in child: turns, parallel tools, receipts, limits, and the status at the end."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task, Tool, ToolError
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Usage
from delegate.types.ports import ChatReply, ChatRequest, ToolOutput

ANYTHING: JsonObject = {"type": "object"}
ABSENT = {"kind": "file", "path": "a.txt", "exists": False}


def tool(name: str, answer: Any, parallel: bool = True) -> Tool:
    async def call(args: Mapping[str, Any]) -> str | ToolOutput:
        return await answer(args)

    return Tool(name, name, ANYTHING, call, parallel)


async def run(client: Scripted, *tools: Tool, **fields: Any) -> tuple[RunResult, JsonObject]:
    async with Delegator(client=client, tools=tools or None) as delegator:
        result = await delegator.run(Task(goal="do it", **fields))
        record = await delegator.records.read(result.results[0].handle or "")
    assert record
    return result, record["run"]


async def test_a_tool_call_leaves_a_receipt_with_digests_of_the_whole() -> None:
    client = Scripted([Scripted.call("write_file", path="a.txt", content="hi"), "I made a.txt."])
    result, child = await run(client)
    (receipt,) = child["receipts"]
    assert (receipt["n"], receipt["tool"], receipt["status"]) == (1, "write_file", "ok")
    assert receipt["args"] == {"path": "a.txt", "content": "hi"}
    assert len(receipt["args_sha256"]) == len(receipt["output_sha256"]) == 64
    assert receipt["output_bytes"] == len(receipt["output"].encode())
    assert result.results[0].receipts.tools == {"write_file": 1}
    assert [artifact.path for artifact in result.results[0].artifacts] == ["a.txt"]


async def test_calls_of_one_turn_run_side_by_side_and_answer_in_order() -> None:
    both_started = asyncio.Barrier(2)

    async def meet(args: Mapping[str, Any]) -> str:
        await both_started.wait()
        return f"met {args['who']}"

    client = Scripted([Scripted.calls(("meet", {"who": "a"}), ("meet", {"who": "b"})), "both met"])
    _, child = await run(client, tool("meet", meet))
    assert [receipt["output"] for receipt in child["receipts"]] == ["met a", "met b"]
    assert [reply.text.split("\n")[1] for reply in client.requests[1].messages[-1].tool_replies] == ["met a", "met b"]


async def test_a_tool_that_may_not_run_beside_others_runs_alone_and_in_order() -> None:
    running: list[str] = []
    seen: list[list[str]] = []

    async def step(args: Mapping[str, Any]) -> str:
        running.append(args["n"])
        await asyncio.sleep(0)
        seen.append(list(running))
        running.remove(args["n"])
        return "ok"

    client = Scripted([Scripted.calls(("step", {"n": "1"}), ("step", {"n": "2"})), "done with both"])
    await run(client, tool("step", step, parallel=False))
    assert seen == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (Scripted.call("nothing_like_it"), "error", "there is no tool 'nothing_like_it'"),
        (Scripted.call("explode"), "error", "ValueError: boom"),
        (Scripted.call("object"), "error", "not that way"),
    ],
)
async def test_a_child_reads_a_failed_tool_call_and_continues(call: ChatReply, status: str, words: str) -> None:
    async def explode(args: Mapping[str, Any]) -> str:
        raise ValueError("boom")

    async def object_(args: Mapping[str, Any]) -> str:
        raise ToolError("not that way")

    client = Scripted([call, "it did not work"])
    result, child = await run(client, tool("explode", explode), tool("object", object_))
    assert result.results[0].status == "completed"
    assert child["receipts"][0]["status"] == status
    reply = client.requests[1].messages[-1].tool_replies[0]
    assert words in reply.text
    assert reply.is_error


async def test_a_child_that_never_stops_calling_tools_ends_at_its_turns() -> None:
    client = Scripted(lambda request: Scripted.calls(("think", {"thought": "more"}), text="still thinking"))
    result, child = await run(client, max_steps=3)
    assert (result.results[0].status, child["steps"], len(child["receipts"])) == ("max_steps", 3, 3)
    assert child["report"] == "still thinking"
    assert "must be the report" in client.requests[2].messages[-1].tool_replies[-1].text


@pytest.mark.parametrize(("stop", "code"), [("refusal", "refused"), ("other", "unexpected_stop")])
async def test_only_a_clean_end_is_completed(stop: Any, code: str) -> None:
    returned, child = await run(Scripted([ChatReply("half a rep", stop, Usage())] * (2 if stop == "other" else 1)))
    result = returned.results[0]
    assert result.error
    assert (result.status, result.error.code, child["report"]) == ("failed", code, "half a rep")


async def test_a_report_that_ended_for_an_unknown_reason_is_asked_for_once_more() -> None:
    client = Scripted([ChatReply("half a rep", "other", Usage()), "the whole report"])
    result, child = await run(client)
    assert (result.results[0].status, child["report"]) == ("completed", "the whole report")
    assert "may have ended early" in client.requests[1].messages[-1].text


async def test_a_cost_limit_stops_the_child_before_the_call_that_exceeds_it() -> None:
    thought = Scripted.call("think", thought="x").tool_calls
    big = ChatReply("", "tool_calls", Usage(model_calls=1, input_tokens=900_000), thought)
    client = Scripted([big, big, "never said"])
    result, _ = await run(client, max_cost_usd=0.01, tier="fast")
    assert result.results[0].status == "budget_exceeded"
    assert len(client.requests) == 1


async def test_a_limit_of_tokens_stops_the_child() -> None:
    client = Scripted(lambda request: Scripted.call("think", thought="x" * 4_000))
    async with Delegator(client=client, max_tokens=8_000) as delegator:
        (result,) = (await delegator.run(Task(goal="think"))).results
    assert result.status == "budget_exceeded"
    assert result.error
    assert "the next step exceeds the limit tokens:" in result.error.message
    assert result.usage.total_tokens <= 8_000


async def test_the_system_prompt_has_workspace_criteria_and_self_report_rule() -> None:
    client = Scripted(["nothing to do here"])
    await run(client, acceptance_criteria=["`a.txt` exists"], context="the moon is full")
    request: ChatRequest = client.requests[0]
    assert "- c1: `a.txt` exists" in request.system
    assert "Your workspace: /" in request.system
    assert "self-report" in request.system
    assert request.messages[0].text == "do it\n\nContext:\nthe moon is full"


async def test_a_child_that_writes_nothing_has_no_folder(home: Path) -> None:
    model = Scripted([Scripted.call("list_files"), Scripted.call("read_file", path="a.txt"), "There is nothing."])
    async with Delegator(client=model) as delegator:
        run = await delegator.run(Task.model_validate({"goal": "Look.", "acceptance_criteria": [ABSENT]}))
    (result,) = run.results
    assert result.workspace is None
    assert (result.receipts.ok, result.receipts.error) == (1, 1)
    assert result.verdict
    assert result.verdict.verdict == "PASS"
    assert str(home / "workspaces") in model.requests[0].system
    assert not (home / "workspaces").exists()
