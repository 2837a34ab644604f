"""Who judges, and on what a child runs: pure functions over the catalog.

A judge is the cheapest model that may judge this verdict today. Nothing here reads the environment, the clock or the
network, so that the same request always gives the same answer, with a reason for every model that was passed over.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from delegate.catalog import Catalog, Model, cost_usd
from delegate.errors import CallError
from delegate.tiers import Bounds, is_above, weaker
from delegate.types import TIERS, Candidate, Tier, Usage

KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}

Place = tuple[str, str | None]
"""(provider, endpoint): the provider's own endpoint is named None."""
Available = frozenset[Place]
"""The (provider, endpoint) pairs that can be called: a key is there, or the endpoint wants none."""

CONTEXT_MARGIN = 1.1
"""Token counts are estimates; a prompt must fit with this much to spare."""
NEAR_TIE = 1.1
"""Costs within this factor of the cheapest are as good as equal, and another family than the worker's goes first."""
NOTICE = timedelta(days=14)
"""A model that is switched off within this time isn't chosen any more."""
CHILD_CALLS = Usage(model_calls=1, input_tokens=20_000, cached_tokens=10_000, output_tokens=2_000)
"""What children are compared by. Half of the input is cached, since each turn repeats the conversation so far."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One verdict that needs a judge. Tokens are estimates."""

    worker: Model | None
    """What the child ran on; None when unknown."""
    evidence_tokens: int
    """The whole prompt: card, criteria and evidence."""
    reply_tokens: int
    on: date
    available: Available
    pinned: str | None = None
    """The only model that may judge (the setting `judge_model`)."""
    ceiling: Tier | None = None
    """The highest tier for any judge; None sets no limit. The worker's own tier is a limit as well."""
    prefix_tokens: int = 0
    """How much of the prompt is the same for every verdict, so that a provider may have it in its cache."""
    min_accuracy: float | None = None
    """The least measured accuracy of a judge; None asks for no measurement."""
    other_than_family: str | None = None
    """A family that may not judge, since it has judged already."""
    priced_only: bool = False
    """Only models whose price is known may judge, since a limit on cost must be kept."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Who judges, who comes next, and why not the others."""

    chosen: Model | None
    ranked: tuple[Model, ...]
    """All that may judge, best first: when one can't be reached, the next is asked."""
    candidates: tuple[Candidate, ...]
    """Every model of the catalog, the ranked ones first. `reason` is None for the chosen one."""


@lru_cache(256)
def choose_judge(catalog: Catalog, request: JudgeRequest) -> Routing:
    """The cheapest eligible judge at that day's prices; near ties go to another family than the worker's.

    With `pinned`, that model or none. Equals rank by id. Kept for like requests: a verdict's whole CPU is 0.4 ms, and
    this would be a quarter of it.
    """
    usage = Usage(model_calls=1, input_tokens=request.evidence_tokens, output_tokens=request.reply_tokens)
    costs = {model.id: cost_usd(model, usage, request.on) for model in catalog.models}
    reasons = _obstacles(catalog, request)
    open_ = [model for model in catalog.models if reasons[model.id] is None]
    ranked = _rank(open_, costs, request.worker)
    for model in ranked[1:]:
        reasons[model.id] = _why_behind(model, ranked[0], costs, request.worker)
    eligible = {model.id for model in ranked}
    shown = (*ranked, *(model for model in catalog.models if model.id not in eligible))
    candidates = tuple(_candidate(model, costs[model.id], reasons[model.id]) for model in shown)
    return Routing(ranked[0] if ranked else None, ranked, candidates)


def _obstacles(catalog: Catalog, request: JudgeRequest) -> dict[str, str | None]:
    """Why each model may not judge this verdict; None for those that may."""
    limit = weaker(request.worker.tier if request.worker else None, request.ceiling)
    if request.pinned is None:
        return {model.id: _obstacle(model, limit, request) for model in catalog.models}
    found = catalog.find(request.pinned)
    why = f"judge_model is set to {request.pinned}{'' if found else ', which is not in the catalog'}"
    reasons: dict[str, str | None] = dict.fromkeys((model.id for model in catalog.models), why)
    if found:
        reasons[found.id] = _obstacle(found, limit, request)
    return reasons


