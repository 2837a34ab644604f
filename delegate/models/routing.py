"""Selects the model that judges a verdict, and the model that a child runs on: pure functions over the catalog.

The judge is the cheapest model that is eligible for this verdict on this day. Nothing here reads the environment, the
clock or the network, so the same request always gives the same result, with a reason for every model that was skipped.
"""

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from delegate.models.catalog import Catalog, Model, cost_usd
from delegate.models.false_pass import FalsePassTable
from delegate.models.tiers import Bounds, is_above
from delegate.types import Candidate, Tier, Usage
from delegate.types.errors import CallError
from delegate.types.money import usd

KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}

EndpointKey = tuple[str, str | None]
"""(provider, endpoint). The endpoint is None for the provider's own."""
Available = frozenset[EndpointKey]
"""The endpoints that can be called: those with a key, and those that need none."""

CONTEXT_MARGIN = 1.1
"""Token counts are estimates, so a prompt must fit even when multiplied by this factor."""
NEAR_TIE = 1.1
"""Costs within this factor of the cheapest count as equal. Among equals, models of another family than the worker's
come first."""
LOOK_SHARE, LOOK_TOKENS = 0.6, 4_000
"""Calls that a judge needs besides its answer where it may look, on average, and the length of what a turn of looks
shows (docs/measurements.md)."""
NOTICE = timedelta(days=14)
"""A model that is shut down within this time is no longer chosen."""
MAX_SHOWN_NAME = 100
"""How many characters of an unknown name an error message repeats."""
_MAX_NAMED = 5
"""How many models a hint names where an unknown one was asked for."""
CHILD_INPUT_TOKENS, CHILD_OUTPUT_TOKENS = 20_000, 2_000
"""Estimated tokens of the model call by which models for children are compared. Half of its input is read from the
cache, since each turn repeats the conversation so far; the other half is new and written to the cache for the next
turn."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One verdict that needs a judge. Token counts are estimates by `tokens_of`."""

    worker: Model | None
    """The model that the child ran on; None if unknown."""
    evidence_tokens: int
    """The length of the whole prompt: instructions, criteria and evidence."""
    reply_tokens: int
    on: date
    available: Available
    pinned: str | None = None
    """The only model that may judge (the setting `judge_model`)."""
    ceiling: Tier | None = None
    """The highest tier of a judge; None sets no limit. The worker's own tier is a limit as well."""
    prefix_tokens: int = 0
    """The length of the prefix that all verdicts share, which a provider may have cached."""
    min_accuracy: float | None = None
    """The minimum measured accuracy of a judge; None requires no measurement."""
    other_than_family: str | None = None
    """A family that may not judge, because it has already judged this verdict."""
    priced_only: bool = False
    """Whether only models with a known price may judge, because a cost limit applies."""
    may_look: bool = False
    """Whether the judge may look at more than the page, so that several calls may be needed."""
    false_pass: FalsePassTable | None = None
    """Which judges may decide alone; they come first. None if all may."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The chosen judge, its alternatives, and the reasons why other models were skipped."""

    chosen: Model | None
    ranked: tuple[Model, ...]
    """All eligible models, best first. If one can't be reached, the next one judges."""
    candidates: tuple[Candidate, ...]
    """Every model of the catalog, ranked ones first. `reason` is None for the chosen one."""

    @property
    def why_none(self) -> str:
        """Why no model may judge: the two most frequent reasons, with the number of models that each rules out."""
        reasons = Counter(candidate.reason for candidate in self.candidates)
        listed = [f"{reason} ({count} of {reasons.total()} models)" for reason, count in reasons.most_common(2)]
        others = ["`judge.candidates` has the others"] if len(reasons) > len(listed) else []
        return f"no model may judge this: {'; '.join([*listed, *others])}"


