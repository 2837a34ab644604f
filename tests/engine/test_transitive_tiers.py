"""Whole runs down to great-grandchildren: no requested model is above the tier of any ancestor."""

import asyncio
from functools import partial
from typing import Any

import pytest

from delegate import CallError, Delegator, Parent, Task, TaskResult
from delegate.models.catalog import Catalog
from delegate.models.providers.scripted import Scripted
from delegate.types import TIERS, Tier, Usage
from delegate.types.ports import ChatReply, ChatRequest, Tool
from tests.support.samples import sampled
from tests.support.words import goal_of, is_judge, met_by

CATALOG = Catalog.shipped()
READ_AND_WROTE = Usage(model_calls=1, input_tokens=1_000, output_tokens=100)


def tier_of(name: str) -> Tier:
    model = CATALOG.find(name)
    assert model
    return model.tier


def is_stronger(tier: Tier, other: Tier) -> bool:
    return TIERS.index(tier) < TIERS.index(other)


def turns(request: ChatRequest) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def heard(request: ChatRequest) -> list[str]:
    """Return the outputs of tools so far."""
    return [reply.text for message in request.messages for reply in message.tool_replies]


class Family:
    """Children that each delegate with the same `asks`, and the tier at which each of them ran.

    A child's goal is its position in the tree: `1.3` is the third task of the first child.
    """

    def __init__(self, *asks: dict[str, Any]) -> None:
        self.client = Scripted(self._answer)
        self.told: list[str] = []
        self._asks = asks

    @property
    def tiers(self) -> dict[str, Tier]:
        return {goal_of(request): tier_of(request.model) for request in self.client.requests}

    def assert_nobody_is_above(self, root: Tier) -> None:
        seen = self.tiers
        for goal, tier in seen.items():
            parent = seen[goal.rpartition(".")[0]] if "." in goal else root
            assert not is_stronger(tier, parent), goal

    def _answer(self, request: ChatRequest) -> ChatReply | str:
        self.told += heard(request)
        if turns(request) or all(tool.name != "delegate_task" for tool in request.tools):
            return "did what I could"
        goal = goal_of(request)
        return Scripted.calls(
            *(("delegate_task", {"goal": f"{goal}.{n}", **ask}) for n, ask in enumerate(self._asks, start=1))
        )


EVERY_TIER: tuple[dict[str, Any], ...] = ({"tier": "deep"}, {"tier": "standard"}, {"tier": "fast"}, {})
"""The requests of a child. The last one is empty."""


async def tiers_in(parent: Parent | None, **options: Any) -> dict[str, Tier]:
    """Return the tiers at which three generations run if all of them make all requests."""
    family = Family(*EVERY_TIER)
    async with Delegator(client=family.client, max_depth=3, max_children=100, **options) as delegator:
        for ask in EVERY_TIER:
            goal = ask.get("tier", "any")
            await delegator.call({"goal": goal, **ask}, parent=parent)
    family.assert_nobody_is_above("deep")
    return family.tiers


# ---------------------------------------------------------------------------------------------- the parent's own tier


@pytest.mark.parametrize(
    ("parent", "options", "first_generation"),
    sampled(
        [
            (None, {}, {"standard", "fast"}),  # unknown: as if standard
            (None, {"parent_tier": "deep"}, {"deep", "standard", "fast"}),
            (Parent(model="nobody-knows-it"), {}, {"standard", "fast"}),
            (Parent(model="nobody-knows-it", tier="deep"), {}, {"deep", "standard", "fast"}),
            (None, {"max_tier": "standard"}, {"standard", "fast"}),
            (None, {"parent_tier": "standard"}, {"standard", "fast"}),
            (Parent(model="claude-sonnet-5-5"), {}, {"standard", "fast"}),
            (Parent(model="openrouter/anthropic/claude-sonnet-5.5"), {}, {"standard", "fast"}),
            (Parent(model="gpt-6-luna-2026-08-01"), {}, {"fast"}),
            (Parent(tier="fast"), {}, {"fast"}),
            (Parent(model="claude-opus-5-5", tier="fast"), {}, {"fast"}),  # the weaker counts
            (Parent(model="gpt-6-luna", tier="deep"), {}, {"fast"}),
            (Parent(model="nobody-knows-it"), {"parent_tier": "standard"}, {"standard", "fast"}),
            (Parent(tier="deep"), {"parent_tier": "fast"}, {"deep", "standard", "fast"}),  # the host knows better
            (Parent(tier="deep"), {"max_tier": "parent-1"}, {"standard", "fast"}),
            (Parent(tier="standard"), {"max_tier": "deep"}, {"standard", "fast"}),
            (Parent(tier="deep"), {"min_tier": "standard"}, {"deep", "standard"}),
            (Parent(tier="fast"), {"min_tier": "standard"}, {"fast"}),
        ],
        6,
    ),
)
async def test_three_generations_stay_within_the_tiers_allowed_to_each(
    parent: Parent | None, options: dict[str, Any], first_generation: set[Tier]
) -> None:
    seen = await tiers_in(parent, **options)
    assert {tier for goal, tier in seen.items() if "." not in goal} == first_generation
    assert {goal.count(".") for goal in seen} == {0, 1, 2}


