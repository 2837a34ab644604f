"""Situations that a child meets with real models and servers, and what comes of them.

Each is played by a local server that behaves as the provider documents, or as its users report. `expected` is the
outcome today; `before` is the outcome that was measured before children could deal with it.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from delegate import Delegator, Task, Tool
from delegate.child.command import CommandRunner
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.types import TaskResult
from tests.models.test_storms import storm_seconds
from tests.support.model_server import Call, Fault, ModelServer, Pieces, Reply
from tests.support.prompt_prefixes import Prefixes
from tests.support.repeats import repeat_quickly
from tests.support.streams import events
from tests.support.wire_formats import FORMATS

Script = Callable[[Call], Reply | Fault | Pieces]
SOON = {"retry-after-ms": "1"}
PROSE = "The quick brown fox jumps over the lazy dog. " * 1_000


@dataclass(frozen=True)
class Situation:
    """`play` returns the outcome in a few words."""

    words: str
    before: str
    expected: str
    play: Callable[[Path], Awaitable[str]]


@asynccontextmanager
async def child_on(
    script: Script,
    home: Path,
    *,
    protocol: Any = "openai",
    takes_effort: bool = False,
    idle_seconds: float | None = None,
    **given: Any,
) -> AsyncGenerator[Delegator]:
    """A delegator whose only model is served by `script`."""
    model = DeclaredModel(
        id="worker",
        tier="standard",
        context_tokens=200_000,
        max_output_tokens=128_000,
        effort=takes_effort,
        input_price=1,
        output_price=10,
    )
    with ModelServer(script, idle_seconds=idle_seconds) as server:
        url = server.openai_url if protocol == "openai" else server.url
        endpoint = DeclaredEndpoint(name="house", base_url=url, protocol=protocol, models=(model,))
        async with Delegator(home=home, model="worker", endpoints=(endpoint,), **given) as delegator:
            repeat_quickly(delegator)
            yield delegator


async def outcome(delegator: Delegator, **task: Any) -> str:
    """Run one child. `completed`, or its status and code; then what it left and how many calls it took."""
    result = await delegator.run(Task(goal="do it", **task))
    return describe(result.results[0])


def describe(result: TaskResult) -> str:
    said = result.error.code if result.error else result.report[:60]
    return " ".join(filter(None, (f"{result.status}:", said, f"({result.usage.model_calls})")))


def in_order(*answers: Reply | Fault | Pieces) -> Script:
    """Serve the answers in order, then the last one again."""
    numbers = count()
    return lambda call: answers[min(next(numbers), len(answers) - 1)]


DONE = Reply("done")
WRITE = (("write_file", {"path": "report.md", "content": "The first ha"}),)


async def cut_off_call(home: Path) -> str:
    script = in_order(Reply(tool_calls=WRITE, stop="length"), Reply(tool_calls=WRITE), Reply("wrote it whole"))
    async with child_on(script, home) as delegator:
        result = await delegator.run(Task(goal="do it"))
    return f"{describe(result.results[0])}, {result.results[0].receipts.tools.get('write_file', 0)} × write_file"


async def thoughts_fill_the_limit(home: Path) -> str:
    def script(call: Call) -> Reply:
        limit = int(call.body["max_tokens"])
        return Reply("thought it through") if limit > 40_000 else Reply("", stop="length", reasoning_tokens=limit)

    async with child_on(script, home) as delegator:
        return await outcome(delegator)


async def cut_off_report(home: Path) -> str:
    async with child_on(in_order(Reply("I fou", stop="length"), Reply("I found it")), home) as delegator:
        return await outcome(delegator)


async def eight_reads_a_turn(home: Path) -> str:
    folder = home / "repository"
    folder.mkdir(parents=True)
    for n in range(64):
        (folder / f"{n}.txt").write_text((PROSE * 3)[:100_000])

    def script(call: Call) -> Reply | Fault:
        if len(call.raw) > 4 * 200_000:
            return Fault(400, body={"error": {"message": "too long", "code": "context_length_exceeded"}})
        read = len(call.tool_results)
        calls = tuple(("read_file", {"path": f"{n}.txt"}) for n in range(read, read + 8))
        return Reply(f"read {read} files") if read >= 64 else Reply(tool_calls=calls, input_tokens=len(call.raw) // 4)

    async with child_on(script, home) as delegator:
        return await outcome(delegator, workspace={"mode": "copy", "path": folder})


async def same_call_forever(home: Path) -> str:
    async with child_on(in_order(Reply(tool_calls=(("list_files", {}),))), home) as delegator:
        return await outcome(delegator)


async def passing_errors(home: Path, *faults: Fault) -> str:
    async with child_on(in_order(*faults, DONE), home) as delegator:
        return await outcome(delegator)


async def closed_while_a_tool_blocks(home: Path) -> str:
    def look(place: int) -> str:
        """Look somewhere."""
        time.sleep(0.1)  # on the event loop, which then doesn't see that the server closes the idle connection
        return f"nothing at {place}"

    async def look_at(arguments: Mapping[str, Any]) -> str:
        return look(arguments["place"])

    tool = Tool("look", "Look somewhere.", Tool.from_function(look).parameters, look_at)
    looks = [Reply(tool_calls=(("look", {"place": n}),)) for n in range(5)]
    async with child_on(in_order(*looks, DONE), home, idle_seconds=0.03, tools=[tool]) as delegator:
        return await outcome(delegator)


async def half_replies(home: Path) -> str:
    whole = events("chat", FORMATS["chat"].render(Reply(PROSE[:900]), "worker", 1), chars=30)
    half = Pieces(whole[: len(whole) // 2], ending="close")
    async with child_on(in_order(*[half] * 5, DONE), home) as delegator:
        return await outcome(delegator)


async def empty_reply(home: Path) -> str:
    async with child_on(in_order(Reply(""), Reply("done after all")), home) as delegator:
        return await outcome(delegator)


async def malformed_call(home: Path) -> str:
    malformed: dict[str, Any] = {
        "candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "content": {}}],
        "usageMetadata": {},
    }
    script = in_order(Fault(200, body=malformed), Reply("done after all"))
    async with child_on(script, home, protocol="google") as delegator:
        return await outcome(delegator)


async def never_reports(home: Path) -> str:
    numbers = count()

    def script(call: Call) -> Reply:
        if call.body.get("tool_choice") == "none":
            return Reply("this is how far I came")
        return Reply(tool_calls=(("search_files", {"pattern": f"x{next(numbers)}"}),))

    async with child_on(script, home) as delegator:
        return await outcome(delegator, max_steps=5)


async def only_responses(home: Path) -> str:
    message = "This model is only supported in v1/responses and not in v1/chat/completions."

    def script(call: Call) -> Reply | Fault:
        refused = {"error": {"message": message, "type": "invalid_request_error", "param": "model", "code": None}}
        return Fault(404, body=refused) if call.api == "chat" else DONE

    async with child_on(script, home) as delegator:
        return await outcome(delegator)


async def reasoning_must_come_back(home: Path) -> str:
    """As DeepSeek documents it for tool calls of its reasoning models."""
    call = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
    message = {"role": "assistant", "content": "", "reasoning_content": "Let me look.", "tool_calls": [call]}
    first = {"model": "worker", "choices": [{"finish_reason": "tool_calls", "message": message}]}

    def script(call: Call) -> Reply | Fault:
        if not call.tool_results:
            return Fault(200, body=first)
        if b"Let me look." not in call.raw:
            return Fault(400, body={"error": {"message": "Missing reasoning_content", "type": "invalid_request_error"}})
        return DONE

    async with child_on(script, home) as delegator:
        return await outcome(delegator)


async def bound_thinking(home: Path) -> str:
    """As Anthropic documents it: thinking is valid behind exactly what it was made behind."""
    folder = home / "repository"
    folder.mkdir(parents=True)
    for n in range(1, 31):
        (folder / f"{n}.txt").write_text(PROSE)
    numbers = count(1)

    def script(call: Call) -> Reply:
        if (number := next(numbers)) > 30:
            return Reply("read 30 files", reasoning_tokens=20)
        return Reply("Next.", tool_calls=(("read_file", {"path": f"{number}.txt"}),), reasoning_tokens=20)

    async with child_on(Prefixes(script), home, protocol="anthropic", max_steps=40) as delegator:
        return await outcome(delegator, workspace={"mode": "copy", "path": folder})


def refusing(refused: Callable[[Call], bool], text: str, *, status: int = 400) -> Script:
    """A server that refuses some requests with this text; a child's report is "The sky is blue today."."""
    answer = {"id": "c1", "evidence": "The sky is blue today.", "reason": "It says so.", "verdict": "met"}

    def script(call: Call) -> Reply | Fault:
        if refused(call):
            return Fault(status, {"error": {"message": text, "type": "invalid_request_error"}})
        is_judge = call.wants_json or "JSON Schema" in call.system
        return Reply(json.dumps({"answers": [answer]}) if is_judge else "The sky is blue today.")

    return script


