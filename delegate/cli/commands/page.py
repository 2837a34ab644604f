"""`delegate page`: writes a run, a batch or a task as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from delegate._util.documents import replace_text
from delegate.cli.ci.logs import inert_markup, print_as_is
from delegate.cli.input.recorded import LAST, RunArgument, find, run_id_of
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.pages.page import run_page
from delegate.pages.reading import RunReader
from delegate.pages.values import PageView
from delegate.types.errors import CallError

_MARK = b'<meta name="generator" content="delegate page">'


def page(
    run: RunArgument = LAST,
    number: Annotated[int | None, typer.Argument(metavar="N", min=1, help="The number of a task of the run.")] = None,
    page: Annotated[
        int, typer.Option("--page", min=1, metavar="N", help="Which page of a run with more than 1,000 tasks.")
    ] = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write, or - for stdout.")
    ] = Path("page.html"),
) -> None:
    """Write a run or a batch as one HTML page that needs nothing else.

    It shows each task with its verdict, each quote of a judge where it stands
    in its source, when what ran, and what it cost. It loads nothing from
    elsewhere and works without scripts, so it can be mailed and archived. It
    contains what children wrote and read; known forms of secrets are removed.
    With more than 1,000 tasks, those that didn't pass are on the first page.
    """
    if output != Path("-"):
        _refuse_unusable(output)
    delegator = Delegator()

    async def read() -> PageView:
        id = await _id_of(delegator, run, number)
        async with RunReader(delegator.settings.home) as reader:
            return await reader.view(id, page)

    view = work(delegator, lambda _: read())
    html = run_page(view).html
    if output == Path("-"):
        print_as_is(inert_markup(html), end="")
        return
    try:
        replace_text(output, html)
    except OSError as error:
        raise CallError("bad_output", f"{output} can't be written: {error.strerror}", field="output") from None
    pages = [f"page {page} of {view.pages.of}"] if view.pages.of > 1 else []
    print(f"{output}: {', '.join([view.tally, *view.figures, *pages])}")


async def _id_of(delegator: Delegator, text: str, number: int | None) -> str:
    """The id of the run or batch, or the handle of the task, that is named. Raises CallError if there is none."""
    if number is None:
        try:
            return (await delegator.batches.summary(await run_id_of(delegator, text))).run_id
        except CallError as error:
            if error.code != "unknown_batch":
                raise
    record, tasks = await find(delegator, text, number)
    return str(record["handle"]) if record else tasks[0].run_id


def _refuse_unusable(path: Path) -> None:
    """Raise CallError for a path that can't be written, or that holds something other than a page."""
    if path.is_dir():
        raise CallError("bad_output", f"{path} is a folder", field="output", hint="name a file")
    if not path.absolute().parent.is_dir():
        raise CallError("bad_output", f"{path}: the folder doesn't exist", field="output", hint="create it first")
    if path.exists() and not path.is_file():  # a device or a pipe, which a page would replace
        raise CallError("bad_output", f"{path} isn't a regular file", field="output", hint="use - for stdout")
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if _MARK not in file.read(4_000):
                hint = "name another file, or delete this one"
                raise CallError("bad_output", f"{path} exists and isn't a page of delegate", field="output", hint=hint)