def coarse(tokens: int) -> int:
    """An estimate rounded up by at most a sixteenth, so that similar verdicts share one choice of a judge."""
    step = 1 << max(tokens.bit_length() - 5, 0)
    return -(-tokens // step) * step


@lru_cache(256)
def choose_judge(catalog: Catalog, request: JudgeRequest) -> Routing:
    """The cheapest eligible judge at that day's prices; near ties go to another family than the worker's.

    With `false_pass`, judges that may decide alone come before all others. With `pinned`, that model or none. Equal
    models are ordered by ID. Cached, since otherwise it would take a third of a verdict's CPU time.
    """
    costs = {model.id: cost_usd(model, _verdict_usage(model, request), request.on) for model in catalog.models}
    reasons = {model.id: _skip_reason(catalog, model, costs[model.id], request) for model in catalog.models}
    if request.pinned is not None:
        only = catalog.find(request.pinned)
        why = f"judge_model is set to {request.pinned}{'' if only else ', which is not in the catalog'}"
        reasons |= {id: why for id in reasons if only is None or id != only.id}
    eligible = [model for model in catalog.models if reasons[model.id] is None]
    alone = [model for model in eligible if _decides_alone(model, request)]
    others = [model for model in eligible if not _decides_alone(model, request)]
    ranked = _rank(alone, costs, request.worker) + _rank(others, costs, request.worker)
    for model in ranked[1:]:
        reasons[model.id] = _why_not_first(model, ranked[0], costs, request)
    ranks = {model.id: rank for rank, model in enumerate(ranked, start=1)}
    shown = (*ranked, *(model for model in catalog.models if model.id not in ranks))
    candidates = tuple(
        Candidate(
            model=model.id,
            rank=ranks.get(model.id),
            provider=model.provider,
            tier=model.tier,
            family=model.family,
            estimated_cost_usd=costs[model.id],
            reason=reasons[model.id],
        )
        for model in shown
    )
    return Routing(ranked[0] if ranked else None, ranked, candidates)


@lru_cache(32)
def largest_context(catalog: Catalog, available: Available, pinned: str | None) -> int:
    """The context length of the largest model that may judge, in tokens; that of the smallest page if none may."""
    only = catalog.find(pinned) if pinned else None
    models = [only] if only else catalog.models
    lengths = [model.context_tokens for model in models if model.structured_output and _is_reachable(model, available)]
    return max(lengths, default=8_000)


def _verdict_usage(model: Model, request: JudgeRequest) -> Usage:
    """The estimated usage of a verdict's model call, in the model's own tokens.

    A provider that caches automatically reads a long enough prefix from its cache, and writes the rest of a long enough
    prompt to it, which some providers charge for.
    """
    evidence, prefix = model.tokens(request.evidence_tokens), model.tokens(request.prefix_tokens)
    least = model.caches_from_tokens or math.inf
    cached = min(prefix, evidence) if prefix >= least else 0
    more = LOOK_SHARE if request.may_look else 0.0
    again = int(more * (evidence + model.tokens(LOOK_TOKENS)))  # a call after looks sends all of it again
    return Usage(
        model_calls=1,
        input_tokens=evidence + again,
        cached_tokens=cached + (int(more * evidence) if evidence >= least else 0),
        cache_write_tokens=evidence - cached if evidence >= least else 0,
        output_tokens=int((1 + more) * model.tokens(request.reply_tokens)),
    )


def _skip_reason(catalog: Catalog, model: Model, cost: float | None, request: JudgeRequest) -> str | None:
    """Why this model can't judge. The key is checked last, so that "no key" means that only the key is missing."""
    return (
        _incapable(model, request)
        or _unwanted(model, request)
        or (_unpriced(catalog, model, request.priced_only) if cost is None else None)
        or (None if _is_reachable(model, request.available) else f"no key ({_how_to_enable(model)})")
    )


def _incapable(model: Model, request: JudgeRequest) -> str | None:
    if not model.structured_output:
        return "no structured output"
    if deprecated := _deprecated(model, request.on):
        return deprecated
    evidence, reply = model.tokens(request.evidence_tokens), model.tokens(request.reply_tokens)
    reply += model.tokens(LOOK_TOKENS) if request.may_look else 0
    if (evidence + reply) * CONTEXT_MARGIN > model.context_tokens:
        return f"evidence of ~{evidence} tokens does not fit its context of {model.context_tokens}"
    return None


def _unwanted(model: Model, request: JudgeRequest) -> str | None:
    if request.worker and is_above(model.tier, request.worker.tier):
        return f"tier {model.tier} is above the worker's {request.worker.tier}"
    if request.ceiling and is_above(model.tier, request.ceiling):
        return f"tier {model.tier} is above {request.ceiling}, the highest tier allowed"
    least, measured = request.min_accuracy, model.accuracy
    if least is not None and measured is None:
        return f"accuracy was never measured; judges need at least {least:g}"
    if least is not None and measured is not None and measured < least:
        return f"accuracy {measured:g} is below the required {least:g}"
    return "same family as the previous judge" if model.family == request.other_than_family else None


def _unpriced(catalog: Catalog, model: Model, priced_only: bool) -> str | None:
    """Why a model without a price can't be used; None if an operator declared it and no cost limit applies."""
    if priced_only:
        return "price unknown, but a cost limit is set"
    return None if catalog.is_declared(model) else "price unknown, and the model is not declared in the settings"


def _deprecated(model: Model, on: date) -> str | None:
    if model.deprecated_on is None or model.deprecated_on > on + NOTICE:
        return None
    return f"deprecated: shut down on {model.deprecated_on}"


def _is_reachable(model: Model, available: Available) -> bool:
    return (model.provider, model.endpoint) in available


def _how_to_enable(model: Model) -> str:
    if model.endpoint and not model.key_env:
        return f"set the key of the endpoint {model.endpoint}"
    variable = model.key_env or KEY_VARIABLES.get(model.provider)
    return f"set {variable}" if variable else f"the provider {model.provider} is not set up"


def _rank(models: list[Model], costs: dict[str, float | None], worker: Model | None) -> tuple[Model, ...]:
    """Cheapest first; among near ties, other families first; unknown prices last."""
    priced = sorted((cost, model.id, model) for model in models if (cost := costs[model.id]) is not None)
    unpriced = sorted((0.0, model.id, model) for model in models if costs[model.id] is None)
    family = worker.family if worker else None
    ranked: list[Model] = []
    for group in (*_near_ties(priced), unpriced):
        ranked += [model for _, _, model in group if model.family != family]
        ranked += [model for _, _, model in group if model.family == family]
    return tuple(ranked)


def _near_ties(priced: list[tuple[float, str, Model]]) -> Iterable[list[tuple[float, str, Model]]]:
    """Split a list sorted by cost into groups; each contains the costs that are close to its lowest one."""
    group: list[tuple[float, str, Model]] = []
    for entry in priced:
        if group and entry[0] > group[0][0] * NEAR_TIE:
            yield group
            group = []
        group.append(entry)
    yield group


def _decides_alone(model: Model, request: JudgeRequest) -> bool:
    table = request.false_pass
    return table is None or table.decides_alone(model.id, request.worker.id if request.worker else None)


def _why_not_first(model: Model, chosen: Model, costs: dict[str, float | None], request: JudgeRequest) -> str:
    worker, table = request.worker, request.false_pass
    if table is not None and _decides_alone(chosen, request) and not _decides_alone(model, request):
        return table.doubt(model.id, worker.id if worker else None)
    cost, least = costs[model.id], costs[chosen.id]
    if cost is None and least is not None:
        return "price unknown; models with a known price come first"
    if cost is not None and least is not None and cost > least:
        return f"costs {usd(cost, 'exact')}, the chosen model costs {usd(least, 'exact')}"
    if worker and model.family == worker.family != chosen.family:
        return "near tie, but same family as the worker"
    known = "price unknown" if cost is None else f"costs {usd(cost, 'exact')}"
    return f"{known}, like the chosen model; equal models are ordered by name"


# ----------------------------------------------------------------------------------------------------------- children


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """One task that needs a model."""

    bounds: Bounds
    """The tiers that its parent allows."""
    available: Available
    on: date
    tier: Tier | None = None
    """The requested tier."""
    model: str | None = None
    """The requested model, by any of its names. It takes precedence over `tier`."""
    usual_tier: Tier = "standard"
    """The default tier; if it is out of bounds, the closest tier within them is used."""
    priced_only: bool = False
    """Whether only models with a known price may be used, because a cost limit applies."""


@lru_cache(256)
def choose_child(catalog: Catalog, request: ChildRequest) -> Model:
    """The model that a child runs on: the requested one, else the cheapest of the tier. Cached, as `choose_judge` is.

    Raises CallError `unknown_model`, `tier_above_parent`, `tier_below_floor`, `unknown_price`, `no_api_key` or
    `no_model_for_tier`.
    """
    if request.model is None:
        return _of_tier(catalog, request)[0]
    model = catalog.find(request.model)
    if model is None:
        raise _unknown_model(catalog, request.model, request)
    _refuse_out_of_bounds(request.bounds, model.tier, f"model {model.id} has tier {model.tier}, which", "model")
    if not _is_reachable(model, request.available):
        message = f"model {model.id} can't be called: there is no API key for it"
        raise CallError("no_api_key", message, field="model", hint=f"{_how_to_enable(model)}, or request another model")
    if why := _missing_price(catalog, model, request):
        hint = "declare its prices in delegate.toml (0 if it is free), or request another model"
        raise CallError("unknown_price", f"model {model.id} can't be used: {why}", field="model", hint=hint)
    return model


@lru_cache(256)
def other_children(catalog: Catalog, request: ChildRequest) -> tuple[Model, ...]:
    """The models of the same tier that a child may run on if the chosen one fails, cheapest first.

    There are none for a model that was requested.
    """
    return () if request.model is not None else tuple(_of_tier(catalog, request)[1:])


def _of_tier(catalog: Catalog, request: ChildRequest) -> list[Model]:
    """The models of the requested tier that a child may run on, cheapest first. Raises CallError if there are none."""
    tier = request.tier or request.bounds.clamp(request.usual_tier)
    _refuse_out_of_bounds(request.bounds, tier, f"tier {tier}", "tier")
    reachable = [model for model in catalog.models if _is_reachable(model, request.available)]
    suitable = [model for model in reachable if _unsuitable(catalog, model, request) is None]
    of_tier = [model for model in suitable if model.tier == tier]
    if not reachable:
        lacking = [model for model in catalog.models if model.tier == tier] or catalog.models
        hint = ", or ".join([*_missing_keys(lacking, request), "see docs/local-models.md"])
        raise CallError("no_api_key", "no model can be called: there is no API key", hint=hint)
    if not of_tier:
        raise _no_model_for_tier(catalog, tier, suitable, request)
    costs = {model.id: usual_child_usd(model, request.on) for model in of_tier}
    return sorted(of_tier, key=lambda model: (costs[model.id] is None, costs[model.id] or 0, model.id))


def _unsuitable(catalog: Catalog, model: Model, request: ChildRequest) -> str | None:
    """Why a model isn't chosen for a child. For a requested model, only a missing price matters."""
    if not model.tools:
        return "it can't call tools"
    return _deprecated(model, request.on) or _missing_price(catalog, model, request)


def _missing_price(catalog: Catalog, model: Model, request: ChildRequest) -> str | None:
    is_priced = model.price(request.on, model.tokens(CHILD_INPUT_TOKENS)) is not None
    return None if is_priced else _unpriced(catalog, model, request.priced_only)


def usual_child_usd(model: Model, on: date) -> float | None:
    """The cost of the model call by which models for children are compared; None if no price applies."""
    input_tokens = model.tokens(CHILD_INPUT_TOKENS)
    usage = Usage(
        model_calls=1,
        input_tokens=input_tokens,
        cached_tokens=input_tokens // 2,
        cache_write_tokens=input_tokens - input_tokens // 2,
        output_tokens=model.tokens(CHILD_OUTPUT_TOKENS),
    )
    return cost_usd(model, usage, on)


def _refuse_out_of_bounds(bounds: Bounds, tier: Tier, what: str, field: str) -> None:
    if tier in bounds.allowed():
        return
    hint = f"leave {field} out, or use one of these tiers: {', '.join(bounds.allowed())}"
    if is_above(tier, bounds.ceiling):
        message = f"{what} is above {bounds.ceiling}, the highest tier that this parent may delegate to"
        raise CallError("tier_above_parent", message, field=field, hint=hint)
    message = f"{what} is below {bounds.floor}, the lowest tier that the settings allow"
    raise CallError("tier_below_floor", message, field=field, hint=hint)


def _unknown_model(catalog: Catalog, name: str, request: ChildRequest) -> CallError:
    allowed = request.bounds.allowed()
    usable = sorted(
        model.id for model in catalog.models if _is_reachable(model, request.available) and model.tier in allowed
    )
    shown = name[:MAX_SHOWN_NAME]
    near = difflib.get_close_matches(shown, usable, n=3)
    near += [id for id in usable if id not in near][: max(0, _MAX_NAMED - len(near))]
    hint = f"use one of: {', '.join(near)}; or leave model out" if near else "leave model out"
    return CallError("unknown_model", f"there is no model {shown!r} in the catalog", field="model", hint=hint)


def _no_model_for_tier(catalog: Catalog, tier: Tier, suitable: Sequence[Model], request: ChildRequest) -> CallError:
    """The error lists the tiers that have a model, and why each reachable model of this tier can't be used."""
    of_tier = [model for model in catalog.models if model.tier == tier]
    others = [other for other in request.bounds.allowed() if any(model.tier == other for model in suitable)]
    message = f"no model of tier {tier} can be used"
    message += f"; tiers with a model: {', '.join(others)}" if others else ""
    for model in of_tier:
        if _is_reachable(model, request.available):
            message += f"; {model.id}: {_unsuitable(catalog, model, request)}"
    fixes = [f"request tier {' or '.join(others)}"] if others else []
    fixes += _missing_keys([model for model in of_tier if _unsuitable(catalog, model, request) is None], request)
    return CallError("no_model_for_tier", message, field="tier", hint=", or ".join(fixes) or None)


def _missing_keys(models: Iterable[Model], request: ChildRequest) -> list[str]:
    return sorted({_how_to_enable(model) for model in models if not _is_reachable(model, request.available)})
