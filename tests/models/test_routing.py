"""Selection of judges and of models for children: the rules, the reasons, and properties for every catalog."""

import random
import re
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.models.catalog import Catalog, Model, Price
from delegate.models.false_pass import FalsePassTable
from delegate.models.routing import NEAR_TIE, ChildRequest, JudgeRequest, Routing, choose_child, choose_judge, coarse
from delegate.models.tiers import Bounds
from delegate.types import TIERS, Candidate, FalsePassRate, Tier
from delegate.types.errors import CallError
from tests.support.pace import best_of, pace

TODAY = date(2026, 11, 20)
ALL_KEYS = frozenset({("openai", None), ("anthropic", None), ("google", None)})


def model(id: str, **fields: Any) -> Model:
    defaults: dict[str, Any] = {
        "provider": "openai",
        "family": id,
        "tier": "fast",
        "context_tokens": 100_000,
        "max_output_tokens": 8_000,
        "structured_output": True,
        "tools": True,
    }
    return Model(id=id, **(defaults | fields))


def priced(amount: float, **fields: Any) -> tuple[Price, ...]:
    return (Price(input=amount, output=amount, **fields),)


def request(worker: Model | None = None, **fields: Any) -> JudgeRequest:
    defaults: dict[str, Any] = {"evidence_tokens": 3_000, "reply_tokens": 300, "on": TODAY, "available": ALL_KEYS}
    return JudgeRequest(worker=worker, **(defaults | fields))


def measured(*names: str) -> Catalog:
    """The shipped catalog, with a measured accuracy for these models only."""
    return Catalog.shipped().with_accuracy(dict.fromkeys(names, 0.9))


def shipped(name: str) -> Model:
    found = Catalog.shipped().find(name)
    assert found is not None
    return found


def ids(routing: Routing) -> list[str]:
    return [model.id for model in routing.ranked]


def reason(routing: Routing, id: str) -> str | None:
    return row(routing, id).reason


def row(routing: Routing, id: str) -> Candidate:
    return next(candidate for candidate in routing.candidates if candidate.model == id)


def cost_of(routing: Routing, id: str) -> float | None:
    return row(routing, id).estimated_cost_usd


def why_not(catalog: Catalog, id: str, **fields: Any) -> str | None:
    routing = choose_judge(catalog, request(**fields))
    assert id not in ids(routing)
    return reason(routing, id)


# ------------------------------------------------------------------------------------------- on the shipped catalog


@pytest.mark.parametrize(
    ("worker", "tokens", "pool", "judge"),
    [
        ("claude-sonnet-5-5", 3_000, None, "gemini-2.5-flash-lite"),
        # haiku-5-5 costs five times as much above 100,000 of its own tokens, which are shorter than others'
        ("claude-sonnet-5-5", 3_000, ("claude-haiku-5-5", "gpt-5.4-nano"), "claude-haiku-5-5"),
        ("claude-sonnet-5-5", 80_000, ("claude-haiku-5-5", "gpt-5.4-nano"), "gpt-5.4-nano"),
        # gpt-6-luna costs twice as much above 272,000, and is then a near tie
        ("gpt-6.1-terra", 3_000, ("gpt-6-luna", "gemini-3.1-flash-lite"), "gpt-6-luna"),
        ("gpt-6.1-terra", 300_000, ("gpt-6-luna", "gemini-3.1-flash-lite"), "gemini-3.1-flash-lite"),
    ],
)
def test_the_cheapest_judge_depends_on_the_size_of_the_evidence(
    worker: str, tokens: int, pool: tuple[str, ...] | None, judge: str
) -> None:
    catalog, least = (measured(*pool), 0.9) if pool else (Catalog.shipped(), None)
    routing = choose_judge(catalog, request(shipped(worker), evidence_tokens=tokens, min_accuracy=least))
    assert ids(routing)[0] == judge


BEFORE, DECEMBER, NEW_YEAR = date(2026, 11, 30), date(2026, 12, 1), date(2027, 1, 1)


