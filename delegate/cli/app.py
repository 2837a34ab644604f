"""Assembles the command line from its subcommands, which import what they need when they run."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

COMMANDS = (
    "run",
    "batch",
    "judge",
    "lint",
    "call",
    "demo",
    "models",
    "doctor",
    "trust",
    "tool",
    "mcp",
    "runs",
    "show",
)
"""The subcommands, as the help lists them. Each is the function of this name in the module of this name."""
GROUPS = {"mcp": ("install",)}
"""Subcommands with subcommands of their own: `mcp install` is the function `install` in the module `mcp_install`."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments of the program. It has only the subcommand that they name, as each costs time."""
    return app_with(arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS)


def app_with(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The app with these subcommands."""
    app = typer.Typer(
        help="Delegate work to other agents and get verdicts that rest on evidence.",
        epilog="Exit codes: 0 if every verdict is PASS (or, without criteria, the child completed); 1 if any verdict "
        "is FAIL or a child didn't complete; 2 for invalid usage; 130 if interrupted before there was a report. "
        "Results go to stdout; progress goes to stderr, only on a terminal.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for name in commands:
        run = getattr(import_module(f"delegate.cli.{name}"), name)
        if name in GROUPS:
            app.add_typer(_group(name, run), name=name)
        else:
            app.command()(run)
    return app


def _group(name: str, run: Callable[..., None]) -> typer.Typer:
    """A subcommand that can be called by itself, with those below it."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(run)
    for inner in GROUPS[name]:
        group.command()(getattr(import_module(f"delegate.cli.{name}_{inner}"), inner))
    return group


def _version(wanted: bool) -> None:
    if wanted:
        print(version("delegate-task"))
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that precede the subcommand."""
