"""`delegate rpc`: serves delegate on stdin and stdout, one JSON object per line."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Annotated

import typer

from delegate._util.cancellation import Cancellation
from delegate.cli.input.runner import RunnerEnvOption, RunnerOption, RunnerOutputOption, runner_of
from delegate.cli.work import stoppable
from delegate.delegator import Delegator
from delegate.hosts.serve.rpc import answer, serve_lines
from delegate.types import JsonObject
from delegate.types.events import EventSink


def rpc(
    method: Annotated[
        str | None,
        typer.Argument(help="Answer one request of this method, whose parameters are on stdin as JSON, and exit."),
    ] = None,
    max_open: Annotated[int, typer.Option(min=1, help="How many calls may run at a time.")] = 100,
    runner: RunnerOption = None,
    runner_output: RunnerOutputOption = None,
    runner_env: RunnerEnvOption = None,
) -> None:
    """Serve delegate on stdin and stdout: one JSON object per line.

    `{"id": 1, "method": "call", "params": {"call": {"goal": "…"}}}` is answered
    with `{"id": 1, "result": …}` or `{"id": 1, "error": …}`. The methods are
    version, call, read, stop, message, messages, events, judge, listRubrics,
    approvals and approve; their parameters and results are those of `delegate
    serve`. At the end of stdin, what was asked for is answered first.

    With METHOD (judge, listRubrics or version), it answers one request as
    `agent-eval rpc METHOD` does, so that clients of agent-eval can start it.
    """
    delegator = Delegator(runner=runner_of(runner, runner_output, runner_env))

    async def line() -> str:
        return await asyncio.to_thread(sys.stdin.readline)

    async def call(*, on_event: EventSink | None, cancellation: Cancellation) -> bool:
        """Whether the one request was answered, if there is one."""
        with suppress(TimeoutError):
            async with cancellation.deadline():
                if method is None:
                    await serve_lines(delegator, line, _write, max_open=max_open)
                else:
                    answered = await answer(delegator, method, await asyncio.to_thread(sys.stdin.read))
                    _write(answered)
                    return "error" not in answered
        return True

    if not stoppable(delegator, call, titles=None):
        raise typer.Exit(1)


def _write(message: JsonObject) -> None:
    print(json.dumps(message, ensure_ascii=False), flush=True)
