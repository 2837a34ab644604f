"""What is known about models: tier, dated prices, context, capabilities. Data and its arithmetic, no choosing.

`judges/catalog.toml` ships with the package; an operator's declared endpoints add models or replace entries of the same
id. A model that isn't here has no tier and no price, and nothing in delegate guesses either.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Self, cast

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from delegate import resources
from delegate.errors import ConfigError
from delegate.settings import DeclaredEndpoint, DeclaredModel
from delegate.types import Text, Tier, Usage, Value

CHARS_PER_TOKEN = 4.2
"""English prose and code, averaged over the three providers' tokenizers; other scripts need more tokens."""

SHIPPED = "judges/catalog.toml"

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""US dollars per million tokens."""


class Price(Value):
    """What a million tokens cost, in US dollars, from `since` to `until` (both included; None is open).

    A price with `above_tokens` holds for the whole of a call whose input is longer than that.
    """

    since: date | None = None
    until: date | None = None
    above_tokens: int = Field(default=0, ge=0)
    input: Usd
    output: Usd
    cached_input: Usd | None = None
    """None: tokens read from the provider's cache cost as much as others."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"until {self.until} lies before since {self.since}; swap or correct them")
        return self

    def is_in_force(self, on: date) -> bool:
        """True on every day from `since` to `until`."""
        return (self.since is None or self.since <= on) and (self.until is None or on <= self.until)

    def overlaps(self, other: "Price") -> bool:
        """True when some call on some day would have both prices."""
        return (
            self.above_tokens == other.above_tokens
            and (self.since or date.min) <= (other.until or date.max)
            and (other.since or date.min) <= (self.until or date.max)
        )


class Model(Value):
    """One model as one provider serves it."""

    id: Text
    """The name that goes into the request."""
    provider: Text
    """Whose API it speaks: `openai`, `anthropic`, `google` or `scripted`."""
    endpoint: str | None = None
    """Name of an endpoint declared in the settings; None is the provider's own."""
    family: Text
    """Models of one family share training, and are thought to favour each other's answers."""
    tier: Tier
    context_tokens: int = Field(gt=0)
    """The longest input."""
    max_output_tokens: int = Field(gt=0)
    structured_output: bool
    """It can be held to a JSON schema, which a judge must be."""
    tools: bool
    effort: bool = False
    """The request may name a reasoning effort."""
    deprecated_on: date | None = None
    """The day on which its provider switches it off."""
    aliases: tuple[Text, ...] = ()
    prices: tuple[Price, ...] = ()
    """Empty: the price is unknown. A model is free only where it says so with a price of 0."""
    source: str = ""
    checked_on: date | None = None

    @field_validator("prices")
    @classmethod
    def _one_price_at_a_time(cls, prices: tuple[Price, ...]) -> tuple[Price, ...]:
        for one, other in combinations(prices, 2):
            if one.overlaps(other):
                step = f" above {one.above_tokens} tokens" if one.above_tokens else ""
                raise ValueError(f"two prices{step} hold on the same day; end one with `until` before the other begins")
        return prices

    def __hash__(self) -> int:
        """By name: the rest follows from it within a catalog, and requests with models in them are cached."""
        return hash((self.provider, self.endpoint, self.id))

    def price(self, on: date, input_tokens: int) -> Price | None:
        """The price of a call of that many input tokens on that day, or None when none is in force."""
        reached = (
            price for price in self.prices if price.is_in_force(on) and price.above_tokens < max(input_tokens, 1)
        )
        return max(reached, key=lambda price: price.above_tokens, default=None)


class Catalog:
    """Models by id and alias. Immutable, and in order of id, so that the order of a file means nothing."""

    def __init__(self, models: Iterable[Model], *, file: str = SHIPPED, declared: frozenset[str] = frozenset()) -> None:
        """Index `models`; `declared` are the ids that an operator wrote. Raises ConfigError, naming `file`, where two
        claim the same name.
        """
        self._declared = declared
        self.models = tuple(sorted(models, key=lambda model: model.id))
        self._by_name: dict[str, Model] = {}
        for model in self.models:
            for field, name in (("id", model.id), *(("aliases", alias) for alias in model.aliases)):
                if name in self._by_name:
                    other = self._by_name[name].id
                    raise _wrong(file, model.id, field, f"{name!r} already names {other}; rename or remove one of them")
                self._by_name[name] = model

    @classmethod
    def shipped(cls) -> "Catalog":
        """The catalog that comes with the package, parsed once."""
        return _shipped()

    def with_models(self, extra: Iterable[Model], *, file: str = "delegate.toml") -> "Catalog":
        """A catalog of these models and `extra`; an entry of the same id takes the place of the old one."""
        added = tuple(extra)
        replaced = {model.id for model in added}
        kept = (model for model in self.models if model.id not in replaced)
        return Catalog((*kept, *added), file=file, declared=self._declared | replaced)

    def is_declared(self, model: Model) -> bool:
        """Whether an operator wrote this entry: then a missing price is a decision, and the model may be used."""
        return model.id in self._declared

    def find(self, name: str) -> Model | None:
        """The model that goes by `name`, or None: an id, an alias, either with a snapshot date or a provider prefix.

        `gpt-6-luna-2026-08-01`, `claude-haiku-5-5@20261001`, `openrouter/anthropic/claude-haiku-5.5` and
        `models/gemini-3.8-flash` are known where their base is. Nothing else is stripped, so `gpt-6` is not
        `gpt-6-luna`, and `google/gpt-6-luna` is nothing.
        """
        return self._by_name.get(name) or self._find_snapshot(name) or self._find_prefixed(name)

    def served(self, asked: Model, name: str | None) -> Model | None:
        """The model that a provider names in its reply to a call of `asked`; None for a name that isn't known.

        A provider that says nothing, or only spells the name its own way, is taken to have served what was asked for.
        """
        if name is None or name == asked.id or (found := self.find(name)) is asked:
            return asked
        with_version = name.startswith(asked.id) and _VERSION.fullmatch(name, len(asked.id))
        with_owner = name.endswith(f"/{asked.id}") or asked.id.endswith(f"/{name}")
        return asked if found is None and (with_version or with_owner) else found

    def _find_snapshot(self, name: str) -> Model | None:
        match = _SNAPSHOT.fullmatch(name)
        if match is None or not _is_date(match["date"]):
            return None
        return self._by_name.get(match["base"])

    def _find_prefixed(self, name: str) -> Model | None:
        prefix, _, rest = name.partition("/")
        if not rest or prefix not in _PREFIXES:
            return None
        model = self.find(rest)
        owner = _PREFIXES[prefix]
        return model if model and owner in (None, model.provider) else None


