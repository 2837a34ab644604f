"""Many delegations at a rate-limited endpoint slow down instead of failing."""

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from delegate import Delegator, RunResult, Settings, Task
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.samples import MORE_CASES

DELEGATIONS = 20
CRITERION = "report: The report says how many words there are."
REPORT = "I counted the words of my part: there are twelve."


class Limited:
    """Answers children and judges, up to `per_second` calls in any second, and rejects the rest with status 429."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._answered: deque[float] = deque()
        self.outcomes: list[tuple[float, bool]] = []
        self.begun: Counter[str] = Counter()
        """How often the first call for a goal was answered."""

    def __call__(self, call: Call) -> Reply | Fault:
        while self._answered and self._answered[0] <= call.at - 1:
            self._answered.popleft()
        allowed = len(self._answered) < self._per_second
        self.outcomes.append((call.at, allowed))
        if not allowed:
            return Fault(429, headers={"retry-after": "1"})
        self._answered.append(call.at)
        return self._answer(call)

    def _answer(self, call: Call) -> Reply:
        if call.wants_json:
            return judge_reply(call)
        self.begun[call.texts[0]] += 1
        return Reply(REPORT)

    def refused_after_the_first_second(self) -> float:
        start = self.outcomes[0][0]
        late = [allowed for at, allowed in self.outcomes if at > start + 1]
        return late.count(False) / len(late)

    def figures(self) -> str:
        seconds = self.outcomes[-1][0] - self.outcomes[0][0]
        answered = sum(allowed for _, allowed in self.outcomes)
        return (
            f"{answered} calls answered in {seconds:.1f} s: {answered / seconds:.1f} of {self._per_second} per second; "
            f"{len(self.outcomes) - answered} refused, {self.refused_after_the_first_second():.1%} after one second"
        )


def judge_reply(call: Call) -> Reply:
    found = re.search(r"exactly once: (.+)\Z", call.last_text)
    assert found
    answers = [
        {"id": id, "evidence": "there are twelve", "reason": "It says twelve.", "verdict": "met"}
        for id in found[1].split(", ")
    ]
    return Reply(json.dumps({"answers": answers}))


def settings(home: Path, protocol: Literal["openai", "anthropic"], *urls: str) -> Settings:
    """Settings with one declared endpoint per URL, each with one model: `model-0`, `model-1`, and so on."""
    endpoints = tuple(
        DeclaredEndpoint(name=f"e{n}", base_url=url, protocol=protocol, models=(model(f"model-{n}", n + 1),))
        for n, url in enumerate(urls)
    )
    return Settings(home=home, endpoints=endpoints, model="model-0", max_concurrent=DELEGATIONS)


def model(id: str, price: float) -> DeclaredModel:
    return DeclaredModel(id=id, tier="standard", input_price=price, output_price=price)


def tasks(count: int) -> list[Task]:
    return [Task.model_validate({"goal": f"Count part {n}.", "acceptance_criteria": [CRITERION]}) for n in range(count)]


def verdicts(runs: Sequence[RunResult]) -> list[str]:
    results = [result for run in runs for result in run.results]
    return [result.verdict.verdict if result.verdict else str(result.error) for result in results]


@pytest.mark.parametrize(("protocol", "per_second"), [("openai", 18), pytest.param("anthropic", 18, marks=MORE_CASES)])
async def test_twenty_delegations_at_once_all_finish_within_a_rate_limit(
    home: Path, protocol: Literal["openai", "anthropic"], per_second: int
) -> None:
    limited = Limited(per_second)
    with ModelServer(limited) as server:
        url = server.openai_url if protocol == "openai" else server.anthropic_url
        async with Delegator(settings(home, protocol, url)) as delegator:
            results = await asyncio.gather(*(delegator.run(task) for task in tasks(DELEGATIONS)))

    print(limited.figures())
    assert verdicts(results) == ["PASS"] * DELEGATIONS
    assert sorted(limited.begun.values()) == [1] * DELEGATIONS
    assert not all(allowed for _, allowed in limited.outcomes)
    assert limited.refused_after_the_first_second() <= 0.1


async def test_a_judge_whose_model_is_limited_for_long_gives_way_to_the_next(home: Path) -> None:
    def script(call: Call) -> Reply | Fault:
        if not call.wants_json:
            return Reply(REPORT)
        return Fault(429, headers={"retry-after": "60"}) if call.model == "model-0" else judge_reply(call)

    with ModelServer(script) as server:
        async with Delegator(settings(home, "openai", server.openai_url, server.openai_url)) as delegator:
            began = time.monotonic()
            result = await delegator.run(*tasks(1))

    assert verdicts([result]) == ["PASS"]
    assert [call.model for call in server.calls] == ["model-0", "model-0", "model-1"]
    verdict = result.results[0].verdict
    assert verdict
    assert verdict.judge
    assert verdict.judge.model == "model-1"
    assert time.monotonic() - began < 30


async def test_a_child_waits_as_long_as_the_server_asks(home: Path) -> None:
    answers = iter([Fault(429, headers={"retry-after-ms": "400"}), Reply(REPORT)])
    with ModelServer(lambda call: judge_reply(call) if call.wants_json else next(answers)) as server:
        async with Delegator(settings(home, "openai", server.openai_url)) as delegator:
            result = await delegator.run(*tasks(1))

    assert verdicts([result]) == ["PASS"]
    refused, answered, _ = server.calls
    assert 0.4 <= answered.at - refused.at < 1.5


async def test_children_on_two_event_loops_keep_one_limit(home: Path) -> None:
    limited = Limited(per_second=8)
    with ModelServer(limited) as server:
        async with Delegator(settings(home, "openai", server.openai_url)) as delegator:
            there = asyncio.to_thread(delegator.run_sync, *tasks(6)[:3])
            results = await asyncio.gather(there, *(delegator.run(task) for task in tasks(6)[3:]))

    assert verdicts(results) == ["PASS"] * 6
    assert sorted(limited.begun.values()) == [1] * 6
    assert limited.refused_after_the_first_second() <= 0.2
