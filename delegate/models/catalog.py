"""What is known about models: tier, dated prices, context, capabilities. Data and its arithmetic, no choosing.

`judges/catalog.toml` ships with the package; an operator adds models to it, or replaces entries of the same id
(`declared.py`). A model that isn't here has no tier and no price, and nothing in delegate guesses either.
"""

import difflib
import math
import re
import string
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from delegate._util import resources
from delegate.errors import ConfigError
from delegate.types import Text, Tier, Usage, Value

SHIPPED = "judges/catalog.toml"
LONGEST_NAME = 200
"""Characters. No model's name is longer; looking into a longer one could take as long as its writer likes."""

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
    cache_write: Usd | None = None
    """None: tokens written to the provider's cache cost as much as others."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"until {self.until} lies before since {self.since}; swap or correct them")
        return self

    def is_in_force(self, on: date) -> bool:
        """True on every day from `since` to `until`."""
        return (self.since is None or self.since <= on) and (self.until is None or on <= self.until)

    def usd(self, *, plain: int = 0, cached: int = 0, written: int = 0, output: int = 0) -> float:
        """What so many tokens come to: of input as it is, read from the provider's cache, written to it; of output."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        read = plain * self.input + cached * cached_price + written * write_price
        return (read + output * self.output) / 1_000_000

    def overlaps(self, other: "Price") -> bool:
        """True when some call on some day would have both prices."""
        return (
            self.above_tokens == other.above_tokens
            and (self.since or date.min) <= (other.until or date.max)
            and (other.since or date.min) <= (self.until or date.max)
        )


def _one_at_a_time(prices: tuple[Price, ...]) -> tuple[Price, ...]:
    for one, other in combinations(prices, 2):
        if one.overlaps(other):
            step = f" above {one.above_tokens} tokens" if one.above_tokens else ""
            raise ValueError(f"two prices{step} hold on the same day; end one with `until` before the other begins")
    return prices


Prices = Annotated[tuple[Price, ...], AfterValidator(_one_at_a_time)]
"""Of which no two hold for the same call on the same day."""
Accuracy = Annotated[float, Field(ge=0, le=1)]
"""The share of verdicts that a judge got right, on cases whose truth is known."""


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
    judge_accuracy: Accuracy | None = None
    """None: nobody has measured it."""
    token_factor: float = Field(default=1, gt=0, allow_inf_nan=False)
    """Tokens that its tokenizer makes of a text, for each that `tokens_of` estimates."""
    caches_from_tokens: int | None = Field(default=None, gt=0)
    """The shortest beginning of a prompt that the provider caches unasked; None: it caches only what it is asked to."""
    aliases: tuple[Text, ...] = ()
    prices: Prices = ()
    """Empty: the price is unknown. A model is free only where it says so with a price of 0."""
    source: str = ""
    checked_on: date | None = None

    def __hash__(self) -> int:
        """By name: the rest follows from it within a catalog, and requests with models in them are cached."""
        return hash((self.provider, self.endpoint, self.id))

    def tokens(self, estimated: int) -> int:
        """An estimate of `tokens_of` in this model's own tokens, rounded up."""
        return math.ceil(estimated * self.token_factor)

    def price(self, on: date, input_tokens: int) -> Price | None:
        """The price of a call of that many input tokens on that day, or None when none is in force."""
        highest = None
        for price in self.prices:
            reached = price.above_tokens < max(input_tokens, 1) and price.is_in_force(on)
            if reached and (highest is None or price.above_tokens > highest.above_tokens):
                highest = price
        return highest


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

    def with_accuracy(self, measured: Mapping[str, float], *, file: str = "delegate.toml") -> "Catalog":
        """A catalog in which the models that go by these names judge as well as was measured. Raises ConfigError."""
        changed: dict[str, Model] = {}
        for name, accuracy in measured.items():
            model = self._named(name, file)
            if model.id in changed:
                raise ConfigError(f"{file}: judge_accuracy: {name!r} is {model.id}, which is given twice; remove one")
            changed[model.id] = model.model_copy(update={"judge_accuracy": accuracy})
        models = (changed.get(model.id, model) for model in self.models)
        return Catalog(models, file=file, declared=self._declared)

    def _named(self, name: str, file: str) -> Model:
        if model := self.find(name):
            return model
        near = difflib.get_close_matches(name, self._by_name, n=3)
        mend = f"did you mean {' or '.join(near)}?" if near else "`delegate models` lists those there are"
        raise ConfigError(f"{file}: judge_accuracy: there is no model {name!r} in the catalog; {mend}")

    def is_declared(self, model: Model) -> bool:
        """Whether an operator wrote this entry: then a missing price is a decision, and the model may be used."""
        return model.id in self._declared

    def find(self, name: str) -> Model | None:
        """The model that goes by `name`, or None: an id, an alias, either with a snapshot date or a provider prefix.

        `gpt-6-luna-2026-08-01`, `claude-haiku-5-5@20261001`, `openrouter/anthropic/claude-haiku-5.5` and
        `models/gemini-3.8-flash` are known where their base is. Nothing else is stripped, so `gpt-6` is not
        `gpt-6-luna`, and `google/gpt-6-luna` is nothing.
        """
        if len(name) > LONGEST_NAME:
            return None
        providers: set[str | None] = {None}
        while (model := self._by_name.get(name) or self._find_snapshot(name)) is None:
            prefix, slash, name = name.partition("/")
            if not slash or prefix not in _PREFIXES:
                return None
            providers.add(_PREFIXES[prefix])
        return model if providers <= {None, model.provider} else None

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

    `usage` is that of one call, since its input decides the long-context step: add up costs, not usages. An input token
    is either read from the provider's cache, or written to it, or plain; each kind has its price.
    """
    price = model.price(on, usage.input_tokens)
    if price is None:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    plain = usage.input_tokens - cached - written
    return price.usd(plain=plain, cached=cached, written=written, output=usage.output_tokens)


_LETTERS = f"{string.ascii_letters} ".encode()
_ASCII = bytes(range(128))


def tokens_of(text: str) -> int:
    """Tokens in a text, estimated and rounded up; `Model.tokens` turns them into a model's own.

    Words are cheap, and signs and digits dear: a token is 4.4 letters and spaces, or 1.9 other ASCII characters, or 3.5
    bytes of anything else. Measured on four tokenizers (`scripts/measure_tokens.py`); tests state the error.
    """
    data = text.encode("utf-8", "replace")
    others = data.translate(None, _LETTERS)
    foreign = 0 if text.isascii() else len(others.translate(None, _ASCII))
    return math.ceil((len(data) - len(others)) / 4.4 + (len(others) - foreign) / 1.9 + foreign / 3.5)


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
    known = Price if "prices" in first["loc"] else Model
    return _wrong(file, model, field, hint_for(first, known.model_fields))


def hint_for(error: ErrorDetails, known: Iterable[str]) -> str:
    """What is wrong with one field and what to do about it; `known` are the keys that its table may have."""
    if error["type"] == "missing":
        return "it is missing; add it"
    if error["type"] == "extra_forbidden":
        return f"there is no such key; remove it, or use one of {', '.join(known)}"
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    return f"{error['msg']}, not {error['input']!r:.80}"


def _wrong(file: str, model: str, field: str, mend: str) -> ConfigError:
    return ConfigError(f"{file}: model {model}: {field}: {mend}")


@cache
def _shipped() -> Catalog:
    return read_catalog(resources.text("judges", "catalog.toml"))
