"""`delegate message`: sends an instruction to the child of a running task."""

from typing import Annotated

import typer

from delegate.cli import PROGRAM
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.recorded import complete_run, find
from delegate.cli.screen.output import console, print_as_json, refusals_as
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.errors import CallError
from delegate.records.mailbox import SentMessage

_HandleArgument = typer.Argument(
    metavar="HANDLE", help="The handle of a task, or a run of one task.", autocompletion=complete_run
)


def message(
    handle: Annotated[str, _HandleArgument],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the child should do.")],
    format: FormatOption = Format.pretty,
) -> None:
    """Send a running task an instruction, also one of another process.

    Its child reads it before its next turn; `delegate show` says whether it
    did. Its work is judged by the same criteria as before.
    """
    delegator = Delegator()
    with refusals_as(format):
        sent = work(delegator, lambda _: _send(delegator, handle, text))
    if not print_as_json(format, sent.model_dump(), None):
        more = f"`{PROGRAM} show {sent.handle}` says whether it did"
        console().print(f"queued: the child reads it before its next turn; {more}", markup=False, soft_wrap=True)


async def _send(delegator: Delegator, name: str, text: str) -> SentMessage:
    record, tasks = await find(delegator, name, None)
    if record is None and len(tasks) > 1:
        handles = " ".join(task.handle for task in tasks[:10])
        raise CallError("ambiguous_id", f"run {name} has {len(tasks)} tasks", hint=f"name one of {handles}")
    return await delegator.background.message(record["handle"] if record else tasks[0].handle, text)
