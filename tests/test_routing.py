"""Who judges and on what a child runs: the rules, their reasons, and what holds for every catalog."""

import random
import time
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate.catalog import Catalog, Model, Price, cost_usd
from delegate.errors import CallError
from delegate.routing import JudgeRequest, Routing, choose_child, choose_judge
from delegate.types import TIERS, Tier, Usage

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


def shipped(name: str) -> Model:
    found = Catalog.shipped().find(name)
    assert found is not None
    return found


def ids(routing: Routing) -> list[str]:
    return [model.id for model in routing.ranked]


def reason(routing: Routing, id: str) -> str | None:
    return next(candidate.reason for candidate in routing.candidates if candidate.model == id)


def why_not(catalog: Catalog, id: str, **fields: Any) -> str | None:
    routing = choose_judge(catalog, request(**fields))
    assert id not in ids(routing)
    return reason(routing, id)


# ------------------------------------------------------------------------------------------- on the shipped catalog


@pytest.mark.parametrize(
    ("worker", "tokens", "judge"),
    [
        ("claude-sonnet-5-5", 3_000, "gemini-2.5-flash-lite"),
        ("gemini-3.8-flash", 3_000, "claude-haiku-5-5"),
        ("gemini-3.8-flash", 150_000, "gpt-6-luna"),  # haiku-5-5 costs five times as much above 100,000 tokens
        ("gpt-6.1-terra", 300_000, "gemini-2.5-flash-lite"),  # gpt-6-luna twice as much above 272,000
    ],
)
def test_the_cheapest_judge_depends_on_the_size_of_the_evidence(worker: str, tokens: int, judge: str) -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped(worker), evidence_tokens=tokens))
    assert routing.chosen is not None
    assert routing.chosen.id == judge


@pytest.mark.parametrize(
    ("on", "judge"), [(date(2026, 11, 20), "gemini-4-argon"), (date(2026, 12, 1), "claude-opus-5-5")]
)
def test_the_judge_changes_on_the_day_a_price_does(on: date, judge: str) -> None:
    deep = Catalog(model for model in Catalog.shipped().models if model.tier == "deep")
    routing = choose_judge(deep, request(shipped("gemini-4-argon"), on=on))
    assert routing.chosen is not None
    assert routing.chosen.id == judge
    costs = {candidate.model: candidate.estimated_cost_usd for candidate in routing.candidates}
    assert costs["gemini-4-argon"] == pytest.approx(0.009 if on == TODAY else 0.018)


def test_with_one_providers_key_its_own_cheapest_model_judges() -> None:
    only_anthropic = frozenset({("anthropic", None)})
    routing = choose_judge(Catalog.shipped(), request(shipped("claude-opus-5-5"), available=only_anthropic))
    assert ids(routing)[:2] == ["claude-haiku-5-5", "claude-haiku-4-5"]
    assert reason(routing, "gpt-6-luna") == "no key (set OPENAI_API_KEY)"
    assert reason(routing, "gemini-2.5-flash-lite") == "no key (set GEMINI_API_KEY)"


def test_every_model_of_the_catalog_is_a_candidate_and_only_the_chosen_one_has_no_reason() -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped("gpt-6-sol")))
    assert sorted(candidate.model for candidate in routing.candidates) == [m.id for m in Catalog.shipped().models]
    assert [candidate.model for candidate in routing.candidates if candidate.reason is None] == [ids(routing)[0]]


# -------------------------------------------------------------------------------------------------- who may judge


def test_a_model_above_the_workers_tier_may_not_judge() -> None:
    catalog = Catalog([model("big", tier="deep", prices=priced(0)), model("same", tier="standard", prices=priced(9))])
    worker = model("worker", tier="standard")
    assert why_not(catalog, "big", worker=worker) == "tier deep is above the worker's standard"
    assert ids(choose_judge(catalog, request(worker))) == ["same"]


def test_the_ceiling_stands_in_for_an_unknown_workers_tier_and_only_for_that() -> None:
    catalog = Catalog([model("big", tier="deep", prices=priced(1))])
    assert why_not(catalog, "big", ceiling="fast") == "tier deep is above the worker's fast"
    assert ids(choose_judge(catalog, request())) == ["big"]
    assert ids(choose_judge(catalog, request(model("worker", tier="deep"), ceiling="fast"))) == ["big"]


