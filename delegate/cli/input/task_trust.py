"""Decides whether a file of tasks may ask for what it asks for: a repository can bring one along.

Within its own folder and the operator's settings, any file may. Beyond, only one that is trusted as it is, or that lies
in the operator's folder for configuration.
"""

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from delegate._util.fencing import one_line
from delegate.policy import trust
from delegate.policy.settings import Settings
from delegate.types import ShellCriterion, Task
from delegate.types.errors import CallError

MAX_LISTED = 1_000
_PRINTED = 20
_SHOWN = 8
_LINE_CHARS = 300


def refuse_untrusted(file: Path, tasks: Iterable[tuple[str, Task]], settings: Settings) -> None:
    """Raise CallError for a file that isn't trusted and whose tasks ask for more than it may.

    Each task comes with where it is in the file. `file` is read only if its tasks do so.
    """
    if _is_own(file):
        return
    wider = dict[str, None]()
    for where, task in tasks:
        _add(wider, (f"{where}: {field}" for field in wider_fields(task, settings, file.parent)))
    if not wider or trust.is_trusted(file):
        return
    names = ", ".join(list(wider)[:_SHOWN]) + (f" and {len(wider) - _SHOWN} more" if len(wider) > _SHOWN else "")
    message = f"{file} asks for more than a file of tasks may before you trust it: {names}"
    field = next(iter(wider)).partition(": ")[2].partition(" ")[0]
    hint = f"read it, then run `delegate trust {shlex.quote(str(file))}`; or remove these fields"
    raise CallError("untrusted_file", message, field=field, hint=hint)


def wider_fields(task: Task, settings: Settings, folder: Path) -> Iterator[str]:
    """The fields of a task, with their values, that reach further than the settings, or than the file's `folder`."""
    if task.workspace is not None and task.workspace.path is not None:
        path = Path(os.path.realpath(task.workspace.path))
        if not path.is_relative_to(os.path.realpath(folder)):
            yield f"workspace {path}"
    for field in ("timeout_seconds", "max_steps", "max_cost_usd", "min_level"):
        value = getattr(task, field)
        if value is not None and trust.widens(field, value, getattr(settings, field)):
            yield f"{field} {value}"
    for n, criterion in enumerate(task.acceptance_criteria):
        if isinstance(criterion, ShellCriterion):
            if settings.commands == "deny":
                yield f"acceptance_criteria[{n}].command"
            if criterion.network == "host" and settings.network != "open":
                yield f"acceptance_criteria[{n}].network host"
            if criterion.timeout_seconds > settings.timeout_seconds:
                yield f"acceptance_criteria[{n}].timeout_seconds {criterion.timeout_seconds:g}"


@dataclass(frozen=True, slots=True)
class Requests:
    """What tasks ask for besides models, each once and at most `MAX_LISTED` of a kind."""

    commands: tuple[str, ...]
    """The commands of their checks."""
    folders: tuple[str, ...]
    """Their workspaces: mode and path."""
    host_network: tuple[str, ...]
    """The commands that are to have the machine's network."""
    needs_trust: tuple[str, ...]
    """What the file may ask for only once it is trusted, as far as it isn't."""


def requests_of(file: Path | None, tasks: Iterable[tuple[str, Task]], settings: Settings) -> Requests:
    """What tasks ask for, which come with where they are in `file`; None for tasks that the operator wrote."""
    free = file is None or _is_own(file) or trust.is_trusted(file)
    commands, folders, network, wider = (dict[str, None]() for _ in range(4))
    for where, task in tasks:
        shell = [criterion for criterion in task.acceptance_criteria if isinstance(criterion, ShellCriterion)]
        _add(commands, (criterion.command for criterion in shell))
        _add(network, (criterion.command for criterion in shell if criterion.network == "host"))
        if task.workspace is not None and task.workspace.path is not None:
            _add(folders, [f"{task.workspace.mode} {os.path.realpath(task.workspace.path)}"])
        if file is not None and not free:
            _add(wider, (f"{where}: {field}" for field in wider_fields(task, settings, file.parent)))
    return Requests(tuple(commands), tuple(folders), tuple(network), tuple(wider))


def lines_of(requests: Requests, file: Path | None) -> Iterator[str]:
    """What tasks ask for, in lines for a terminal."""
    for title, values in (
        ("commands of its checks", requests.commands),
        ("folders", requests.folders),
        ("commands that ask for the machine's network", requests.host_network),
        (f"needs `delegate trust {shlex.quote(str(file))}` for", requests.needs_trust),
    ):
        if values:
            yield f"{one_line(title, _LINE_CHARS)}:"
            yield from (f"  {one_line(value, _LINE_CHARS)}" for value in values[:_PRINTED])
        if len(values) > _PRINTED:
            yield f"  and {len(values) - _PRINTED} more" + ("" if len(values) < MAX_LISTED else ", or still more")


def _add(requests: dict[str, None], values: Iterable[str]) -> None:
    for value in values:
        if len(requests) < MAX_LISTED:
            requests[value] = None


def _is_own(file: Path) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(trust.own_folder()))
