"""`delegate init`: writes the settings and the tasks with which one starts in a folder."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delegate import trust
from delegate.cli.input.choice import choose
from delegate.delegator import Delegator
from delegate.errors import ConfigError

if TYPE_CHECKING:
    from delegate.cli.input.starting import Start

TASKS = "tasks.yaml"


def init(
    force: Annotated[bool, typer.Option("--force", help="Replace the files if they exist.")] = False,
) -> None:
    """Write a delegate.toml and a tasks.yaml to start with, and say what to run next.

    On a terminal, it asks which model to use, among those that your keys and
    the servers on this machine offer; else it asks nothing. It replaces no file
    without --force, and calls no model.
    """
    from delegate.cli.input import starting  # loads an HTTP client

    files = [Path(trust.NAME), Path(TASKS)]
    if not force and (there := [str(file) for file in files if file.is_symlink() or file.exists()]):
        raise ConfigError(
            f"{' and '.join(there)} exist{'s' * (len(there) == 1)}; nothing was written (--force replaces)"
        )
    allowed = starting.own_settings()
    start = starting.ask(allowed) if sys.stdin.isatty() else starting.Start()
    for file, text in zip(files, (starting.settings_text(allowed, start), starting.TASKS_TEXT), strict=True):
        starting.write(file, text, replace=force)
        print(f"wrote {file}")
    print(_next(start))


def _next(start: "Start") -> str:
    """What to run now."""
    run = f"`delegate run --file {TASKS} --out results`"
    if named := os.environ.get("DELEGATE_CONFIG"):
        return f"Next: unset DELEGATE_CONFIG, since {named} is read in place of {trust.NAME}; then {run}"
    if start.endpoint:
        return f"Next: `delegate trust`, since {trust.NAME} declares a server; then {run}"
    if (problem := choose(Delegator()).problem) is not None:
        return f"Next: `delegate doctor`, because {problem.message}; then {run}"
    return f"Next: {run}"