@pytest.mark.parametrize(
    ("worker", "pool", "judges"),
    [
        (
            "claude-opus-5-5",
            ("gemini-4-argon", "gpt-6-sol"),
            {BEFORE: "gemini-4-argon", DECEMBER: "gpt-6-sol", NEW_YEAR: "gpt-6-sol"},
        ),
        (
            "claude-sonnet-5-5",
            ("gemini-3.8-flash", "gpt-6.1-terra"),
            {BEFORE: "gemini-3.8-flash", DECEMBER: "gemini-3.8-flash", NEW_YEAR: "gpt-6.1-terra"},
        ),
    ],
)
def test_the_judge_changes_on_the_day_a_price_does(worker: str, pool: tuple[str, ...], judges: dict[date, str]) -> None:
    """Google doubles the price of gemini-4-argon on 1 December 2026, and of gemini-3.8-flash on New Year's Day."""
    catalog, worked = measured(*pool), shipped(worker)
    chosen = {on: ids(choose_judge(catalog, request(worked, on=on, min_accuracy=0.9)))[0] for on in judges}
    assert chosen == judges


def test_with_one_providers_key_its_own_cheapest_model_judges() -> None:
    only_anthropic = frozenset({("anthropic", None)})
    routing = choose_judge(Catalog.shipped(), request(shipped("claude-opus-5-5"), available=only_anthropic))
    assert ids(routing)[:2] == ["claude-haiku-5-5", "claude-haiku-4-5"]
    assert reason(routing, "gpt-6-luna") == "no key (set OPENAI_API_KEY)"
    assert reason(routing, "gemini-2.5-flash-lite") == "no key (set GEMINI_API_KEY)"


def test_without_a_judge_the_two_most_frequent_reasons_say_why() -> None:
    alone = choose_judge(Catalog.shipped(), request(None, available=frozenset()))
    assert re.fullmatch(
        r"no model may judge this: no key \(set OPENAI_API_KEY\) \((\d+) of (\d+) models\); "
        r"no key \(set ANTHROPIC_API_KEY\) \(\d+ of \2 models\); `judge.candidates` has the others",
        alone.why_none,
    )


# -------------------------------------------------------------------------------------------------- who may judge


def test_a_model_above_the_workers_tier_may_not_judge() -> None:
    catalog = Catalog([model("big", tier="deep", prices=priced(0)), model("same", tier="standard", prices=priced(9))])
    worker = model("worker", tier="standard")
    assert why_not(catalog, "big", worker=worker) == "tier deep is above the worker's standard"
    assert ids(choose_judge(catalog, request(worker))) == ["same"]


def test_a_model_above_the_ceiling_may_not_judge_whatever_the_worker_was() -> None:
    catalog = Catalog([model("big", tier="deep", prices=priced(1))])
    for worker in (None, model("worker", tier="deep")):
        why = why_not(catalog, "big", worker=worker, ceiling="fast")
        assert why == "tier deep is above fast, the highest tier allowed"
    assert ids(choose_judge(catalog, request())) == ["big"]


@pytest.mark.parametrize(
    ("accuracy", "why"),
    [
        (None, "accuracy was never measured; judges need at least 0.9"),
        (0.85, "accuracy 0.85 is below the required 0.9"),
        (0.9, None),
    ],
)
def test_a_judge_must_have_the_required_accuracy(accuracy: float | None, why: str | None) -> None:
    catalog = Catalog([model("m", judge_accuracy=accuracy, prices=priced(1))])
    routing = choose_judge(catalog, request(min_accuracy=0.9))
    assert (ids(routing), reason(routing, "m")) == (["m"] if why is None else [], why)
    assert ids(choose_judge(catalog, request())) == ["m"], "without a minimum, no measurement is needed"


def test_a_second_judge_is_of_another_family_than_the_first() -> None:
    catalog = Catalog([model("a", family="f", prices=priced(1)), model("b", family="g", prices=priced(9))])
    routing = choose_judge(catalog, request(other_than_family="f"))
    assert ids(routing) == ["b"]
    assert reason(routing, "a") == "same family as the previous judge"


@pytest.mark.parametrize(("days", "may"), [(-1, False), (0, False), (14, False), (15, True)])
def test_a_model_that_is_shut_down_within_14_days_may_not_judge(days: int, may: bool) -> None:
    off = TODAY + timedelta(days=days)
    routing = choose_judge(Catalog([model("m", deprecated_on=off, prices=priced(1))]), request())
    assert ids(routing) == (["m"] if may else [])
    assert reason(routing, "m") == (None if may else f"deprecated: shut down on {off}")