_SNAPSHOT = re.compile(r"(?P<base>.+)[-@](?P<date>\d{4}-\d{2}-\d{2}|\d{8})")
_VERSION = re.compile(r"(?:[-@:.](?:\d+|latest|preview|exp))+")
"""What providers append to the name of the model that they served."""
_PREFIXES: dict[str, str | None] = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "gemini": "google",
    "models": "google",
    "openrouter": None,
    "litellm": None,
    "vertex_ai": None,
}
"""What may stand before a slash, and the provider it implies (None: it serves several)."""


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------- arithmetic


def cost_usd(model: Model, usage: Usage, on: date) -> float | None:
    """What one call of `model` cost on that day, in US dollars; None when no price is in force, never 0 for that.

    `usage` is that of one call, since its input decides the long-context step: add up costs, not usages. Writing to
    a provider's cache counts as plain input (OpenAI and Anthropic charge up to a quarter more for those tokens).
    """
    price = model.price(on, usage.input_tokens)
    if price is None:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    cached_price = price.input if price.cached_input is None else price.cached_input
    fresh = usage.input_tokens - cached
    return (fresh * price.input + cached * cached_price + usage.output_tokens * price.output) / 1_000_000


def estimate_tokens(text_chars: int) -> int:
    """Tokens in a text of that many characters, rounded up: characters / 4.2. An estimate, for sizes and budgets."""
    return math.ceil(text_chars / CHARS_PER_TOKEN)


# ------------------------------------------------------------------------------------------------------------ reading


def read_catalog(text: str, *, file: str = SHIPPED) -> Catalog:
    """The catalog in a TOML text: `[[models]]` tables and nothing else. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error
    if unknown := sorted(document.keys() - {"models"}):
        raise ConfigError(f"{file}: unknown key {unknown[0]!r}; a catalog holds [[models]] tables only")
    return Catalog(_read_models(document.get("models", []), file), file=file)


def declared_models(endpoints: Iterable[DeclaredEndpoint]) -> tuple[Model, ...]:
    """The models that an operator's own endpoints serve, for `with_models`. Raises ConfigError for half a price."""
    return tuple(_declared(endpoint, model) for endpoint in endpoints for model in endpoint.models)


def _declared(endpoint: DeclaredEndpoint, model: DeclaredModel) -> Model:
    fields = model.model_dump(exclude={"input_price", "output_price", "cached_input_price"})
    prices = _declared_prices(endpoint, model)
    return Model(provider=endpoint.protocol, endpoint=endpoint.name, prices=prices, **fields)


def _declared_prices(endpoint: DeclaredEndpoint, model: DeclaredModel) -> tuple[Price, ...]:
    if model.input_price is not None and model.output_price is not None:
        return (Price(input=model.input_price, output=model.output_price, cached_input=model.cached_input_price),)
    if model.input_price is None and model.output_price is None:
        return ()
    missing = "input_price" if model.input_price is None else "output_price"
    raise _wrong(f"endpoint {endpoint.name}", model.id, missing, "it is missing; give both prices or neither")


def _read_models(tables: object, file: str) -> tuple[Model, ...]:
    if not isinstance(tables, list):
        raise ConfigError(f"{file}: models must be a list of tables; write [[models]] above each")
    return tuple(_read_model(table, n, file) for n, table in enumerate(cast("list[Any]", tables), start=1))


def _read_model(table: Any, n: int, file: str) -> Model:
    try:
        return Model.model_validate(table)
    except ValidationError as error:
        name = cast("Mapping[str, object]", table).get("id") if isinstance(table, Mapping) else None
        raise _invalid(file, str(name or f"number {n}"), error) from error


def _invalid(file: str, model: str, error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "table"
    return _wrong(file, model, field, _mend(first))


def _mend(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "it is missing; add it"
    if error["type"] == "extra_forbidden":
        known = Price if "prices" in error["loc"] else Model
        return f"there is no such key; remove it, or use one of {', '.join(known.model_fields)}"
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    return f"{error['msg']}, not {error['input']!r:.80}"


def _wrong(file: str, model: str, field: str, mend: str) -> ConfigError:
    return ConfigError(f"{file}: model {model}: {field}: {mend}")


@cache
def _shipped() -> Catalog:
    return read_catalog(resources.text("judges", "catalog.toml"))