def test_a_model_without_structured_output_may_not_judge() -> None:
    assert why_not(Catalog([model("m", structured_output=False)]), "m") == "no structured output"


@pytest.mark.parametrize(("days", "may"), [(-1, False), (0, False), (14, False), (15, True)])
def test_a_model_that_is_switched_off_within_14_days_may_not_judge(days: int, may: bool) -> None:
    off = TODAY + timedelta(days=days)
    routing = choose_judge(Catalog([model("m", deprecated_on=off)]), request())
    assert ids(routing) == (["m"] if may else [])
    assert reason(routing, "m") == (None if may else f"deprecated: switched off on {off}")


@pytest.mark.parametrize(("evidence", "fits"), [(9_999, True), (10_001, False)])
def test_evidence_and_reply_must_fit_the_context_with_a_tenth_to_spare(evidence: int, fits: bool) -> None:
    catalog = Catalog([model("m", context_tokens=11_330)])
    routing = choose_judge(catalog, request(evidence_tokens=evidence))
    assert ids(routing) == (["m"] if fits else [])
    assert fits or reason(routing, "m") == "evidence of ~10001 tokens does not fit its context of 11330"


def test_a_model_behind_an_endpoint_needs_that_endpoint_not_the_providers_key() -> None:
    catalog = Catalog([model("qwen", endpoint="ollama")])
    assert why_not(catalog, "qwen") == "no key (set the key of the endpoint ollama)"
    assert ids(choose_judge(catalog, request(available=frozenset({("openai", "ollama")})))) == ["qwen"]


def test_no_key_is_said_only_where_a_key_is_all_it_takes() -> None:
    catalog = Catalog([model("m", structured_output=False, tier="deep")])
    assert why_not(catalog, "m", available=frozenset[Any](), ceiling="fast") == "no structured output"


def test_the_workers_own_model_judges_when_it_is_the_only_one_left() -> None:
    only = model("only", prices=priced(1))
    assert choose_judge(Catalog([only]), request(only)).chosen is only


# ------------------------------------------------------------------------------------------------------- near ties


@pytest.mark.parametrize(("dearer", "judge"), [(1.09, "b"), (1.11, "a")])
def test_within_a_tenth_of_the_cheapest_another_family_than_the_workers_judges(dearer: float, judge: str) -> None:
    catalog = Catalog([model("a", family="own", prices=priced(1)), model("b", prices=priced(dearer))])
    routing = choose_judge(catalog, request(model("worker", family="own")))
    assert ids(routing)[0] == judge
    if judge == "b":
        assert reason(routing, "a") == "same family as the worker; near tie"


def test_a_model_that_costs_more_says_how_much() -> None:
    catalog = Catalog([model("a", prices=priced(0.1)), model("b", prices=priced(0.2)), model("c", prices=priced(0.1))])
    routing = choose_judge(catalog, request())
    assert reason(routing, "b") == "costs $0.00066, chosen costs $0.00033"
    assert reason(routing, "c") == "costs $0.00033, like the chosen one; equals go by name"


def test_a_model_of_unknown_price_judges_last_and_is_never_taken_for_free() -> None:
    catalog = Catalog([model("a"), model("b", prices=priced(100)), model("c", prices=priced(0))])
    routing = choose_judge(catalog, request())
    assert ids(routing) == ["c", "b", "a"]
    assert reason(routing, "a") == "price unknown"
    assert [candidate.estimated_cost_usd for candidate in routing.candidates][2] is None


# ---------------------------------------------------------------------------------------------------- pinned judges


def test_a_pinned_judge_judges_alone_even_when_it_is_dearer() -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped("gpt-6-sol"), pinned="anthropic/claude-haiku-4.5"))
    assert ids(routing) == ["claude-haiku-4-5"]
    assert reason(routing, "gpt-6-luna") == "judge_model is set to anthropic/claude-haiku-4.5"


def test_a_pinned_judge_that_may_not_judge_leaves_none_and_says_why() -> None:
    routing = choose_judge(Catalog.shipped(), request(shipped("gpt-6-luna"), pinned="claude-opus-5-5"))
    assert routing.chosen is None
    assert routing.ranked == ()
    assert reason(routing, "claude-opus-5-5") == "tier deep is above the worker's fast"


