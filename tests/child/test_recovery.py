"""What a child does after a reply that is neither a tool call nor a report: cut off, empty, malformed, or repeated."""

from collections.abc import Mapping
from typing import Any

import pytest

from delegate import Delegator, Task, Tool
from delegate.models.providers.scripted import Scripted
from delegate.types import ChildRun, JsonObject, TaskResult, Usage
from delegate.types.ports import ChatReply, Message, ToolCall

ANYTHING: JsonObject = {"type": "object"}
WRITE = (ToolCall("w1", "write_file", {"path": "big.txt", "content": "cut o"}),)
CUT_OFF = ChatReply("", "length", Usage(), WRITE)
THOUGHTS = ChatReply("", "length", Usage(model_calls=1, input_tokens=100, output_tokens=9_000, reasoning_tokens=9_000))
EMPTY = ChatReply("", "end", Usage())
MALFORMED = ChatReply("", "malformed_call", Usage(), stop_detail="MALFORMED_FUNCTION_CALL")


async def run(client: Scripted, *tools: Tool, max_steps: int = 30, **settings: Any) -> tuple[TaskResult, ChildRun]:
    """Run one child, on a model that can write 128,000 tokens."""
    settings = {"model": "gpt-6.1-sol", **settings}
    async with Delegator(client=client, tools=tools or None, **settings) as delegator:
        result = await delegator.run(Task(goal="do it", max_steps=max_steps))
        record = await delegator.records.read(result.results[0].handle or "")
    assert record
    return result.results[0], ChildRun.model_validate(record["run"])


def last(client: Scripted, n: int) -> Message:
    return client.requests[n].messages[-1]


# ----------------------------------------------------------------------------------------------------------- cut off


async def test_a_call_in_a_reply_that_was_cut_off_is_not_run() -> None:
    client = Scripted([CUT_OFF, "There was too much to write."])
    result, child = await run(client)
    assert (result.status, child.receipts, child.artifacts) == ("completed", (), ())
    notice = last(client, 1)
    assert notice.role == "user"
    assert "write_file) were not run" in notice.text
    assert "32,000 tokens" in notice.text
    assert all(not message.tool_calls for message in client.requests[1].messages)


async def test_a_second_reply_in_a_row_that_is_cut_off_raises_the_limit() -> None:
    client = Scripted([CUT_OFF, CUT_OFF, Scripted.call("write_file", path="a.txt", content="hi"), "I wrote a.txt."])
    result, _ = await run(client)
    assert [request.max_output_tokens for request in client.requests] == [32_000, 32_000, 64_000, 64_000]
    assert "64,000 tokens" in last(client, 2).text
    assert [artifact.path for artifact in result.artifacts] == ["a.txt"]


async def test_a_third_reply_in_a_row_that_is_cut_off_ends_the_child() -> None:
    result, child = await run(Scripted([CUT_OFF] * 3))
    assert result.error
    assert (result.status, result.error.code, child.receipts) == ("failed", "truncated", ())


async def test_a_report_that_was_cut_off_is_asked_for_again() -> None:
    client = Scripted([ChatReply("The first ha", "length", Usage()), "All of it."])
    result, _ = await run(client)
    assert (result.status, result.report) == ("completed", "All of it.")
    assert [message.role for message in client.requests[1].messages] == ["user", "assistant", "user"]
    assert "send the whole report again" in last(client, 1).text


async def test_thoughts_that_fill_the_limit_get_more_room() -> None:
    client = Scripted([THOUGHTS, "Done thinking."])
    result, _ = await run(client)
    assert result.status == "completed"
    assert [request.max_output_tokens for request in client.requests] == [32_000, 64_000]
    assert [message.role for message in client.requests[1].messages] == ["user"]


async def test_thoughts_at_the_models_own_limit_are_asked_to_be_less() -> None:
    client = Scripted([THOUGHTS, "Done thinking."])
    await run(client, max_output_tokens=128_000)
    assert [request.effort for request in client.requests] == [None, "low"]
    assert "Think less" in last(client, 1).text