@pytest.mark.parametrize(("evidence", "fits"), [(9_999, True), (10_001, False)])
def test_evidence_and_reply_must_fit_the_context_with_a_tenth_to_spare(evidence: int, fits: bool) -> None:
    catalog = Catalog([model("m", context_tokens=11_330, prices=priced(1))])
    routing = choose_judge(catalog, request(evidence_tokens=evidence))
    assert ids(routing) == (["m"] if fits else [])
    assert fits or reason(routing, "m") == "evidence of ~10001 tokens does not fit its context of 11330"


def test_a_model_of_an_endpoint_needs_the_endpoint_not_the_providers_key() -> None:
    catalog = Catalog([model("qwen", endpoint="ollama", prices=priced(0))])
    assert why_not(catalog, "qwen") == "no key (set the key of the endpoint ollama)"
    assert ids(choose_judge(catalog, request(available=frozenset({("openai", "ollama")})))) == ["qwen"]


@pytest.mark.parametrize("fields", [{"structured_output": False}, {"structured_output": False, "tier": "deep"}])
def test_no_key_is_the_reason_only_if_nothing_else_is_missing(fields: dict[str, Any]) -> None:
    why = why_not(Catalog([model("m", **fields)]), "m", available=frozenset[Any](), ceiling="fast")
    assert why == "no structured output"


def test_the_workers_own_model_judges_when_it_is_the_only_one_left() -> None:
    only = model("only", prices=priced(1))
    assert choose_judge(Catalog([only]), request(only)).chosen is only


# ------------------------------------------------------------------------------------- what this verdict would cost


def estimate(judge: Model, **fields: Any) -> float | None:
    return cost_of(choose_judge(Catalog([judge]), request(**fields)), judge.id)


CACHING = Price(input=1, output=1, cached_input=0.1, cache_write=1.25)


STEPS = (Price(input=1, output=1), Price(above_tokens=5_000, input=2, output=2))


@pytest.mark.parametrize(
    ("from_tokens", "prices", "asked", "cost"),
    [
        (None, (Price(input=2, output=10),), {"reply_tokens": 300}, 0.006 + 0.003),
        (None, STEPS, {"evidence_tokens": 5_000}, 0.005),
        (None, STEPS, {"evidence_tokens": 5_001}, 0.010002),  # all of it costs more
        (1_024, (CACHING,), {"prefix_tokens": 1_023}, 0.00375),  # everything is written
        (1_024, (CACHING,), {"prefix_tokens": 1_024}, 0.00247 + 0.0001024),
        (1_024, (CACHING,), {"prefix_tokens": 9_999}, 0.0003),  # the prefix is longer than the evidence
        (None, (CACHING,), {"prefix_tokens": 2_000}, 0.003),  # caches only on request
        (1_024, (CACHING,), {"evidence_tokens": 1_000}, 0.001),
        (1_024, (CACHING,), {"evidence_tokens": 2_000}, 0.0025),  # written by itself
    ],
)
def test_a_verdict_is_priced_by_its_tokens_and_what_is_cached(
    from_tokens: int | None, prices: tuple[Price, ...], asked: dict[str, int], cost: float
) -> None:
    judge = model("m", caches_from_tokens=from_tokens, prices=prices)
    assert estimate(judge, **{"reply_tokens": 0} | asked) == pytest.approx(cost)


def test_each_model_counts_tokens_its_own_way() -> None:
    wordy = model("wordy", token_factor=1.5, context_tokens=5_000, prices=priced(1))
    assert estimate(wordy, evidence_tokens=2_000, reply_tokens=200) == pytest.approx(0.0033)
    why = why_not(Catalog([wordy]), "wordy", evidence_tokens=3_000)
    assert why == "evidence of ~4500 tokens does not fit its context of 5000"


# ------------------------------------------------------------------------------------------------------- near ties


@pytest.mark.parametrize(("factor", "judge"), [(1.09, "b"), (1.11, "a")])
def test_another_family_judges_if_it_costs_at_most_a_tenth_more(factor: float, judge: str) -> None:
    catalog = Catalog([model("a", family="own", prices=priced(1)), model("b", prices=priced(factor))])
    routing = choose_judge(catalog, request(model("worker", family="own")))
    assert ids(routing)[0] == judge
    if judge == "b":
        assert reason(routing, "a") == "near tie, but same family as the worker"


