"""The model catalog: tier, dated prices, context length and capabilities of each model, and cost calculation.

`judges/catalog.toml` ships with the package. An operator can add models or replace entries by ID (see `overrides.py`).
A model that isn't in the catalog has no tier and no price; neither is guessed.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from delegate._util import resources
from delegate._util.similar import most_similar
from delegate.types import Text, Tier, Usage, Value
from delegate.types.errors import ConfigError
from delegate.types.faults import problem_of

SHIPPED = "judges/catalog.toml"
LONGEST_NAME = 200
"""In characters. Longer names are never looked up, which bounds the time that a lookup takes."""

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""US dollars per million tokens."""


class Price(Value):
    """Prices in US dollars per million tokens, from `since` to `until` (both inclusive; None means no bound).

    A price with `above_tokens` applies to a whole call if its input is longer than that.
    """

    since: date | None = None
    until: date | None = None
    above_tokens: int = Field(default=0, ge=0)
    input: Usd
    output: Usd
    cached_input: Usd | None = None
    """None: tokens read from the provider's cache cost as much as other input."""
    cache_write: Usd | None = None
    """None: tokens written to the provider's cache cost as much as other input."""

    @model_validator(mode="after")
    def _refuse_reversed_dates(self) -> Self:
        if self.since and self.until and self.until < self.since:
            raise ValueError(f"until {self.until} is before since {self.since}; swap or correct them")
        return self

    def is_in_force(self, on: date) -> bool:
        """Whether the price applies on this day."""
        return (self.since is None or self.since <= on) and (self.until is None or on <= self.until)

    def usd(self, *, plain: int = 0, cached: int = 0, written: int = 0, output: int = 0) -> float:
        """The cost of these tokens: plain input, input read from and written to the provider's cache, and output."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        read = plain * self.input + cached * cached_price + written * write_price
        return (read + output * self.output) / 1_000_000

    def overlaps(self, other: "Price") -> bool:
        """Whether both prices would apply to some call."""
        return (
            self.above_tokens == other.above_tokens
            and (self.since or date.min) <= (other.until or date.max)
            and (other.since or date.min) <= (self.until or date.max)
        )


def _refuse_overlaps(prices: tuple[Price, ...]) -> tuple[Price, ...]:
    for one, other in combinations(prices, 2):
        if one.overlaps(other):
            step = f" above {one.above_tokens} tokens" if one.above_tokens else ""
            raise ValueError(f"two prices{step} apply on the same day; end one with `until` before the other starts")
    return prices


Prices = Annotated[tuple[Price, ...], AfterValidator(_refuse_overlaps)]
"""Prices, of which no two apply to the same call on the same day."""
Accuracy = Annotated[float, Field(ge=0, le=1)]
"""The fraction of correct verdicts on cases with a known answer."""


class JudgeAccuracy(Value):
    """The measured accuracy of a judge. A plain number is an accuracy without the rulings that it was measured on.

    `delegate calibrate --toml` prints all of it.
    """

    accuracy: Accuracy
    rulings: int | None = Field(default=None, gt=0)
    """The number of rulings."""
    bad: int = Field(default=0, ge=0)
    """How many of the rulings were `not_met`."""
    false_passes: int = Field(default=0, ge=0)
    """How many of those the judge found met."""
    judge_version: str = ""
    """The judging method that was measured. These rulings say nothing about another one's false passes."""
    measured_on: date | None = None
    """The day of the latest ruling."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, given: Any) -> Any:
        is_table = isinstance(given, Mapping | JudgeAccuracy)
        return cast("Any", given) if is_table else {"accuracy": given}

    @model_validator(mode="after")
    def _refuse_impossible_counts(self) -> Self:
        if not self.false_passes <= self.bad <= (self.rulings or 0):
            counts = f"false_passes = {self.false_passes}, bad = {self.bad}, rulings = {self.rulings or 0}"
            raise ValueError(f"each of these counts is a part of the next, and {counts} can't be; correct them")
        return self


class Model(Value):
    """One model as one provider serves it."""

    id: Text
    """The model name in requests."""
    provider: Text
    """The API it uses: `openai`, `anthropic`, `google` or `scripted`."""
    endpoint: str | None = None
    """The name of an endpoint declared in the settings; None is the provider's own endpoint."""
    key_env: str | None = Field(default=None, exclude=True, repr=False)
    """The variable with the key of that endpoint, for error messages. The endpoint's own `key_env` decides."""
    family: Text
    """Models of the same family share training, and may favor each other's output."""
    tier: Tier
    context_tokens: int = Field(gt=0)
    """The maximum input length."""
    max_output_tokens: int = Field(gt=0)
    structured_output: bool
    """Whether it supports output constrained by a JSON schema, which judges need."""
    tools: bool
    effort: bool = False
    """Whether requests may set a reasoning effort."""
    images: bool = False
    """Whether it can read images that a tool returns."""
    pdfs: bool = False
    """Whether it can read PDFs that a tool returns."""
    deprecated_on: date | None = None
    """The day on which the provider shuts it down."""
    judge_accuracy: JudgeAccuracy | None = None
    """None if it hasn't been measured."""
    token_factor: float = Field(default=1, gt=0, allow_inf_nan=False)
    """The number of its own tokens per token estimated by `tokens_of`."""
    caches_from_tokens: int | None = Field(default=None, gt=0)
    """The shortest prompt prefix that the provider caches automatically; None if it caches only on request."""
    aliases: tuple[Text, ...] = ()
    prices: Prices = ()
    """Empty if the price is unknown. A model is free only if it has a price of 0."""
    search_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """US dollars per web search that the provider itself makes. None: its children get no such search."""
    source: str = ""
    checked_on: date | None = None

    def __hash__(self) -> int:
        """Only the key within a catalog: fast, since routing requests that contain models are cached."""
        return hash((self.provider, self.endpoint, self.id))

    @property
    def accuracy(self) -> float | None:
        """The fraction of correct verdicts; None if it hasn't been measured."""
        return self.judge_accuracy.accuracy if self.judge_accuracy else None

    def tokens(self, estimated: int) -> int:
        """Convert an estimate by `tokens_of` to this model's own tokens, rounded up."""
        return math.ceil(estimated * self.token_factor)

    def price(self, on: date, input_tokens: int) -> Price | None:
        """The price of a call with that many input tokens on that day; None if no price applies."""
        in_force = (price for price in self.prices if price.is_in_force(on))
        reached = (price for price in in_force if price.above_tokens < max(input_tokens, 1))
        return max(reached, key=lambda price: price.above_tokens, default=None)