@pytest.mark.parametrize(("given", "limit"), [({}, 32_000), ({"max_output_tokens": 999_999}, 128_000)])
async def test_the_output_limit_is_the_models_own_if_that_is_less(given: JsonObject, limit: int) -> None:
    client = Scripted(["Nothing to do."])
    await run(client, **given)
    assert client.requests[0].max_output_tokens == limit


# --------------------------------------------------------------------------------------------------- empty, malformed


@pytest.mark.parametrize(
    ("reply", "words"), [(EMPTY, "Your last message was empty"), (MALFORMED, "could not be parsed (MALFORMED_FUNCTION")]
)
async def test_a_useless_reply_gets_one_notice(reply: ChatReply, words: str) -> None:
    client = Scripted([reply, "Here is the report."])
    result, _ = await run(client)
    assert (result.status, result.report) == ("completed", "Here is the report.")
    assert words in last(client, 1).text


async def test_a_second_malformed_call_in_a_row_ends_the_child() -> None:
    client = Scripted([MALFORMED, MALFORMED])
    result, _ = await run(client)
    assert result.error
    assert (result.status, result.error.code) == ("failed", "malformed_call")


async def test_a_second_empty_reply_in_a_row_is_the_report() -> None:
    result, child = await run(Scripted([EMPTY, EMPTY]))
    assert (result.status, child.report, child.steps) == ("completed", "", 2)


async def test_the_last_turn_offers_no_tools() -> None:
    client = Scripted([Scripted.call("list_files"), Scripted.call("list_files"), "The folder is empty."])
    result, _ = await run(client, max_steps=3)
    assert result.status == "completed"
    assert [request.tool_choice for request in client.requests] == ["auto", "auto", "none"]
    assert client.requests[2].tools == client.requests[0].tools


async def test_a_cut_off_last_turn_is_no_report() -> None:
    result, _ = await run(Scripted([Scripted.call("list_files"), ChatReply("I fou", "length", Usage())]), max_steps=2)
    assert result.error
    assert (result.status, result.error.code) == ("failed", "truncated")


# ---------------------------------------------------------------------------------------------------------- in circles


def same(name: str = "look") -> Tool:
    async def call(args: Mapping[str, Any]) -> str:
        return "nothing new"

    return Tool(name, name, ANYTHING, call)


async def test_the_third_identical_call_gets_a_remark() -> None:
    client = Scripted([Scripted.call("look", at="a")] * 3 + ["Nothing is new."])
    result, child = await run(client, same())
    assert result.status == "completed"
    remarks = ["3 times with the same result" in last(client, n).tool_replies[0].text for n in (1, 2, 3)]
    assert remarks == [False, False, True]
    assert [receipt.output for receipt in child.receipts] == ["nothing new"] * 3


async def test_the_sixth_identical_call_ends_the_run() -> None:
    result, child = await run(Scripted([Scripted.call("look", at="a")] * 9), same())
    assert result.error
    assert (result.status, result.error.code, len(child.receipts)) == ("failed", "no_progress", 6)


async def test_two_calls_in_turns_are_a_circle_too() -> None:
    replies = [Scripted.call("look", at="ab"[n % 2]) for n in range(30)]
    result, child = await run(Scripted(replies), same())
    assert result.error
    assert result.error.code == "no_progress"
    assert len(child.receipts) <= 13


async def test_thoughts_between_identical_calls_are_no_progress() -> None:
    replies = [call for n in range(9) for call in (Scripted.call("look"), Scripted.call("think", thought=f"hm {n}"))]
    result, _ = await run(Scripted(replies), same(), same("think"))
    assert result.error
    assert result.error.code == "no_progress"


async def test_the_same_check_after_every_edit_is_no_circle() -> None:
    replies = [
        call
        for n in range(8)
        for call in (Scripted.call("write_file", path="a.txt", content=str(n)), Scripted.call("list_files"))
    ]
    result, child = await run(Scripted([*replies, "I wrote it eight times."]))
    assert (result.status, len(child.receipts)) == ("completed", 16)


async def test_identical_calls_of_one_turn_count_once() -> None:
    twenty = Scripted.calls(*[("look", {"at": "a"})] * 20)
    result, child = await run(Scripted([twenty, twenty, "Nothing is new."]), same())
    assert (result.status, len(child.receipts)) == ("completed", 40)