def test_a_near_tie_is_close_to_the_cheapest_not_to_another_near_tie() -> None:
    own = {"family": "own"}
    catalog = Catalog(
        [
            model("a", prices=priced(1), **own),
            model("b", prices=priced(1.09), **own),
            model("c", prices=priced(1.18)),
        ]
    )
    assert ids(choose_judge(catalog, request(model("worker", **own)))) == ["a", "b", "c"]


def test_a_model_that_costs_more_says_how_much() -> None:
    catalog = Catalog([model("a", prices=priced(0.1)), model("b", prices=priced(0.2)), model("c", prices=priced(0.1))])
    routing = choose_judge(catalog, request())
    assert reason(routing, "b") == "costs $0.00066, the chosen model costs $0.00033"
    assert reason(routing, "c") == "costs $0.00033, like the chosen model; equal models are ordered by name"


def test_a_costlier_model_of_the_workers_family_is_skipped_for_its_cost() -> None:
    catalog = Catalog([model("a", prices=priced(1)), model("b", family="own", prices=priced(1.05))])
    routing = choose_judge(catalog, request(model("worker", family="own")))
    assert reason(routing, "b") == "costs $0.003465, the chosen model costs $0.0033"


# ---------------------------------------------------------------------------------------------------- unknown prices


def declared(*models: Model) -> Catalog:
    return Catalog([]).with_models(models)


def test_a_declared_model_of_unknown_price_judges_last_and_is_not_free() -> None:
    catalog = declared(model("a"), model("b", prices=priced(100)), model("c", prices=priced(0)), model("d"))
    routing = choose_judge(catalog, request())
    assert ids(routing) == ["c", "b", "a", "d"]
    assert reason(routing, "a") == "price unknown; models with a known price come first"
    assert (cost_of(routing, "a"), cost_of(routing, "c")) == (None, 0)


def test_where_no_price_is_known_another_family_than_the_workers_judges() -> None:
    catalog = declared(model("a", family="own"), model("b"), model("c"))
    routing = choose_judge(catalog, request(model("worker", family="own")))
    assert ids(routing) == ["b", "c", "a"]
    assert reason(routing, "c") == "price unknown, like the chosen model; equal models are ordered by name"
    assert reason(routing, "a") == "near tie, but same family as the worker"


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("prices", [(), priced(0, until=date(2026, 11, 19)), priced(0, since=date(2026, 11, 21))])
def test_a_model_without_a_declared_price_never_judges(prices: tuple[Price, ...], limited: bool) -> None:
    catalog = Catalog([model("m", prices=prices)])
    reasons = ("price unknown, and the model is not declared in the settings", "price unknown, but a cost limit is set")
    assert why_not(catalog, "m", priced_only=limited) == reasons[limited]
    assert why_not(catalog, "m", pinned="m", priced_only=limited) == reasons[limited]


# ---------------------------------------------------------------------------------------------------- pinned judges


def test_a_pinned_judge_judges_alone_even_if_it_costs_more() -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped("gpt-6-sol"), pinned="anthropic/claude-haiku-4.5"))
    assert ids(routing) == ["claude-haiku-4-5"]
    assert reason(routing, "gpt-6-luna") == "judge_model is set to anthropic/claude-haiku-4.5"


@pytest.mark.parametrize(
    ("worker", "pinned", "asked", "id", "why"),
    [
        ("gpt-6-luna", "claude-opus-5-5", {}, "claude-opus-5-5", "tier deep is above the worker's fast"),
        ("gpt-6-luna", "gpt-6", {}, "gpt-6-luna", "judge_model is set to gpt-6, which is not in the catalog"),
        ("gpt-6-sol", "gpt-6-luna", {"other_than_family": "gpt"}, "gpt-6-luna", "same family as the previous judge"),
    ],
)
def test_a_pinned_judge_that_may_not_judge_leaves_none_and_says_why(
    worker: str, pinned: str, asked: dict[str, Any], id: str, why: str
) -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped(worker), pinned=pinned, **asked))
    assert (routing.chosen, routing.ranked) == (None, ())
    assert reason(routing, id) == why


