"""A conversation is only ever appended to: thinking stays valid, and prompt caches stay warm.

A local server makes Anthropic's documented check: thinking is accepted only behind the system prompt, the tools and the
messages that it was made behind.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest

from delegate import Delegator, Task, Tool
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.types import JsonObject, TaskResult
from delegate.types.ports import Attachment, ToolOutput
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.prompt_prefixes import Prefixes
from tests.support.samples import sampled

WORDS = "The quick brown fox jumps over the lazy dog. "
TURNS = 30
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)
PARAMETERS: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}, "note": {"type": "string"}}}


async def look(args: Mapping[str, Any]) -> ToolOutput:
    """Every fifth result has an image."""
    images = (Attachment("image/png", PNG),) if args["n"] % 5 == 0 else ()
    text = f"part {args['n']}: {WORDS * (1 if 'note' in args else 250)}"
    return ToolOutput(text, attachments=images)


LOOK = Tool("look", "Look at a part.", PARAMETERS, look, read_only=True)


class Worker:
    """A model that thinks, says something and looks at one part a turn; then it reports how many turns it took.

    Long results can be shortened; long notes, which are its own words, can only be summarized.
    """

    def __init__(self, long: Literal["results", "notes"] = "results") -> None:
        self.long: Literal["results", "notes"] = long
        self.turns = self.summaries = 0

    def __call__(self, call: Call) -> Reply:
        if "will be replaced by the summary" in call.last_text:
            self.summaries += 1
            return Reply("So far I looked at all parts, and found a fox in each.", reasoning_tokens=20)
        if self.turns == TURNS:
            return Reply(f"I looked at {self.turns} parts.", reasoning_tokens=20)
        self.turns += 1
        note = {"note": WORDS * 250} if self.long == "notes" else {}
        arguments = {"n": self.turns, **note}
        return Reply(f"Now part {self.turns}.", tool_calls=(("look", arguments),), reasoning_tokens=20)


async def run(script: Callable[[Call], Reply | Fault], protocol: Any, api: Any = "auto") -> TaskResult:
    model = DeclaredModel(id="m", tier="standard", context_tokens=64_000, max_output_tokens=4_000, images=True)
    with ModelServer(script) as server:
        url = server.openai_url if protocol == "openai" else server.url
        endpoint = DeclaredEndpoint(name="house", base_url=url, protocol=protocol, api=api, models=(model,))
        async with Delegator(endpoints=(endpoint,), model="m", tools=(LOOK,), max_steps=50) as delegator:
            result = await delegator.run(Task(goal="Look at everything."))
    return result.results[0]


DONE = ("completed", f"I looked at {TURNS} parts.")
WIRES = [("openai", "chat"), ("openai", "responses"), ("anthropic", "auto"), ("google", "auto")]
SHORTENED, SUMMARIZED = 145_000, 105_000
"""How many tokens are read outside the cache when a conversation of 950,000 and one of 800,000 are sent: it was 143,000
and 139,000 where the summary was asked for in a conversation of its own, and the Claude models' children failed."""


@pytest.mark.parametrize(("long", "summaries"), sampled([("results", 0), ("notes", 1)], 1))
async def test_thinking_stays_valid_through_thirty_turns_with_compaction(long: Any, summaries: int) -> None:
    worker = Worker(long)
    prefixes = Prefixes(worker)
    result = await run(prefixes, "anthropic")
    assert (result.status, result.report) == DONE, result.error
    assert (worker.summaries, prefixes.refused) == (summaries, 0)
    assert prefixes.thinking > 5 * TURNS, "it is sent back as long as it is valid"


@pytest.mark.parametrize(("long", "most"), [("results", SHORTENED), ("notes", SUMMARIZED)])
@pytest.mark.parametrize(("protocol", "api"), sampled(WIRES, 1))
async def test_caches_stay_warm(protocol: Any, api: Any, long: Any, most: int) -> None:
    prefixes = Prefixes(Worker(long))
    result = await run(prefixes, protocol, api)
    assert (result.status, result.report) == DONE, result.error
    assert sum(prefixes.tokens) > 750_000
    assert sum(prefixes.tokens) - sum(prefixes.cached) < most


@pytest.mark.parametrize("drops", sampled([True, False], 1))
async def test_thinking_that_is_refused_loses_no_work(drops: bool) -> None:
    """As where a gateway changes what it passes on. Not all of them know how to ask for thinking to be dropped."""
    worker = Worker()

    def script(call: Call) -> Reply:
        if worker.turns == 10:
            prefixes.forget()
        return worker(call)

    prefixes = Prefixes(script, drops=drops)
    result = await run(prefixes, "anthropic")
    assert (result.status, result.report) == DONE, result.error
    assert result.receipts.tools == {"look": TURNS}
    assert prefixes.refused == (1 if drops else 2)
    assert prefixes.thinking > TURNS, "what was thought since is sent back"


async def test_the_tools_of_a_conversation_never_change() -> None:
    calls: list[Call] = []
    worker = Worker()

    def script(call: Call) -> Reply:
        calls.append(call)
        return worker(call)

    await run(Prefixes(script), "openai")
    assert {tuple(call.tool_names) for call in calls} == {("look", "read_earlier_result")}
    assert "read_earlier_result(number=1)" in calls[-1].tool_results[0]


@pytest.mark.parametrize(("protocol", "api"), WIRES)
async def test_messages_of_the_parent_are_only_appended(protocol: Any, api: Any) -> None:
    """One comes between two turns, and two come while the child reports, which then goes on."""
    loop, handles = asyncio.get_running_loop(), list[str]()
    bodies = list[str]()

    def send(*texts: str) -> None:
        for text in texts:
            sending = delegator.background.message(handles[0], text)
            asyncio.run_coroutine_threadsafe(sending, loop).result(20)

    def script(call: Call) -> Reply:
        bodies.append(json.dumps(call.body))
        if len(bodies) == 1:
            send("[one]")
            return Reply("Now part 1.", tool_calls=(("look", {"n": 1}),), reasoning_tokens=20)
        if len(bodies) == 2:
            send("[two]", "[three]")
            return Reply("A report.", reasoning_tokens=20)
        return Reply("I looked at 1 part.", reasoning_tokens=20)

    prefixes = Prefixes(script)
    model = DeclaredModel(id="m", tier="standard", context_tokens=64_000, max_output_tokens=4_000)
    with ModelServer(prefixes) as server:
        url = server.openai_url if protocol == "openai" else server.url
        endpoint = DeclaredEndpoint(name="house", base_url=url, protocol=protocol, api=api, models=(model,))
        async with Delegator(endpoints=(endpoint,), model="m", tools=(LOOK,)) as delegator:
            delegation = await delegator.background.start(
                Task(goal="Look."), on_event=lambda event: handles.append(event.handle) if event.handle else None
            )
            (result,) = (await delegation).results
    assert (result.status, result.report) == ("completed", "I looked at 1 part."), result.error
    assert [[f"[{n}]" in body for n in ("one", "two", "three")] for body in bodies] == [
        [False, False, False],
        [True, False, False],
        [True, True, True],
    ]
    assert "A report." in bodies[2]
    assert prefixes.refused == 0
    assert sum(prefixes.tokens) - sum(prefixes.cached) < prefixes.tokens[-1] + 500, "the cache is warm"
