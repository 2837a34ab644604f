"""The shipped catalog, its lookup by name, its cost calculation, and how it rejects invalid files."""

import json
import tomllib
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from delegate._util import resources
from delegate.models.catalog import Catalog, Model, Price, cost_usd, read_catalog
from delegate.models.overrides import effective_catalog
from delegate.policy.settings import Settings
from delegate.types import TIERS, Usage
from delegate.types.errors import ConfigError
from tests.support.pace import best_of, pace

TODAY = date(2026, 11, 20)
SOURCES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "catalog_sources.json").read_text("utf-8"))


def shipped(name: str) -> Model:
    model = Catalog.shipped().find(name)
    assert model is not None
    return model


def model(**fields: Any) -> Model:
    defaults: dict[str, Any] = {
        "id": "m",
        "provider": "openai",
        "family": "f",
        "tier": "fast",
        "context_tokens": 100_000,
        "max_output_tokens": 8_000,
        "structured_output": True,
        "tools": True,
    }
    return Model(**(defaults | fields))


# ------------------------------------------------------------------------------------------------------ what ships


NEWER_THAN_THE_SOURCES = ("gpt-6.2-astra", "gpt-6.2-sol")
"""Models that neither source knows yet. Their values come from the provider's pages."""


def test_every_price_is_the_one_that_genai_prices_published() -> None:
    for model in Catalog.shipped().models:
        if model.id in NEWER_THAN_THE_SOURCES:
            continue
        published = [Price(**price) for price in SOURCES["models"][model.id]["genai_prices"]]
        assert list(model.prices) == published, model.id


def test_limits_and_capabilities_are_those_that_litellm_published() -> None:
    by_hand = {("gemini-4-argon", "max_output_tokens")}
    for model in Catalog.shipped().models:
        for field, value in SOURCES["models"][model.id].get("litellm", {}).items():
            if (model.id, field) not in by_hand:
                assert str(getattr(model, field)) == str(value), (model.id, field)


def test_a_context_is_never_larger_than_either_source_says() -> None:
    for model in Catalog.shipped().models:
        known = SOURCES["models"][model.id].get("context_tokens", [922_000])
        assert model.context_tokens == min(known), model.id


def test_models_newer_than_the_sources_cost_what_openai_announced() -> None:
    found = [Catalog.shipped().find(name) for name in NEWER_THAN_THE_SOURCES]
    prices = [(one.tier, one.prices[0].input, one.prices[0].output) for one in found if one]
    assert prices == [("deep", 8, 40), ("standard", 2, 10)]
    assert all(SOURCES["models"][name] == {} for name in NEWER_THAN_THE_SOURCES), "a source knows it now: compare"


def test_every_model_has_a_price_on_each_of_the_next_400_days() -> None:
    for model, ahead in product(Catalog.shipped().models, range(400)):
        on = TODAY + timedelta(days=ahead)
        assert model.price(on, 1) is not None, (model.id, on)


def test_openai_and_google_cache_automatically_and_anthropic_on_request() -> None:
    least = {(model.provider, model.caches_from_tokens) for model in Catalog.shipped().models}
    assert least == {("openai", 1_024), ("google", 4_096), ("google", 2_048), ("anthropic", None)}


def test_writing_to_a_cache_costs_a_quarter_more_than_plain_input() -> None:
    prices = [(price, model.provider) for model in Catalog.shipped().models for price in model.prices]
    assert {provider for price, provider in prices if price.cache_write} == {"openai", "anthropic"}
    assert all(price.cache_write in (None, pytest.approx(1.25 * price.input)) for price, _ in prices)


def test_each_provider_has_a_model_in_each_tier() -> None:
    offered = {(model.provider, model.tier) for model in Catalog.shipped().models}
    assert offered == set(product(("openai", "anthropic", "google"), TIERS))


def test_every_shipped_model_names_its_source_and_when_it_was_checked() -> None:
    for model in Catalog.shipped().models:
        assert model.source.startswith("https://"), model.id
        assert model.checked_on is not None, model.id


@pytest.mark.slow
def test_the_shipped_catalog_is_parsed_quickly() -> None:
    text = resources.text("judges", "catalog.toml")
    assert best_of(5, lambda: read_catalog(text)) < 0.015 * pace()


