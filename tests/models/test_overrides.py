"""Models declared in delegate.toml become part of the catalog, and nothing else does."""

from collections.abc import Mapping
from datetime import date
from itertools import permutations
from typing import Any

import pytest

from delegate.models.catalog import Catalog, Model, cost_usd
from delegate.models.connections import find_endpoints
from delegate.models.overrides import effective_catalog
from delegate.models.providers import Endpoint
from delegate.policy.settings import load_settings
from delegate.types import Usage
from delegate.types.errors import ConfigError
from tests.support.operator import own_settings

TODAY = date(2026, 11, 20)
USAGE = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
LUNA = """
[[models]]
id = "gpt-6-luna"
provider = "openai"
family = "gpt"
tier = "standard"
context_tokens = 100_000
max_output_tokens = 8_000
structured_output = true
tools = true
prices = [
    { until = 2026-11-30, input = 1, output = 2 },
    { since = 2026-12-01, input = 3, output = 4 },
    { since = 2026-12-01, above_tokens = 2_000_000, input = 5, output = 6 },
]
"""
OLLAMA = """
[[endpoints]]
name = "ollama"
base_url = "http://localhost:11434/v1"

[[endpoints.models]]
id = "qwen3:32b"
tier = "standard"
"""


def declared(toml: str) -> Catalog:
    own_settings(toml)
    settings = load_settings({})
    return effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy)


def found(catalog: Catalog, name: str) -> Model:
    model = catalog.find(name)
    assert model is not None
    return model


def refusal(toml: str) -> str:
    with pytest.raises(ConfigError) as caught:
        declared(toml)
    return str(caught.value)


def test_without_a_declaration_the_shipped_catalog_applies() -> None:
    assert declared("").models == Catalog.shipped().models


# --------------------------------------------------------------------------------------------------------- [[models]]


def test_an_entry_replaces_the_shipped_one_with_all_its_fields() -> None:
    catalog = declared(LUNA)
    luna = found(catalog, "gpt-6-luna")
    assert (luna.tier, luna.context_tokens, luna.effort, luna.caches_from_tokens) == ("standard", 100_000, False, None)
    assert len(catalog.models) == len(Catalog.shipped().models)
    assert found(Catalog.shipped(), "gpt-6-luna").tier == "fast"


def test_a_model_may_be_added_to_a_providers_own() -> None:
    new = found(declared(LUNA.replace("gpt-6-luna", "gpt-7-luna")), "gpt-7-luna")
    assert (new.provider, new.endpoint) == ("openai", None)


def test_the_order_of_declarations_does_not_matter() -> None:
    parts = [LUNA, LUNA.replace("gpt-6-luna", "gpt-7-luna"), OLLAMA]
    catalogs = [declared("".join(order)) for order in permutations(parts)]
    assert len({catalog.models for catalog in catalogs}) == 1
    assert {catalog.is_declared(model) for catalog in catalogs for model in catalog.models} == {True, False}


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (LUNA + LUNA, ["delegate.toml: model gpt-6-luna: id: 'gpt-6-luna' is already a name of", "rename or remove"]),
        (LUNA + OLLAMA.replace("qwen3:32b", "gpt-6-luna"), ["model gpt-6-luna: id: 'gpt-6-luna' is already a name of"]),
        (
            LUNA + 'aliases = ["gpt-5.6"]',
            ["model gpt-6-luna: aliases: 'gpt-5.6' is already a name of gpt-5.6-sol; rename"],
        ),
        (LUNA.replace('"openai"', '"mistral"'), ["gpt-6-luna: provider: there is no provider 'mistral'", "openai"]),
        (
            LUNA + 'endpoint = "vllm"',
            ["gpt-6-luna: endpoint: no endpoint 'vllm' with protocol openai", "[[endpoints]]"],
        ),
        (
            LUNA.replace(", above_tokens = 2_000_000", ""),
            [
                "models[gpt-6-luna].prices (in ",
                "delegate.toml)",
                "two prices apply on the same day; end one with `until`",
            ],
        ),
    ],
)
def test_an_invalid_declaration_is_refused_with_model_field_and_fix(toml: str, words: list[str]) -> None:
    said = refusal(toml)
    for word in words:
        assert word in said


