"""Whatever goes wrong on the wire, the bill on record is the server's, and no program passes its limit."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Report, Task
from delegate.budget.ledger import LEAST_OUTPUT
from delegate.models import ratelimit
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.models.ratelimit import RateLimiter
from tests.support.model_server import Call, Fault, ModelServer, Reply

PROGRAMS = 20
"""How many random programs the suite runs."""
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


def usd(input: float = 0, output: float = 0) -> float:
    return (input * INPUT_PRICE + output * OUTPUT_PRICE) / 1e6


@dataclass
class Biller:
    """A server with accidents, and what it bills: nothing for an error, and perhaps something for what it broke off.

    Each attempt at a request has the same fate in every run of a program, in whatever order they arrive.
    """

    seed: int
    weather: dict[str, float]
    """How likely each kind of accident is."""
    bill_usd: float = 0
    written: int = 0
    """Output tokens so far. A client expects them in the input of later requests, though the texts here are short."""
    doubt_usd: float = 0
    """The most by which a client can't know the bill: the worst case of each call that was cut off."""
    attempts: Counter[str] = field(default_factory=Counter[str])
    accidents: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, call: Call) -> Reply | Fault:
        found = re.search(r"Part \d+", call.texts[0])
        request = f"{found and found[0]}, {len(call.tool_results)}"
        self.attempts[request] += 1
        dice = random.Random(f"{self.seed}, {request}, {self.attempts[request]}")
        kind = dice.choices([*self.weather], [*self.weather.values()])[0]
        self.accidents[kind] += 1
        tokens = len(call.raw) // 8  # fewer than a client expects, as its estimates are cautious
        if kind == "error":
            return Fault(dice.choice([429, 500, 502, 503, 504, 529, 409]))
        if kind == "cut_error":
            return Fault(dice.choice([500, 503]), kind="truncate")
        if kind == "ok":
            return self._reply(call, dice, tokens)
        self.doubt_usd += usd(len(call.raw) + self.written, call.max_output_tokens)
        self.bill_usd += dice.choice([0, usd(tokens)])
        return Fault(200, kind=dice.choice(["reset", "truncate"]), body={"id": "x"}, delay=dice.choice([0, 0.02]))

    def _reply(self, call: Call, dice: random.Random, tokens: int) -> Reply:
        output = min(dice.choice([5, 300, 3_000, call.max_output_tokens]), call.max_output_tokens)
        self.bill_usd += usd(tokens, output)
        self.written += output
        usage: dict[str, Any] = {"input_tokens": tokens, "output_tokens": output}
        if dice.random() < 0.5 and len(call.tool_results) < 4:
            thought = {"thought": f"I looked at part {len(call.tool_results)}"}
            return Reply(tool_calls=(("think", thought),), **usage)
        return Reply("I found it", **usage)


async def run(seed: int, home: Path) -> tuple[Report, Biller, float | None]:
    """Run some tasks, some of them at once, perhaps under a limit, which is returned."""
    dice = random.Random(seed)
    weather = {"ok": 1.0, "error": dice.choice([0, 0.2, 0.5]), "cut_error": dice.choice([0, 0.1])}
    weather["cut"] = dice.choice([0, 0.2])
    biller, limit = Biller(seed, weather), dice.choice([None, 0.01, 0.03, 0.1, 0.5])
    protocol: Any = dice.choice(["openai", "anthropic", "google"])
    with ModelServer(biller) as server:
        url = server.openai_url if protocol == "openai" else server.url
        endpoint = DeclaredEndpoint(name="house", base_url=url, protocol=protocol, models=(MODEL,))
        given: dict[str, Any] = {"max_cost_usd": limit, "max_concurrent": dice.choice([1, 3, 8])}
        async with Delegator(home=home, model="worker", endpoints=(endpoint,), max_children=20, **given) as delegator:
            delegator.connections.limiters.default_factory = fast_limiter
            tasks = [Task(goal=f"{SENTENCE * n}Part {n}.") for n in range(dice.randrange(1, 9))]
            report = await delegator.run(*tasks)
    return report, biller, limit


def fast_limiter() -> RateLimiter:
    """A limiter for which a second is 3 ms."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / FASTER)

    return RateLimiter(clock=lambda: FASTER * time.monotonic(), sleep=sleep)


def check(report: Report, biller: Biller, limit: float | None) -> None:
    recorded = report.totals.cost_known_usd
    assert report.totals.cost_usd == recorded
    assert biller.bill_usd - 1e-9 <= recorded <= biller.bill_usd + biller.doubt_usd + 1e-9, biller
    if limit is not None:
        assert max(recorded, biller.bill_usd) <= limit + usd(output=LEAST_OUTPUT), biller


async def play(seeds: Iterable[int], home: Path) -> Counter[str]:
    """Run the programs and check their bills. Returns how often each kind of accident happened."""
    accidents = Counter[str]()
    for seed in seeds:
        report, biller, limit = await run(seed, home / str(seed))
        check(report, biller, limit)
        accidents += biller.accidents
    return accidents


async def test_the_bill_on_record_is_the_servers_and_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratelimit, "POLL_SECONDS", 0.001)
    accidents = await play(range(PROGRAMS), tmp_path)
    assert {"ok", "error", "cut_error", "cut"} <= accidents.keys()