# ----------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("gpt-6-luna", "gpt-6-luna"),
        ("gpt-6-luna-2026-08-01", "gpt-6-luna"),
        ("claude-haiku-5-5-20261001", "claude-haiku-5-5"),
        ("claude-haiku-5-5@20261001", "claude-haiku-5-5"),
        ("claude-haiku-5.5", "claude-haiku-5-5"),
        ("gpt-5.6", "gpt-5.6-sol"),
        ("openai/gpt-6-luna", "gpt-6-luna"),
        ("openrouter/anthropic/claude-haiku-5.5", "claude-haiku-5-5"),
        ("models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("gemini/gemini-3.8-flash", "gemini-3.8-flash"),
        ("openai/gpt-6-luna-2026-08-01", "gpt-6-luna"),
    ],
)
def test_a_model_is_found_by_id_alias_snapshot_and_provider_prefix(name: str, id: str) -> None:
    assert shipped(name).id == id


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "gpt-6",
        "gpt-6-luna-mini",
        "gpt-6-lunatic",
        "claude-haiku-5",
        "gemini-3.8",
        "gemini-3.8-flash-tts",
        "gpt-6-luna-2026-13-45",
        "gpt-6-luna-12345678",
        "gpt-6-luna-2026-08-01-2026-08-01",
        "google/gpt-6-luna",
        "anthropic/openai/gpt-6-luna",
        "someone/gpt-6-luna",
        "openrouter/anthropic/claude-haiku-5.5:free",
        "GPT-6-Luna",
    ],
)
def test_a_name_never_matches_another_model(name: str) -> None:
    assert Catalog.shipped().find(name) is None


def test_an_exact_id_wins_over_what_a_prefix_would_mean() -> None:
    own = model(id="openai/gpt-6-luna", endpoint="proxy")
    assert Catalog.shipped().with_models([own]).find("openai/gpt-6-luna") is own


SERVED = [
    ("gpt-5.6-sol", None, "gpt-5.6-sol"),
    ("gpt-5.6-sol", "gpt-5.6", "gpt-5.6-sol"),
    ("gpt-6-luna", "gpt-6-luna-2026-08-01", "gpt-6-luna"),
    ("claude-haiku-5-5", "claude-haiku-5-5-20261001", "claude-haiku-5-5"),
    ("claude-haiku-5-5", "anthropic/claude-haiku-5.5", "claude-haiku-5-5"),
    ("gemini-3.8-flash", "models/gemini-3.8-flash", "gemini-3.8-flash"),
    ("gemini-3.8-flash", "gemini-3.8-flash-001", "gemini-3.8-flash"),
    ("gemini-3.8-flash", "gemini-3.8-flash-preview-10-2026", "gemini-3.8-flash"),
    ("gpt-6-luna", "someone/gpt-6-luna", "gpt-6-luna"),
    ("gpt-6-luna", "gpt-6-astra", "gpt-6-astra"),
    ("gpt-6-luna", "openai/gpt-6-astra-2026-08-01", "gpt-6-astra"),
    ("claude-sonnet-5", "claude-sonnet-5-5", "claude-sonnet-5-5"),
    ("claude-opus-5", "claude-opus-5-5-20261001", "claude-opus-5-5"),
    ("gpt-6-luna", "gpt-6-luna-mini", None),
    ("gpt-6-luna", "gpt-7", None),
    ("gpt-6-luna", "", None),
]
"""The model asked for, the name in the reply, and the model that it means."""


@pytest.mark.parametrize(("asked", "name", "id"), SERVED)
def test_a_served_model_is_the_one_asked_for_another_known_one_or_unknown(
    asked: str, name: str | None, id: str | None
) -> None:
    served = Catalog.shipped().served(shipped(asked), name)
    assert (served.id if served else None) == id


def test_a_custom_servers_model_name_in_a_reply_is_compared_with_its_id() -> None:
    own = model(id="Qwen/Qwen3-32B", endpoint="vllm", tier="standard")
    catalog = Catalog.shipped().with_models([own])
    names = ("Qwen/Qwen3-32B", "Qwen3-32B", "Qwen/Qwen3-32B:latest", "gpt-6-astra", "llama")
    assert [catalog.served(own, name) for name in names] == [own, own, own, catalog.find("gpt-6-astra"), None]


# ------------------------------------------------------------------------------------------------------ arithmetic


CACHING = {"cached_input": 0.5, "cache_write": 2.5}


@pytest.mark.parametrize(
    ("cached", "written", "prices", "cost"),
    [
        (400_000, 0, CACHING, 0.6 * 2 + 0.4 * 0.5),
        (5_000_000, 0, CACHING, 0.5),  # more than the input
        (0, 300_000, CACHING, 0.7 * 2 + 0.3 * 2.5),
        (600_000, 300_000, CACHING, 0.1 * 2 + 0.6 * 0.5 + 0.75),
        (600_000, 900_000, CACHING, 0.6 * 0.5 + 0.4 * 2.5),
        (400_000, 300_000, {}, 2),  # without prices of their own, they cost as much as other input
    ],
)
def test_each_token_of_the_input_costs_the_price_of_its_kind(
    cached: int, written: int, prices: dict[str, float], cost: float
) -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=cached, cache_write_tokens=written, output_tokens=100_000)
    priced = model(prices=[{"input": 2, "output": 10, **prices}])
    assert cost_usd(priced, usage, TODAY) == pytest.approx(cost + 0.1 * 10)


