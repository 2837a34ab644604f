"""The options that name a program as the child, and what runs it."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from delegate.child.command import CommandRunner


ACP = "acp:"
"""What begins the command of an agent of the Agent Client Protocol."""
RunnerOutput = Literal["text", "json"]

RunnerOption = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Run this program as the child, such as `claude -p`; with `acp:` before it, an ACP agent.",
    ),
]
RunnerOutputOption = Annotated[
    RunnerOutput | None, typer.Option(help="What the program prints: its report as text, or JSON that contains it.")
]
RunnerEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Pass this environment variable, such as an API key, to the program; may be repeated."
    ),
]


def runner_of(command: str | None, output: RunnerOutput | None, env: list[str] | None) -> "CommandRunner | None":
    """The runner of these options, if they name one. Raises ConfigError, and BadParameter for options without it."""
    if command is not None and command.startswith(ACP):
        if output is not None:
            raise typer.BadParameter("an ACP agent reports by its protocol: leave it out", param_hint="--runner-output")
        from delegate.child.acp import AcpRunner  # `delegate mcp` answers a client before it loads this

        return AcpRunner(command.removeprefix(ACP), env=env or ())
    if command is not None:
        from delegate.child.command import CommandRunner  # `delegate mcp` answers a client before it loads this

        return CommandRunner(command, output=output or "text", env=env or ())
    if output is not None or env:
        option = "--runner-output" if output is not None else "--runner-env"
        raise typer.BadParameter("can only be used with --runner", param_hint=option)
    return None
