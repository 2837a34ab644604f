"""`delegate init`: writes the settings and the tasks with which one starts in a folder."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from delegate.cli.input.choice import choose
from delegate.delegator import Delegator
from delegate.policy import trust
from delegate.types.errors import ConfigError

TASKS = "tasks.yaml"


def init(force: Annotated[bool, typer.Option("--force", help="Replace the files if they exist.")] = False) -> None:
    """Write a delegate.toml and a tasks.yaml to start with, and say what to run next.

    On a terminal, it asks which model to use, among those that your keys and
    the servers on this machine offer; else it asks nothing. It replaces no file
    without --force, and calls no model.
    """
    from delegate.cli.input import starting  # loads an HTTP client

    files = [Path(trust.NAME), Path(TASKS)]
    if not force and (there := [str(file) for file in files if file.is_symlink() or file.exists()]):
        exist = "exists" if len(there) == 1 else "exist"
        raise ConfigError(f"{' and '.join(there)} {exist}; nothing was written (--force replaces)")
    allowed = starting.own_settings()
    start = starting.ask(allowed) if sys.stdin.isatty() else starting.Start()
    for file, text in zip(files, (starting.settings_text(allowed, start), starting.TASKS_TEXT), strict=True):
        starting.write(file, text, replace=force)
        print(f"wrote {file}")
    before = ""
    if named := trust.named_file(os.environ):
        before = f"unset DELEGATE_CONFIG, since {named} is read in place of {trust.NAME}; then "
    elif start.endpoint:
        before = f"`delegate trust`, since {trust.NAME} declares a server; then "
    elif (problem := choose(Delegator()).problem) is not None:
        before = f"`delegate doctor`, because {problem.message}; then "
    print(f"Next: {before}`delegate run --file {TASKS} --out results`")
