"""Assembles the command line from its subcommands, which import what they need when they run."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from delegate.cli.ci.logs import print_as_is
from delegate.cli.input.options import with_json_option

COMMANDS = (
    "init",
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
    "report",
    "view",
    "export",
    "take-over",
    "rule",
    "calibrate",
)
"""The subcommands, as the help lists them. Each is the function of this name, with `_` for `-`, in the module of this
name."""
GROUPS = {"mcp": ("install",)}
"""Subcommands with subcommands of their own: `mcp install` is the function `install` in the module `mcp_install`."""

_SHORT_HELP = {
    "init": "Write a commented delegate.toml and an example of tasks.",
    "run": "Run one task, or a file of tasks, and print the verdicts.",
    "batch": "Run a file of tasks, several at a time, into a file of results.",
    "judge": "Judge existing work, without running a child.",
    "lint": "Find criteria that can't fail, such as `pytest || true`.",
    "call": "Execute one delegate_task call as a host would.",
    "demo": "Run three small tasks that show what verdicts are for.",
    "models": "List the models: which one judges, and why the others don't.",
    "doctor": "Check the setup, and say how to fix each problem.",
    "trust": "Let a folder's delegate.toml, or a file of tasks, count in full.",
    "tool": "Print the tool definition as JSON for a host.",
    "mcp": "Serve delegate_task over MCP to an editor or coding agent.",
    "runs": "List the latest runs.",
    "show": "Print everything on record of a task, or the tasks of a run.",
    "report": "Write a run or batch as one HTML page.",
    "view": "Serve the reports of all runs to a browser on this machine.",
    "export": "Write the record of a run as trajectories or training data.",
    "take-over": "Bring the changes of tasks into your checkout, all or nothing.",
    "rule": "Say whether a criterion is really met, to measure the judges.",
    "calibrate": "Print how often each judge is wrong, as measured by rulings.",
}
"""What the list of commands says, where the first sentence of a command's help is too long for one line."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments of the program. It has only the subcommand that they name, as each costs time."""
    return app_with(arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS)


def app_with(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The app with these subcommands."""
    app = typer.Typer(
        help="Delegate work to other agents and get verdicts that rest on evidence.",
        epilog="Exit codes: 0 if every verdict is PASS (or, without criteria, the child completed); 1 if any work "
        "is bad or a child didn't complete; 2 for invalid usage; 3 if nobody could look (no access, no judge, no "
        "budget, no sandbox); 130 if interrupted before there was a report. "
        "Results go to stdout; progress goes to stderr, only on a terminal.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: shorter, and the same everywhere
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in commands:
        module = name.replace("-", "_")
        run = with_json_option(getattr(import_module(f"delegate.cli.commands.{module}"), module))
        if name in GROUPS:
            app.add_typer(_group(name, run), name=name, short_help=_SHORT_HELP.get(name))
        else:
            app.command(name, short_help=_SHORT_HELP.get(name))(run)
    return app


def _group(name: str, run: Callable[..., None]) -> typer.Typer:
    """A subcommand that can be called by itself, with those below it."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(run)
    for inner in GROUPS[name]:
        group.command()(getattr(import_module(f"delegate.cli.commands.{name}_{inner}"), inner))
    return group


def _version(wanted: bool) -> None:
    if wanted:
        print_as_is(version("delegate-task"))
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that precede the subcommand."""