class Catalog:
    """Models by ID and alias. Immutable, and sorted by ID, so that the order of a file doesn't matter."""

    def __init__(self, models: Iterable[Model], *, file: str = SHIPPED, declared: frozenset[str] = frozenset()) -> None:
        """Index `models`. `declared` are the IDs that an operator declared.

        Raises ConfigError, with `file` in its text, if two models have the same name.
        """
        self._declared = declared
        self.models = tuple(sorted(models, key=lambda model: model.id))
        self._by_name: dict[str, Model] = {}
        for model in self.models:
            for field, name in (("id", model.id), *(("aliases", alias) for alias in model.aliases)):
                if name in self._by_name:
                    other = self._by_name[name].id
                    raise _model_error(
                        file, model.id, field, f"{name!r} is already a name of {other}; rename or remove one of them"
                    )
                self._by_name[name] = model

    @staticmethod
    @cache
    def shipped() -> "Catalog":
        """The catalog that ships with the package. Parsed once."""
        return read_catalog(resources.text("judges", "catalog.toml"))

    def with_models(self, extra: Iterable[Model]) -> "Catalog":
        """A copy with `extra` models added. A model with an existing ID replaces that entry."""
        added = tuple(extra)
        replaced = {model.id for model in added}
        kept = (model for model in self.models if model.id not in replaced)
        return Catalog((*kept, *added), file="delegate.toml", declared=self._declared | replaced)

    def with_accuracy(self, measured: Mapping[str, JudgeAccuracy | float]) -> "Catalog":
        """A copy with the measured judge accuracy of these models, by name. Raises ConfigError."""
        changed: dict[str, Model] = {}
        for name, accuracy in measured.items():
            if (model := self.find(name)) is None:
                near = difflib.get_close_matches(name, self._by_name, n=3)
                fix = f"did you mean {' or '.join(near)}?" if near else "`delegate models` lists all models"
                raise ConfigError(f"delegate.toml: judge_accuracy: there is no model {name!r} in the catalog; {fix}")
            if model.id in changed:
                twice = f"{name!r} is {model.id}, which is listed twice; remove one"
                raise ConfigError(f"delegate.toml: judge_accuracy: {twice}")
            changed[model.id] = model.model_copy(update={"judge_accuracy": JudgeAccuracy.model_validate(accuracy)})
        return Catalog((changed.get(model.id, model) for model in self.models), declared=self._declared)

    def is_declared(self, model: Model) -> bool:
        """Whether an operator declared this entry. If so, the model may be used even without a price."""
        return model.id in self._declared

    def find(self, name: str) -> Model | None:
        """The model with this name, or None. A name is an ID or alias, also with a snapshot date or provider prefix.

        `gpt-6-luna-2026-08-01`, `claude-haiku-5-5@20261001`, `openrouter/anthropic/claude-haiku-5.5` and
        `models/gemini-3.8-flash` are found if their base name is. Nothing else is stripped: `gpt-6` doesn't find
        `gpt-6-luna`, and `google/gpt-6-luna` finds nothing.
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

    def served(self, requested: Model, name: str | None) -> Model | None:
        """The model that a provider named in its reply to a request for `requested`; None if the name is unknown.

        If the reply has no name, or another spelling of the requested one, the requested model was served.
        """
        if name is None or name == requested.id or (found := self.find(name)) is requested:
            return requested
        with_version = name.startswith(requested.id) and _VERSION.fullmatch(name, len(requested.id))
        with_owner = name.endswith(f"/{requested.id}") or requested.id.endswith(f"/{name}")
        return requested if found is None and (with_version or with_owner) else found

    def _find_snapshot(self, name: str) -> Model | None:
        match = _SNAPSHOT.fullmatch(name)
        if match is None:
            return None
        try:
            date.fromisoformat(match["date"])
        except ValueError:
            return None
        return self._by_name.get(match["base"])


_SNAPSHOT = re.compile(r"(?P<base>.+)[-@](?P<date>\d{4}-\d{2}-\d{2}|\d{8})")
_VERSION = re.compile(r"(?:[-@:.](?:\d+|latest|preview|exp))+")
"""What providers append to the name of the model they served."""
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
"""Prefixes before a slash, and the provider that each implies (None if several)."""


# -------------------------------------------------------------------------------------------------------- arithmetic


def cost_usd(model: Model, usage: Usage, on: date) -> float | None:
    """The cost of one call of `model` on that day, in US dollars; None (never 0) if no price applies.

    `usage` must be that of one call, since the price depends on the length of its input: add up costs, not usages. An
    input token is either read from the provider's cache, written to it, or plain; each kind has its own price.
    """
    price = model.price(on, usage.input_tokens)
    if price is None:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    plain = usage.input_tokens - cached - written
    return price.usd(plain=plain, cached=cached, written=written, output=usage.output_tokens)


# ------------------------------------------------------------------------------------------------------------ reading


def read_catalog(text: str, *, file: str = SHIPPED) -> Catalog:
    """Parse a catalog in TOML, which contains only `[[models]]` tables. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    if unknown := sorted(document.keys() - {"models"}):
        raise ConfigError(f"{file}: unknown key {unknown[0]!r}; a catalog contains only [[models]] tables")
    tables = document.get("models", [])
    if not isinstance(tables, list):
        raise ConfigError(f"{file}: models must be a list of tables; write [[models]] above each")
    models = (_read_model(table, n, file) for n, table in enumerate(cast("list[Any]", tables), start=1))
    return Catalog(models, file=file)


