"""Code of a host that ends the program, as `sys.exit` does: only what called it fails, and every call returns."""

import asyncio
import sys
import threading
from typing import Any, NoReturn

import pytest

from delegate import Delegator, Job, RunResult, Task
from delegate.testing import Scripted

SECONDS = 20


class Stop(BaseException):
    pass


def leave(error: BaseException) -> NoReturn:
    if isinstance(error, SystemExit):
        sys.exit(3)
    raise error


def returned(task: Task | None = None, *, on_event: Any = None, **options: Any) -> RunResult:
    """What `run_sync` returns, called on a thread that can be left if it doesn't return."""
    results: list[RunResult] = []

    def run() -> None:
        with Delegator(**options) as delegator:
            results.append(delegator.run_sync(task or Task(goal="Do it."), on_event=on_event))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert results, "run_sync didn't return"
    return results[0]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Stop()], ids=repr)
@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_function_child_that_exits_has_failed(error: BaseException, in_a_task: bool) -> None:
    async def child(job: Job) -> str:
        async def work() -> NoReturn:
            leave(error)

        return await (asyncio.create_task(work()) if in_a_task else work())

    (result,) = returned(runner=child).results
    assert (result.status, result.error and result.error.code) == ("failed", "crashed")
    assert result.error
    assert type(error).__name__ in result.error.message


async def test_a_child_that_exits_leaves_the_event_loop_of_the_caller_running() -> None:
    async def child(job: Job) -> str:
        if job.task.goal == "exit":
            sys.exit(3)
        return "done"

    async with Delegator(runner=child) as delegator:
        result = await delegator.run(Task(goal="exit"), Task(goal="stay"))
    assert [one.status for one in result.results] == ["failed", "completed"]


def exits(x: int) -> str:
    """Exit."""
    sys.exit(x)


async def exits_async(x: int) -> str:
    """Exit."""
    sys.exit(x)


@pytest.mark.parametrize("function", [exits, exits_async])
def test_a_tool_that_exits_is_a_failed_call_and_the_child_goes_on(function: Any) -> None:
    client = Scripted([Scripted.call(function.__name__, x=3), "It failed."])
    (result,) = returned(client=client, tools=[function]).results
    assert (result.status, result.report, result.receipts.error) == ("completed", "It failed.", 1)
    assert "SystemExit(3)" in client.requests[1].messages[-1].tool_replies[0].text


def changes(x: int) -> str:
    """Change it."""
    return "changed"


def test_an_approval_that_exits_is_none() -> None:
    async def ask(request: object) -> bool:
        sys.exit(0)

    client = Scripted([Scripted.call("changes", x=1), "Not done."])
    policy = {"undeclared_effect": "ask"}
    (result,) = returned(client=client, tools=[changes], policy=policy, on_approval=ask).results
    assert (result.receipts.ok, result.receipts.denied) == (0, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_consumer_of_events_that_exits_harms_no_run(is_async: bool) -> None:
    async def child(job: Job) -> str:
        return "done"

    def sink(event: object) -> None:
        sys.exit(3)

    async def async_sink(event: object) -> None:
        sys.exit(3)

    assert returned(runner=child, on_event=async_sink if is_async else sink).results[0].status == "completed"


def test_a_client_of_a_judge_that_exits_is_no_verdict() -> None:
    async def child(job: Job) -> str:
        return "done"

    def reply(request: object) -> str:
        sys.exit(3)

    task = Task(goal="Do it.", acceptance_criteria=["it reads well"])  # pyright: ignore[reportArgumentType]
    (result,) = returned(task, runner=child, client=Scripted(reply)).results
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "internal_error")
