"""The plan of a batch and the basis of its estimate."""

from collections.abc import AsyncIterator

import pytest

from delegate import Delegator, Task
from delegate.batch.item import Item
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import CallError

MODEL = "gpt-6.1-terra"


@pytest.fixture
async def client() -> Scripted:
    return Scripted(lambda request: "The answer is 42.")


@pytest.fixture
async def delegator(client: Scripted) -> AsyncIterator[Delegator]:
    async with Delegator(client=client, model=MODEL) as made:
        yield made


def items(count: int) -> list[Task]:
    return [Task(goal=f"Find answer {n}.") for n in range(count)]


async def test_without_records_the_cost_is_assumed(delegator: Delegator, client: Scripted) -> None:
    plan = await delegator.batches.plan([*items(3), Task(goal="Find the last.", model="gpt-6-luna")])
    assert [(group.model, group.tasks, group.basis) for group in plan.groups] == [
        (MODEL, 3, "assumed"),
        ("gpt-6-luna", 1, "assumed"),
    ]
    assert plan.estimate.usd == sum(group.usd or 0 for group in plan.groups)
    assert plan.estimate.usd
    assert client.requests == []
    assert await delegator.batches.latest() == []


async def test_the_stages_of_a_workflow_are_in_the_order_they_can_run(delegator: Delegator) -> None:
    task = Task(goal="Find the answer.")
    plan = await delegator.batches.plan(
        [Item("end", task, needs=("a", "b")), Item("a", task), Item("b", task, needs=("a",))]
    )
    assert plan.stages == (("a",), ("b",), ("end",))


async def test_a_plan_refuses_whatever_a_batch_refuses(delegator: Delegator) -> None:
    with pytest.raises(CallError, match="no-such-model"):
        await delegator.batches.plan([*items(1), Task(goal="Find it.", model="no-such-model")])
    task = Task(goal="Find the answer.")
    with pytest.raises(CallError, match="cycle"):
        await delegator.batches.plan([Item("a", task, needs=("b",)), Item("b", task, needs=("a",))])
