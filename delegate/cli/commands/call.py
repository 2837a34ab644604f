"""`delegate call`: executes one tool call as a host would."""

import sys
from functools import partial
from typing import Annotated

import typer

from delegate.cli import exits
from delegate.cli.input.options import Format, TraceOption
from delegate.cli.screen.output import print_result_as
from delegate.cli.work import stoppable
from delegate.delegator import Delegator


def call(
    arguments: Annotated[
        str | None,
        typer.Argument(metavar="[JSON|-]", help="The arguments of the call. Read from stdin if omitted or `-`."),
    ] = None,
    trace: TraceOption = None,
) -> None:
    """Execute one delegate_task call exactly as a host would and print its result as JSON.

    A call that can't be executed costs nothing, prints an object with the key
    `error` and exits with 2, also without a key. Otherwise exits as `delegate
    run` does.
    """
    if arguments is None and sys.stdin.isatty():
        raise typer.BadParameter("pass the arguments of the call as JSON, or pipe them to stdin", param_hint="JSON")
    text = sys.stdin.buffer.read() if arguments in (None, "-") else arguments
    delegator = Delegator()
    result = stoppable(delegator, partial(delegator.call, text), trace=trace)
    print_result_as(Format.json, result)
    raise typer.Exit(exits.of_result(result))
