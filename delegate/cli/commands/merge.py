"""`delegate merge`: brings the work of tasks into the checkout once it is verified there."""

import sys
from typing import Annotated

import typer

from delegate.cli.commands.take_over import HandlesArgument
from delegate.cli.input.recorded import records_of
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.delegator.merges import Merge
from delegate.types import Level
from delegate.types.errors import CallError
from delegate.types.events import EventSink

_OntoOption = typer.Option(metavar="BRANCH", help="Commit to this branch, instead of changing the checkout.")
_LevelOption = typer.Option(
    metavar="LEVEL", help="The least level of a PASS: proven, seen, own_checks, said or trusted. Default: seen."
)
_UndoOption = typer.Option("--undo", help="Take back the merge with this id, or the latest one.")


def merge(
    handles: Annotated[list[str] | None, HandlesArgument] = None,
    onto: Annotated[str | None, _OntoOption] = None,
    min_level: Annotated[Level | None, _LevelOption] = None,
    undo: Annotated[bool, _UndoOption] = False,
) -> None:
    """Merge the changes of tasks into their checkout, if their checks hold in the result.

    Each task needs a PASS. It is merged in a worktree that is thrown away, after
    those named before it, and its `shell` and `file` criteria are checked again
    there. Only then the checkout changes, in one step. Exits with 1 if nothing
    was changed.
    """
    names = handles or []
    if len(names) > 1 if undo else not names:
        wanted = "one id, or none" if undo else "the handles of tasks"
        raise typer.BadParameter(f"name {wanted}", param_hint="HANDLE...")
    delegator = Delegator()

    async def do(_: EventSink | None) -> Merge:
        if undo:
            return await delegator.merges.undo(names[0] if names else None)
        records = await records_of(delegator, names)
        return await delegator.merges.merge(*(one["handle"] for one in records), onto=onto, min_level=min_level)

    try:
        done = work(delegator, do)
    except CallError as error:
        if error.code != "cannot_merge":
            raise
        hint = f" ({error.hint})" if error.hint else ""
        print(f"{error.message}{hint}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(done)
