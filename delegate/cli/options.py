"""The option `--format`, which most commands share. Light, because every start of the command loads it."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How results are written."""

    pretty = "pretty"
    json = "json"
    jsonl = "jsonl"


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="pretty: for people, on a pipe too. json: one document. jsonl: one line per result."),
]

VERDICT_TOKENS = 5_000
"""What a judge typically reads: its card, the criteria, a report, a few files and tool calls."""
REPLY_TOKENS = 300
"""What it then writes, for one criterion."""