def judged_on(script: Script, protocol: Any = "openai") -> Callable[[Path], Awaitable[str]]:
    """A child and a judge of this server, and the verdict on one criterion in words."""

    async def play(home: Path) -> str:
        async with child_on(script, home, protocol=protocol) as delegator:
            result = await delegator.run(
                Task(goal="Name the color of the sky.", acceptance_criteria=["report: It names the sky's color."])
            )
        verdict = result.results[0].verdict
        return f"{verdict.verdict}: {verdict.code}" if verdict else describe(result.results[0])

    return play


def in_thoughts(call: Call) -> Reply:
    """A model whose template begins inside the thoughts, on a server without a parser."""
    reply = refusing(lambda _: False, "")(call)
    assert isinstance(reply, Reply)
    return Reply(f"Let me see. The sky is blue today.\n</think>\n\n{reply.text}")


DEEPSEEK = refusing(
    lambda call: call.body.get("response_format", {}).get("type") == "json_schema",
    "This response_format type is unavailable now",
)
GRAMMAR = refusing(lambda call: "response_format" in call.body, "failed to parse grammar", status=500)
MESSAGES = refusing(lambda call: call.wants_json, "output_config.format: Extra inputs are not permitted")
UNTHINKING = refusing(lambda call: "reasoning_effort" in call.body, '"llama3.2" does not support thinking')