# ----------------------------------------------------------------------------------------- what holds for any catalog

AMOUNTS = st.sampled_from([0.0, 0.1, 0.105, 0.11, 0.12, 1.0, 4.0])
same_every_time = settings(max_examples=20, derandomize=True, database=None, deadline=None)


@st.composite
def prices(draw: st.DrawFn) -> tuple[Price, ...]:
    if draw(st.booleans()) and draw(st.booleans()):
        return ()
    base = Price(input=draw(AMOUNTS), output=draw(AMOUNTS), cached_input=draw(st.sampled_from([None, 0.01])))
    return (
        (base, Price(above_tokens=5_000, input=draw(AMOUNTS), output=draw(AMOUNTS))) if draw(st.booleans()) else (base,)
    )


@st.composite
def models(draw: st.DrawFn, id: str) -> Model:
    return model(
        id,
        provider=draw(st.sampled_from(["openai", "anthropic"])),
        family=draw(st.sampled_from(["f", "g"])),
        tier=draw(st.sampled_from(TIERS)),
        context_tokens=draw(st.sampled_from([4_000, 1_000_000])),
        structured_output=draw(st.sampled_from([True, True, False])),
        deprecated_on=draw(st.sampled_from([None, None, TODAY, date(2030, 1, 1)])),
        judge_accuracy=draw(st.sampled_from([None, 0.8, 0.95])),
        caches_from_tokens=draw(st.sampled_from([None, 1_024])),
        token_factor=draw(st.sampled_from([1, 1.3])),
        prices=draw(prices()),
    )


some_models = st.integers(1, 8).flatmap(lambda n: st.tuples(*(models(f"m{i}") for i in range(n))))
requests = st.builds(
    request,
    worker=st.one_of(st.none(), models("worker")),
    evidence_tokens=st.sampled_from([100, 3_900, 6_000]),
    available=st.sampled_from([ALL_KEYS, frozenset({("openai", None)})]),
    ceiling=st.sampled_from([None, *TIERS]),
    prefix_tokens=st.sampled_from([0, 1_500]),
    min_accuracy=st.sampled_from([None, None, 0.9]),
    other_than_family=st.sampled_from([None, None, "f"]),
    priced_only=st.booleans(),
)


def catalog_of(models: tuple[Model, ...]) -> Catalog:
    """A catalog in which every other model is declared by an operator."""
    return Catalog(models[::2]).with_models(models[1::2])


@same_every_time
@given(some_models, requests, st.randoms(use_true_random=False))
def test_in_any_catalog_judges_are_eligible_ordered_by_cost_and_explained(
    given_models: tuple[Model, ...], asked: JudgeRequest, shuffler: random.Random
) -> None:
    routing = choose_judge(catalog_of(given_models), asked)
    costs = [cost_of(routing, judge.id) for judge in routing.ranked]
    known = [cost for cost in costs if cost is not None]
    assert costs[len(known) :] == [None] * (len(costs) - len(known)), "unknown prices come last"
    for place, cost in enumerate(known):
        assert all(cost <= later * NEAR_TIE for later in known[place:])
    if routing.chosen is not None and known:
        near = [judge for judge, cost in zip(routing.ranked, known, strict=False) if cost <= min(known) * NEAR_TIE]
        others = [judge for judge in near if asked.worker is None or judge.family != asked.worker.family]
        cheapest = min(others or near, key=lambda judge: (cost_of(routing, judge.id) or 0, judge.id))
        assert routing.chosen.id == cheapest.id, "the cheapest, or a near tie of another family"

    limits = [limit for limit in (asked.worker and asked.worker.tier, asked.ceiling) if limit]
    for judge in routing.ranked:
        assert all(TIERS.index(judge.tier) >= TIERS.index(limit) for limit in limits)

    assert sorted(each.model for each in routing.candidates) == sorted(each.id for each in given_models)
    assert [each.model for each in routing.candidates[: len(routing.ranked)]] == ids(routing)
    assert [each.model for each in routing.candidates if each.reason is None] == ids(routing)[:1]

    together, shuffled = choose_judge(Catalog(given_models), asked), list(given_models)
    shuffler.shuffle(shuffled)
    assert choose_judge(Catalog(shuffled), asked) == together, "whatever the order of the catalog"
    alone = {judge.id for judge in given_models if choose_judge(Catalog([judge]), asked).chosen}
    assert {judge.id for judge in together.ranked} == alone, "whenever one may judge, one is found"


