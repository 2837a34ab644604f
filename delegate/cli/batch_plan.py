"""Prints the plan of a batch: its tasks, models and estimated cost."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from delegate._util.fencing import one_line
from delegate.cli.options import Format
from delegate.cli.output import print_json
from delegate.contract.amounts import usd

if TYPE_CHECKING:
    from delegate.batch.plan import BatchPlan, Group

_SHOWN_IDS = 12
_NAME_CHARS = 40


def show(plan: "BatchPlan", format: Format) -> None:
    """Print the plan."""
    if format is not Format.pretty:
        print_json({**dataclasses.asdict(plan), "usd": plan.usd})
        return
    for line in _lines(plan):
        print(line)


def _lines(plan: "BatchPlan") -> Iterator[str]:
    skipped = f", {plan.bad_rows} invalid rows skipped" if plan.bad_rows else ""
    yield f"{plan.tasks} tasks in {one_line(plan.name, 200)}{skipped}"
    for n, stage in enumerate(plan.stages, start=1):
        more = f" and {len(stage) - _SHOWN_IDS} more" if len(stage) > _SHOWN_IDS else ""
        yield f"  stage {n}: {', '.join(one_line(id, _NAME_CHARS) for id in stage[:_SHOWN_IDS])}{more}"
    for group in plan.groups:
        yield f"  {group.tasks} on {group.model or 'the runner'}: {_estimate(group)}"
    yield f"estimated total cost: {usd(plan.usd)}" if plan.usd is not None else "estimated total cost: unknown"
    yield "nothing was run"


def _estimate(group: "Group") -> str:
    if group.each_usd is None or group.usd is None:
        return "cost unknown"
    basis = {
        "records": f"median of {group.records} tasks on record for this model, judging included",
        "assumed": "assumes 20,000 input and 2,000 output tokens per child, without judging",
        "unknown": "",
    }[group.basis]
    return f"{usd(group.usd)}, {usd(group.each_usd)} each ({basis})"