def _read_model(table: Any, n: int, file: str) -> Model:
    try:
        return Model.model_validate(table)
    except ValidationError as error:
        name = cast("Mapping[str, object]", table).get("id") if isinstance(table, Mapping) else None
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "table"
        known = Price if "prices" in first["loc"] else Model
        problem = hint_for(first, known.model_fields)
        raise _model_error(file, str(name or f"number {n}"), field, problem) from error


MAX_LISTED = 24
"""A message lists the keys of a table that has no more than this."""


def hint_for(error: ErrorDetails, known: Iterable[str]) -> str:
    """What is wrong with one field and how to fix it. `known` are the keys that its table may have."""
    if error["type"] == "missing":
        return "it is missing; add it"
    if error["type"] == "extra_forbidden":
        known = tuple(known)
        if meant := most_similar(str(error["loc"][-1]), known):
            return f"there is no such key; did you mean {meant}? If not, remove it"
        others = f", or use one of {', '.join(known)}" if len(known) <= MAX_LISTED else ""
        return f"there is no such key; remove it{others}"
    problem = problem_of(error)
    if error["type"] == "tuple_type" and isinstance(error["input"], dict):
        return f"{problem}, not one table; in TOML, write [[{error['loc'][-1]}]]"
    return problem if error["type"] == "value_error" else f"{problem}, not {error['input']!r:.80}"


def _model_error(file: str, model: str, field: str, problem: str) -> ConfigError:
    return ConfigError(f"{file}: model {model}: {field}: {problem}")