async def effort_is_refused(home: Path) -> str:
    async with child_on(UNTHINKING, home, takes_effort=True, effort="low") as delegator:
        return await outcome(delegator)


async def reason_is_missing(home: Path) -> str:
    """As some local servers and gateways send it."""
    body = {"model": "worker", "choices": [{"message": {"content": "done"}, "finish_reason": None}]}
    async with child_on(lambda call: Fault(200, body), home) as delegator:
        return await outcome(delegator)


async def asked_again_in_another_process(home: Path) -> str:
    """How many calls two judgments take, each in a delegator of its own."""
    calls: list[Call] = []

    def script(call: Call) -> Reply | Fault | Pieces:
        calls.append(call)
        return DEEPSEEK(call)

    with ModelServer(script) as server:
        model = DeclaredModel(id="worker", tier="standard", input_price=1, output_price=10)
        endpoint = DeclaredEndpoint(name="house", base_url=server.openai_url, models=(model,))
        for _ in range(2):
            async with Delegator(home=home, model="worker", endpoints=(endpoint,)) as delegator:
                await delegator.judge(
                    goal="Name the color of the sky.",
                    report="The sky is blue today.",
                    acceptance_criteria=["report: It names the sky's color."],
                )
    return f"{len(calls)} calls"


async def error_inside_success(home: Path) -> str:
    error = {"error": {"code": 502, "message": "Provider returned error"}}
    return await passing_errors(home, Fault(200, body=error))


async def cost_limit(home: Path) -> str:
    """200 tasks, 30 at once, under a limit that is enough for all of them."""
    script = in_order(Reply("done", input_tokens=300, output_tokens=5))
    options: dict[str, Any] = {"max_concurrent": 30, "max_children": 200, "max_cost_usd": 1, "max_output_tokens": 8_192}
    async with child_on(script, home, **options) as delegator:
        result = await delegator.run(*(Task(goal=f"do {n}") for n in range(200)))
    return f"{result.totals.completed} of 200 completed"


