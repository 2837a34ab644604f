"""Asks a person before a call is run that will likely cost more than the operator lets models spend alone."""

from collections.abc import Sequence
from contextlib import nullcontext

from delegate.budget.estimate import Estimator
from delegate.budget.runs import RunContext
from delegate.child.permissions import WHY_NOT, answer_to
from delegate.engine.scope import Services
from delegate.models.catalog import Model
from delegate.policy.approvals import ApprovalRequest, digest_of
from delegate.types import Task
from delegate.types.errors import CallError, DelegateError
from delegate.types.events import read_only
from delegate.types.money import usd


async def refuse_unapproved(
    tasks: Sequence[tuple[Task, Sequence[Model | None]]], context: RunContext, services: Services, above_usd: float
) -> None:
    """Raise CallError if the tasks of a call will likely cost more than this, or if that can't be told, and no person
    approves it. The answer holds for this call alone.
    """
    estimator = Estimator()
    for task, models in tasks:
        estimator.add(task, models)
    try:
        estimate = await estimator.estimate(services.records.past_tasks, left_usd=context.ledger.left("cost_usd"))
    except DelegateError as error:
        raise CallError("unreadable", f"what the call will cost can't be estimated: {error}") from None
    if estimate.usd is not None and estimate.usd <= above_usd:
        return
    cost = "what it will cost is unknown" if estimate.usd is None else f"it will cost {estimate}"
    reason = f"{cost}; calls above {usd(above_usd)} need an approval (setting ask_above_usd)"
    settings = services.settings
    arguments = {"tasks": [task.model_dump(mode="json", exclude_defaults=True) for task, _ in tasks]}
    request = ApprovalRequest(
        tool=settings.tool_name,
        arguments=read_only(arguments, chars=None),
        sha256=digest_of(settings.tool_name, arguments, ""),
        workspace="",
        code="expensive",
        reason=reason,
        run_id=context.run.id,
        goal=tasks[0][0].goal,
        answer_seconds=settings.policy.answer_seconds,
    )
    hint = "nothing was run; send fewer or shorter tasks or a lower tier, or do the work yourself"
    if (ask := context.on_approval or services.on_approval) is None:
        raise CallError("not_approved", f"{reason}, and nobody is there to give one", hint=hint)
    async with context.permit.released() if context.permit else nullcontext():
        answer, outcome = await answer_to(ask, request)
    if not answer.approved:
        raise CallError("not_approved", f"{reason}; {WHY_NOT[outcome]}", hint=hint)
