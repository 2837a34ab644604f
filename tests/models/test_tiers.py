"""A child never runs at a tier above its parent's, also in whole trees of calls."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.models.catalog import Catalog, Model
from delegate.models.routing import ChildRequest, choose_child
from delegate.models.tiers import Bounds, is_above, weaker
from delegate.types import TIERS, Tier, TierBound
from delegate.types.errors import CallError

tiers = st.sampled_from(TIERS)
parents = st.sampled_from([None, *TIERS])
limits = st.sampled_from(get_args(TierBound))
same_every_time = settings(max_examples=50, derandomize=True, database=None, deadline=None)


def strength(tier: Tier) -> int:
    return {"deep": 3, "standard": 2, "fast": 1}[tier]


@pytest.mark.parametrize(
    ("parent", "max_tier", "min_tier", "allowed"),
    [
        ("deep", "parent", "fast", "deep standard fast"),
        ("standard", "parent", "fast", "standard fast"),
        ("fast", "parent", "fast", "fast"),
        ("deep", "parent-1", "fast", "standard fast"),
        ("deep", "parent-2", "fast", "fast"),
        ("standard", "parent-1", "fast", "fast"),
        ("standard", "parent-2", "fast", "fast"),  # there is nothing below fast
        ("fast", "parent-1", "fast", "fast"),
        ("standard", "deep", "fast", "standard fast"),  # a setting never raises a child above its parent
        ("deep", "standard", "standard", "standard"),
        ("deep", "parent", "parent", "deep"),
        ("deep", "parent", "parent-1", "deep standard"),
        ("deep", "fast", "standard", "fast"),  # the ceiling takes precedence over the floor
        ("fast", "parent", "standard", "fast"),
        ("standard", "parent-1", "parent", "fast"),
        (None, "parent", "fast", "deep standard fast"),  # unknown counts as deep
        (None, "standard", "fast", "standard fast"),
        (None, "parent-1", "fast", "standard fast"),
        (None, "parent-2", "parent-1", "fast"),
    ],
)
def test_children_may_have_the_tiers_that_parent_and_settings_allow(
    parent: Tier | None, max_tier: TierBound, min_tier: TierBound, allowed: str
) -> None:
    assert " ".join(Bounds.under(parent, max_tier=max_tier, min_tier=min_tier).allowed()) == allowed


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [(None, None, None), ("deep", None, "deep"), (None, "fast", "fast"), ("deep", "fast", "fast")],
)
def test_of_two_limits_the_weaker_counts_and_none_is_no_limit(
    one: Tier | None, other: Tier | None, both: Tier | None
) -> None:
    assert weaker(one, other) == weaker(other, one) == both


@pytest.mark.parametrize(("tier", "nearest"), [("deep", "standard"), ("standard", "standard"), ("fast", "standard")])
def test_a_tier_outside_the_bounds_becomes_the_nearest_inside(tier: Tier, nearest: Tier) -> None:
    assert Bounds("standard", "standard").clamp(tier) == nearest


@same_every_time
@given(tiers, tiers)
def test_a_stronger_tier_is_above_a_weaker_one_and_none_above_itself(one: Tier, other: Tier) -> None:
    assert is_above(one, other) == (strength(one) > strength(other))


@same_every_time
@given(parents, limits, limits, tiers)
def test_some_tier_is_always_allowed_and_a_clamped_one_is_among_them(
    parent: Tier | None, max_tier: TierBound, min_tier: TierBound, tier: Tier
) -> None:
    bounds = Bounds.under(parent, max_tier=max_tier, min_tier=min_tier)
    assert bounds.clamp(tier) in bounds.allowed()
    assert bounds.clamp(tier) == tier or tier not in bounds.allowed()


# ------------------------------------------------------------------------------------------------- whole trees of calls

CATALOG = Catalog.shipped()
EVERYWHERE = frozenset({("openai", None), ("anthropic", None), ("google", None)})
REFUSALS = {"unknown_model", "tier_above_parent", "tier_below_floor"}
"""The codes of possible refusals if every model can be reached."""

LOOK_ALIKES = str.maketrans({"a": "а", "o": "ο", "-": "‐", "5": "５"})  # Cyrillic, Greek, a hyphen, full width


@dataclass(frozen=True)
class Ask:
    """What one call requests for its child."""

    tier: Tier | None
    model: str | None


def disguises(name: str) -> Iterator[str]:
    """One model's name in all spellings that a hostile or careless caller might use."""
    yield name
    yield from (f"{name}-20261001", f"{name}@20261001", f"{name}-2026-10-01", f"{name}-20269999", f"{name}-latest")
    for owner in ("openai", "anthropic", "google", "models", "openrouter", "litellm", "vertex_ai", "evil"):
        yield from (f"{owner}/{name}", f"openrouter/{owner}/{name}", f"openrouter/{owner}/{name}-20261001")
    yield from (name.upper(), name.title(), f" {name}", f"{name} ", f"{name}\n", f"\t{name}", f"{name}\x00")
    yield from (name.translate(LOOK_ALIKES), f"{name}\u200b", f"\u202e{name[::-1]}", f"{name}\ud800")
    yield from (
        name[:-1],
        f"{name}{name}",
        f"{name}/",
        f"/{name}",
        f"../{name}",
        f"{name}/{name}",
        f"{name},gpt-6-luna",
    )


