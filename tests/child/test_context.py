"""A child's conversation stays within its model's context window, and nothing in it is lost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, Tool
from delegate.budget.metering import request_tokens
from delegate.models.catalog import Model
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.models.providers.scripted import Scripted
from delegate.types import ChildRun, JsonObject, TaskResult, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.model_server import Call, Fault, ModelServer, Reply

ANYTHING: JsonObject = {"type": "object"}
WORDS = "The quick brown fox jumps over the lazy dog. "


def model(context_tokens: int) -> Model:
    return Model(
        id="small",
        provider="openai",
        family="test",
        tier="standard",
        context_tokens=context_tokens,
        max_output_tokens=4_000,
        structured_output=True,
        tools=True,
        prices=({"input": 1, "output": 1},),  # type: ignore[arg-type]
    )


def read(chars: int) -> Tool:
    """A tool with long results, each of which begins and ends with its argument."""

    async def call(args: Mapping[str, Any]) -> str:
        text = (WORDS * (chars // len(WORDS) + 1))[:chars]
        return f"begin {args['n']}\n{text}\nmiddle {args['n']}\n{text}\nend {args['n']}"

    return Tool("read", "read", ANYTHING, call, read_only=True)


class Window:
    """A model that refuses requests longer than its window, by a tokenizer that is `factor` times as fine as ours."""

    def __init__(self, model: Model, script: Any, *, factor: float = 1.0) -> None:
        self.model, self.factor, self.script = model, factor, script
        self.refused = 0
        self.client = Scripted(self.answer)

    def answer(self, request: ChatRequest) -> ChatReply:
        tokens = int(request_tokens(self.model, request) * self.factor)
        if tokens > self.model.context_tokens:
            self.refused += 1
            raise ProviderError("context_overflow", "the prompt is too long", provider="openai", status=400)
        reply = self.script(request)
        reply = ChatReply(reply, "end", Usage()) if isinstance(reply, str) else reply
        usage = Usage(model_calls=1, input_tokens=tokens, output_tokens=50)
        return ChatReply(reply.text, reply.stop, usage, reply.tool_calls)


def turns(request: ChatRequest) -> int:
    return sum(message.role == "tool" for message in request.messages)


async def run(window: Window, *tools: Tool, **task: Any) -> tuple[TaskResult, ChildRun]:
    async with Delegator(client=window.client, tools=tools, models=(window.model,), model="small") as delegator:
        result = await delegator.run(Task(goal="read everything", **task))
        record = await delegator.records.read(result.results[0].handle or "")
    assert record
    return result.results[0], ChildRun.model_validate(record["run"])


def reading(total: int, per_turn: int) -> Any:
    """Reads `per_turn` results a turn until `total` were read, then reports how many."""
    done = 0

    def script(request: ChatRequest) -> ChatReply | str:
        nonlocal done
        if request.tool_choice == "none":
            return "So far I read the parts 0 to 7, and found a fox in each."
        if done >= total:
            return f"I read {done} parts."
        calls = [("read", {"n": done + n}) for n in range(per_turn)]
        done += per_turn
        return Scripted.calls(*calls)

    return script


async def test_old_results_are_shortened_before_new_ones() -> None:
    window = Window(model(60_000), reading(total=12, per_turn=1))
    await run(window, read(15_000))
    results = [message.tool_replies[0].text for message in window.client.requests[-1].messages if message.tool_replies]
    lengths = [len(text) for text in results]
    assert lengths[0] < 1_200
    assert lengths[-1] > 15_000
    assert lengths == sorted(lengths)
    assert "begin 0" in results[0]
    assert "end 0" in results[0]
    assert "read_earlier_result(number=1)" in results[0]


async def test_a_shortened_result_can_be_read_again() -> None:
    shown: list[str] = []

    def script(request: ChatRequest) -> ChatReply | str:
        n = turns(request)
        if n < 8:
            return Scripted.call("read", n=n)
        if n == 8:
            assert "read_earlier_result" in [tool.name for tool in request.tools]
            return Scripted.call("read_earlier_result", number=1, offset=14_000)
        shown.append(request.messages[-1].tool_replies[0].text)
        return "I read it again."

    window = Window(model(60_000), script)
    result, child = await run(window, read(15_000))
    assert result.status == "completed"
    assert "middle 0" in shown[0]
    assert [receipt.tool for receipt in child.receipts] == ["read"] * 8


async def test_a_turn_longer_than_the_window_is_shortened_itself() -> None:
    window = Window(model(20_000), reading(total=16, per_turn=8))
    result, _ = await run(window, read(15_000))
    assert (result.status, result.report) == ("completed", "I read 16 parts.")
    assert window.refused == 0


async def test_a_long_conversation_is_summarized() -> None:
    seen: list[str] = []

    def script(request: ChatRequest) -> ChatReply | str:
        if request.tool_choice == "none":
            return "I wrote down everything, up to number 7."
        if "replaced by your own summary" in request.messages[0].text:
            seen.append(request.messages[0].text)
            return "The end."
        return Scripted.call("note", text=f"{turns(request)} {WORDS * 200}")

    async def call(args: Mapping[str, Any]) -> str:
        return "noted"

    window = Window(model(20_000), script)
    result, _ = await run(window, Tool("note", "note", ANYTHING, call))
    assert (result.status, result.report) == ("completed", "The end.")
    assert seen[0].startswith("read everything")
    assert "I wrote down everything, up to number 7." in seen[0]


async def test_an_overflow_shrinks_the_conversation_and_goes_on() -> None:
    window = Window(model(60_000), reading(total=12, per_turn=2), factor=1.0)
    window.model = model(40_000)  # the provider's window is smaller than the catalog says
    async with Delegator(client=window.client, tools=(read(15_000),), models=(model(60_000),), model="small") as one:
        result = await one.run(Task(goal="read everything"))
    assert result.results[0].report == "I read 12 parts."
    assert 0 < window.refused < 4


async def test_a_goal_longer_than_the_window_ends_the_child() -> None:
    window = Window(model(1_000), reading(total=1, per_turn=1))
    result, _ = await run(window, read(10), context=WORDS * 500)
    assert result.error
    assert (result.status, result.error.code) == ("failed", "context_overflow")
    assert window.refused <= 4


async def test_a_summary_counts_as_one_of_the_childs_calls() -> None:
    def script(request: ChatRequest) -> ChatReply | str:
        last = request.messages[-1].text
        if "will be replaced by the summary" in last:
            return "I noted a lot."
        numbered = f"{len(window.client.requests)} {WORDS * 200}"
        return "A report." if request.tool_choice == "none" else Scripted.call("note", text=numbered)

    async def call(args: Mapping[str, Any]) -> str:
        return "noted"

    window = Window(model(20_000), script)
    result, child = await run(window, Tool("note", "note", ANYTHING, call), max_steps=12)
    assert (result.status, result.report) == ("completed", "A report.")
    assert child.steps <= 12


# ------------------------------------------------------------------------------------------------------- over HTTP

REPOSITORY_FILES, FILE_CHARS = 120, 25_000
"""3 MB."""
WINDOW_TOKENS = 128_000


def overflow(tokens: int) -> Fault:
    """OpenAI's answer to a request that is too long."""
    message = f"This model's maximum context length is {WINDOW_TOKENS} tokens, and your messages have {tokens}."
    return Fault(
        400, body={"error": {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}}
    )


