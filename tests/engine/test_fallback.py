"""A model that fails before its child has done anything gives way to the next one of its tier."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, RunResult, Settings, Task, Tool
from delegate.child.goal_tools import CLAIM
from delegate.contract import render
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from delegate.types import Tier
from delegate.types.events import Event
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.repeats import repeat_quickly

Script = Callable[[Call], Reply | Fault]
GONE = Fault(404, {"error": {"message": "the model a does not exist"}})


def model(id: str, price: float, tier: Tier = "standard") -> DeclaredModel:
    return DeclaredModel(id=id, tier=tier, input_price=price, output_price=price)


MODELS = (model("a", 1), model("b", 2), model("c", 3), model("d", 4), model("strong", 0.1, "deep"))


def settings(home: Path, url: str, models: tuple[DeclaredModel, ...] = MODELS, **more: object) -> Settings:
    endpoint = DeclaredEndpoint(name="e", base_url=url, protocol="openai", models=models)
    return Settings.model_validate({"home": home, "endpoints": (endpoint,), **more})


async def run(
    home: Path, fails: Script, *, tools: tuple[Tool, ...] | None = None, task: Task | None = None, **more: Any
) -> tuple[RunResult, list[str], list[Event]]:
    """The report, the model of each call, and the events."""
    events: list[Event] = []
    with ModelServer(fails) as server:
        async with Delegator(settings(home, server.openai_url, **more), tools=tools) as delegator:
            repeat_quickly(delegator)
            result = await delegator.run(task or Task(goal="Say hello."), on_event=events.append)
    return result, [call.model for call in server.calls], events


def failing(*models: str, fault: Fault = GONE) -> Script:
    return lambda call: fault if call.model in models else Reply(f"Hello from {call.model}.")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (GONE, "bad_request"),
        (Fault(410), "bad_request"),
        (Fault(401), "auth"),
        (Fault(403), "auth"),
        (Fault(529, headers={"retry-after": "3000"}), "overloaded"),
        pytest.param(Fault(503), "overloaded", marks=pytest.mark.slow),
        (Fault(500), "server_error"),
        (Fault(429, headers={"retry-after": "3000"}), "rate_limited"),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
async def test_the_next_model_of_the_tier_does_the_task(home: Path, fault: Fault, code: str) -> None:
    returned, models, events = await run(home, failing("a", fault=fault))
    (result,) = returned.results
    assert (result.status, result.report, result.requested_model) == ("completed", "Hello from b.", "b")
    assert [(failed.model, failed.error.code) for failed in result.failed_models] == [("a", code)]
    assert (models[0], models[-1], set(models)) == ("a", "b", {"a", "b"})
    started = [(event.model, event.instead_of) for event in events if event.kind == "child.started"]
    assert started == [("a", None), ("b", "a")]


async def test_the_record_and_the_text_for_the_parent_name_the_model_that_failed(home: Path) -> None:
    with ModelServer(failing("a")) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            result = await delegator.run(Task(goal="Say hello."))
            record = await delegator.records.read(result.results[0].handle or "")
    text = render(result)
    assert record
    assert "- in place of a, which failed at once:" in text
    assert "the model a does not exist" in text
    started = [event for event in record["events"] if event["kind"] == "child.started"]
    assert [event.get("instead_of") for event in started] == [None, "a"]
    assert "does not exist" in started[1]["reason"]
    assert record["result"]["failed_models"][0]["model"] == "a"


async def test_three_models_are_tried_and_the_error_is_that_of_the_last(home: Path) -> None:
    returned, models, _ = await run(home, failing("a", "b", "c", "d"))
    (result,) = returned.results
    assert models == ["a", "b", "c"]
    assert result.error
    assert result.error.code == "bad_request"
    assert [failed.model for failed in result.failed_models] == ["a", "b"]


def noted(calls: list[str], *, read_only: bool) -> Tool:
    async def note(_: object) -> str:
        calls.append("called")
        return "noted"

    return Tool("note", "Notes.", {"type": "object", "properties": {}}, note, read_only=read_only)


def fails_after_a_tool(call: Call) -> Reply | Fault:
    if call.model != "a":
        return Reply("Done.")
    return GONE if call.tool_results else Reply(tool_calls=(("note", {}),))


async def test_after_a_call_that_may_have_changed_something_no_model_takes_over(home: Path) -> None:
    calls: list[str] = []
    returned, models, _ = await run(home, fails_after_a_tool, tools=(noted(calls, read_only=False),))
    (result,) = returned.results
    assert (result.status, models, calls, result.failed_models) == ("failed", ["a", "a"], ["called"], ())


async def test_after_calls_that_only_read_another_model_begins_anew(home: Path) -> None:
    calls: list[str] = []
    returned, models, _ = await run(home, fails_after_a_tool, tools=(noted(calls, read_only=True),))
    (result,) = returned.results
    assert (result.status, models, calls) == ("completed", ["a", "a", "b"], ["called"])
    assert result.usage.model_calls == 2
    assert result.receipts.total == 1


@pytest.mark.parametrize("named", ["task", "settings"])
async def test_a_model_that_was_named_is_never_replaced(home: Path, named: str) -> None:
    task = Task(goal="Say hello.", model="a" if named == "task" else None)
    more: dict[str, Any] = {"model": "a"} if named == "settings" else {}
    result, models, _ = await run(home, failing("a"), task=task, **more)
    assert (result.results[0].status, models) == ("failed", ["a"])


async def test_a_model_of_another_tier_or_without_a_price_never_takes_over(home: Path) -> None:
    free = DeclaredModel(id="unpriced", tier="standard")
    others = (model("a", 1), free, model("weak", 0.1, "fast"), model("strong", 0.1, "deep"))
    result, models, _ = await run(home, failing("a"), models=others, max_cost_usd=5.0)
    assert (result.results[0].status, models) == ("failed", ["a"])


async def test_a_model_that_the_limit_has_no_room_for_is_left_out(home: Path) -> None:
    others = (model("a", 0.1), model("dear", 100), model("dearer", 200))
    result, models, _ = await run(home, failing("a"), models=others, max_cost_usd=0.5)
    assert (result.results[0].status, models) == ("failed", ["a"])


async def test_no_model_is_asked_again_at_an_address_that_cannot_be_reached(home: Path) -> None:
    with ModelServer(failing()) as server:
        there = DeclaredEndpoint(name="there", base_url=server.openai_url, protocol="openai", models=(model("z", 9),))
        dead = DeclaredEndpoint(name="dead", base_url="http://127.0.0.1:9/v1", protocol="openai", models=MODELS)
        async with Delegator(Settings(home=home, endpoints=(dead, there))) as delegator:
            repeat_quickly(delegator)
            run = await delegator.run(Task(goal="Say hello."))
    (result,) = run.results
    assert (result.report, [failed.model for failed in result.failed_models]) == ("Hello from z.", ["a"])


@pytest.mark.parametrize(
    "fault",
    [Fault(400), Fault(422), Fault(200, b"{}"), Fault(kind="truncate", status=200)],
    ids=["400", "422", "odd", "cut"],
)
async def test_what_may_have_been_billed_or_would_fail_anywhere_is_not_tried_elsewhere(
    home: Path, fault: Fault
) -> None:
    result, models, _ = await run(home, failing("a", fault=fault))
    assert (result.results[0].status, set(models)) == ("failed", {"a"})


async def test_in_goal_mode_another_model_begins_anew(home: Path) -> None:
    def script(call: Call) -> Reply | Fault:
        if call.model == "a":
            return GONE
        return Reply(tool_calls=((CLAIM, {"rationale": "It says twelve."}),))

    task = Task.model_validate(
        {"goal": "Count.", "mode": "goal", "acceptance_criteria": [{"kind": "regex", "pattern": "twelve"}]}
    )
    returned, models, _ = await run(home, script, task=task)
    (result,) = returned.results
    assert (result.goal_end, models[:2]) == ("verified", ["a", "b"])


async def test_a_secret_in_the_error_is_redacted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_API_KEY", secret := "hush-5df1-77aa-9cc1-0e4b")
    result, _, _ = await run(home, failing("a", fault=Fault(403, {"error": {"message": f"no {secret}"}})))
    (failed,) = result.results[0].failed_models
    assert secret not in result.model_dump_json()
    assert "no " in failed.error.message


async def test_a_models_call_may_give_way_to_one_without_a_price_where_nobody_limits_the_cost(home: Path) -> None:
    own = DeclaredModel(id="own", tier="standard")
    with ModelServer(failing("a")) as server:
        async with Delegator(settings(home, server.openai_url, (model("a", 1), own))) as delegator:
            (result,) = (await delegator.call({"goal": "Say hello."})).results
    assert (result.report, result.cost_usd) == ("Hello from own.", None)


async def test_the_next_model_reads_the_message_that_the_failed_one_was_sent(home: Path) -> None:
    failed: list[str] = []

    def script(call: Call) -> Reply | Fault:
        if call.model in failed:
            return GONE
        return Reply(f"Blue, says {call.model}." if "Name the color." in json.dumps(call.body) else "Hello.")

    with ModelServer(script) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            repeat_quickly(delegator)
            (first,) = (await delegator.run(Task(goal="Say hello."))).results
            failed.append("a")
            sent = await delegator.background.message(first.handle or "", "Name the color.")
            result = await delegator.background.result(sent.handle, wait_seconds=20)
    assert result
    assert result.report == "Blue, says b."