BARRED: list[dict[str, Any]] = [
    {"structured_output": False},
    {"deprecated_on": TODAY},
    {"context_tokens": 10},
    {"prices": ()},
    {"provider": "unknown"},
]


@same_every_time
@given(some_models, requests, models("a newcomer"), st.sampled_from(BARRED))
def test_an_ineligible_model_adds_its_row_and_changes_nothing_else(
    given_models: tuple[Model, ...], asked: JudgeRequest, newcomer: Model, bar: dict[str, Any]
) -> None:
    without = choose_judge(Catalog(given_models), asked)
    with_it = choose_judge(Catalog((*given_models, newcomer.model_copy(update=bar))), asked)
    assert (with_it.chosen, with_it.ranked) == (without.chosen, without.ranked)
    assert tuple(each for each in with_it.candidates if each.model != newcomer.id) == without.candidates
    assert reason(with_it, newcomer.id)


@given(st.integers(0, 2_000_000))
def test_estimates_are_rounded_up_by_at_most_a_sixteenth(tokens: int) -> None:
    assert tokens <= coarse(tokens) <= tokens * 17 / 16
    assert coarse(coarse(tokens)) == coarse(tokens)


def test_tasks_of_similar_length_share_a_few_choices() -> None:
    assert len({coarse(tokens) for tokens in range(500, 20_000)}) < 100


@pytest.mark.slow
def test_choosing_among_25_models_takes_less_than_a_millisecond() -> None:
    asked = request(shipped("claude-opus-5-5"))
    catalog = Catalog.shipped().with_models([model("extra", prices=priced(1))])
    assert len(catalog.models) >= 25
    assert best_of(200, lambda: choose_judge(catalog, asked)) < 0.001 * pace()  # 0.0002 on a quiet machine


# --------------------------------------------------------------------------------------------------------- children


def child(catalog: Catalog | None = None, *, ceiling: Tier = "deep", floor: Tier = "fast", **fields: Any) -> str:
    defaults: dict[str, Any] = {"bounds": Bounds(ceiling, floor), "available": ALL_KEYS, "on": TODAY}
    return choose_child(catalog or Catalog.shipped(), ChildRequest(**(defaults | fields))).id


def refusal(catalog: Catalog | None = None, **fields: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        child(catalog, **fields)
    return caught.value


@pytest.mark.parametrize(
    ("provider", "tier", "id"),
    [
        ("openai", "deep", "gpt-6.2-astra"),
        ("openai", "standard", "gpt-6.1-terra"),
        ("openai", "fast", "gpt-6-luna"),
        ("anthropic", "deep", "claude-opus-5-5"),
        ("anthropic", "standard", "claude-sonnet-5-5"),
        ("anthropic", "fast", "claude-haiku-5-5"),
        ("google", "deep", "gemini-4-argon"),
        ("google", "standard", "gemini-3.8-flash"),
        ("google", "fast", "gemini-2.5-flash-lite"),
    ],
)
def test_a_child_runs_on_the_cheapest_reachable_model_of_its_tier(provider: str, tier: Tier, id: str) -> None:
    assert child(tier=tier, available=frozenset({(provider, None)})) == id


def test_the_childs_model_depends_on_the_prices_of_the_day() -> None:
    days = (BEFORE, DECEMBER, NEW_YEAR)
    assert [child(tier="standard", on=on) for on in days] == ["gemini-3.8-flash", "gemini-3.8-flash", "gpt-6.1-terra"]


def test_models_for_children_are_compared_including_the_cost_of_caching() -> None:
    writes_are_dear = model("writes are dear", prices=(Price(input=1, output=1, cache_write=1.5),))
    reads_are_cheap = model("reads are cheap", prices=(Price(input=1.2, output=1, cached_input=0.1),))
    plain = model("plain", prices=priced(1.2))
    assert child(Catalog([writes_are_dear, plain]), tier="fast") == "plain"
    assert child(Catalog([writes_are_dear, plain, reads_are_cheap]), tier="fast") == "reads are cheap"


@pytest.mark.parametrize(
    ("usual", "ceiling", "floor", "tier"),
    [
        ("standard", "deep", "fast", "standard"),
        ("standard", "fast", "fast", "fast"),
        ("deep", "standard", "fast", "standard"),
        ("fast", "deep", "standard", "standard"),
        ("fast", "deep", "deep", "deep"),
    ],
)
def test_a_child_without_a_tier_runs_at_the_default_or_closest_allowed(
    usual: Tier, ceiling: Tier, floor: Tier, tier: Tier
) -> None:
    assert child(usual_tier=usual, ceiling=ceiling, floor=floor) == child(tier=tier)


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-5-5",
        "claude-opus-5.5",  # an alias
        "claude-opus-5-5-20261001",  # a dated snapshot
        "claude-opus-5-5@20261001",
        "anthropic/claude-opus-5.5",
        "openrouter/anthropic/claude-opus-5.5",
        "openrouter/anthropic/claude-opus-5-5-2026-10-01",
    ],
)
def test_a_model_is_bounded_by_its_tier_under_any_of_its_names(name: str) -> None:
    assert child(model=name, tier="fast") == "claude-opus-5-5", "a named model outranks the tier"
    above, below = refusal(model=name, ceiling="standard"), refusal(model="gpt-6-luna", floor="standard")
    assert (above.code, above.field) == ("tier_above_parent", "model")
    assert (below.code, below.field) == ("tier_below_floor", "model")


