"""Options that most commands share. Imported on every start of the command, so it imports little."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


class Format(StrEnum):
    """The output format."""

    pretty = "pretty"
    json = "json"
    jsonl = "jsonl"


TierName = Literal["deep", "standard", "fast"]

FormatOption = Annotated[
    Format, typer.Option("--format", help="pretty: text. json: one document. jsonl: one line per result.")
]

PlanOption = Annotated[
    bool,
    typer.Option("--plan", help="Print the models, the estimated cost and what the tasks ask for, and run nothing."),
]

TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Append OpenTelemetry spans to this file, as OTLP JSON. Needs the extra `otel`."),
]

CriteriaOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--criterion", metavar="CRITERION", help="An acceptance criterion; may be repeated."),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]


def with_json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` to a command that has `--format`."""
    signature = inspect.signature(command)
    if "format" not in signature.parameters:
        return command

    @wraps(command)
    def with_json(*, as_json: bool, **arguments: Any) -> Any:
        return command(**arguments | ({"format": Format.json} if as_json else {}))

    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    parameters = [*signature.parameters.values(), option]
    with_json.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_json.__annotations__ = {**command.__annotations__, "as_json": JsonOption}
    return with_json


VERDICT_TOKENS = 5_000
"""Typical input of a judge: its card, the criteria, a report, and a few files and tool calls."""
REPLY_TOKENS = 300
"""Typical output of a judge for one criterion."""