async def test_one_tier_below_me_is_one_further_in_every_generation() -> None:
    seen = await tiers_in(Parent(tier="deep"), max_tier="parent-1")
    assert {(goal.count("."), tier) for goal, tier in seen.items()} == {
        (0, "standard"), (0, "fast"), (1, "fast"), (2, "fast"),
    }  # fmt: skip


async def test_a_child_reads_that_its_own_child_may_not_be_above_it() -> None:
    family = Family({"tier": "deep"}, {"model": "gpt-6-astra"})
    async with Delegator(client=family.client, max_depth=2) as delegator:
        await delegator.call({"goal": "top", "tier": "standard"})
    assert family.tiers == {"top": "standard"}
    too_high, no_such_field = family.told
    assert "tier_above_parent" in too_high
    assert "above standard, the highest tier that this parent may delegate to" in too_high
    assert "unknown_field" in no_such_field


DEEP = {"goal": "x", "tier": "deep"}

# --------------------------------------------------------------------- names, through tools that a host gives a child

HOSTILE_NAMES = [
    "gpt-6-astra",
    "openai/gpt-6-astra",
    "openrouter/openai/gpt-6-astra",
    "gpt-6-astra-2026-09-01",
    "claude-opus-5.5@20261001",
    "GPT-6-Astra",
    "gpt‑6‑astra",
    "gpt-6-astra\u200b",
    "gpt-6-astra ",
    "no-such-model",
    "x" * 10_000,
]


class HandsOn:
    """A host's tool that runs a child's call as a program, with access to every field of `Task`."""

    def __init__(self) -> None:
        self.delegator: Delegator | None = None
        self.codes: list[str | None] = []
        self.tool = Tool("hand_on", "Hands work on.", {"type": "object"}, self._call)

    async def _call(self, arguments: Any) -> str:
        assert self.delegator
        task, claimed = Task(**arguments), Parent(tier="deep", model="gpt-6-astra", run_id="a run of my own")
        for run in (self.delegator.run, partial(asyncio.to_thread, self.delegator.run_sync)):
            try:
                await run(task, parent=claimed)
                self.codes.append(None)
            except CallError as error:
                self.codes.append(error.code)
        return "handed on"


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
async def test_no_spelling_of_a_models_name_lifts_a_grandchild_above_its_parent(name: str) -> None:
    hands_on = HandsOn()

    def answer(request: ChatRequest) -> ChatReply | str:
        if goal_of(request) == "top" and not turns(request):
            return Scripted.call("hand_on", goal="below", model=name, tier="fast")
        return "did my part"

    client = Scripted(answer)
    async with Delegator(client=client, tools=[hands_on.tool], max_depth=2) as delegator:
        hands_on.delegator = delegator
        await delegator.call({"goal": "top", "tier": "standard"})
    assert len(hands_on.codes) == 2
    assert set(hands_on.codes) <= {None, "tier_above_parent", "unknown_model"}
    below = [request.model for request in client.requests if goal_of(request) == "below"]
    assert not [model for model in below if is_stronger(tier_of(model), "standard")]
    assert len(below) == hands_on.codes.count(None)


async def test_a_child_that_claims_a_stronger_parent_is_still_a_child() -> None:
    hands_on = HandsOn()

    def answer(request: ChatRequest) -> ChatReply | str:
        if goal_of(request) == "top" and not turns(request):
            return Scripted.call("hand_on", goal="below", tier="deep")
        return "did my part"

    async with Delegator(client=Scripted(answer), tools=[hands_on.tool], max_depth=2) as delegator:
        hands_on.delegator = delegator
        result = await delegator.call({"goal": "top", "tier": "fast"})
    assert result.results[0].status == "completed"
    assert hands_on.codes == ["tier_above_parent", "tier_above_parent"]


# --------------------------------------------------------------------------- what a provider serves in place of a model


def served(name: str | None, **fields: Any) -> ChatReply:
    defaults: dict[str, Any] = {"text": "did as asked", "stop": "end", "usage": READ_AND_WROTE, "model_served": name}
    return ChatReply(**(defaults | fields))