async def cut_off_costs(home: Path) -> str:
    async with child_on(in_order(Fault(kind="hang")), home, call_timeout_seconds=0.2) as delegator:
        run = await delegator.run(Task(goal="do it"))
    result = run.results[0]
    return f"{result.usage.model_calls} calls, {'some' if result.cost_usd else 'no'} cost"


async def runners_cost(home: Path) -> str:
    """Six children of a program that bills $10 each, under a limit of $0.50."""
    program = 'echo \'{"type": "result", "result": "done", "total_cost_usd": 10, "usage": {}}\''
    runner = CommandRunner(["sh", "-c", program], output="json")
    async with Delegator(home=home, runner=runner, max_cost_usd=0.5, max_concurrent=1) as delegator:
        result = await delegator.run(*(Task(goal=f"do {n}") for n in range(6)))
    return f"{result.totals.completed} ran, ${result.totals.cost_known_usd:g} spent"


async def failed_on_the_way(home: Path) -> str:
    """Errors that take their time cost nothing; `child_on` has the prices."""
    script = in_order(*[Fault(500, delay=0.1)] * 3, Reply("done", input_tokens=500, output_tokens=50))
    async with child_on(script, home) as delegator:
        result = await delegator.run(Task(goal="do it"))
    return f"{result.totals.cost_known_usd / ((500 * 1 + 50 * 10) / 1e6):.1f} × what was billed"


async def as_much_as_it_may(home: Path) -> str:
    def script(call: Call) -> Reply:
        return Reply("done", input_tokens=500, output_tokens=call.max_output_tokens)

    async with child_on(script, home, max_cost_usd=0.05) as delegator:
        result = await delegator.run(Task(goal="do it"))
    return f"{result.totals.cost_known_usd / 0.05:.1f} × the limit"


async def one_of_forty_hangs(home: Path) -> str:
    def script(call: Call) -> Reply | Fault:
        return Fault(kind="hang") if "do 0" in call.texts[0] else Reply("done", input_tokens=300, output_tokens=50)

    options: dict[str, Any] = {"max_concurrent": 40, "max_children": 40, "max_cost_usd": 0.3}
    async with child_on(script, home, call_timeout_seconds=3, **options) as delegator:
        result = await delegator.run(*(Task(goal=f"do {n}") for n in range(40)))
    return f"{result.totals.completed} of 40 completed"


async def a_storm(home: Path) -> str:
    """200 calls, 20 at once, of a second each, in virtual time: they need 10 s."""
    seconds = await asyncio.to_thread(storm_seconds, callers=20, calls=10)
    return f"{'up to 2' if seconds <= 20 else f'{seconds / 10:.0f}'} × as long as without"


FAULT_500, OVERLOADED, RESET = Fault(500), Fault(529, headers=SOON), Fault(kind="reset")


def again(*faults: Fault) -> Callable[[Path], Awaitable[str]]:
    return lambda home: passing_errors(home, *faults)


