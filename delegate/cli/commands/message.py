"""`delegate message`: sends an instruction to the child of a task, or continues one that has ended."""

from typing import Annotated

import typer

from delegate._util.cancellation import Cancellation
from delegate.cli import PROGRAM, exits
from delegate.cli.commands.run import print_any_result
from delegate.cli.input.options import CriteriaOption, Format, FormatOption
from delegate.cli.input.recorded import complete_run, records_of
from delegate.cli.screen.approvals import at_terminal
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.cli.work import stoppable
from delegate.delegator import Delegator
from delegate.types import RunResult, SentMessage
from delegate.types.events import EventSink
from delegate.types.short_forms import criterion_of

_HandleArgument = typer.Argument(
    metavar="HANDLE", help="The handle of a task, or a run of one task.", autocompletion=complete_run
)


def message(
    handle: Annotated[str, _HandleArgument],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the child should do.")],
    criteria: CriteriaOption = None,
    format: FormatOption = Format.pretty,
) -> None:
    """Send an instruction to a task, also to one that another process runs.

    The child of a running task reads it before its next turn, as the answer
    if it waits for one; `delegate show` says whether it did. A task that has
    ended goes on with it in its workspace, as a new task with a verdict of its
    own, and its result is printed. The work is judged by the same criteria as
    before; a task that has ended can get others with -c.
    """
    new_criteria = [criterion_of(text) for text in criteria] if criteria else None
    terminal = at_terminal()
    delegator = Delegator(on_approval=terminal, on_question=terminal and terminal.answer)

    async def send(*, on_event: EventSink | None, cancellation: Cancellation) -> tuple[str, SentMessage | RunResult]:
        (record,) = await records_of(delegator, [handle])
        sent = await delegator.background.message(record["handle"], text, acceptance_criteria=new_criteria)
        if (delegation := delegator.background.delegation(sent.handle)) is None:
            return "", sent
        with delegation.reported_to(on_event), cancellation.linked(delegation):
            return record["task"]["goal"], await delegation

    with refusals_as(format):
        goal, sent = stoppable(delegator, send)
    if isinstance(sent, RunResult):
        print_any_result(sent, [goal], format)
        raise typer.Exit(exits.of_result(sent))
    if not print_as_json(format, sent.model_dump(), None):
        state = "the child goes on with it" if sent.is_answer else "the child reads it before its next turn"
        more = f"`{PROGRAM} show {sent.handle}` says whether it did"
        line = f"{'answered' if sent.is_answer else 'queued'}: {state}; {more}"
        console().print(line, markup=False, soft_wrap=True)
