"""`delegate take-over`: brings the changes of tasks from their worktrees into the checkout."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delegate.cli.input.recorded import complete_run

if TYPE_CHECKING:
    from delegate.delegator import Delegator
    from delegate.types import JsonObject

_HandlesArgument = typer.Argument(
    metavar="HANDLE...",
    help="The handles of tasks, or the ids of runs for all of their tasks that are good.",
    autocompletion=complete_run,
)


def take_over(handles: Annotated[list[str], _HandlesArgument]) -> None:
    """Bring the changes of tasks from their worktrees into the checkout that these were made from.

    All changes are applied together, or none: exits with 1 if they don't fit
    each other or what is in the checkout now. Nothing is committed.
    """
    from delegate.cli.work import work
    from delegate.delegator import Delegator
    from delegate.errors import ConfigError
    from delegate.sandbox.workspace.take_over import apply

    delegator = Delegator()
    records = work(delegator, lambda _: _records(delegator, handles))
    repositories = {_repository(record) for record in records}
    if len(repositories) != 1:
        listed = ", ".join(sorted(map(str, repositories)))
        raise ConfigError(f"name tasks of one project; these are of {listed}" if listed else "no task has changes")
    (repository,) = repositories
    problem = apply([_diff(record) for record in records], repository)
    if problem:
        print(f"nothing was changed in {repository}: {problem}", file=sys.stderr)
        raise typer.Exit(1)
    print(f"the changes of {', '.join(record['handle'] for record in records)} are in {repository} now")


async def _records(delegator: "Delegator", names: list[str]) -> "list[JsonObject]":
    """The records of the tasks, each once. Raises CallError for a name that isn't on record."""
    from delegate.cli.input.recorded import find

    found: dict[str, JsonObject] = {}
    for name in names:
        record, tasks = await find(delegator, name, None)
        for each in [record] if record else [await delegator.read(task.handle) for task in tasks]:
            if each and (record or _is_good(each)):
                found[each["handle"]] = each
    return list(found.values())


def _is_good(record: "JsonObject") -> bool:
    from delegate.types import TaskResult

    result = TaskResult.model_validate(record["result"]) if record["result"] else None
    return result is not None and result.good and result.take_over is not None


def _repository(record: "JsonObject") -> Path:
    """The checkout of a task's worktree. Raises ConfigError if there is nothing to take over."""
    from delegate.errors import ConfigError

    result = record["result"] or {}
    if result.get("take_over"):
        return Path(record["task"]["workspace"]["path"])
    why = result.get("no_take_over") or ("it changed nothing in a worktree" if result else "it hasn't ended")
    where = f"; its files are in {record['workspace']}" if record["workspace"] and result else ""
    raise ConfigError(f"the changes of {record['handle']} can't be taken over: {why}{where}")


def _diff(record: "JsonObject") -> bytes:
    """A task's diff, as it was judged. Raises ConfigError if it is another one now."""
    from hashlib import sha256

    from delegate.errors import ConfigError

    path = Path(f"{record['workspace']}.diff")
    judged = next(one["sha256"] for one in record["run"]["artifacts"] if one["path"] == f"../{path.name}")
    try:
        diff = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the diff of {record['handle']} can't be read: {path}: {error.strerror}") from None
    if sha256(diff).hexdigest() != judged:
        raise ConfigError(f"the diff of {record['handle']} was changed after its verdict: {path}")
    return diff
