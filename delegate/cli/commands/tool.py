"""`delegate tool`: prints the definition of the tool for a host."""

from enum import StrEnum
from typing import Annotated, cast

import typer

from delegate.cli.screen.output import print_json
from delegate.contract import Dialect
from delegate.delegator import Delegator


class VariantName(StrEnum):
    """How many typed criteria the definition describes."""

    compact = "compact"
    full = "full"


def tool(
    dialect: Annotated[
        str,
        typer.Option(
            help="openai, openai-strict, openai-responses, openai-responses-strict, anthropic, gemini or mcp."
        ),
    ] = "openai",
    variant: Annotated[
        VariantName, typer.Option(help="full describes every typed criterion, compact the three most used.")
    ] = VariantName.compact,
) -> None:
    """Print the tool definition as JSON in the dialect of a host, with the current limits."""
    with Delegator() as delegator:  # raises CallError for an unknown dialect
        print_json(delegator.tool(cast("Dialect", dialect), variant=variant.value))
