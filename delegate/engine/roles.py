"""Applies a role to its task. A role only narrows: what the task, its parent and the settings allow stays the most."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from delegate.contract.problems import unknown_name
from delegate.models.catalog import Model
from delegate.models.tiers import Bounds, is_above, weaker
from delegate.policy.roles import Role
from delegate.policy.settings import Settings
from delegate.types import Task


def role_of(task: Task, settings: Settings) -> Role | None:
    """The role that a task names. Raises CallError if there is no such role."""
    if task.role is None:
        return None
    if (role := settings.roles.get(task.role)) is None:
        raise unknown_name("unknown_role", task.role, settings.roles, "role")
    return role


def in_role(
    task: Task,
    role: Role,
    bounds: Bounds,
    known_tools: Callable[[Sequence[str]], Collection[str]],
    callable_model: Callable[[str], Model | None],
) -> Task:
    """The task as it is done in its role.

    `bounds` are those of the child's tier, `known_tools` gives the names of those tools that there are, and
    `callable_model` a model that can be called.
    """
    changes: dict[str, Any] = {
        "instructions": "\n\n".join(text for text in (role.instructions, task.instructions) if text) or None,
        "max_steps": _least(task.max_steps, role.max_steps),
        "timeout_seconds": _least(task.timeout_seconds, role.timeout_seconds),
        "max_cost_usd": _least(task.max_cost_usd, role.max_cost_usd),
        "acceptance_criteria": (*task.acceptance_criteria, *_own_criteria(task, role)),
    }
    if role.tools is not None:
        there = known_tools(role.tools)
        changes["tools"] = tuple(
            name for name in role.tools if name in there and (task.tools is None or name in task.tools)
        )
    if task.model is None:
        changes |= _model(task, role, bounds, callable_model)
    return Task.model_validate({name: getattr(task, name) for name in task.model_fields_set} | changes)


def _least(of_task: float | None, of_role: float | None) -> float | None:
    return min((value for value in (of_task, of_role) if value is not None), default=None)


def _own_criteria(task: Task, role: Role) -> list[Any]:
    taken = {criterion.id for criterion in task.acceptance_criteria}
    named: list[Any] = []
    for n, criterion in enumerate(role.acceptance_criteria, start=1):
        id = criterion.id or f"role{n}"
        while id in taken:
            id += "_"
        taken.add(id)
        named.append(criterion.model_copy(update={"id": id}))
    return named


def _model(task: Task, role: Role, bounds: Bounds, callable_model: Callable[[str], Model | None]) -> dict[str, Any]:
    """The model of the role, if it can be called within the bounds, or a tier within them."""
    model = callable_model(role.model) if role.model else None
    if model is not None and model.tier in bounds.allowed() and not (task.tier and is_above(model.tier, task.tier)):
        return {"model": model.id, "tier": None}
    wanted = role.tier or (model.tier if model else None)
    return {"tier": weaker(task.tier, bounds.clamp(wanted))} if wanted else {}
