"""Finds recorded runs and tasks by what a person types: an id, its first characters, or `last`."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegate.delegator import Delegator
    from delegate.records.history import TaskSummary
    from delegate.types import JsonObject

LAST = "last"
_SHOWN_IDS = 5
_SEARCHED = 2_000
"""Number of runs, latest first, among which the first characters of an id are looked up."""
_COMPLETED_IDS = 50
"""Number of runs whose ids a shell offers."""


async def run_id_of(delegator: "Delegator", text: str) -> str:
    """The id of the run that `text` names. Text that names none is returned as it is.

    Raises CallError if several runs begin with it, or if it is `last` and there is no run.
    """
    from delegate.errors import CallError

    if text == LAST:
        if latest := await _run_ids(delegator, 1):
            return latest[0]
        raise CallError("unknown_handle", "no runs are on record", hint="`delegate run` records one")
    if await delegator.tasks(text):
        return text
    ids = await _run_ids(delegator, _SEARCHED)
    if text in ids:
        return text
    matching = [id for id in ids if id.startswith(text)] if text else []
    if len(matching) > 1:
        shown = ", ".join(matching[:_SHOWN_IDS]) + (", …" if len(matching) > _SHOWN_IDS else "")
        message = f"{len(matching)} runs begin with {text!r}: {shown}"
        raise CallError("ambiguous_id", message, hint="type more of the id")
    return matching[0] if matching else text


async def find(
    delegator: "Delegator", text: str, number: int | None
) -> "tuple[JsonObject | None, Sequence[TaskSummary]]":
    """The record of a task or, if `text` names a run and `number` is None, all tasks of the run.

    `number` counts the tasks that the run's root delegated, from 1. Raises CallError if there is nothing on record.
    """
    from delegate.errors import CallError

    record = await delegator.read(text)
    if record is None and (parts := text.rpartition("-"))[0] and parts[2].isdigit():
        record = await delegator.read(f"{await run_id_of(delegator, parts[0])}-{parts[2]}")
    if record is not None and number is None:
        return record, []
    run_id = str(record["run_id"]) if record else await run_id_of(delegator, text)
    tasks = await delegator.tasks(run_id)
    if not tasks:
        hint = "use `last`, or an id from `delegate runs` or its first characters; records are stored in DELEGATE_HOME"
        raise CallError("unknown_handle", f"there is no record {text!r}", hint=hint)
    if number is None:
        return None, tasks
    top = top_level(tasks)
    if not 1 <= number <= len(top):
        raise CallError("unknown_task", f"run {run_id} has no task {number}", hint=f"it has tasks 1 to {len(top)}")
    return await delegator.read(top[number - 1].handle), tasks


def top_level(tasks: "Sequence[TaskSummary]") -> "list[TaskSummary]":
    """The tasks that the run's root delegated, in the order of their numbers."""
    return [task for task in tasks if task.depth == tasks[0].depth]


def short_ids(ids: Sequence[str], least: int = 8) -> dict[str, str]:
    """The ids without the characters that aren't needed to tell them apart."""
    distinct = set(ids)
    length = least
    while length < max(map(len, distinct), default=0) and len({id[:length] for id in distinct}) < len(distinct):
        length += 1
    return {id: id[:length] for id in distinct}


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """The ids of the latest runs for a shell's completion, each with the goal of its first task."""
    from delegate._util.fencing import one_line
    from delegate.delegator import Delegator

    async def latest() -> list[tuple[str, str]]:
        async with Delegator() as delegator:
            runs = await delegator.runs(_COMPLETED_IDS)
            batches = await delegator.batches(_COMPLETED_IDS)
        goals = {run.run_id: run.goal for run in runs} | {batch.run_id: f"batch {batch.source}" for batch in batches}
        return [(id, one_line(goal, 60)) for id, goal in goals.items()]

    try:
        found = asyncio.run(latest())
    except Exception:  # a shell can't show an error here
        return []
    return [(id, goal) for id, goal in [(LAST, "the latest run"), *found] if id.startswith(incomplete)]


async def _run_ids(delegator: "Delegator", limit: int) -> list[str]:
    """The ids of the latest runs and batches, newest first."""
    began = {run.run_id: run.began_at for run in await delegator.runs(limit)}
    began |= {batch.run_id: batch.began_at for batch in await delegator.batches(limit)}
    return sorted(began, key=lambda id: -began[id])
