"""`delegate tool`: the tool's definition, for a host."""

from enum import StrEnum
from typing import Annotated, cast

import typer


class VariantName(StrEnum):
    """How much of the typed criteria the definition spells out."""

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
        VariantName, typer.Option(help="full spells out every typed criterion, compact the three most used.")
    ] = VariantName.compact,
) -> None:
    """Print the tool's definition as JSON, in a host's dialect and with the limits in force."""
    from delegate.cli.output import print_json
    from delegate.contract import Dialect
    from delegate.delegator import Delegator

    with Delegator() as delegator:  # which refuses a dialect that there isn't
        print_json(delegator.tool(cast("Dialect", dialect), variant=variant.value))
