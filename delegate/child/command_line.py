"""Parses the command that an operator gives as the child. It imports little: see `delegate mcp`."""

import os
import re
import shlex
import shutil
from collections.abc import Sequence

from delegate.types.errors import ConfigError

PLACEHOLDER = re.compile(r"(--?[\w-]+=)?\{(prompt|goal)\}")
"""A placeholder is an argument of its own, or the value of an option. Inside a script it would be run as code."""
_ANY_PLACEHOLDER = re.compile(r"\{(?:prompt|goal)\}")


def parse_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """The arguments of a command line, with the absolute path of its program.

    Raises:
        ConfigError: It can't be parsed, the program isn't found, or a placeholder is part of a longer argument.
    """
    try:
        arguments = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as problem:
        raise ConfigError(f"the runner's command {command!r} can't be parsed: {problem}") from None
    if not arguments or not arguments[0].strip():
        raise ConfigError("the runner's command is empty; name a program, such as `claude -p`")
    for argument in arguments:
        if _ANY_PLACEHOLDER.search(argument) and not PLACEHOLDER.fullmatch(argument):
            raise ConfigError(
                f"the runner's argument {argument!r} has a placeholder inside: make the placeholder an argument of its "
                "own, or let the program read stdin. Inside a script, the text would be run as code"
            )
    if (path := shutil.which(arguments[0])) is None:
        fix = "install it, or give its path"
        raise ConfigError(f"the runner's program {arguments[0]!r} was not found or can't be executed: {fix}")
    return (os.path.abspath(path), *arguments[1:])  # a relative path would be another from a workspace


def variables(names: Sequence[str]) -> dict[str, str]:
    """The values of environment variables to pass on. Raises ConfigError for one that isn't set."""
    for name in names:
        if "=" in name:
            raise ConfigError("give only the name of an environment variable to pass to the runner, without its value")
        if name not in os.environ:
            raise ConfigError(
                f"the environment variable {name!r} to pass to the runner isn't set: set it, or leave it out"
            )
    return {name: os.environ[name] for name in names}