def test_a_long_input_raises_the_price_of_the_whole_call() -> None:
    haiku = shipped("claude-haiku-5-5")
    short = cost_usd(haiku, Usage(input_tokens=100_000, output_tokens=300), TODAY)
    long = cost_usd(haiku, Usage(input_tokens=150_000, output_tokens=300), TODAY)
    assert short == pytest.approx(0.01015)
    assert long == pytest.approx(0.07575)


def test_a_cost_is_unknown_on_a_day_without_a_price() -> None:
    dated = model(prices=[{"since": TODAY, "until": TODAY, "input": 1, "output": 1}])
    day = timedelta(days=1)
    costs = [cost_usd(dated, Usage(input_tokens=1_000_000), on) for on in (TODAY - day, TODAY, TODAY + day)]
    assert costs == [None, 1, None]


# ---------------------------------------------------------------------------------------------------- wrong files

GOOD = """
[[models]]
id = "a"
provider = "openai"
family = "f"
tier = "fast"
context_tokens = 1_000
max_output_tokens = 100
structured_output = true
tools = true
prices = [{ input = 1, output = 2 }]
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + GOOD, "mine.toml: model a: id: 'a' is already a name of a; rename"),
        (
            GOOD + GOOD.replace('id = "a"', 'id = "b"\naliases = ["a"]'),
            "model b: aliases: 'a' is already a name of a; rename",
        ),
        (GOOD.replace('"fast"', '"cheap"'), "mine.toml: model a: tier: should be 'deep', 'standard' or 'fast'"),
        (GOOD.replace('tier = "fast"\n', ""), "mine.toml: model a: tier: it is missing; add it"),
        (GOOD.replace("tools", "tool"), "mine.toml: model a: tools: it is missing"),
        (
            GOOD + "colour = 1",
            "model a: colour: there is no such key; remove it, or use one of id, provider",
        ),
        (
            GOOD.replace("output = 2", "outptu = 2, output = 2"),
            "prices.0.outptu: there is no such key; did you mean output? If not, remove it",
        ),
        (
            GOOD.replace("input = 1", "input = -1"),
            "prices.0.input: should be greater than or equal to 0",
        ),
        (GOOD.replace("input = 1", "input = nan"), "model a: prices.0.input: should be a finite number"),
        (
            GOOD.replace("[{ input = 1, output = 2 }]", "[{ input = 1, output = 2 }, { input = 3, output = 4 }]"),
            "model a: prices: two prices apply on the same day; end one with `until`",
        ),
        (
            GOOD.replace("{ input", "{ since = 2026-02-01, until = 2026-01-01, input"),
            "model a: prices.0: until 2026-01-01 is before since 2026-02-01",
        ),
        ('[[models]]\nprovider = "x"', "mine.toml: model number 1: id: it is missing"),
        ("models = 3", "mine.toml: models must be a list of tables"),
        ("models = [3]", "mine.toml: model number 1: table: should be an object"),
        ("[settings]", "mine.toml: unknown key 'settings'"),
        ("models =", "mine.toml is not valid TOML: "),
    ],
)
def test_an_invalid_catalog_is_refused_with_file_model_field_and_fix(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_catalog(text, file="mine.toml")
    assert says in str(refusal.value)


def test_prices_may_follow_each_other_and_step_up_with_the_input() -> None:
    prices = """[
        { until = 2026-11-30, input = 1, output = 1 },
        { since = 2026-12-01, input = 2, output = 2 },
        { above_tokens = 1_000, input = 3, output = 3 },
    ]"""
    only = read_catalog(GOOD.replace("[{ input = 1, output = 2 }]", prices)).models[0]
    calls = ((TODAY, 1), (date(2026, 12, 1), 1), (TODAY, 1_001))
    assert [price.input for on, tokens in calls if (price := only.price(on, tokens))] == [1, 2, 3]


def test_the_readmes_examples_of_declared_models_are_right() -> None:
    readme = resources.text("judges", "README.md")
    for block in readme.split("```toml\n")[1:]:
        settings = Settings(**tomllib.loads(block.split("```")[0]))
        own = [
            model
            for model in effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy).models
            if model.endpoint
        ]
        assert all(cost_usd(model, Usage(input_tokens=1), TODAY) == 0 for model in own)