def test_a_full_entry_may_also_be_of_a_declared_endpoint() -> None:
    own = found(declared(LUNA + 'endpoint = "ollama"\n' + OLLAMA), "gpt-6-luna")
    assert (own.provider, own.endpoint) == ("openai", "ollama")


# ------------------------------------------------------------------------------------------------------ [[endpoints]]


def test_a_model_of_an_endpoint_belongs_to_it() -> None:
    own = found(declared(OLLAMA + "context_tokens = 8_000"), "qwen3:32b")
    assert (own.provider, own.endpoint, own.tier, own.context_tokens) == ("openai", "ollama", "standard", 8_000)


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ("", None),
        ("input_price = 0\noutput_price = 0", 0),
        ("input_price = 1\noutput_price = 2", 3),
        ("prices = [{ until = 2026-11-30, input = 1, output = 2 }, { since = 2026-12-01, input = 8, output = 8 }]", 3),
    ],
)
def test_a_local_model_is_free_by_declaration_and_never_by_accident(prices: str, cost: float | None) -> None:
    assert cost_usd(found(declared(OLLAMA + prices), "qwen3:32b"), USAGE, TODAY) == cost


def test_a_price_of_tokens_from_the_cache_may_be_declared_as_well() -> None:
    own = found(declared(OLLAMA + "input_price = 2\noutput_price = 0\ncached_input_price = 1"), "qwen3:32b")
    usage = Usage(input_tokens=1_000_000, cached_tokens=500_000)
    assert cost_usd(own, usage, TODAY) == pytest.approx(1.5)


def test_a_declared_model_reads_files_only_if_it_is_declared_to() -> None:
    assert not found(declared(OLLAMA), "qwen3:32b").images
    own = found(declared(OLLAMA + "images = true\npdfs = true"), "qwen3:32b")
    assert (own.images, own.pdfs) == (True, True)


def reached(head: str, environ: Mapping[str, str] | None = None) -> Endpoint:
    """The endpoint that is called for a table with these lines."""
    models = '[[endpoints.models]]\nid = "m"\ntier = "standard"\n'
    own_settings(f'[[endpoints]]\nname = "own"\n{head}\n{models}')
    [endpoint] = find_endpoints(load_settings({}).endpoints, environ or {}).values()
    return endpoint


URL = 'base_url = "http://localhost:1/v1"'


@pytest.mark.parametrize(
    ("head", "protocol", "api"),
    [
        (URL, "openai", "auto"),
        (f'{URL}\napi = "chat"', "openai", "chat"),
        (f'{URL}\napi = "responses"', "openai", "responses"),
        (f'{URL}\napi = "messages"', "anthropic", "auto"),
        (f'{URL}\nprotocol = "anthropic"\napi = "messages"', "anthropic", "auto"),
        (f'{URL}\nprotocol = "anthropic"', "anthropic", "auto"),
        (f'{URL}\nprotocol = "google"', "google", "auto"),
    ],
)
def test_an_endpoint_may_say_which_api_it_speaks(head: str, protocol: str, api: str) -> None:
    endpoint = reached(head)
    assert (endpoint.protocol, endpoint.api, endpoint.url) == (protocol, api, "http://localhost:1/v1")


