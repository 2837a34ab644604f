"""`delegate take-over`: brings the changes of tasks from their worktrees into the checkout."""

import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from delegate.cli.input.recorded import complete_run, find
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.errors import CallError, ConfigError
from delegate.sandbox.workspace.take_over import apply
from delegate.types import JsonObject

_HandlesArgument = typer.Argument(
    metavar="HANDLE...", help="The handles of tasks, or the ids of runs of one task.", autocompletion=complete_run
)


def take_over(handles: Annotated[list[str], _HandlesArgument]) -> None:
    """Bring the changes of tasks from their worktrees into the checkout that these were made from.

    All changes are applied together, or none: exits with 1 if they don't fit
    each other or what is in the checkout now. Nothing is committed.
    """
    delegator = Delegator()
    records = work(delegator, lambda _: _records(delegator, handles))
    diffs = [_diff(record) for record in records]
    checkout, *others = {str(record["task"]["workspace"]["path"]) for record in records}
    if others:
        raise ConfigError(f"name tasks of one project; these are of {', '.join(sorted((checkout, *others)))}")
    if problem := apply(diffs, Path(checkout)):
        print(f"nothing was changed in {checkout}: {problem}", file=sys.stderr)
        raise typer.Exit(1)
    print(f"the changes of {', '.join(record['handle'] for record in records)} are in {checkout} now")


async def _records(delegator: Delegator, names: list[str]) -> list[JsonObject]:
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


def _diff(record: JsonObject) -> bytes:
    """A task's diff, as it was judged. Raises ConfigError if there is none, or another one now."""
    result: JsonObject = record["result"] or {}
    if not result.get("take_over"):
        why = result.get("no_take_over") or ("it changed nothing in a worktree" if result else "it hasn't ended")
        where = f"; its files are in {result['workspace']}" if result.get("workspace") else ""
        raise ConfigError(f"the changes of {record['handle']} can't be taken over: {why}{where}")
    path = Path(f"{record['workspace']}.diff")
    judged = [one["sha256"] for one in record["run"]["artifacts"] if one["path"] == f"../{path.name}"]
    try:
        diff = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the diff of {record['handle']} can't be read: {path}: {error.strerror}") from None
    if sha256(diff).hexdigest() not in judged:
        raise ConfigError(f"the diff of {record['handle']} was changed after its verdict: {path}")
    return diff
