"""A host's async functions as children: what they get and return, and how they are stopped."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from delegate import Cancellation, ConfigError, Delegator, Job, Task
from delegate.child.function import FunctionRunner
from delegate.engine import task_run
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending
from delegate.types import ChildRun, TaskResult, Usage
from delegate.types.ports import Tool, ToolOutput
from tests.support.words import met_by, words

CALLED = {"kind": "receipt", "calls": [{"tool": "send"}]}
SHOWN = {"kind": "probe", "tool": "read", "args": {"id": {"from": {"tool": "send", "path": "$"}}}, "expr": "value > 0"}
NEVER = {"kind": "receipt", "mode": "none", "calls": [{"tool": "send"}]}


async def done(function: Any, *, records_tools: bool = False, **fields: Any) -> TaskResult:
    async with Delegator(runner=FunctionRunner(function, records_tools=records_tools)) as delegator:
        result = await delegator.run(Task.model_validate({"goal": "Count the files.", **fields}))
    assert result.error is None
    return result.results[0]


async def test_a_functions_text_is_the_report_and_its_files_are_artifacts() -> None:
    async def child(job: Job) -> str:
        (job.workspace / "count.txt").write_text("3")
        return f"{job.task.goal} {job.task.context}: 3"

    result = await done(child, context="In here", acceptance_criteria=[{"kind": "regex", "pattern": "3$"}])
    assert result.report == "Count the files. In here: 3"
    assert [artifact.path for artifact in result.artifacts] == ["count.txt"]
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.decided_by) == ("PASS", "check")


async def test_the_prompt_contains_everything_that_the_task_specifies() -> None:
    async def child(job: Job) -> str:
        assert str(job.workspace) in job.prompt
        return job.prompt

    result = await done(
        child, context="Only *.py.", acceptance_criteria=["every file is counted"], output_schema={"type": "object"}
    )
    for told in ("Count the files.", "Only *.py.", "- c1: every file is counted", "```json"):
        assert told in result.report
    assert "turns" not in result.report, "the function has its own limit"


async def test_a_function_that_blocks_the_event_loop_past_its_deadline_is_no_completed_child() -> None:
    async def child(job: Job) -> str:
        time.sleep(0.2)  # noqa: ASYNC251
        return "done"

    result = await done(child, timeout_seconds=0.1)
    assert (result.status, result.error and result.error.message) == ("timeout", "ran longer than 0.1 s")
    assert (await done(child, timeout_seconds=10)).status == "completed"


async def test_a_run_that_a_function_makes_itself_is_taken_as_it_is() -> None:
    async def child(job: Job) -> ChildRun:
        return job.recorder.finish("max_steps", report="not yet")

    result = await done(child)
    assert (result.status, result.report) == ("max_steps", "not yet")


class Count(BaseModel):
    total: float


@pytest.mark.parametrize("report", [{"total": 3}, Count(total=3), {"total": 3, "parts": [Count(total=3)]}], ids=str)
async def test_a_report_that_is_a_value_is_its_json(report: Any) -> None:
    async def child(job: Job) -> Any:
        return report

    result = await done(child, output_schema={"type": "object", "required": ["total"]})
    assert result.verdict
    assert (result.verdict.verdict, (result.structured_output or {})["total"]) == ("PASS", 3)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (3, "a int, which is neither text"),
        (None, "a NoneType, which is neither text"),
        ({"path": Path("x")}, "a dict, which can't be written as JSON: it contains a PosixPath"),
        ([float("nan")], "a list, which can't be written as JSON: "),
        (Count(total=float("inf")), "a Count, which can't be written as JSON: "),
    ],
    ids=["int", "None", "path", "nan", "infinity"],
)
async def test_a_function_that_gives_back_something_else_has_failed_and_says_so(report: Any, why: str) -> None:
    async def child(job: Job) -> Any:
        return report

    result = await done(child)
    assert result.status == "failed"
    assert result.error
    assert result.error.code == "bad_report"
    assert f"the child's function returned {why}" in result.error.message


async def test_what_a_function_raises_is_its_result() -> None:
    async def child(job: Job) -> str:
        raise ValueError("no such model")

    result = await done(child)
    assert result.error
    assert (result.status, result.error.message) == ("failed", "ValueError: no such model")


def blocking(job: Job) -> str:
    return "late"


class Agent:
    async def __call__(self, job: Job) -> str:
        return "called"

    async def work(self, job: Job, greeting: str) -> str:
        return greeting

    def block(self, job: Job) -> str:
        return "late"


@pytest.mark.parametrize("function", [blocking, Agent().block, partial(blocking)])
def test_a_function_that_could_not_be_stopped_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="not an async function"):
        FunctionRunner(function)


@pytest.mark.parametrize(("function", "said"), [(Agent(), "called"), (partial(Agent().work, greeting="hi"), "hi")])
async def test_objects_methods_and_partials_are_functions_too(function: Any, said: str) -> None:
    assert (await done(function)).report == said


@pytest.mark.parametrize(("function", "said"), [(Agent(), "called"), (partial(Agent().work, greeting="hi"), "hi")])
async def test_a_delegator_runs_an_async_function_itself(function: Any, said: str) -> None:
    async with Delegator(runner=function) as delegator:
        (result,) = (await delegator.run(Task(goal="x"))).results
    assert result.report == said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (blocking, "blocking is not an async function"),
        (Agent, "Agent is neither an async function nor an instance"),
        (FunctionRunner, "FunctionRunner is neither an async function nor an instance"),
        ("claude -p", "str is neither an async function nor an instance"),
    ],
)
def test_what_is_no_runner_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Delegator(runner=given)


async def test_a_cancel_reaches_the_function_where_it_awaits() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def child(job: Job) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with Delegator(runner=FunctionRunner(child)) as delegator:
        cancellation = Cancellation()
        running = asyncio.create_task(delegator.run(Task(goal="wait"), cancellation=cancellation))
        await begun.wait()
        cancellation.cancel()
        result = await running
    assert stopped.is_set()
    assert result.results[0].status == "cancelled"


@pytest.mark.parametrize("status", ["timeout", "cancelled"])
async def test_a_function_that_swallows_its_cancel_is_left_behind(
    status: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(job: Job) -> str:
        begun.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        return "late"

    monkeypatch.setattr(task_run, "GRACE_SECONDS", 0.05)
    async with Delegator(runner=stubborn) as delegator:
        cancellation = Cancellation()
        task = Task(goal="Never stop.", timeout_seconds=0.05 if status == "timeout" else None)
        running = asyncio.create_task(delegator.run(task, cancellation=cancellation))
        await begun.wait()
        if status == "cancelled":
            cancellation.cancel()
        async with asyncio.timeout(5):
            (result,) = (await running).results
        go_on.set()
    assert result.status == status
    assert "stubborn of task 1 swallowed its cancel and was left behind after 0.05 s" in caplog.text


async def test_a_canceled_host_gets_control_back_from_a_stubborn_function(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(job: Job) -> str:
        begun.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        return "late"

    monkeypatch.setattr(task_run, "GRACE_SECONDS", 0.05)
    async with Delegator(runner=stubborn) as delegator:
        running = asyncio.create_task(delegator.run(Task(goal="Never stop.")))
        await begun.wait()
        running.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait([running])
        go_on.set()
    assert running.cancelled()


async def send(job: Job) -> str:
    job.record_tool("send", {"to": "ann"}, "sent", seconds=0.5)
    job.record_tool("send", {"to": "bob"}, ToolOutput("no such address", "error"))
    return "I sent it."


@pytest.mark.parametrize(
    ("criterion", "level", "code"),
    [
        (NEVER | {"calls": [{"tool": "send", "args": {"to": "cid"}}]}, "proven", "met"),
        (NEVER | {"calls": [{"tool": "refnud"}]}, "trusted", "unknown_tool"),
        (NEVER | {"calls": [], "of": ["run_shell"]}, "trusted", "unknown_tool"),
        (CALLED | {"mode": "exactly", "of": ["send", "refnud"]}, "trusted", "unknown_tool"),
    ],
)
async def test_that_a_tool_was_not_called_is_proven_only_if_there_is_such_a_tool(
    criterion: dict[str, Any], level: str, code: str
) -> None:
    verdict = (await done(send, records_tools=True, acceptance_criteria=[criterion])).verdict
    assert verdict
    assert (verdict.verdict, verdict.level, verdict.code) == ("PASS", level, code)
    assert verdict.verified is (level == "proven")


@pytest.mark.parametrize(("gives_job_tools", "level"), [(True, "proven"), (False, "trusted")])
async def test_the_tools_of_the_job_are_known_if_a_framework_s_agent_gets_them(
    gives_job_tools: bool, level: str
) -> None:
    async def play(job: Job, recorder: ChildRecorder) -> Ending:
        return Ending("I ran nothing.")

    runner = AgentRunner(ChildRecorder, play, gives_job_tools=gives_job_tools)
    async with Delegator(runner=runner) as delegator:
        (result,) = (await delegator.run(Task(goal="x", acceptance_criteria=("never called: run_shell",)))).results
    assert result.verdict
    assert result.verdict.level == level


async def test_a_tool_that_a_host_declares_for_its_children_is_known() -> None:
    def delete(path: str) -> str:
        """Delete a file."""
        return path

    runner, task = (
        FunctionRunner(send, records_tools=True),
        Task(goal="x", acceptance_criteria=("never called: delete",)),
    )
    async with Delegator(runner=runner, tools=[delete]) as delegator:
        (result,) = (await delegator.run(task)).results
    assert result.verdict
    assert result.verdict.level == "proven"


async def test_receipts_of_a_function_that_records_its_tools_decide() -> None:
    result = await done(send, records_tools=True, acceptance_criteria=[CALLED])
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.receipts) == ("PASS", "recorded")
    assert (result.receipts.ok, result.receipts.error, result.receipts.tools) == (1, 1, {"send": 1})


@pytest.mark.parametrize("criterion", [CALLED, NEVER])
async def test_without_a_record_of_tools_no_criterion_about_calls_can_be_met(criterion: Any) -> None:
    async def child(job: Job) -> str:
        return "I sent it, once."

    result = await done(child, acceptance_criteria=[criterion])
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "no_receipts")
    assert result.verdict.receipts == "unavailable"
    assert not result.receipts.recorded


@pytest.mark.parametrize("criterion", [CALLED, SHOWN], ids=["receipt", "probe"])
async def test_receipts_that_may_be_incomplete_name_what_is_missing(criterion: Any) -> None:
    async def read(arguments: Mapping[str, Any]) -> str:
        return "1"

    reader = Tool("read", "Read a mail.", {"type": "object"}, read, read_only=True)
    async with Delegator(runner=send, tools=[reader]) as delegator:
        run = await delegator.run(Task.model_validate({"goal": "Send it.", "acceptance_criteria": [criterion]}))
    result = run.results[0]
    assert result.verdict
    assert (result.receipts.total, result.verdict.code) == (2, "no_receipts")
    assert "doesn't promise a complete record" in result.verdict.reasoning
    assert "`records_tools=True`" in result.verdict.reasoning


class Silent:
    """A host's runner that doesn't say whether it records tools."""

    needs_model = False

    async def run(self, job: Job) -> ChildRun:
        return job.recorder.finish("completed", report="I sent nothing.")


async def test_recorded_usage_is_counted_and_a_missing_cost_is_unknown() -> None:
    async def child(job: Job) -> str:
        used = Usage(model_calls=1, input_tokens=100, output_tokens=10)
        job.record_usage(used, 0.25, model="host-1")
        job.record_usage(used, 0.5 if job.task.goal == "tell" else None)
        return "done"

    told, half = await done(child, goal="tell"), await done(child, goal="half")
    assert (told.usage.total_tokens, told.usage.model_calls, told.cost_usd) == (220, 2, 0.75)
    assert (told.cost_provenance, told.model) == ("observed", "host-1")
    assert (half.cost_usd, half.cost_known_usd, half.cost_provenance) == (None, 0.25, "unknown")


async def test_what_a_function_spent_counts_against_the_limits_of_the_run() -> None:
    async def child(job: Job) -> str:
        job.record_usage(Usage(model_calls=1, input_tokens=2_000), 0.01)
        return "counted three files"

    judge = words([], met_by("three files"))
    async with Delegator(runner=FunctionRunner(child), client=judge, max_run_tokens=1_000) as delegator:
        result = await delegator.call({"goal": "Count.", "acceptance_criteria": ["the report names a number"]})
    assert result.results[0].verdict
    assert result.results[0].verdict.code == "budget_exceeded"
    assert not judge.requests