@pytest.mark.parametrize(
    ("head", "url"),
    [
        ('protocol = "anthropic"\nplatform = "bedrock"\nregion = "us-east-1"', "https://bedrock-runtime.us-east-1."),
        (
            'protocol = "anthropic"\nplatform = "vertex"\nregion = "europe-west1"\nproject = "p"',
            "https://europe-west1-aiplatform.googleapis.com",
        ),
        ('protocol = "google"\nplatform = "vertex"\nregion = "global"\nproject = "p"', "https://aiplatform."),
    ],
)
def test_a_platform_is_reached_without_an_address_and_a_key(head: str, url: str) -> None:
    endpoint = reached(head)
    assert endpoint.url.startswith(url)
    assert (endpoint.base_url, endpoint.platform) == (None, "bedrock" if "bedrock" in head else "vertex")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("", "delegate.toml): base_url is missing; add it"),
        (f'{URL}\nprotocol = "google"\napi = "messages"', 'api = "messages" is of protocol "anthropic", not "google"'),
        (f'{URL}\nprotocol = "google"\napi = "chat"', 'api = "chat" is of protocol "openai", not "google"; remove one'),
        ('platform = "bedrock"', 'platform = "bedrock" is for protocol = "anthropic"; add that'),
        ('platform = "vertex"', 'platform = "vertex" is for protocol = "anthropic" or protocol = "google"'),
        ('protocol = "anthropic"\nplatform = "bedrock"', "region is missing, which bedrock needs; add it"),
        ('protocol = "google"\nplatform = "vertex"\nregion = "global"', "project is missing, which vertex needs"),
        (
            'protocol = "anthropic"\nplatform = "bedrock"\nregion = "r"\nkey_env = "KEY"',
            "key_env isn't used on bedrock, whose credentials the SDK finds; remove it",
        ),
        ('platform = "azure"', "'bedrock' or 'vertex'"),
    ],
)
def test_an_invalid_endpoint_is_refused_with_the_fix(head: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reached(head)
    assert words in str(caught.value)


# --------------------------------------------------------------------------------------------------- what is declared


def test_an_operators_entries_are_known_as_declared_and_no_others() -> None:
    catalog = declared(LUNA + OLLAMA + "[judge_accuracy]\ngpt-6-sol = 0.9")
    assert {model.id for model in catalog.models if catalog.is_declared(model)} == {"gpt-6-luna", "qwen3:32b"}
    assert not any(map(Catalog.shipped().is_declared, Catalog.shipped().models))


def test_a_measurement_or_another_entry_keeps_declarations() -> None:
    catalog = declared(OLLAMA).with_accuracy({"qwen3:32b": 0.5}).with_models([])
    assert catalog.is_declared(found(catalog, "qwen3:32b"))


# ---------------------------------------------------------------------------------------------------- judge_accuracy


def test_no_shipped_model_claims_an_unmeasured_accuracy() -> None:
    assert all(model.judge_accuracy is None for model in Catalog.shipped().models)


@pytest.mark.parametrize("name", ["claude-haiku-5-5", "claude-haiku-5.5", "anthropic/claude-haiku-5-5"])
def test_an_accuracy_is_given_under_any_of_a_models_names(name: str) -> None:
    catalog = declared(f'[judge_accuracy]\n"{name}" = 0.91')
    assert {model.id: model.accuracy for model in catalog.models if model.accuracy is not None} == {
        "claude-haiku-5-5": 0.91
    }


def test_a_measured_accuracy_overrides_entries_and_models_of_endpoints() -> None:
    entry = LUNA + "judge_accuracy = 0.5\n"
    assert found(declared(entry), "gpt-6-luna").accuracy == 0.5
    both = declared(entry + OLLAMA + '[judge_accuracy]\ngpt-6-luna = 0\n"qwen3:32b" = 0.7')
    assert [found(both, name).accuracy for name in ("gpt-6-luna", "qwen3:32b")] == [0, 0.7]


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        ({"gpt-6-lune": 0.9}, ["judge_accuracy: there is no model 'gpt-6-lune'", "did you mean gpt-6-luna"]),
        ({"zzz": 0.9}, ["there is no model 'zzz'", "`delegate models` lists all models"]),
        ({"gpt-5.6": 0.9, "gpt-5.6-sol": 0.8}, ["'gpt-5.6-sol' is gpt-5.6-sol, which is listed twice; remove one"]),
    ],
)
def test_an_accuracy_of_an_unknown_model_or_listed_twice_is_refused(accuracy: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        effective_catalog((), (), accuracy)
    for word in words:
        assert word in str(caught.value)
