"""Who judges, and on what a child runs: pure functions over the catalog.

A judge is the cheapest model that may judge this verdict today. Nothing here reads the environment, the clock or the
network, so that the same request always gives the same answer, with a reason for every model that was passed over.
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from delegate.errors import CallError
from delegate.models.catalog import Catalog, Model, cost_usd
from delegate.models.tiers import Bounds, is_above
from delegate.types import Candidate, Tier, Usage

KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}

EndpointKey = tuple[str, str | None]
"""(provider, endpoint): the provider's own endpoint is named None."""
Available = frozenset[EndpointKey]
"""The (provider, endpoint) pairs that can be called: a key is there, or the endpoint wants none."""

CONTEXT_MARGIN = 1.1
"""Token counts are estimates; a prompt must fit with this much to spare."""
NEAR_TIE = 1.1
"""Costs within this factor of the cheapest are as good as equal, and another family than the worker's goes first."""
NOTICE = timedelta(days=14)
"""A model that is switched off within this time isn't chosen any more."""
SHOWN_NAME = 100
"""How much of a name that nobody knows is repeated, in characters."""
CHILD_READS, CHILD_WRITES = 20_000, 2_000
"""Estimated tokens of a call that children are compared by. Half of what it reads is cached, since each turn repeats
the conversation so far; the other half is new, and written to the cache for the next turn."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One verdict that needs a judge. Tokens are estimates, before any model's own way to count them."""

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
    this would be half of it.
    """
    costs = _costs(catalog, request)
    reasons = _obstacles(catalog, request, costs)
    ranked = _rank([model for model in catalog.models if reasons[model.id] is None], costs, request.worker)
    for model in ranked[1:]:
        reasons[model.id] = _why_behind(model, ranked[0], costs, request.worker)
    places = {model.id: place for place, model in enumerate(ranked, start=1)}
    shown = (*ranked, *(model for model in catalog.models if model.id not in places))
    candidates = tuple(_candidate(model, places.get(model.id), costs, reasons) for model in shown)
    return Routing(ranked[0] if ranked else None, ranked, candidates)


def _costs(catalog: Catalog, request: JudgeRequest) -> dict[str, float | None]:
    """What this verdict would cost with each model, in US dollars; None where no price is in force."""
    return {model.id: cost_usd(model, _verdict(model, request), request.on) for model in catalog.models}


def _verdict(model: Model, request: JudgeRequest) -> Usage:
    """The one call of a verdict, in the model's own tokens.

    A provider that caches unasked reads a long enough prefix from its cache, and writes the rest of a long enough
    prompt to it, which some charge for.
    """
    evidence, prefix = model.tokens(request.evidence_tokens), model.tokens(request.prefix_tokens)
    least = model.caches_from_tokens or math.inf
    cached = min(prefix, evidence) if prefix >= least else 0
    return Usage(
        model_calls=1,
        input_tokens=evidence,
        cached_tokens=cached,
        cache_write_tokens=evidence - cached if evidence >= least else 0,
        output_tokens=model.tokens(request.reply_tokens),
    )


def _obstacles(catalog: Catalog, request: JudgeRequest, costs: dict[str, float | None]) -> dict[str, str | None]:
    """Why each model may not judge this verdict; None for those that may."""
    reasons = {model.id: _obstacle(catalog, model, costs[model.id], request) for model in catalog.models}
    if request.pinned is None:
        return reasons
    only = catalog.find(request.pinned)
    why = f"judge_model is set to {request.pinned}{'' if only else ', which is not in the catalog'}"
    return {id: reason if only and id == only.id else why for id, reason in reasons.items()}


def _obstacle(catalog: Catalog, model: Model, cost: float | None, request: JudgeRequest) -> str | None:
    """Why this model may not judge. The key comes last: "no key" then means that a key is all it takes."""
    return (
        _unable(model, request)
        or _too_strong(model, request)
        or _unwanted(model, request)
        or (_unpriced(catalog, model, request.priced_only) if cost is None else None)
        or (None if _is_reachable(model, request.available) else f"no key ({_how_to_reach(model)})")
    )


def _unable(model: Model, request: JudgeRequest) -> str | None:
    if not model.structured_output:
        return "no structured output"
    if leaving := _leaving(model, request.on):
        return leaving
    evidence, reply = model.tokens(request.evidence_tokens), model.tokens(request.reply_tokens)
    if (evidence + reply) * CONTEXT_MARGIN > model.context_tokens:
        return f"evidence of ~{evidence} tokens does not fit its context of {model.context_tokens}"
    return None


def _too_strong(model: Model, request: JudgeRequest) -> str | None:
    if request.worker and is_above(model.tier, request.worker.tier):
        return f"tier {model.tier} is above the worker's {request.worker.tier}"
    if request.ceiling and is_above(model.tier, request.ceiling):
        return f"tier {model.tier} is above {request.ceiling}, the highest that may be used"
    return None


def _unwanted(model: Model, request: JudgeRequest) -> str | None:
    least, measured = request.min_accuracy, model.judge_accuracy
    if least is not None and measured is None:
        return f"accuracy never measured; judges need {least:g}"
    if least is not None and measured is not None and measured < least:
        return f"accuracy {measured:g} is below the {least:g} that judges need"
    return "same family as the judge before" if model.family == request.other_than_family else None


def _unpriced(catalog: Catalog, model: Model, priced_only: bool) -> str | None:
    """Why a model without a price may not be used; None where an operator declared it so, and no cost is limited."""
    if priced_only:
        return "price unknown, and a limit on cost must be kept"
    return None if catalog.is_declared(model) else "price unknown, and not declared in the settings"


def _leaving(model: Model, on: date) -> str | None:
    if model.deprecated_on is None or model.deprecated_on > on + NOTICE:
        return None
    return f"deprecated: switched off on {model.deprecated_on}"


def _is_reachable(model: Model, available: Available) -> bool:
    return (model.provider, model.endpoint) in available


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
    if cost is None and least is not None:
        return "price unknown; known prices go first"
    if cost is not None and least is not None and cost > least:
        return f"costs {_usd(cost)}, chosen costs {_usd(least)}"
    if worker and model.family == worker.family != chosen.family:
        return "same family as the worker; near tie"
    known = "price unknown" if cost is None else f"costs {_usd(cost)}"
    return f"{known}, like the chosen one; equals go by name"


def _usd(amount: float) -> str:
    """With all digits, so that of two unlike costs the lesser can be seen."""
    return f"${amount:.9f}".rstrip("0").rstrip(".")


def _candidate(
    model: Model, rank: int | None, costs: dict[str, float | None], reasons: dict[str, str | None]
) -> Candidate:
    return Candidate(
        model=model.id,
        rank=rank,
        provider=model.provider,
        tier=model.tier,
        family=model.family,
        estimated_cost_usd=costs[model.id],
        reason=reasons[model.id],
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
    reachable = [model for model in catalog.models if _is_reachable(model, request.available)]
    fit = [model for model in reachable if _unfit(catalog, model, request) is None]
    of_tier = [model for model in fit if model.tier == tier]
    if not reachable:
        raise _no_key_at_all(catalog, tier, request)
    if not of_tier:
        raise _none_of_tier(catalog, tier, fit, request)
    return min(of_tier, key=lambda model: _child_order(model, request.on))


def _unfit(catalog: Catalog, model: Model, request: ChildRequest) -> str | None:
    """Why a model isn't chosen for a child; one that is named needs only its price."""
    if not model.tools:
        return "it can't call tools"
    return _leaving(model, request.on) or _without_price(catalog, model, request)


