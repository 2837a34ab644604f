"""`delegate take-over`: brings the changes of tasks from their worktrees into the checkout."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from delegate.cli.input.recorded import complete_run, records_of
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.delegator.merges import judged_diff
from delegate.sandbox.workspace.worktree import apply
from delegate.types.errors import ConfigError

HandlesArgument = typer.Argument(
    metavar="HANDLE...", help="The handles of tasks, or the ids of runs of one task.", autocompletion=complete_run
)


def take_over(handles: Annotated[list[str], HandlesArgument]) -> None:
    """Bring the changes of tasks from their worktrees into the checkout that these were made from.

    All changes are applied together, or none: exits with 1 if they don't fit
    each other or what is in the checkout now. Nothing is committed, and nothing
    is checked: `delegate merge` checks the result first.
    """
    delegator = Delegator()
    records = work(delegator, lambda _: records_of(delegator, handles))
    diffs = [judged_diff(record) for record in records]
    checkout, *others = {str(record["task"]["workspace"]["path"]) for record in records}
    if others:
        raise ConfigError(f"name tasks of one project; these are of {', '.join(sorted((checkout, *others)))}")
    if problem := work(delegator, lambda _: apply(b"".join(diffs), Path(checkout))):
        print(f"nothing was changed in {checkout}: {problem}", file=sys.stderr)
        raise typer.Exit(1)
    print(f"the changes of {', '.join(record['handle'] for record in records)} are in {checkout} now")
