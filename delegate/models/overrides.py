"""Applies an operator's models, endpoints and measured accuracies to the shipped catalog."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from delegate.models.catalog import Catalog, JudgeAccuracy, Model, Price, Prices
from delegate.types.base import Input, Text, Tier
from delegate.types.errors import ConfigError

PROVIDERS = ("openai", "anthropic", "google")
"""Providers with an endpoint of their own."""
_FLAT_PRICES = frozenset(("input_price", "output_price", "cached_input_price"))


class DeclaredModel(Input):
    """A model of a declared endpoint. Prices are US dollars per million tokens; without a price it is unknown, not 0.

    `input_price` and `output_price` are for a price that never changes; `prices` are dated, as in the catalog.
    """

    id: Text
    tier: Tier
    family: Text = "local"
    context_tokens: int = Field(default=32_768, gt=0)
    max_output_tokens: int = Field(default=4_096, gt=0)
    structured_output: bool = True
    tools: bool = True
    effort: bool = False
    images: bool = False
    pdfs: bool = False
    input_price: float | None = Field(default=None, ge=0)
    output_price: float | None = Field(default=None, ge=0)
    cached_input_price: float | None = Field(default=None, ge=0)
    prices: Prices = ()
    search_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """US dollars per web search that the server itself makes. None: its children get no such search."""

    @model_validator(mode="after")
    def _check_price_fields(self) -> Self:
        flat = {"input_price": self.input_price, "output_price": self.output_price}
        missing = [name for name, price in flat.items() if price is None]
        if len(missing) == 1 or (missing and self.cached_input_price is not None):
            raise ValueError(f"{missing[0]} is missing; give input_price and output_price, or neither")
        if self.prices and not missing:
            raise ValueError("the price is given twice; give prices, or input_price and output_price")
        return self


class DeclaredEndpoint(Input):
    """A custom model server, such as Ollama or vLLM, or a cloud platform, and the models it serves.

    `protocol` is the provider whose API it speaks: OpenAI's, Anthropic's or Google's. OpenAI has two of them: with
    `api = "auto"`, Chat Completions is used first (on Azure: Responses), and each model that turns out to need the
    other one gets it; `"chat"` and `"responses"` use only that one. `api = "messages"` is Anthropic's API, the same as
    `protocol = "anthropic"`.

    With `platform = "bedrock"` (for Anthropic's models) or `"vertex"` (for Anthropic's and Google's), the models are
    called through Amazon Bedrock or Google Vertex AI in `region`, by the provider's SDK and with the credentials that
    it finds there.
    """

    name: Text
    base_url: Text | None = None
    """None for a platform, whose address follows from the region."""
    protocol: Literal["openai", "anthropic", "google"] = "openai"
    api: Literal["auto", "chat", "responses", "messages"] = "auto"
    key_env: str | None = None
    """The environment variable with this endpoint's key; None for a server that needs no key."""
    key_command: tuple[str, ...] | None = None
    """A program and its arguments, or one line with both. It prints the key, alone or as a JSON object with a `key` (or
    `token`, `access_token`, `accessToken`) and perhaps with the time when it `expires` (or `expires_on`, `Expiration`
    …), in seconds since the epoch or as ISO 8601."""
    api_key: Callable[[], Any] | None = Field(default=None, exclude=True, repr=False)
    """A function that returns the key, or a pair of the key and the time when it expires, in seconds since the epoch or
    as a `datetime`. It may be async, and may block.

    The command and the function are asked for the first call, again before the key expires, and where a server refuses
    it."""
    platform: Literal["bedrock", "vertex"] | None = None
    region: str = ""
    """The platform's region, such as `us-east-1`, `europe-west1` or `global`."""
    project: str = ""
    """The Google Cloud project."""
    models: tuple[DeclaredModel, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _messages_is_anthropics_api(cls, given: Any) -> Any:
        fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        return {"protocol": "anthropic", **fields} if fields.get("api") == "messages" else cast("Any", given)

    @field_validator("key_command", mode="before")
    @classmethod
    def _split_command(cls, given: Any) -> Any:
        return tuple(shlex.split(given)) if isinstance(given, str) else given

    @field_validator("api_key", mode="before")
    @classmethod
    def _keep_keys_out_of_files(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError("a key doesn't belong here; name its variable in key_env, or a program in key_command")
        return given

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        sources = [name for name in ("key_env", "key_command", "api_key") if getattr(self, name) is not None]
        if len(sources) > 1:
            raise ValueError(f"the key has two sources, {' and '.join(sources)}; remove one")
        if sources and self.platform is not None:
            raise ValueError(f"{sources[0]} isn't used on {self.platform}, whose credentials the SDK finds; remove it")
        program = "".join((self.key_command or ())[:1])
        in_folder = os.path.dirname(program) and not os.path.isabs(program)  # where a child may write
        if self.key_command is not None and (not program or in_folder):
            raise ValueError("key_command begins with no program; give its name, or its absolute path")
        return self

    @model_validator(mode="after")
    def _check_api(self) -> Self:
        of = {"auto": self.protocol, "messages": "anthropic"}.get(self.api, "openai")
        if of != self.protocol:
            raise ValueError(f'api = "{self.api}" is of protocol "{of}", not "{self.protocol}"; remove one of them')
        return self

    @model_validator(mode="after")
    def _check_platform(self) -> Self:
        if self.platform is None:
            if self.base_url is None:
                raise ValueError("base_url is missing; add it")
            return self
        serves = {"bedrock": ("anthropic",), "vertex": ("anthropic", "google")}[self.platform]
        if self.protocol not in serves:
            fix = " or ".join(f'protocol = "{protocol}"' for protocol in serves)
            raise ValueError(f'platform = "{self.platform}" is for {fix}; add that')
        for name in ("region", "project") if self.platform == "vertex" else ("region",):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing, which {self.platform} needs; add it")
        return self


def effective_catalog(
    models: Iterable[Model], endpoints: Iterable[DeclaredEndpoint], judge_accuracy: Mapping[str, JudgeAccuracy]
) -> Catalog:
    """The shipped catalog with `models`, the models of `endpoints`, and `judge_accuracy` applied to all of them.

    Raises:
        ConfigError: a name is declared twice, an endpoint isn't declared, or an accuracy is for an unknown model.
    """
    models, endpoints = tuple(models), tuple(endpoints)
    known = {(endpoint.protocol, endpoint.name) for endpoint in endpoints}
    for model in models:
        if model.endpoint is None and model.provider not in PROVIDERS:
            providers = ", ".join(PROVIDERS)
            problem = f"there is no provider {model.provider!r}; use one of {providers}, or declare an endpoint"
            raise ConfigError(f"delegate.toml: model {model.id}: provider: {problem}")
        if model.endpoint is not None and (model.provider, model.endpoint) not in known:
            named = f"no endpoint {model.endpoint!r} with protocol {model.provider} is declared"
            raise ConfigError(f"delegate.toml: model {model.id}: endpoint: {named}; add it to [[endpoints]]")
    declared = (*models, *declared_models(endpoints))
    return Catalog.shipped().with_models(declared).with_accuracy(judge_accuracy)


def declared_models(endpoints: Iterable[DeclaredEndpoint]) -> tuple[Model, ...]:
    """All models of the declared endpoints."""
    entries: list[Model] = []
    for endpoint in endpoints:
        for model in endpoint.models:
            prices = model.prices
            if model.input_price is not None and model.output_price is not None:
                flat = Price(input=model.input_price, output=model.output_price, cached_input=model.cached_input_price)
                prices = (flat,)
            fields = model.model_dump(exclude={"prices", *_FLAT_PRICES})
            entries.append(Model(provider=endpoint.protocol, endpoint=endpoint.name, prices=prices, **fields))
    return tuple(entries)
