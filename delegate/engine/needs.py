"""Tasks of one call that need each other: their names, their order, and what keeps one from starting."""

import os
import posixpath
import re
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter

from delegate.sandbox.workspace.inputs import INPUTS, is_in_inputs
from delegate.types import AboutFile, FileCriterion, Task, TaskResult
from delegate.types.errors import CallError


def names_of(tasks: Sequence[Task]) -> list[str]:
    """What tasks of a call are named by: their ids, or else their positions, from 1."""
    return [task.id or str(n) for n, task in enumerate(tasks, start=1)]


def stages(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Sort names into stages; those of a stage need only those of earlier ones. Raises CallError for a cycle."""
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        message = f"the tasks need each other in a cycle: {cycle}"
        raise CallError("circle", message, field="needs", hint="remove one of these needs") from None
    position = {id: n for n, id in enumerate(needs)}
    sorted_names: list[list[str]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        sorted_names.append(ready)
        sorter.done(*ready)
    return sorted_names


def unknown_need(need: str, ids: Sequence[str]) -> CallError:
    message = f"a task needs {need!r}, but none has that id"
    return CallError("unknown_need", message, field="needs", hint=f"use one of these ids: {', '.join(ids):.400}")


def refuse_literal(text: str, needs: Sequence[str], hint: str) -> None:
    """Raise CallError for what looks like a reference to the result of a needed task, and would stay as it is."""
    if not needs:
        return
    ids = "|".join(map(re.escape, needs))
    looks = rf"(\{{\{{\s*({ids})\s*[.}}]|\{{\s*({ids})\.(report|structured)\b)[^{{}}\n]*\}}{{0,2}}"
    if found := re.search(looks, text):
        raise CallError("unknown_reference", f"{found[0]:.80} is not a reference here", field="goal", hint=hint)


def obstacle(name: str, result: TaskResult) -> str | None:
    """Why a task that needs this result can't start; None if nothing is in its way."""
    if result.status != "completed":
        return f"it needs {name!r}, whose status is {result.status}"
    if result.verdict is None:
        return f"it needs {name!r}, which has no verdict because it has no criteria"
    if result.verdict.verdict != "PASS":
        return f"it needs {name!r}, which is {result.verdict.verdict} ({result.verdict.code})"
    return None


def check_together(tasks: Sequence[Task], *, scratch: bool) -> None:
    """Raise CallError if tasks of one call can't be run together as they name each other, or as often as they ask."""
    names = names_of(tasks)
    by_name = {_folded(name): task for name, task in zip(names, tasks, strict=True)}
    for n, task in enumerate(tasks):
        with of_task(n, tasks):
            if _folded(names[n]) in map(_folded, names[:n]):
                message = f"another task is named {names[n]!r} too"
                raise CallError("duplicate_id", message, field="id", hint="give every task another id, or none")
            if task.needs:
                _check_needs(task, names, by_name)
            if task.attempts > 1:
                _check_attempts(task, scratch=scratch)
    with of_task(next((n for n, task in enumerate(tasks) if task.needs), 0), tasks):
        stages({name: task.needs for name, task in zip(names, tasks, strict=True)})


@contextmanager
def of_task(n: int, tasks: Sequence[Task]) -> Generator[None]:
    """If there are several tasks, errors name the task by its position."""
    try:
        yield
    except CallError as error:
        error.field = f"tasks[{n}].{error.field}" if error.field and len(tasks) > 1 else error.field
        raise


def _folded(name: str) -> str:
    """As some file systems compare names."""
    return unicodedata.normalize("NFC", name).casefold()


def _check_needs(task: Task, names: Sequence[str], by_name: Mapping[str, Task]) -> None:
    for need in task.needs:
        if need not in names:
            raise unknown_need(need, names)
        if by_name[_folded(need)] is task:
            raise CallError("circle", f"the task {need!r} needs itself", field="needs", hint="remove this need")
        if all(criterion.findings_only for criterion in by_name[_folded(need)].criteria):
            message = f"a task needs a PASS of {need!r}, which has no acceptance criteria and so gets no verdict"
            raise CallError("bad_needs", message, field="needs", hint=f"give {need!r} acceptance_criteria")
    refuse_literal(f"{task.goal}\n{task.context}", task.needs, f"in a call, write {INPUTS}/{task.needs[0]}/report.md")
    _refuse_shared(task, "needs")
    path = task.workspace.path if task.workspace else None
    if path is not None and os.path.lexists(path / INPUTS):
        message = f"what it needs would be in {INPUTS}/ of its workspace, and {path} has an {INPUTS} already"
        raise CallError("bad_needs", message, field="needs", hint="delegate it alone, once the others have ended")
    for n, criterion in enumerate(task.acceptance_criteria):
        about = getattr(criterion, "about", None)
        named = about.file if isinstance(about, AboutFile) else ""
        named = criterion.path if isinstance(criterion, FileCriterion) else named
        named = posixpath.relpath(named, path) if path and posixpath.isabs(named) else named
        if is_in_inputs(named):
            message = f"it asks for {named}, which other tasks left and this one is only given"
            hint = "name a file that this task makes"
            raise CallError("invalid_criterion", message, field=f"acceptance_criteria[{n}]", hint=hint)


def _check_attempts(task: Task, *, scratch: bool) -> None:
    _refuse_shared(task, "attempts")
    if all(criterion.findings_only for criterion in task.criteria):
        message = "nothing would tell which of several attempts is the best: the task has no acceptance criteria"
        raise CallError("bad_attempts", message, field="attempts", hint="give it acceptance_criteria, or one attempt")
    if scratch:
        message = "attempts are made apart from each other, and a scratch folder is shared"
        raise CallError("bad_attempts", message, field="attempts", hint="leave out `scratch`, or ask for one attempt")


def _refuse_shared(task: Task, field: str) -> None:
    if task.workspace is not None and task.workspace.mode == "shared":
        message = f"`{field}` needs a workspace of the child's own, and this task works in {task.workspace.path} itself"
        hint = f"leave out `{field}`, or use a copy or worktree"
        raise CallError("shared_workspace", message, field=field, hint=hint)
