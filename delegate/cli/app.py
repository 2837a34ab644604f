"""The command line: lists the subcommands, and imports the module of the one that is used."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from delegate.cli.ci.logs import print_as_is
from delegate.cli.input.options import with_json_option

COMMANDS = {
    "init": "Write a commented delegate.toml and an example of tasks.",
    "run": "Run one task, or a file of tasks, and print the verdicts.",
    "batch": "Run a file of tasks, several at a time, into a file of results.",
    "judge": "Judge existing work, without running a child.",
    "hook": "Judge what a coding agent's own agents did, as its hook.",
    "lint": "Find criteria that can't fail, such as `pytest || true`.",
    "call": "Execute one delegate_task call as a host would.",
    "demo": "Run three small tasks that show what verdicts are for.",
    "models": "List the models: which one judges, and why the others don't.",
    "doctor": "Check the setup, and say how to fix each problem.",
    "trust": "Let a folder's delegate.toml, or a file of tasks, count in full.",
    "tool": "Print the tool definition as JSON for a host.",
    "mcp": "Serve delegate_task over MCP to an editor or coding agent.",
    "serve": "Serve delegate over HTTP to programs in any language.",
    "rpc": "Serve delegate on stdin and stdout, one JSON object per line.",
    "runs": "List the latest runs.",
    "show": "Print everything on record of a task, or the tasks of a run.",
    "message": "Send a task an instruction, or continue one that has ended.",
    "page": "Write a run or batch as one HTML page.",
    "view": "Serve the pages of all runs to a browser on this machine.",
    "export": "Write the record of a run as trajectories or training data.",
    "merge": "Merge the work of tasks into your checkout, if it holds there.",
    "take-over": "Bring the changes of tasks into your checkout, all or nothing.",
    "rule": "Say whether a criterion is really met, to measure the judges.",
    "calibrate": "Print how often each judge is wrong, as measured by rulings.",
}
"""The subcommands as the help lists them, with one line on each. Each is a function in the module of its
name, with `_` for `-`."""
GROUPS = {"mcp": ("install",)}
"""Subcommands with subcommands of their own: `mcp install` is the function `install` in the module `mcp_install`."""


def function_of(name: str) -> Callable[..., Any]:
    """The function of a subcommand, such as `run` or `mcp install`. Imports its module."""
    module = import_module(f"delegate.cli.commands.{name.replace(' ', '_').replace('-', '_')}")
    return with_json_option(getattr(module, name.rpartition(" ")[2].replace("-", "_")))


def command_of(name: str) -> Any:
    """The command that runs the function of a subcommand. Those below it are added to it. Imports its module."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if name in GROUPS:
        single.callback(invoke_without_command=True)(function_of(name))
        for inner in GROUPS[name]:
            single.command()(function_of(f"{name} {inner}"))
    else:
        single.command()(function_of(name))
    return typer.main.get_command(single)


class _Commands(TyperGroup):
    """Lists its subcommands without importing them, for the help and the shell's completion."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand that the arguments name."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and command_of(listed.name or ""), rest


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


def _listed() -> None:
    """Stands for a subcommand in lists."""


app = typer.Typer(
    cls=_Commands,
    help="Delegate work to other agents and get verdicts that rest on evidence.",
    epilog="Exit codes: 0 if every verdict is PASS (or, without criteria, the child completed); 1 if any work "
    "is bad or a child didn't complete; 2 for invalid usage; 3 if nobody could look (no access, no judge, no "
    "budget, no sandbox); 130 if interrupted before there was a result. "
    "Results go to stdout; progress goes to stderr, on a terminal, and of batches always.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: shorter, and the same everywhere
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(options)
for _name, _text in COMMANDS.items():
    app.command(_name, short_help=_text)(_listed)