def _obstacle(model: Model, limit: Tier | None, request: JudgeRequest) -> str | None:
    """Why this model may not judge. The key comes last: "no key" then means that a key is all it takes."""
    if not model.structured_output:
        return "no structured output"
    if leaving := _leaving(model, request.on):
        return leaving
    if limit and is_above(model.tier, limit):
        return f"tier {model.tier} is above the worker's {limit}"
    needed = request.evidence_tokens + request.reply_tokens
    if needed * CONTEXT_MARGIN > model.context_tokens:
        return f"evidence of ~{request.evidence_tokens} tokens does not fit its context of {model.context_tokens}"
    return None if _is_reachable(model, request.available) else _no_key(model)


def _leaving(model: Model, on: date) -> str | None:
    if model.deprecated_on is None or model.deprecated_on > on + NOTICE:
        return None
    return f"deprecated: switched off on {model.deprecated_on}"


def _is_reachable(model: Model, available: Available) -> bool:
    return (model.provider, model.endpoint) in available


def _no_key(model: Model) -> str:
    return f"no key ({_how_to_reach(model)})"


def _how_to_reach(model: Model) -> str:
    if model.endpoint:
        return f"set the key of the endpoint {model.endpoint}"
    variable = KEY_VARIABLES.get(model.provider)
    return f"set {variable}" if variable else f"the provider {model.provider} is not set up"


def _rank(models: list[Model], costs: dict[str, float | None], worker: Model | None) -> tuple[Model, ...]:
    """Cheapest first; runs of near ties put other families first; unknown prices come last."""
    priced = sorted((cost, model.id, model) for model in models if (cost := costs[model.id]) is not None)
    unpriced = sorted((0.0, model.id, model) for model in models if costs[model.id] is None)
    family = worker.family if worker else None
    ranked: list[Model] = []
    for group in (*_near_ties(priced), unpriced):
        ranked += [model for _, _, model in group if model.family != family]
        ranked += [model for _, _, model in group if model.family == family]
    return tuple(ranked)


def _near_ties(priced: list[tuple[float, str, Model]]) -> Iterable[list[tuple[float, str, Model]]]:
    """Cut a list in order of cost into runs; each holds what is near its own cheapest."""
    group: list[tuple[float, str, Model]] = []
    for entry in priced:
        if group and entry[0] > group[0][0] * NEAR_TIE:
            yield group
            group = []
        group.append(entry)
    yield group


def _why_behind(model: Model, chosen: Model, costs: dict[str, float | None], worker: Model | None) -> str:
    cost, least = costs[model.id], costs[chosen.id]
    if cost is None or least is None:
        return "price unknown"
    if cost <= least * NEAR_TIE and worker and model.family == worker.family != chosen.family:
        return "same family as the worker; near tie"
    if cost == least:
        return f"costs {_usd(cost)}, like the chosen one; equals go by name"
    return f"costs {_usd(cost)}, chosen costs {_usd(least)}"


def _usd(amount: float) -> str:
    return f"${amount:.6f}".rstrip("0").rstrip(".")


def _candidate(model: Model, cost: float | None, reason: str | None) -> Candidate:
    return Candidate(
        model=model.id,
        provider=model.provider,
        tier=model.tier,
        family=model.family,
        estimated_cost_usd=cost,
        reason=reason,
    )


# ----------------------------------------------------------------------------------------------------------- children


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """One task that needs a model."""

    bounds: Bounds
    """The tiers that its parent may give it."""
    available: Available
    on: date
    tier: Tier | None = None
    """The tier that was asked for."""
    model: str | None = None
    """The model that was asked for, by any of its names; it outranks `tier`."""
    usual_tier: Tier = "standard"
    """The tier where none was asked for, or the nearest one within the bounds."""
    priced_only: bool = False
    """Only models whose price is known, since a limit on cost must be kept."""


