"""Options that most commands share. Imported on every start of the command, so it imports little."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The output format."""

    pretty = "pretty"
    json = "json"
    jsonl = "jsonl"


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="pretty: text. json: one document. jsonl: one line per result."),
]

VERDICT_TOKENS = 5_000
"""Typical input of a judge: its card, the criteria, a report, and a few files and tool calls."""
REPLY_TOKENS = 300
"""Typical output of a judge for one criterion."""
