"""Random programs against a server with accidents: what the server bills, and what delegate has on record."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from delegate import Delegator, Task
from delegate._util.cancellation import Cancellation
from delegate.budget.ledger import LEAST_OUTPUT
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.models.ratelimit import RateLimiter
from delegate.testing import judge_reply
from delegate.types import TaskResult
from delegate.types.ports import Tool
from tests.support.model_server import Call, Fault, ModelServer, Reply, cut_off

FASTER = 300
INPUT_PRICE, OUTPUT_PRICE = 1.0, 10.0
MODEL = DeclaredModel(
    id="worker",
    tier="standard",
    context_tokens=200_000,
    max_output_tokens=128_000,
    input_price=INPUT_PRICE,
    output_price=OUTPUT_PRICE,
)
SENTENCE = "Say what you found, as shortly as you can. "
FOUND = "I found it in the first box"


def usd(input: float = 0, output: float = 0) -> float:
    return (input * INPUT_PRICE + output * OUTPUT_PRICE) / 1e6


@dataclass
class Sum:
    """What calls cost."""

    usd: float = 0
    tokens: int = 0
    calls: int = 0

    def add(self, input: int, output: int) -> None:
        self.usd, self.tokens, self.calls = self.usd + usd(input, output), self.tokens + input + output, self.calls + 1

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.usd + other.usd, self.tokens + other.tokens, self.calls + other.calls)

    def is_within(self, other: "Sum") -> bool:
        return self.usd <= other.usd + 1e-9 and self.tokens <= other.tokens and self.calls <= other.calls


@dataclass
class Biller:
    """A server with accidents, and what it bills: nothing for an error, and perhaps something for what it broke off.

    Each attempt at a request has the same fate in every run of a program, in whatever order they arrive.
    """

    seed: int
    weather: dict[str, float]
    """How likely each kind of accident is."""
    retry_after: bool = False
    cancel_at: int | None = None
    """The number of the request at which the program is cancelled."""
    cancel: Callable[[], object] = lambda: None
    bill: Sum = field(default_factory=Sum)
    doubt: Sum = field(default_factory=Sum)
    """The most by which a client can't know the bill: the worst case of each call that was cut off."""
    worst: Sum = field(default_factory=Sum)
    """The worst case of the costliest request."""
    attempts: Counter[str] = field(default_factory=Counter[str])
    billed: Counter[str] = field(default_factory=Counter[str])
    """How often each request was answered."""
    accidents: Counter[str] = field(default_factory=Counter[str])
    written: int = 0
    """Output tokens so far. A client expects them in the input of later requests, though the texts here are short."""

    def __call__(self, call: Call) -> Reply | Fault:
        found = re.search(r"Part \d+", call.texts[0])
        part = found[0] if found else "?"
        request = f"{part}, {'judge' if call.wants_json else len(call.tool_results)}"
        self.attempts[request] += 1
        dice = random.Random(f"{self.seed}, {request}, {self.attempts[request]}")
        kind = dice.choices([*self.weather], [*self.weather.values()])[0]
        if kind == "hang" and call.wants_json:  # the time limit is the child's
            kind = "ok"
        if sum(self.attempts.values()) == self.cancel_at:
            self.cancel()
            kind = "hang"
        self.accidents[kind] += 1
        worst = Sum()
        worst.add(len(call.raw) + self.written, call.max_output_tokens)
        self.worst = max(self.worst, worst, key=lambda one: one.usd)
        if kind == "error":
            headers = {"retry-after": str(dice.choice([1, 2, 5]))} if self.retry_after else {}
            return Fault(dice.choice([429, 429, 500, 502, 503, 504, 529, 409]), headers=headers)
        if kind == "cut_error":
            return Fault(dice.choice([500, 503]), kind="truncate")
        reply = self._reply(call, dice)
        if kind == "ok":
            self._bill(reply, request)
            return reply
        self.doubt += worst
        if dice.random() < 0.5:  # a provider may bill what it has read
            self._bill(replace(reply, output_tokens=0))
        if kind == "hang":
            return Fault(kind="hang")
        delay = dice.choice([0, 0.02])
        return (
            Fault(200, kind="reset", delay=delay)
            if dice.random() < 0.3
            else cut_off(call, reply, dice.random(), delay=delay)
        )

    def _bill(self, reply: Reply, request: str = "") -> None:
        self.bill.add(reply.input_tokens, reply.output_tokens)
        self.written += reply.output_tokens
        self.billed[request] += 1

    def _reply(self, call: Call, dice: random.Random) -> Reply:
        output = min(dice.choice([5, 300, 3_000, call.max_output_tokens]), call.max_output_tokens)
        # Fewer tokens than a client expects, as its estimates are cautious, and nothing for schemas.
        read = len(call.system) + sum(map(len, call.texts))
        usage: dict[str, Any] = {"input_tokens": read // 8, "output_tokens": output}
        if call.wants_json:
            return Reply(judge_reply(c1=dice.choice([("met", FOUND), ("not_met", "")])), **usage)
        if dice.random() < 0.5 and len(call.tool_results) < 4:
            return Reply(tool_calls=(("look", {"box": len(call.tool_results)}),), **usage)
        return Reply(FOUND, **usage)


@dataclass
class Program:
    """What one program does, drawn by chance."""

    seed: int
    kill_at: int = 0
    """The number of the request at which its process is killed."""

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        self.weather = {"ok": 1.0, "error": dice.choice([0, 0.2, 0.5]), "cut_error": dice.choice([0, 0.1])}
        self.weather["cut"] = dice.choice([0, 0.2])
        self.retry_after = dice.random() < 0.5
        self.limit: dict[str, float] = dice.choice(
            [
                {},
                *({"max_cost_usd": usd} for usd in (0.01, 0.03, 0.1, 0.5)),
                {"max_run_tokens": dice.choice([3_000, 30_000])},
                {"max_run_model_calls": dice.choice([2, 7])},
            ]
        )
        self.concurrency = dice.choice([1, 3, 8])
        self.protocol: Any = dice.choice(["openai", "anthropic", "google"])
        self.is_judged, self.is_batch = dice.random() < 0.4, dice.random() < 0.3
        self.ending = dice.choice(["end", "end", "end", "cancel", "time limit"])
        self.cancel_at = dice.randrange(1, 12) if self.ending == "cancel" else None
        if self.ending == "time limit":
            self.weather["hang"] = 0.1
        self.blocks = dice.random() < 0.3
        self.goals = [f"{SENTENCE * dice.randrange(1, 9)}Part {n}." for n in range(dice.randrange(1, 9))]

    @property
    def tasks(self) -> list[Task]:
        criteria = {"acceptance_criteria": ["report: it says where it was found"]} if self.is_judged else {}
        timeout = {"timeout_seconds": 0.4} if self.ending == "time limit" else {}
        return [Task.model_validate({"goal": goal, **criteria, **timeout}) for goal in self.goals]

    def biller(self) -> Biller:
        return Biller(self.seed, self.weather, self.retry_after, self.cancel_at)

    async def run(self, home: Path) -> "Bills":
        """Run it, and compare what is on record with what the server bills."""
        biller, cancellation = self.biller(), Cancellation()
        loop = asyncio.get_running_loop()
        biller.cancel = lambda: loop.call_soon_threadsafe(cancellation.cancel)
        with ModelServer(biller, idle_seconds=0.01 if self.blocks else None) as server:
            async with self.delegator(server.url, home) as delegator:
                delegator.connections.limiters.make = lambda _: fast_limiter()
                results = await self._results(delegator, cancellation)
        recorded = Sum()
        for result in results:
            recorded += charged(result)
        if self.ending != "end":
            # What each task had in flight may have been billed whole or not at all, and may not have arrived yet.
            for _ in self.goals:
                biller.doubt += biller.worst
        if self.blocks:
            # A server may close a connection that was idle for milliseconds just when a request is on its way to it.
            biller.doubt += replace(biller.worst, calls=len(self.goals))
        return Bills(self, biller, recorded)

    @classmethod
    def killed(cls, seed: int) -> Self:
        """A program of some items, whose process is killed at one of its requests."""
        program = cls(seed)
        dice = random.Random(f"killed {seed}")
        program.is_batch, program.ending, program.cancel_at, program.limit = True, "kill", None, {}
        program.weather.pop("hang", None)
        program.goals = [f"Part {n}." for n in range(dice.randrange(3, 9))]
        program.kill_at = dice.randrange(1, len(program.goals) + 1)
        return program

    def delegator(self, url: str, home: Path) -> Delegator:
        url = f"{url}/v1" if self.protocol == "openai" else url
        endpoint = DeclaredEndpoint(name="house", base_url=url, protocol=self.protocol, models=(MODEL,))
        given: dict[str, Any] = {**self.limit, "max_concurrent": self.concurrency, "endpoints": (endpoint,)}
        tool = Tool("look", "Look into a box.", LOOK, blocking if self.blocks else looking, read_only=True)
        return Delegator(home=home, model="worker", judge_model="worker", max_children=20, tools=[tool], **given)

    async def _results(self, delegator: Delegator, cancellation: Cancellation) -> list[TaskResult]:
        if not self.is_batch:
            run = await delegator.run(*self.tasks, cancellation=cancellation)
            assert run.totals.cost_usd == run.totals.cost_known_usd
            return list(run.results)
        batch = delegator.batches.run(self.tasks, concurrency=self.concurrency, cancellation=cancellation)
        results: list[TaskResult] = []
        async for outcome in batch:
            if outcome.result is not None and outcome.result.handle is not None:
                # The outcome of an item that was stopped has no verdict, but its record has.
                record = await delegator.records.read(outcome.result.handle)
                assert record
                results.append(TaskResult.model_validate(record["result"]))
        summary = await delegator.batches.summary(batch.run_id)
        in_all = sum(result.cost_known_usd for result in results)
        assert abs(summary.cost_known_usd - in_all) < 1e-8, "the journal has the same sum"
        return results


LOOK = {"type": "object", "properties": {"box": {"type": "integer"}}}


async def looking(arguments: Mapping[str, Any]) -> str:
    return f"box {arguments['box']} is empty"


async def blocking(arguments: Mapping[str, Any]) -> str:
    """A host's tool that blocks the event loop for longer than the server keeps idle connections."""
    time.sleep(0.03)  # noqa: ASYNC251 that is what it is about
    return f"box {arguments['box']} is empty"


def charged(result: TaskResult) -> Sum:
    """What is on record of a task: of its child and its judge."""
    judge = result.verdict.judge if result.verdict else None
    usage = result.usage + judge.usage if judge else result.usage
    return Sum(result.cost_known_usd, usage.total_tokens, usage.model_calls)


@dataclass
class Bills:
    """The two bills of a program."""

    program: Program
    server: Biller
    recorded: Sum

    def compare(self) -> None:
        """Fail if they differ by more than nobody can know, or if a limit was passed."""
        said = f"program {self.program.seed}: {self.recorded} on record; {self.server}; {vars(self.program)}"
        assert self.server.bill.is_within(self.recorded), said
        assert self.recorded.is_within(self.server.bill + self.server.doubt), said
        for limit, allowed in self.program.limit.items():
            name, more = _LIMITS[limit]
            most = max(getattr(self.recorded, name), getattr(self.server.bill, name))
            assert most <= allowed + more, said


_LIMITS = {
    "max_cost_usd": ("usd", usd(output=LEAST_OUTPUT)),
    "max_run_tokens": ("tokens", LEAST_OUTPUT),
    "max_run_model_calls": ("calls", 0),
}


def fast_limiter() -> RateLimiter:
    """A limiter for which a second is 3 ms."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)

    return RateLimiter(clock=lambda: FASTER * time.monotonic(), sleep=sleep)
