"""What a batch would do, and about what it would cost."""

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
    """Print it."""
    if format is not Format.pretty:
        print_json({**dataclasses.asdict(plan), "usd": plan.usd})
        return
    for line in _lines(plan):
        print(line)


def _lines(plan: "BatchPlan") -> Iterator[str]:
    left_out = f", {plan.bad_rows} bad rows left out" if plan.bad_rows else ""
    yield f"{plan.tasks} tasks in {one_line(plan.name, 200)}{left_out}"
    for n, stage in enumerate(plan.stages, start=1):
        more = f" and {len(stage) - _SHOWN_IDS} more" if len(stage) > _SHOWN_IDS else ""
        yield f"  stage {n}: {', '.join(one_line(id, _NAME_CHARS) for id in stage[:_SHOWN_IDS])}{more}"
    for group in plan.groups:
        yield f"  {group.tasks} on {group.model or 'the runner'}: {_estimate(group)}"
    yield f"about {usd(plan.usd)} in all" if plan.usd is not None else "what all would cost isn't known"
    yield "nothing was run"


def _estimate(group: "Group") -> str:
    if group.each_usd is None or group.usd is None:
        return "cost unknown"
    rests_on = {
        "records": f"the median of {group.records} such tasks on record, judging included",
        "assumed": "assumed: 20,000 tokens read and 2,000 written by a child, without judging",
        "unknown": "",
    }[group.basis]
    return f"{usd(group.usd)}, {usd(group.each_usd)} each ({rests_on})"