def test_a_child_gets_no_model_without_tools_or_price_or_soon_shut_down() -> None:
    catalog = Catalog(
        [
            model("mute", tools=False, prices=priced(0)),
            model("leaving", deprecated_on=TODAY, prices=priced(0)),
            model("unpriced"),
            model("dear", prices=priced(100)),
        ]
    )
    assert child(catalog, tier="fast") == "dear"


@pytest.mark.parametrize("asked", [{"tier": "deep"}, {"model": "gpt-6-astra"}])
def test_a_child_above_its_parents_tier_is_refused(asked: dict[str, Any]) -> None:
    error = refusal(ceiling="standard", **asked)
    assert (error.code, error.field) == ("tier_above_parent", next(iter(asked)))
    assert "above standard, the highest tier that this parent may delegate to" in error.message
    assert "standard, fast" in str(error.hint)


def test_a_child_below_the_lowest_tier_is_refused() -> None:
    error = refusal(floor="standard", tier="fast")
    assert (error.code, error.field) == ("tier_below_floor", "tier")
    assert "below standard, the lowest tier that the settings allow" in error.message
    assert "deep, standard" in str(error.hint)


def test_an_unknown_model_is_refused_with_names_that_can_be_used() -> None:
    error = refusal(model="gpt-6", ceiling="standard")
    assert (error.code, error.field) == ("unknown_model", "model")
    assert "gpt-6-sol" in str(error.hint)
    assert "gpt-6-astra" not in str(error.hint)


def test_a_requested_model_without_a_key_is_refused_with_the_variable() -> None:
    error = refusal(model="claude-opus-5-5", available=frozenset({("openai", None)}))
    assert (error.code, error.field) == ("no_api_key", "model")
    assert "set ANTHROPIC_API_KEY" in str(error.hint)


@pytest.mark.parametrize("asked", [{"model": "m"}, {"tier": "fast"}, {}])
def test_a_model_without_a_declared_price_is_used_for_no_child(asked: dict[str, Any]) -> None:
    error = refusal(Catalog([model("m")]), **{"ceiling": "fast"} | asked)
    assert error.code == ("unknown_price" if "model" in asked else "no_model_for_tier")
    assert "m" in error.message
    assert "price unknown, and the model is not declared in the settings" in error.message


def test_a_declared_model_of_unknown_price_is_last_and_only_without_limit() -> None:
    both = declared(model("a"), model("b", prices=priced(100)))
    assert child(both, tier="fast") == "b"
    assert child(both, model="a") == child(declared(model("a")), tier="fast") == "a"
    named, chosen = refusal(both, model="a", priced_only=True), refusal(declared(model("a")), priced_only=True)
    assert (named.code, named.field) == ("unknown_price", "model")
    assert "price unknown, but a cost limit is set" in named.message
    assert "delegate.toml" in str(named.hint)
    assert chosen.code == "no_model_for_tier"