def test_a_pinned_judge_that_nobody_knows_leaves_none() -> None:
    routing = choose_judge(Catalog.shipped(), request(pinned="gpt-6"))
    assert routing.chosen is None
    assert reason(routing, "gpt-6-luna") == "judge_model is set to gpt-6, which is not in the catalog"


# ----------------------------------------------------------------------------------------- what holds for any catalog

AMOUNTS = st.sampled_from([0.0, 0.1, 0.105, 0.11, 0.12, 1.0, 4.0])


@st.composite
def prices(draw: st.DrawFn) -> tuple[Price, ...]:
    if draw(st.booleans()) and draw(st.booleans()):
        return ()
    base = Price(input=draw(AMOUNTS), output=draw(AMOUNTS))
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
        prices=draw(prices()),
    )


catalogs = st.integers(1, 8).flatmap(lambda n: st.tuples(*(models(f"m{i}") for i in range(n))))
requests = st.builds(
    request,
    worker=st.one_of(st.none(), models("worker")),
    evidence_tokens=st.sampled_from([100, 3_900, 6_000]),
    available=st.sampled_from([ALL_KEYS, frozenset({("openai", None)})]),
    ceiling=st.sampled_from([None, *TIERS]),
)


def cost(judge: Model, asked: JudgeRequest) -> float | None:
    usage = Usage(input_tokens=asked.evidence_tokens, output_tokens=asked.reply_tokens)
    return cost_usd(judge, usage, asked.on)


@given(catalogs, requests)
def test_no_judge_is_more_than_a_tenth_dearer_than_another_that_may_judge(
    given_models: tuple[Model, ...], asked: JudgeRequest
) -> None:
    routing = choose_judge(Catalog(given_models), asked)
    known = [each for judge in routing.ranked if (each := cost(judge, asked)) is not None]
    if routing.chosen and known:
        chosen = cost(routing.chosen, asked)
        assert chosen is not None
        assert chosen <= min(known) * 1.1


@given(catalogs, requests)
def test_a_judge_is_dearer_than_another_only_to_leave_the_workers_family(
    given_models: tuple[Model, ...], asked: JudgeRequest
) -> None:
    routing = choose_judge(Catalog(given_models), asked)
    chosen = routing.chosen and cost(routing.chosen, asked)
    for other in routing.ranked[1:]:
        other_cost = cost(other, asked)
        if routing.chosen and chosen is not None and other_cost is not None and other_cost < chosen:
            assert asked.worker
            assert other.family == asked.worker.family != routing.chosen.family


@given(catalogs, requests)
def test_no_judge_is_above_the_workers_tier(given_models: tuple[Model, ...], asked: JudgeRequest) -> None:
    limit = asked.worker.tier if asked.worker else asked.ceiling
    for judge in choose_judge(Catalog(given_models), asked).ranked:
        assert limit is None or TIERS.index(judge.tier) >= TIERS.index(limit)


@given(catalogs, requests, st.randoms(use_true_random=False))
def test_the_order_of_the_catalog_changes_nothing(
    given_models: tuple[Model, ...], asked: JudgeRequest, shuffler: random.Random
) -> None:
    shuffled = list(given_models)
    shuffler.shuffle(shuffled)
    assert choose_judge(Catalog(shuffled), asked) == choose_judge(Catalog(given_models), asked)


@given(catalogs, requests, models("newcomer"))
def test_a_model_that_may_not_judge_changes_nothing_for_the_others(
    given_models: tuple[Model, ...], asked: JudgeRequest, newcomer: Model
) -> None:
    barred = newcomer.model_copy(update={"structured_output": False})
    without = choose_judge(Catalog(given_models), asked)
    with_it = choose_judge(Catalog((*given_models, barred)), asked)
    assert with_it.ranked == without.ranked
    assert [each for each in with_it.candidates if each.model != "newcomer"] == list(without.candidates)


@given(catalogs, requests)
def test_a_judge_is_found_whenever_one_may_judge(given_models: tuple[Model, ...], asked: JudgeRequest) -> None:
    together = choose_judge(Catalog(given_models), asked)
    alone = {judge.id for judge in given_models if choose_judge(Catalog([judge]), asked).chosen}
    assert {judge.id for judge in together.ranked} == alone


