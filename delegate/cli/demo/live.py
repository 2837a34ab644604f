"""Selects the user's own model for `delegate demo --live`, estimates the cost and asks for confirmation."""

import asyncio
import os
import sys
from datetime import date
from pathlib import Path

import typer

from delegate.cli.doctor.probe import ServedModels, ask
from delegate.cli.input.choice import choose
from delegate.delegator import Delegator
from delegate.models.catalog import cost_usd
from delegate.models.connections import find_endpoints
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.policy.settings import Settings, load_settings
from delegate.types import Usage
from delegate.types.errors import CallError
from delegate.types.money import usd

CHILD = Usage(model_calls=5, input_tokens=12_000, output_tokens=1_500)
"""Approximate usage of one child of the demo."""
JUDGE = Usage(model_calls=1, input_tokens=2_500, output_tokens=300)
"""Approximate usage of one judge of the demo."""


def own_model(home: Path) -> Settings:
    """The user's settings. If OPENAI_BASE_URL names their own server, the model is one that it serves.

    Raises CallError if that model can't be determined.
    """
    settings = load_settings(home=home)
    endpoint = find_endpoints(settings.endpoints, os.environ).get(("openai", None))
    delegator = Delegator(settings)
    if endpoint is None or endpoint.is_openai_itself or (settings.model and delegator.catalog.find(settings.model)):
        return settings
    served = asyncio.run(ask(endpoint))
    worker = None if settings.model else choose(delegator).worker
    if worker is not None and (worker.id in served.models or (worker.provider, worker.endpoint) != ("openai", None)):
        return settings
    name = settings.model or _only_model(served, endpoint.url)
    settings = settings.model_copy(update={"model": name, "judge_model": settings.judge_model or name})
    return settings if delegator.catalog.find(name) else _declare(settings, endpoint.url, name)


def announce(delegator: Delegator, tasks: int, *, sure: bool) -> None:
    """Print the models and the estimated cost, and ask for confirmation unless `sure`. Raises CallError."""
    choice = choose(delegator)
    if choice.worker is None or choice.problem is not None:
        raise choice.problem or CallError("no_model", "no model can be called; set an API key")
    judge = choice.judging.chosen
    judging = f"judged by {judge.id}" if judge else "and no model can judge them"
    used = [(choice.worker, CHILD), *([(judge, JUDGE)] if judge else [])]
    costs = [cost_usd(model, usage, date.today()) for model, usage in used]
    prices = [cost for cost in costs if cost is not None]
    estimate = f"about {usd(sum(prices) * tasks)}"
    if len(prices) < len(costs):
        estimate = "unknown, because the price of a model is unknown"
    print(f"Three children will run on {choice.worker.id}, {judging}; estimated cost: {estimate}.")
    if sure:
        return
    if not sys.stdin.isatty():
        raise CallError("not_confirmed", "this costs money and can't be confirmed without a terminal", hint="add --yes")
    typer.confirm("Continue?", abort=True, err=True)


def _only_model(served: ServedModels, url: str) -> str:
    if len(served.models) == 1:
        return served.models[0]
    if not served.models:
        raise CallError("which_model", f"{url} {served.fault or 'serves no model'}", hint="set DELEGATE_MODEL")
    hint = f"set DELEGATE_MODEL to one of: {', '.join(served.models[:8])}"
    raise CallError("which_model", f"{url} serves {len(served.models)} models", hint=hint)


def _declare(settings: Settings, url: str, name: str) -> Settings:
    print(f"{name} at {url} isn't in the catalog. This demo treats it as tier standard with an unknown price.")
    endpoint = DeclaredEndpoint(
        name="OPENAI_BASE_URL",
        base_url=url,
        key_env="OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None,
        models=(DeclaredModel(id=name, tier="standard"),),
    )
    return settings.model_copy(update={"endpoints": (*settings.endpoints, endpoint)})