async def result_of(reply: ChatReply, *, asked: str = "gpt-6.1-terra", **options: Any) -> tuple[TaskResult, Scripted]:
    """Return the result of a child whose provider sends this reply."""

    def answer(request: ChatRequest) -> ChatReply | str:
        return met_by("did as asked")(request) if is_judge(request) else reply

    client = Scripted(answer)
    async with Delegator(client=client, model=asked, **options) as delegator:
        result = await delegator.call(
            {"goal": "x", "acceptance_criteria": ["report: the report says that it was done"]},
            parent=Parent(tier="standard"),
        )
    return result.results[0], client


@pytest.mark.parametrize("name", ["gpt-6-astra", "openai/gpt-6-astra", "gpt-6-astra-2026-09-01", "claude-opus-5.5"])
async def test_a_served_model_above_the_parents_tier_ends_the_child(name: str) -> None:
    reply = Scripted.call("write_file", path="a.txt", content="a")
    result, client = await result_of(served(name, tool_calls=reply.tool_calls, stop="tool_calls"))
    assert (result.status, result.error and result.error.code) == ("failed", "tier_above_parent")
    assert result.error
    assert name in result.error.message
    assert (result.model, result.requested_model, result.substituted) == (name, "gpt-6.1-terra", True)
    price = 0.01 + 0.005 if "gpt" in name else 0.004 + 0.002  # 1,000 tokens read and 100 written
    assert result.cost_usd == pytest.approx(price)
    assert len(client.requests) == 1, "neither the child goes on nor is a judge asked"
    assert (result.receipts.total, result.artifacts) == (0, ()), "what it asked for isn't done"
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "run_failed")


@pytest.mark.parametrize(
    ("name", "provenance", "cost"),
    [
        ("gpt-6-luna", "observed", 0.0001 + 0.00005),
        ("gpt-6-sol", "observed", 0.002 + 0.001),
        ("claude-haiku-5-5", "estimated", 0.0001 + 0.00005),  # of another provider: whose price was it?
        ("some-model-of-theirs", "estimated", 0.001 + 0.0005),  # priced as the one that was asked for
    ],
)
async def test_another_model_that_is_served_is_named_and_priced_as_what_ran(
    name: str, provenance: str, cost: float
) -> None:
    result, _ = await result_of(served(name))
    assert result.status == "completed"
    assert (result.model, result.requested_model, result.substituted) == (name, "gpt-6.1-terra", True)
    assert result.verdict
    judged = result.verdict.judge
    assert judged
    assert (result.cost_usd or 0) - (judged.cost_usd or 0) == pytest.approx(cost)
    assert result.cost_provenance == provenance


@pytest.mark.parametrize(
    "name",
    [None, "gpt-6.1-terra", "gpt-6.1-terra-2026-10-01", "openai/gpt-6.1-terra", "openrouter/openai/gpt-6.1-terra"],
)
async def test_another_spelling_of_the_requested_model_is_no_substitute(name: str | None) -> None:
    result, _ = await result_of(served(name))
    assert (result.status, result.substituted) == ("completed", False)
    assert (result.requested_model, result.cost_provenance) == ("gpt-6.1-terra", "observed")
    assert result.model == (name or "gpt-6.1-terra"), "what really ran, as the provider calls it"


async def test_work_of_a_served_model_is_judged_by_none_above_that_model() -> None:
    result, _ = await result_of(served("gpt-6-luna"), judge_model="gemini-3.8-flash")
    assert result.verdict
    assert result.verdict.judge
    assert result.verdict.code == "no_eligible_judge"
    why = {candidate.model: candidate.reason for candidate in result.verdict.judge.candidates}
    assert why["gemini-3.8-flash"] == "tier standard is above the worker's fast"


async def test_a_child_served_a_weaker_model_has_no_children_above_it() -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        if goal_of(request) == "top" and not turns(request):
            asks = [{"goal": "high", "tier": "standard"}, {"goal": "low"}]
            calls = Scripted.calls(*(("delegate_task", ask) for ask in asks)).tool_calls
            return served("gpt-6-luna", tool_calls=calls, stop="tool_calls")
        return served("gpt-6-luna") if goal_of(request) == "top" else "did my part"

    client = Scripted(answer)
    async with Delegator(client=client, max_depth=2) as delegator:
        result = await delegator.call({"goal": "top", "tier": "standard"})
    tiers = {goal_of(request): tier_of(request.model) for request in client.requests}
    assert tiers == {"top": "standard", "low": "fast"}
    assert result.results[0].tier == "fast"