def test_choosing_among_25_models_takes_less_than_a_millisecond() -> None:
    asked = request(shipped("claude-opus-5-5"))
    catalog = Catalog.shipped().with_models([model("extra", prices=priced(1))])
    assert len(catalog.models) >= 25
    seconds: list[float] = []
    for _ in range(200):
        started = time.perf_counter()
        choose_judge(catalog, asked)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.001  # 0.00014 on the machine where it was written; other machines are slower


# --------------------------------------------------------------------------------------------------------- children


def child(catalog: Catalog | None = None, **fields: Any) -> str:
    defaults: dict[str, Any] = {"tier": None, "model": None, "ceiling": None, "available": ALL_KEYS, "on": TODAY}
    return choose_child(catalog or Catalog.shipped(), **(defaults | fields)).id


def refusal(catalog: Catalog | None = None, **fields: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        child(catalog, **fields)
    return caught.value


@pytest.mark.parametrize(
    ("provider", "tier", "id"),
    [
        ("openai", "deep", "gpt-6-astra"),
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
    assert child(tier=tier, available={(provider, None)}) == id


def test_the_childs_model_follows_the_prices_of_the_day() -> None:
    days = (date(2026, 11, 30), date(2026, 12, 1))
    assert [child(tier="deep", on=on) for on in days] == ["gemini-4-argon", "claude-opus-5-5"]


def test_a_child_without_a_tier_runs_at_its_parents_or_else_at_standard() -> None:
    assert child(ceiling="fast") == child(tier="fast")
    assert child() == child(tier="standard")


def test_a_child_runs_on_the_named_model_whatever_its_tier_and_price() -> None:
    assert child(model="openai/gpt-6-astra-2026-09-01", tier="fast") == "gpt-6-astra"


def test_a_model_without_tools_or_about_to_be_switched_off_isnt_chosen_for_a_child() -> None:
    catalog = Catalog(
        [
            model("mute", tools=False, prices=priced(0)),
            model("leaving", deprecated_on=TODAY, prices=priced(0)),
            model("unknown"),
            model("dear", prices=priced(100)),
        ]
    )
    assert child(catalog, tier="fast") == "dear"


@pytest.mark.parametrize("asked", [{"tier": "deep"}, {"model": "gpt-6-astra"}, {"model": "openai/gpt-6-astra"}])
def test_a_child_above_its_parents_tier_is_refused(asked: dict[str, Any]) -> None:
    error = refusal(ceiling="standard", **asked)
    assert (error.code, error.field) == ("tier_above_parent", next(iter(asked)))
    assert "standard, fast" in str(error.hint)


def test_an_unknown_model_is_refused_with_names_that_would_do() -> None:
    error = refusal(model="gpt-6", ceiling="standard")
    assert (error.code, error.field) == ("unknown_model", "model")
    assert "gpt-6-sol" in str(error.hint)
    assert "gpt-6-astra" not in str(error.hint)


def test_a_named_model_without_a_key_is_refused_with_the_variable_to_set() -> None:
    error = refusal(model="claude-opus-5-5", available={("openai", None)})
    assert (error.code, error.field) == ("no_api_key", "model")
    assert "set ANTHROPIC_API_KEY" in str(error.hint)


def test_without_any_key_the_refusal_names_every_variable_that_would_help() -> None:
    error = refusal(available=frozenset[Any]())
    assert error.code == "no_api_key"
    assert error.hint == "set ANTHROPIC_API_KEY, or set GEMINI_API_KEY, or set OPENAI_API_KEY"


def test_a_tier_that_no_reachable_model_has_is_refused_with_the_tiers_that_are_there() -> None:
    local = Catalog.shipped().with_models([model("qwen", endpoint="ollama", tier="fast")])
    error = refusal(local, tier="deep", available={("openai", "ollama")})
    assert (error.code, error.field) == ("no_model_for_tier", "tier")
    assert error.message == "no model of tier deep can be called; tiers that can: fast"
    assert str(error.hint).startswith("ask for tier fast, or set ANTHROPIC_API_KEY")


def test_a_refusal_offers_no_tier_that_would_be_refused_next() -> None:
    local = Catalog([model("big", endpoint="ollama", tier="deep")])
    error = refusal(local, tier="fast", ceiling="fast", available={("openai", "ollama")})
    assert error.code == "no_model_for_tier"
    assert error.hint is None