def choose_child(catalog: Catalog, request: ChildRequest) -> Model:
    """The model that a child runs on: the one asked for, else the cheapest of the tier.

    Raises CallError `unknown_model`, `tier_above_parent`, `tier_below_floor`, `unknown_price`, `no_api_key` or
    `no_model_for_tier`.
    """
    if request.model is not None:
        return _named_child(catalog, request.model, request)
    tier = request.tier or request.bounds.clamp(request.usual_tier)
    _refuse_out_of_bounds(request.bounds, tier, f"tier {tier}", "tier")
    of_tier = [each for each in catalog.models if each.tier == tier and _can_work(catalog, each, request)]
    reachable = [each for each in of_tier if _is_reachable(each, request.available)]
    if not reachable:
        raise _nothing_reachable(catalog, tier, of_tier, request)
    return min(reachable, key=lambda each: _child_order(each, request.on))


def _can_work(catalog: Catalog, model: Model, request: ChildRequest) -> bool:
    """Whether a model may be chosen for a child; one that is named needs only a price where cost is limited."""
    is_priced = model.price(request.on, 0) is not None
    may_be_unpriced = catalog.is_declared(model) and not request.priced_only
    return model.tools and not _leaving(model, request.on) and (is_priced or may_be_unpriced)


def _child_order(model: Model, on: date) -> tuple[bool, float, str]:
    cost = cost_usd(model, CHILD_CALLS, on)
    return cost is None, cost or 0, model.id


def _named_child(catalog: Catalog, name: str, request: ChildRequest) -> Model:
    model = catalog.find(name)
    if model is None:
        raise _unknown_model(catalog, name, request)
    _refuse_out_of_bounds(request.bounds, model.tier, f"model {model.id} is of tier {model.tier}, which", "model")
    if not _is_reachable(model, request.available):
        message = f"model {model.id} can't be called: no key"
        raise CallError("no_api_key", message, field="model", hint=f"{_how_to_reach(model)}, or name another model")
    _refuse_unpriced(catalog, model, request)
    return model


def _refuse_unpriced(catalog: Catalog, model: Model, request: ChildRequest) -> None:
    if model.price(request.on, 0) is not None or (catalog.is_declared(model) and not request.priced_only):
        return
    why = "a limit on cost can't be kept" if request.priced_only else "its cost would be unknown"
    hint = "declare its prices in delegate.toml (0 where it is free), or name another model"
    raise CallError("unknown_price", f"the price of {model.id} is unknown: {why}", field="model", hint=hint)


def _refuse_out_of_bounds(bounds: Bounds, tier: Tier, what: str, field: str) -> None:
    if tier in bounds.allowed():
        return
    hint = f"ask for one of these tiers, or leave {field} out: {', '.join(bounds.allowed())}"
    if is_above(tier, bounds.ceiling):
        message = f"{what} is above {bounds.ceiling}, the highest that this parent may give"
        raise CallError("tier_above_parent", message, field=field, hint=hint)
    message = f"{what} is below {bounds.floor}, the lowest that the settings allow"
    raise CallError("tier_below_floor", message, field=field, hint=hint)


def _unknown_model(catalog: Catalog, name: str, request: ChildRequest) -> CallError:
    allowed = request.bounds.allowed()
    usable = sorted(
        model.id for model in catalog.models if _is_reachable(model, request.available) and model.tier in allowed
    )
    near = difflib.get_close_matches(name, usable, n=3) or usable
    hint = f"use one of: {', '.join(near)}; or leave model out" if near else "leave model out"
    return CallError("unknown_model", f"there is no model {name!r} in the catalog", field="model", hint=hint)


def _nothing_reachable(catalog: Catalog, tier: Tier, of_tier: list[Model], request: ChildRequest) -> CallError:
    available = request.available
    out_of_reach = [model for model in of_tier or catalog.models if not _is_reachable(model, available)]
    mends = sorted({_how_to_reach(model) for model in out_of_reach})
    reachable = {model.tier for model in catalog.models if _is_reachable(model, available)}
    tiers: list[Tier] = [other for other in TIERS if other in reachable]
    if not tiers:
        hint = ", or ".join(mends) or None
        return CallError("no_api_key", "no model can be called: there is no API key", hint=hint)
    if allowed := [other for other in tiers if other in request.bounds.allowed()]:
        mends.insert(0, f"ask for tier {' or '.join(allowed)}")
    message = f"no model of tier {tier} can be called; tiers that can: {', '.join(tiers)}"
    return CallError("no_model_for_tier", message, field="tier", hint=", or ".join(mends) or None)
