"""Prints a plan: tasks, models, estimated cost, and what the tasks ask for."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from delegate._util.fencing import one_line
from delegate.budget.estimate import Group
from delegate.cli.input.options import Format
from delegate.cli.input.task_trust import Requests, lines_of
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.output import console, print_json
from delegate.contract.amounts import counted
from delegate.types.money import usd

if TYPE_CHECKING:
    from delegate.batch.runner import BatchPlan

_SHOWN_IDS = 12
_NAME_CHARS = 40


def show(plan: "BatchPlan", requests: Requests, format: Format, file: Path | None) -> None:
    """Print the plan, and what the tasks of the file ask for."""
    if format is not Format.pretty:
        costs = {"usd": plan.estimate.usd, "low_usd": plan.estimate.low_usd}
        print_json({**dataclasses.asdict(plan), **costs, **dataclasses.asdict(requests)})
        return
    skipped = f", {counted(plan.bad_rows, 'invalid row')} skipped" if plan.bad_rows else ""
    lines = [f"{counted(plan.tasks, 'task')} in {one_line(plan.name, 200)}{skipped}"]
    for n, stage in enumerate(plan.stages, start=1):
        more = f" and {len(stage) - _SHOWN_IDS} more" if len(stage) > _SHOWN_IDS else ""
        lines.append(f"  stage {n}: {', '.join(one_line(id, _NAME_CHARS) for id in stage[:_SHOWN_IDS])}{more}")
    lines += [f"  {group.tasks} on {group.model or 'the runner'}: {_estimate(group)}" for group in plan.groups]
    lines += [f"estimated total cost: {plan.estimate}", *lines_of(requests, file), "nothing was run"]
    console().print(Prose(Text("\n").join(map(Text, lines)), hang=2))


def _estimate(group: Group) -> str:
    if group.each_usd is None:
        return "cost unknown"
    basis = {
        "records": f"median of {counted(group.records, 'task')} of any kind on record for this model, judging included",
        "steps": f"median of {counted(group.records, 'task')} on record for other models, at the prices of this one",
        "assumed": "assumes 20,000 input and 2,000 output tokens per child, without judging",
    }[group.basis]
    return f"{usd(group.usd)}, {usd(group.each_usd)} each ({basis})"
