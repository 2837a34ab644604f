"""`delegate export`: writes recorded tasks in the formats of other tools."""

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from delegate.cli.ci.logs import print_as_is
from delegate.cli.input.recorded import RunArgument, find
from delegate.cli.screen.output import as_json
from delegate.cli.work import work
from delegate.contract.amounts import counted
from delegate.delegator import Delegator
from delegate.pages.atif import RecordedTask, run_trajectory, trajectories
from delegate.pages.preference import Preferences
from delegate.records.history import TaskSummary
from delegate.types.errors import CallError


def export(
    run: RunArgument,
    kind: Annotated[
        Literal["atif", "preference"],
        typer.Option("--format", help="atif: trajectories (ATIF 1.8). preference: TRL's unpaired preference data."),
    ],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Also the attempts at rows of a batch that were run again since.")
    ] = False,
    labels: Annotated[
        Literal["code", "judge"] | None,
        typer.Option(
            "--labels",
            help="For preference data: code: labels by people and by code. judge: also by judges.  [default: code]",
        ),
    ] = None,
) -> None:
    """Write the record of a run as trajectories or as training data.

    `--format atif` writes one JSON document: the trajectory of the task, or a
    root with the trajectories of all tasks. A batch becomes JSON lines, one
    trajectory per task.

    `--format preference` writes JSON lines with prompt, completion and label.
    Labels come from people and from code. What has none is left out, and
    counted on stderr.
    """
    if labels is not None and kind != "preference":
        raise typer.BadParameter("can only be used with --format preference", param_hint="--labels")
    delegator = Delegator()
    if kind == "atif":
        lines = _trajectories(delegator, run, attempts=attempts)
    else:
        lines = _preferences(delegator, run, attempts=attempts, with_judges=labels == "judge")
    work(delegator, lambda _: _write(lines, out))


async def _write(lines: AsyncGenerator[str], out: Path | None) -> None:
    """Write the lines. The file is opened only once there is something to write."""
    async with aclosing(lines):
        first = await anext(lines, None)
        try:
            opened = out.open("w", encoding="utf-8") if out else nullcontext()
        except OSError as error:
            raise typer.BadParameter(f"{out} can't be written: {error.strerror}", param_hint="-o") from None
        with opened as file:
            write = print_as_is if file is None else partial(print, file=file)
            if first is not None:
                write(first)
                async for line in lines:
                    write(line)
    sys.stdout.flush()


async def _find(delegator: Delegator, text: str, *, attempts: bool) -> tuple[str | None, bool, Sequence[TaskSummary]]:
    """The handle of the task that `text` names, if it is one, and whether it names a batch; with the tasks to export:
    that one and those below it, or all of the run. Raises CallError if there is nothing on record.
    """
    record, tasks = await find(delegator, text, None, attempts=attempts)
    if record is not None:
        (own,) = (task for task in tasks if task.handle == record["handle"])
        return own.handle, False, [own, *(task for task in tasks if task.depth > own.depth)]
    with suppress(CallError):
        await delegator.batches.summary(tasks[0].run_id)
        return None, True, tasks
    return None, False, tasks


async def _recorded(delegator: Delegator, tasks: Sequence[TaskSummary]) -> AsyncGenerator[RecordedTask]:
    """The records of tasks, one after the other, with the rulings on each."""
    for task in tasks:
        record = await delegator.records.read(task.handle)
        if record is not None:  # else it was removed in the meantime, as old records are
            rulings = [ruling.model_dump(mode="json") for ruling in await delegator.records.rulings(task.handle)]
            yield RecordedTask(record, task.depth, tuple(rulings))


async def _trajectories(delegator: Delegator, text: str, *, attempts: bool) -> AsyncGenerator[str]:
    handle, is_batch, summaries = await _find(delegator, text, attempts=attempts)
    if is_batch and len({task.depth for task in summaries}) == 1:
        async for task in _recorded(delegator, summaries):
            yield as_json(trajectories([task])[0])
        return
    tasks = [task async for task in _recorded(delegator, summaries)]
    if is_batch:
        for trajectory in trajectories(tasks):
            yield as_json(trajectory)
    elif handle is None:
        yield as_json(run_trajectory(summaries[0].run_id, tasks), indent=2)
    else:
        own = (trajectory for trajectory in trajectories(tasks) if trajectory["trajectory_id"] == handle)
        yield as_json(next(own), indent=2)


async def _preferences(delegator: Delegator, text: str, *, attempts: bool, with_judges: bool) -> AsyncGenerator[str]:
    preferences = Preferences(with_judges=with_judges)
    handle, _, tasks = await _find(delegator, text, attempts=attempts)
    async for task in _recorded(delegator, tasks if handle is None else tasks[:1]):
        if example := preferences.example(task):
            yield as_json(example)

    def listed(counts: Counter[Any]) -> str:
        return ", ".join(f"{number} {name}" for name, number in counts.most_common())

    text = counted(preferences.labeled.total(), "example")
    if preferences.labeled:
        text += f" ({listed(preferences.labeled)})"
    if left_out := preferences.left_out:
        text += f"; {counted(left_out.total(), 'task')} left out ({listed(left_out)})"
        text += "; --labels judge includes those with only_a_judge" if "only_a_judge" in left_out else ""
    typer.echo(text, err=True)
