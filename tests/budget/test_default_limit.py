"""A run in which a model makes a call has a limit of cost, if nobody has set one."""

from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Parent, RunResult, Settings, Task
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from tests.support.model_server import Call, ModelServer, Reply

DEAR = DeclaredModel(id="dear", tier="standard", input_price=1_000, output_price=1_000)
"""2,000 tokens cost 2 dollars."""
CALL = {"goal": "Think.", "tier": "standard"}
PARENT = Parent(run_id="turn-1")


def thinks(call: Call) -> Reply:
    return Reply(
        tool_calls=(("think", {"thought": f"{len(call.tool_results)}"}),), input_tokens=1_000, output_tokens=1_000
    )


def settings(home: Path, url: str, model: DeclaredModel = DEAR, **more: Any) -> Settings:
    endpoint = DeclaredEndpoint(name="e", base_url=url, protocol="openai", models=(model,))
    return Settings.model_validate({"home": home, "endpoints": (endpoint,), "max_steps": 6, **more})


async def called(home: Path, **more: Any) -> tuple[RunResult, int]:
    """The report on a call by a model, and the number of calls of models."""
    with ModelServer(thinks) as server:
        async with Delegator(settings(home, server.openai_url, **more)) as delegator:
            return await delegator.call(CALL), len(server.calls)


async def test_a_call_by_a_model_ends_at_the_default_limit_which_is_named(home: Path) -> None:
    run, calls = await called(home)
    (result,) = run.results
    assert result.status == "budget_exceeded"
    assert result.error
    assert "(setting default_max_cost_usd)" in result.error.message
    assert result.error.hint == "raise default_max_cost_usd to allow more"
    assert result.cost_usd
    assert (calls, result.cost_usd <= 5) == (2, True)


@pytest.mark.parametrize(
    "more",
    [
        {"default_max_cost_usd": None},
        {"max_cost_usd": 13},
    ],
    ids=["off", "its own limit"],
)
async def test_a_host_that_sets_another_limit_keeps_it(home: Path, more: dict[str, Any]) -> None:
    result, calls = await called(home, **more)
    assert (result.results[0].status, calls) == ("max_steps", 6)


async def test_a_lower_limit_of_the_host_is_the_one_that_is_named(home: Path) -> None:
    run, calls = await called(home, max_cost_usd=3.0)
    (result,) = run.results
    assert result.error
    assert "(setting max_cost_usd)" in result.error.message
    assert calls == 1


async def test_the_calls_of_one_run_share_the_limit(home: Path) -> None:
    with ModelServer(thinks) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            for _ in range(3):
                await delegator.call(CALL, parent=PARENT)
            shared = len(server.calls)
            await delegator.call(CALL, parent=Parent(run_id="turn-2"))
    assert (shared, len(server.calls)) == (2, 4)


async def test_what_a_person_runs_has_no_such_limit(home: Path) -> None:
    with ModelServer(thinks) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            (result,) = (await delegator.run(Task(goal="Think."))).results
            async for outcome in delegator.batches.run([Task(goal="Think.")]):
                assert outcome.result
                assert outcome.result.status == "max_steps"
    assert (result.status, len(server.calls)) == ("max_steps", 12)


async def test_a_model_without_a_price_still_runs(home: Path) -> None:
    result, calls = await called(home, model=DeclaredModel(id="own", tier="standard"))
    assert (result.results[0].status, result.results[0].cost_usd, calls) == ("max_steps", None, 6)


async def test_the_definition_of_the_tool_says_nothing_of_it(home: Path) -> None:
    with ModelServer(thinks) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            before = delegator.tool("openai", parent=PARENT)
            await delegator.call(CALL, parent=PARENT)
            assert "$" not in str(before)
            assert "$" not in str(delegator.tool("openai", parent=PARENT))
