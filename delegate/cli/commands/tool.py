"""`delegate tool`: prints the definition of the tool for a host."""

from typing import Annotated, Literal, cast

import typer

from delegate.cli.screen.output import print_json
from delegate.contract import Dialect
from delegate.delegator import Delegator


def tool(
    dialect: Annotated[
        str,
        typer.Option(
            help="openai, openai-strict, openai-responses, openai-responses-strict, anthropic, gemini or mcp."
        ),
    ] = "openai",
    variant: Annotated[
        Literal["compact", "full"],
        typer.Option(help="full describes every typed criterion, compact the three most used."),
    ] = "compact",
) -> None:
    """Print the tool definition as JSON in the dialect of a host, with the current limits."""
    with Delegator() as delegator:  # raises CallError for an unknown dialect
        print_json(delegator.tool(cast("Dialect", dialect), variant=variant))
