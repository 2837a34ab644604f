"""Gives a parent's task the parent's workspace, where relative paths are meant from the folder that it works in."""

import posixpath
import re
import shlex
from typing import Any

from delegate.types import (
    AboutFile,
    Criterion,
    FileCriterion,
    QuestionCriterion,
    ShellCriterion,
    Task,
    TextCriterion,
    Workspace,
)


def in_workspace(task: Task, workspace: Workspace) -> Task:
    """The task in this workspace, with what its criteria name by paths from the top of it."""
    changed: dict[str, Any] = {"workspace": workspace}
    if (folder := workspace.folder) is not None:
        said = f"This task was given in the folder {folder} of the workspace: relative paths in it begin there."
        changed["context"] = f"{task.context}\n\n{said}" if task.context else said
        changed["acceptance_criteria"] = tuple(_from_top(one, folder) for one in task.acceptance_criteria)
        changed["deliverables"] = _joined(folder, task.deliverables)
    return task.model_copy(update=changed)


def located(task: Task) -> Task:
    """The task with an absolute path of its workspace: its record is read in other folders."""
    if task.workspace is None or task.workspace.path is None or task.workspace.path.is_absolute():
        return task
    try:
        path = task.workspace.path.expanduser().absolute()
    except (RuntimeError, OSError):  # the home of an unknown user, or a current folder that is gone
        return task
    return task.model_copy(update={"workspace": task.workspace.model_copy(update={"path": path})})


def _from_top(criterion: Criterion, folder: str) -> Criterion:
    match criterion:
        case ShellCriterion():
            is_simple = not re.search(r"[;&|#\n]", criterion.command)
            command = criterion.command if is_simple else f"{{ {criterion.command}\n}}"
            command = f"cd {shlex.quote(folder)} && {command}"
            update = {"command": command, "deliverables": _joined(folder, criterion.deliverables)}
        case FileCriterion():
            update = {"path": posixpath.join(folder, criterion.path)}
        case TextCriterion(about=AboutFile(file=file)) | QuestionCriterion(about=AboutFile(file=file)):
            update = {"about": AboutFile(file=posixpath.join(folder, file))}
        case _:
            return criterion
    return criterion.model_copy(update=update)


def _joined(folder: str, globs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if globs is None else tuple(posixpath.join(folder, glob) for glob in globs)
