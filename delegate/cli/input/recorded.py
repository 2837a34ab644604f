"""Finds recorded runs and tasks by what a person types: an id, its first characters, or `last`."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from delegate._util.fencing import one_line
from delegate.delegator import Delegator
from delegate.records.history import TaskSummary
from delegate.types import JsonObject
from delegate.types.errors import CallError, DelegateError

LAST = "last"
_SHOWN_IDS = 5
_SEARCHED = 2_000
"""Number of runs, latest first, among which the first characters of an id are looked up."""
_COMPLETED_IDS = 50
"""Number of runs whose ids a shell offers."""


async def run_id_of(delegator: Delegator, text: str, *, only_batches: bool = False) -> str:
    """The id of the run, or with `only_batches` of the batch, that `text` names. Other text is returned as it is.

    Raises CallError if several runs begin with it, or if it is `last` and there is no run.
    """
    if text == LAST:
        if latest := await _run_ids(delegator, 1, only_batches=only_batches):
            return latest[0]
        kind = "batch" if only_batches else "run"
        raise CallError("unknown_handle", f"no {kind} is on record", hint=f"`delegate {kind}` records one")
    if await delegator.records.tasks(text, 1):
        return text
    ids = await _run_ids(delegator, _SEARCHED, only_batches=only_batches)
    if text in ids:
        return text
    matching = [id for id in ids if id.startswith(text)] if text else []
    if len(matching) > 1:
        first = ", ".join(matching[:_SHOWN_IDS]) + (", …" if len(matching) > _SHOWN_IDS else "")
        message = f"{len(matching)} runs begin with {text!r}: {first}"
        raise CallError("ambiguous_id", message, hint="type more of the id")
    return matching[0] if matching else text


async def find(
    delegator: Delegator, text: str, number: int | None, *, attempts: bool = False
) -> tuple[JsonObject | None, Sequence[TaskSummary]]:
    """The record of a task, or None if `text` names a run and `number` is None, and all tasks of its run.

    Of several attempts at a task, that is the chosen one, and of a batch the latest attempts at its rows, unless all
    `attempts` are asked for. Raises CallError if there is nothing on record.
    """
    record = await delegator.records.read(text)
    if record is None and (parts := text.rpartition("-"))[0] and parts[2].isdigit():
        record = await delegator.records.read(f"{await run_id_of(delegator, parts[0])}-{parts[2]}")
    run_id = str(record["run_id"]) if record else await run_id_of(delegator, text)
    tasks = await delegator.records.tasks(run_id)
    if not tasks:
        message = f"there is no record {text!r}"
        hint = "use `last`, or an id from `delegate runs` or its first characters; records are stored in DELEGATE_HOME"
        if run_id in await _run_ids(delegator, _SEARCHED, only_batches=True):
            message, hint = f"no task of batch {run_id} is on record", "none has started, or its records were deleted"
        raise CallError("unknown_handle", message, hint=hint)
    if record is None and not attempts:
        _, others = await attempts_of(delegator, tasks)
        tasks = [task for task in tasks if task.handle not in others]
    if number is None:
        return record, tasks
    handles = {n: handle for handle, n in numbers(tasks).items()}
    if number not in handles:
        hint = f"it has {'task' if len(handles) == 1 else 'tasks 1 to'} {max(handles)}"
        raise CallError("unknown_task", f"run {run_id} has no task {number}", hint=hint)
    return await delegator.records.read(handles[number]), tasks


async def records_of(delegator: Delegator, names: list[str]) -> list[JsonObject]:
    """The records of the tasks, each once. Raises CallError for a name that isn't that of one task."""
    found: dict[str, JsonObject] = {}
    for name in names:
        record, tasks = await find(delegator, name, None)
        if record is None and len(tasks) > 1:
            handles = " ".join(task.handle for task in tasks[:10])
            raise CallError("ambiguous_id", f"run {name} has {len(tasks)} tasks", hint=f"name those of {handles}")
        record = record or await delegator.records.read(tasks[0].handle) or {}
        found[record["handle"]] = record
    return list(found.values())


async def attempts_of(delegator: Delegator, tasks: Sequence[TaskSummary]) -> tuple[dict[str, str], dict[str, str]]:
    """By handle: the ids of a batch's rows, for the latest attempts at them, and why all other attempts don't count."""
    rows: dict[str, str] = {}
    with suppress(DelegateError):  # the records of tasks can be read without them
        rows = await delegator.batches.handles(tasks[0].run_id)
    places = {task.task_index for task in tasks if task.handle in rows}
    again = (task for task in tasks if task.depth == tasks[0].depth and task.task_index in places)
    others = {task.handle: "run again" for task in again if task.handle not in rows}
    return rows, others | {task.handle: "not chosen" for task in tasks if task.other_attempt}


def numbers(tasks: Sequence[TaskSummary]) -> dict[str, int]:
    """The numbers, from 1, of the tasks that the run's root delegated, by their handles.

    They are positions in the call or batch; if a run had several calls, positions in the run.
    """
    top = [task for task in tasks if task.depth == tasks[0].depth]
    if len({task.task_index for task in top}) == len(top):
        return {task.handle: task.task_index + 1 for task in sorted(top, key=lambda task: task.task_index)}
    return {task.handle: n for n, task in enumerate(top, start=1)}


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The ids without the characters that aren't needed to tell them apart; at least 8 are."""
    distinct, length = set(ids), 8
    while length < max(map(len, distinct), default=0) and len({id[:length] for id in distinct}) < len(distinct):
        length += 1
    return {id: id[:length] for id in distinct}


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """The ids of the latest runs for a shell's completion, each with the goal of its first task."""
    return _completed(incomplete, only_batches=False)


def complete_batch(incomplete: str) -> list[tuple[str, str]]:
    """The ids of the latest batches, each with the name of its file."""
    return _completed(incomplete, only_batches=True)


def _completed(incomplete: str, *, only_batches: bool) -> list[tuple[str, str]]:
    async def latest() -> dict[str, str]:
        async with Delegator() as delegator:
            runs = [] if only_batches else await delegator.records.runs(_COMPLETED_IDS)
            batches = await delegator.batches.latest(_COMPLETED_IDS)
        return {run.run_id: run.goal for run in runs} | {batch.run_id: f"batch {batch.source}" for batch in batches}

    try:
        goals = asyncio.run(latest())
    except Exception:  # a shell can't show an error here
        return []
    choices = {LAST: "the latest one"} | goals
    return [(id, one_line(goal, 60)) for id, goal in choices.items() if id.startswith(incomplete)]


async def _run_ids(delegator: Delegator, limit: int, *, only_batches: bool) -> list[str]:
    """The ids of the latest runs and batches, newest first."""
    began = {} if only_batches else {run.run_id: run.began_at for run in await delegator.records.runs(limit)}
    began |= {batch.run_id: batch.began_at for batch in await delegator.batches.latest(limit)}
    return sorted(began, key=lambda id: -began[id])


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The id of a run or a batch, its first characters, `last`, or the handle of a task such as "
        "1f2e3d4c5b6a7f8e9d0c-0.",
        autocompletion=complete_run,
    ),
]