def test_without_any_key_the_error_names_every_variable_to_set() -> None:
    error = refusal(available=frozenset[Any]())
    assert error.code == "no_api_key"
    every = "set ANTHROPIC_API_KEY, or set GEMINI_API_KEY, or set OPENAI_API_KEY"
    assert error.hint == f"{every}, or see docs/local-models.md"


def test_a_tier_without_a_reachable_model_is_refused_with_those_that_have() -> None:
    local = Catalog.shipped().with_models([model("qwen", endpoint="ollama", tier="fast")])
    error = refusal(local, tier="deep", available=frozenset({("openai", "ollama")}))
    assert (error.code, error.field) == ("no_model_for_tier", "tier")
    assert error.message == "no model of tier deep can be used; tiers with a model: fast"
    assert str(error.hint).startswith("request tier fast, or set ANTHROPIC_API_KEY")


def test_the_error_says_why_the_models_of_a_tier_cannot_be_used() -> None:
    local = declared(
        model("mute", endpoint="ollama", tools=False, prices=priced(0)),
        model("unpriced", endpoint="ollama"),
        model("able", endpoint="ollama", tier="standard", prices=priced(0)),
    )
    error = refusal(local, tier="fast", available=frozenset({("openai", "ollama")}), priced_only=True)
    assert error.message == (
        "no model of tier fast can be used; tiers with a model: standard; mute: it can't call tools; "
        "unpriced: price unknown, but a cost limit is set"
    )
    assert error.hint == "request tier standard"


def test_the_error_offers_no_tier_that_would_be_refused_as_well() -> None:
    local = declared(model("big", endpoint="ollama", tier="deep", prices=priced(0)))
    error = refusal(local, tier="fast", ceiling="fast", available=frozenset({("openai", "ollama")}))
    assert error.code == "no_model_for_tier"
    assert error.hint is None


def test_a_name_may_have_many_prefixes_but_no_unlimited_length() -> None:
    assert child(model=f"{'openrouter/' * 5}gpt-6-luna") == "gpt-6-luna"
    error = refusal(model=f"{'openrouter/' * 5_000}gpt-6-luna")
    assert error.code == "unknown_model"
    assert len(error.message) + len(str(error.hint)) < 1_000


# ------------------------------------------------------------------------------------------------ who decides alone

rates = st.dictionaries(
    st.tuples(st.sampled_from([f"m{n}" for n in range(8)]), st.sampled_from([None, "worker"])),
    st.builds(
        FalsePassRate,
        judge=st.just("m"),
        n=st.integers(1, 500),
        false_passes=st.just(0),
        upper=st.sampled_from([0.01, 0.049, 0.05, 0.3]),
        limit=st.just(0.05),
    ),
)


@same_every_time
@given(some_models, requests, rates)
def test_rulings_only_move_judges_that_decide_alone_to_the_front(
    given_models: tuple[Model, ...], asked: JudgeRequest, known: dict[tuple[str, str | None], FalsePassRate]
) -> None:
    catalog, table = catalog_of(given_models), FalsePassTable(0.05, known)
    before, after = choose_judge(catalog, asked), choose_judge(catalog, replace(asked, false_pass=table))
    worker = asked.worker.id if asked.worker else None
    alone = [table.decides_alone(judge.id, worker) for judge in after.ranked]
    assert alone == sorted(alone, reverse=True), "they come first"
    assert set(ids(before)) == set(ids(after)), "nobody becomes or ceases to be eligible"
    assert all(reason(before, id) == reason(after, id) for id in {m.id for m in catalog.models} - set(ids(after)))
    for judge in after.ranked:
        rate = known.get((judge.id, worker)) or known.get((judge.id, None))
        assert table.decides_alone(judge.id, worker) is (rate is not None and rate.upper < 0.05)


@pytest.mark.parametrize(("upper", "alone"), [(0.0499, True), (0.05, False), (0.0501, False)])
def test_a_judge_must_be_below_the_limit_and_not_at_it(upper: float, alone: bool) -> None:
    rate = FalsePassRate(judge="m", n=100, false_passes=1, upper=upper, limit=0.05)
    assert FalsePassTable(0.05, {("m", None): rate}).decides_alone("m", "any worker") is alone
    assert not FalsePassTable(0.05, {("m", None): rate}).decides_alone("other", None)
