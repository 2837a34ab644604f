"""Selects the models that a delegator would use now: one for its children, and one to judge their work."""

from dataclasses import dataclass
from datetime import date

from delegate._util.tokens import tokens_of
from delegate.cli.input.options import REPLY_TOKENS, VERDICT_TOKENS
from delegate.delegator import Delegator
from delegate.judging.judge.prompt import card
from delegate.models.catalog import Model
from delegate.models.false_pass import FalsePassTable
from delegate.models.routing import ChildRequest, JudgeRequest, Routing, choose_child, choose_judge
from delegate.models.tiers import Bounds
from delegate.types.errors import CallError


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
    available, priced_only = delegator.connections.available, settings.max_cost_usd is not None
    model = delegator.catalog.find(worker) if worker else None
    if worker and model is None:
        hint = "use a model from `delegate models`"
        raise CallError("unknown_model", f"there is no model {worker!r} in the catalog", field="worker", hint=hint)
    if model is None:
        of_child = ChildRequest(
            bounds=bounds,
            available=available,
            on=date.today(),
            model=settings.model,
            usual_tier=settings.tier,
            priced_only=priced_only,
        )
        try:
            model = choose_child(delegator.catalog, of_child)
        except CallError as error:
            problem = error
    table = delegator.wait_for(delegator.records.false_pass()) if settings.max_false_pass is not None else None
    of_judge = JudgeRequest(
        worker=model,
        evidence_tokens=tokens,
        reply_tokens=REPLY_TOKENS,
        on=date.today(),
        available=available,
        pinned=settings.judge_model,
        ceiling=bounds.ceiling,
        prefix_tokens=min(tokens, tokens_of(card())),
        min_accuracy=settings.min_judge_accuracy,
        priced_only=priced_only,
        false_pass=table,
    )
    judging = choose_judge(delegator.catalog, of_judge)
    return Choice(model, problem, judging, pinned=settings.judge_model is not None, false_pass=table)