def _without_price(catalog: Catalog, model: Model, request: ChildRequest) -> str | None:
    is_priced = model.price(request.on, model.tokens(CHILD_READS)) is not None
    return None if is_priced else _unpriced(catalog, model, request.priced_only)


def _child_order(model: Model, on: date) -> tuple[bool, float, str]:
    cost = usual_child_usd(model, on)
    return cost is None, cost or 0, model.id


def usual_child_usd(model: Model, on: date) -> float | None:
    """What a child of the size by which models are compared would cost; None where no price is in force."""
    read = model.tokens(CHILD_READS)
    usage = Usage(
        model_calls=1,
        input_tokens=read,
        cached_tokens=read // 2,
        cache_write_tokens=read - read // 2,
        output_tokens=model.tokens(CHILD_WRITES),
    )
    return cost_usd(model, usage, on)


def _named_child(catalog: Catalog, name: str, request: ChildRequest) -> Model:
    model = catalog.find(name)
    if model is None:
        raise _unknown_model(catalog, name, request)
    _refuse_out_of_bounds(request.bounds, model.tier, f"model {model.id} is of tier {model.tier}, which", "model")
    if not _is_reachable(model, request.available):
        message = f"model {model.id} can't be called: no key"
        raise CallError("no_api_key", message, field="model", hint=f"{_how_to_reach(model)}, or name another model")
    if why := _without_price(catalog, model, request):
        hint = "declare its prices in delegate.toml (0 where it is free), or name another model"
        raise CallError("unknown_price", f"model {model.id} can't be used: {why}", field="model", hint=hint)
    return model


def _refuse_out_of_bounds(bounds: Bounds, tier: Tier, what: str, field: str) -> None:
    if tier in bounds.allowed():
        return
    hint = f"leave {field} out, or keep to these tiers: {', '.join(bounds.allowed())}"
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
    shown = name[:SHOWN_NAME]
    near = difflib.get_close_matches(shown, usable, n=3) or usable
    hint = f"use one of: {', '.join(near)}; or leave model out" if near else "leave model out"
    return CallError("unknown_model", f"there is no model {shown!r} in the catalog", field="model", hint=hint)


def _no_key_at_all(catalog: Catalog, tier: Tier, request: ChildRequest) -> CallError:
    of_tier = [model for model in catalog.models if model.tier == tier]
    hint = ", or ".join(_mends(of_tier or catalog.models, request)) or None
    return CallError("no_api_key", "no model can be called: there is no API key", hint=hint)


def _none_of_tier(catalog: Catalog, tier: Tier, fit: Sequence[Model], request: ChildRequest) -> CallError:
    """Names the tiers that would do, and what is against the models of this one that could be reached."""
    of_tier = [model for model in catalog.models if model.tier == tier]
    others = [other for other in request.bounds.allowed() if any(model.tier == other for model in fit)]
    message = f"no model of tier {tier} can be called"
    message += f"; tiers that can: {', '.join(others)}" if others else ""
    for model in of_tier:
        if _is_reachable(model, request.available):
            message += f"; {model.id}: {_unfit(catalog, model, request)}"
    mends = [f"ask for tier {' or '.join(others)}"] if others else []
    mends += _mends([model for model in of_tier if _unfit(catalog, model, request) is None], request)
    return CallError("no_model_for_tier", message, field="tier", hint=", or ".join(mends) or None)


def _mends(models: Iterable[Model], request: ChildRequest) -> list[str]:
    return sorted({_how_to_reach(model) for model in models if not _is_reachable(model, request.available)})