NAMES = [name for model in CATALOG.models for name in (model.id, *model.aliases)]
HOSTILE = [disguise for name in NAMES for disguise in disguises(name)]
NONSENSE = ["", " ", "/", "//", "-", "@", "deep", "parent", "*", ".*", "None", "null", "m" * 50_000, "-20261001"]
ASKED_TIERS: tuple[Tier | None, ...] = (None, "deep", "deep", "standard", "fast")
DEPTH, CALLS_PER_CHILD = 4, 6


def any_ask(choices: random.Random) -> Ask:
    """Often nothing or a real name, so that trees grow; otherwise something hostile."""
    a_name = choices.choice((None, choices.choice(NAMES), choices.choice(NAMES), choices.choice(HOSTILE + NONSENSE)))
    return Ask(choices.choice(ASKED_TIERS), a_name)


def answer(request: ChildRequest) -> Model | CallError:
    try:
        return choose_child(CATALOG, request)
    except CallError as error:
        return error


def admitted(ask: Ask, bounds: Bounds, usual_tier: Tier) -> Model | None:
    """The model that the child gets; None if the call is refused. Checks that a second request is the same."""
    request = ChildRequest(bounds, EVERYWHERE, date(2026, 11, 20), ask.tier, ask.model, usual_tier)
    first, again = answer(request), answer(request)
    if isinstance(first, Model):
        assert again is first
        return first
    assert first.code in REFUSALS
    assert str(again) == str(first)
    return None


def strongest(limit: TierBound, parent: Tier | None) -> int:
    """The strength that a bound in the settings means for this parent."""
    if limit in TIERS:
        return strength(limit)
    return max(1, strength(parent or "deep") + int(limit.removeprefix("parent") or 0))


@settings(same_every_time, max_examples=20)
@given(st.integers(0, 2**32), parents, limits, limits, tiers)
def test_no_request_puts_a_child_above_an_ancestor_or_outside_settings(
    seed: int, root_tier: Tier | None, max_tier: TierBound, min_tier: TierBound, usual_tier: Tier
) -> None:
    choices = random.Random(seed)

    def grow(parent: Tier | None, ancestors: tuple[Tier, ...]) -> None:
        for ask in (any_ask(choices) for _ in range(CALLS_PER_CHILD)):
            model = admitted(ask, Bounds.under(parent, max_tier=max_tier, min_tier=min_tier), usual_tier)
            if model is None:
                continue
            child = strength(model.tier)
            highest = min(strongest(max_tier, parent), strength(parent or "deep"))
            assert all(child <= strength(ancestor) for ancestor in ancestors), (ancestors, ask)
            assert min(highest, strongest(min_tier, parent)) <= child <= highest, (ancestors, ask)
            if len(ancestors) < DEPTH:
                grow(model.tier, (*ancestors, model.tier))

    grow(root_tier, (root_tier,) if root_tier else ())


@settings(same_every_time, max_examples=20)
@given(st.sampled_from(NAMES), st.sampled_from(TIERS))
def test_no_spelling_of_a_name_gives_another_model_than_the_one_it_names(name: str, ceiling: Tier) -> None:
    real = CATALOG.find(name)
    assert real
    for disguise in disguises(name):
        model = admitted(Ask(None, disguise), Bounds(ceiling), "standard")
        assert model in (None, real)
        assert model is None or not is_above(real.tier, ceiling)


@same_every_time
@given(st.sampled_from(ASKED_TIERS), limits, parents)
def test_a_call_that_names_no_model_is_refused_only_for_its_tier(
    tier: Tier | None, max_tier: TierBound, parent: Tier | None
) -> None:
    bounds = Bounds.under(parent, max_tier=max_tier)
    model = admitted(Ask(tier, None), bounds, "standard")
    assert (model is None) == (tier is not None and tier not in bounds.allowed())
    assert model is None or tier in (None, model.tier)