SITUATIONS: tuple[Situation, ...] = (
    Situation(
        "a tool call is cut off by the output limit",
        "completed: wrote it whole (3), 2 × write_file",
        "completed: wrote it whole (3), 1 × write_file",
        cut_off_call,
    ),
    Situation(
        "reasoning fills the output limit",
        "failed: truncated (1)",
        "completed: thought it through (2)",
        thoughts_fill_the_limit,
    ),
    Situation(
        "report: the report is cut off by the output limit",
        "failed: truncated (1)",
        "completed: I found it (2)",
        cut_off_report,
    ),
    Situation(
        "eight files of 100 kB are read per turn",
        "failed: bad_request (4)",
        "completed: read 64 files (9)",
        eight_reads_a_turn,
    ),
    Situation(
        "the model makes the same call again and again",
        "max_steps: max_steps (30)",
        "failed: no_progress (6)",
        same_call_forever,
    ),
    Situation(
        "four times 500, then a reply", "failed: server_error (0)", "completed: done (1)", again(*[FAULT_500] * 4)
    ),
    Situation("six times 529, then a reply", "failed: overloaded (0)", "completed: done (1)", again(*[OVERLOADED] * 6)),
    Situation(
        "four broken connections, then a reply", "failed: connection (0)", "completed: done (5)", again(*[RESET] * 4)
    ),
    Situation(
        "the server closes its connection while a tool blocks the event loop, five times",
        "completed: done (11)",
        "completed: done (6)",
        closed_while_a_tool_blocks,
    ),
    Situation(
        "five replies break off in the middle, then one comes whole",
        "failed: connection (3)",
        "completed: done (6)",
        half_replies,
    ),
    Situation(
        "an error inside a reply with status 200", "failed: bad_reply (0)", "completed: done (1)", error_inside_success
    ),
    Situation("an empty reply", "completed: (1)", "completed: done after all (2)", empty_reply),
    Situation(
        "a tool call that the provider can't parse",
        "failed: unexpected_stop (1)",
        "completed: done after all (2)",
        malformed_call,
    ),
    Situation(
        "the model would call tools forever",
        "max_steps: max_steps (5)",
        "completed: this is how far I came (5)",
        never_reports,
    ),
    Situation(
        "the model is served only through Responses", "failed: bad_request (0)", "completed: done (1)", only_responses
    ),
    Situation(
        "the server wants the model's reasoning back",
        "failed: bad_request (1)",
        "completed: done (2)",
        reasoning_must_come_back,
    ),
    Situation(
        "the model's thinking is bound to a conversation that gets too long",
        "failed: bad_request (20)",
        "completed: read 30 files (31)",
        bound_thinking,
    ),
    Situation(
        "200 children, 30 at once, under a limit of $1", "13 of 200 completed", "200 of 200 completed", cost_limit
    ),
    Situation(
        "three errors 500 on the way to a reply", "16.1 × what was billed", "1.0 × what was billed", failed_on_the_way
    ),
    Situation(
        "a model writes all it may, under a limit of $0.05", "6.4 × the limit", "1.0 × the limit", as_much_as_it_may
    ),
    Situation(
        "one of 40 children hangs, under a limit of $0.30",
        "0 of 40 completed",
        "39 of 40 completed",
        one_of_forty_hangs,
    ),
    Situation(
        "30 % of 200 calls get a 429, whatever the pace",
        "40 × as long as without",
        "up to 2 × as long as without",
        a_storm,
    ),
    Situation("a call that hangs and is cut off", "0 calls, no cost", "1 calls, some cost", cut_off_costs),
    Situation(
        "six programs that cost $10 each, under a limit of $0.50", "6 ran, $60 spent", "1 ran, $10 spent", runners_cost
    ),
    Situation(
        "the judge's server takes no JSON Schema, as DeepSeek's",
        "FAIL: judge_unavailable",
        "PASS: met",
        judged_on(DEEPSEEK),
    ),
    Situation(
        "the judge's server answers 500 to a schema, as llama.cpp's",
        "FAIL: judge_unavailable",
        "PASS: met",
        judged_on(GRAMMAR),
    ),
    Situation(
        "the judge's server speaks Messages and refuses the format of replies",
        "FAIL: judge_unavailable",
        "PASS: met",
        judged_on(MESSAGES, "anthropic"),
    ),
    Situation(
        "all texts begin with thoughts that only end with `</think>`",
        "FAIL: judge_unparseable",
        "PASS: met",
        judged_on(in_thoughts),
    ),
    Situation(
        "the server refuses the reasoning effort",
        "failed: bad_request (0)",
        "completed: The sky is blue today. (1)",
        effort_is_refused,
    ),
    Situation(
        "replies don't say why they ended", "failed: unexpected_stop (1)", "completed: done (1)", reason_is_missing
    ),
    Situation(
        "two processes judge on a server that takes no JSON Schema",
        "4 calls",
        "3 calls",
        asked_again_in_another_process,
    ),
)


async def play_all(home: Path) -> dict[str, str]:
    """The outcome of every situation."""
    return {one.words: await one.play(home / str(n)) for n, one in enumerate(SITUATIONS)}
