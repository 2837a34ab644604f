"""Assembles the command line from its subcommands, which import what they need when they run."""

from importlib.metadata import version
from typing import Annotated

import typer

from delegate.cli import batch, call, demo, doctor, judge, lint, mcp, models, run, runs, show, tool, trust

app = typer.Typer(
    help="Delegate work to other agents and get verdicts that rest on evidence.",
    epilog="Exit codes: 0 if every verdict is PASS (or, without criteria, the child completed); 1 if any verdict is "
    "FAIL or a child didn't complete; 2 for invalid usage; 130 if interrupted before there was a report. Results go to "
    "stdout; progress goes to stderr, only on a terminal.",
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
    trust.trust,
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
    """Options that precede the subcommand."""
