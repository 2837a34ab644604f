"""Selects the models that a delegator would use now: one for its children, and one to judge their work."""

from dataclasses import dataclass
from datetime import date

from delegate.cli.input.options import REPLY_TOKENS, VERDICT_TOKENS
from delegate.delegator import Delegator
from delegate.errors import CallError
from delegate.judging.judge.prompt import card
from delegate.models.catalog import Model, tokens_of
from delegate.models.false_pass import FalsePassTable
from delegate.models.routing import ChildRequest, JudgeRequest, Routing, choose_child, choose_judge
from delegate.models.tiers import Bounds


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected models. If children can't run, `worker` is None and `problem` gives the reason."""

    worker: Model | None
    problem: CallError | None
    judging: Routing
    pinned: bool
    """Whether the settings name the judge."""
    false_pass: FalsePassTable | None = None
    """With `max_false_pass`: which judges may decide alone."""


def choose(delegator: Delegator, *, worker: str | None = None, tokens: int = VERDICT_TOKENS) -> Choice:
    """Select models for a task that names neither tier nor model, or a judge for the named worker.

    Raises CallError for a `worker` that isn't in the catalog.
    """
    settings, problem = delegator.settings, None
    bounds = Bounds.under(settings.parent_tier, max_tier=settings.max_tier, min_tier=settings.min_tier)
    model = _named(delegator, worker) if worker else None
    if model is None:
        try:
            model = choose_child(delegator.catalog, _child_request(delegator, bounds))
        except CallError as error:
            problem = error
    table = delegator.wait_for(delegator.records.false_pass()) if settings.max_false_pass is not None else None
    judging = choose_judge(delegator.catalog, _judge_request(delegator, bounds, model, tokens, table))
    return Choice(model, problem, judging, pinned=settings.judge_model is not None, false_pass=table)


def _child_request(delegator: Delegator, bounds: Bounds) -> ChildRequest:
    settings = delegator.settings
    return ChildRequest(
        bounds=bounds,
        available=delegator.connections.available,
        on=date.today(),
        model=settings.model,
        usual_tier=settings.tier,
        priced_only=settings.max_cost_usd is not None,
    )


def _judge_request(
    delegator: Delegator, bounds: Bounds, worker: Model | None, tokens: int, false_pass: FalsePassTable | None
) -> JudgeRequest:
    settings = delegator.settings
    return JudgeRequest(
        worker=worker,
        evidence_tokens=tokens,
        reply_tokens=REPLY_TOKENS,
        on=date.today(),
        available=delegator.connections.available,
        pinned=settings.judge_model,
        ceiling=bounds.ceiling,
        prefix_tokens=min(tokens, tokens_of(card())),
        min_accuracy=settings.min_judge_accuracy,
        priced_only=settings.max_cost_usd is not None,
        false_pass=false_pass,
    )


def _named(delegator: Delegator, name: str) -> Model:
    if (model := delegator.catalog.find(name)) is None:
        hint = "use a model from `delegate models`"
        raise CallError("unknown_model", f"there is no model {name!r} in the catalog", field="worker", hint=hint)
    return model
