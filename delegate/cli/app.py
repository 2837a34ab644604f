"""The command's parts put together. Each is a module of its own and imports what it needs when it is run."""

from importlib.metadata import version
from typing import Annotated

import typer

from delegate.cli import batch, call, demo, doctor, judge, lint, mcp, models, run, runs, show, tool

app = typer.Typer(
    help="Hand work to other agents, and know whether it was really done.",
    epilog="Exit codes: 0 every verdict is PASS (or, without criteria, the child completed); 1 any FAIL, or a child "
    "that didn't complete; 2 bad usage; 130 interrupted before there was a report. Results go to stdout, progress to "
    "stderr and only on a terminal.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

for command in (
    run.run,
    batch.batch,
    judge.judge,
    lint.lint,
    call.call,
    demo.demo,
    models.models,
    doctor.doctor,
    tool.tool,
    mcp.mcp,
    runs.runs,
    show.show,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(version("delegate-task"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before any command."""