async def test_a_child_reads_three_megabytes_on_a_128k_model(tmp_path: Path) -> None:
    for n in range(REPOSITORY_FILES):
        (tmp_path / f"part{n:03d}.txt").write_text(f"part {n}\n" + (WORDS * 1_000)[:FILE_CHARS])

    def script(call: Call) -> Reply | Fault:
        tokens = len(call.raw) // 4  # as a tokenizer would count English words
        if tokens > WINDOW_TOKENS:
            return overflow(tokens)
        done = sum("begin" in text or "part " in text for text in call.tool_results)
        if done >= REPOSITORY_FILES:
            return Reply(f"I read {done} files.", input_tokens=tokens)
        calls = tuple(("read_file", {"path": f"part{n:03d}.txt"}) for n in range(done, done + 6))
        return Reply(tool_calls=calls, input_tokens=tokens)

    with ModelServer(script) as server:
        entry = DeclaredModel(id="small", tier="standard", context_tokens=WINDOW_TOKENS, max_output_tokens=4_000)
        endpoint = DeclaredEndpoint(name="local", base_url=server.openai_url, models=(entry,))
        async with Delegator(endpoints=(endpoint,), model="small") as delegator:
            task = Task(goal="Read every file.", workspace={"mode": "copy", "path": tmp_path})
            run = await delegator.run(task)
    result = run.results[0]
    assert (result.status, result.report) == ("completed", f"I read {REPOSITORY_FILES} files."), result.error
    assert result.receipts.tools == {"read_file": REPOSITORY_FILES}
    assert max(len(call.raw) for call in server.calls) > 300_000, "most of the window is used"


@pytest.mark.parametrize("summary", ["I read a few parts.", ""], ids=["summarized", "without_a_summary"])
async def test_what_the_parent_says_is_kept_when_the_conversation_is_replaced(summary: str) -> None:
    """Long arguments can't be shortened, so the conversation is summarized, or loses its oldest messages."""
    handles = list[str]()

    def script(request: ChatRequest) -> ChatReply | str:
        if "will be replaced by the summary" in request.messages[-1].text:
            summaries.append(len(window.client.requests))
            return summary
        asked.append(request)
        return "I read them." if len(asked) == 12 else Scripted.call("read", n=len(asked), note=WORDS * 200)

    async def call(args: Mapping[str, Any]) -> str:
        if args["n"] == 1:
            await delegator.background.message(handles[0], "Never touch b.txt.")
        return "nothing"

    asked, summaries, window = list[ChatRequest](), list[int](), Window(model(24_000), script)
    tool = Tool("read", "read", ANYTHING, call)
    async with Delegator(client=window.client, tools=[tool], models=(window.model,), model="small") as delegator:
        delegation = await delegator.background.start(
            Task(goal="read"), on_event=lambda event: handles.append(event.handle or "") if event.handle else None
        )
        result = await delegation
    assert result.results[0].report == "I read them."
    assert summaries
    assert len(asked[-1].messages) < 20, "the conversation was replaced"
    for request in asked[1:]:
        assert sum("Never touch b.txt." in message.text for message in request.messages) == 1
