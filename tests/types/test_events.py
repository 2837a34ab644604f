"""The stream of events: every kind that real runs produce fits `schemas/event.json`, live and on record."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from delegate import Delegator, Event, Task
from delegate._util import resources
from delegate.batch.item import Item
from delegate.engine import task_events
from delegate.models.providers.scripted import Scripted
from delegate.types.events import LIVE_CHARS, ChildTool, ChildUsage, EventSink, as_json
from tests.support.words import met_by, words

WHOLE: Any = resources.schema("event")
SCHEMA: Any = Draft202012Validator(WHOLE)
SCHEMAS: dict[str, Any] = {
    WHOLE["$defs"][one["$ref"].rpartition("/")[2]]["properties"]["kind"]["const"]: Draft202012Validator(
        {**one, "$defs": WHOLE["$defs"]}
    )
    for one in WHOLE["oneOf"]
}
"""The part of the schema that is about each kind: the whole tries every kind on every event."""
KINDS = [one.kind for one in Event.__args__]
LONG = "I thought about it. " * 50
CRITERIA = [{"kind": "regex", "pattern": "thought"}, "the report says that it was thought about"]


def thinker() -> Scripted:
    return words([Scripted.call("think", thought=LONG), LONG], met_by("I thought"))


def task(goal: str) -> Task:
    return Task.model_validate({"goal": goal, "acceptance_criteria": CRITERIA})


async def run_of(*goals: str) -> tuple[list[Event], list[dict[str, Any]]]:
    """The delivered events of a run, and the recorded ones of its tasks."""
    live: list[Event] = []
    async with Delegator(client=thinker(), on_event=live.append, stream_text=True) as delegator:
        run = await delegator.run(*map(task, goals))
        records = [await delegator.records.read(result.handle or "") for result in run.results]
    return live, [event for record in records if record for event in record["events"]]


def misfits(written: Sequence[dict[str, Any]]) -> list[str]:
    """The errors of events, by the part of the schema for their kind."""
    return [
        f"{one['kind']}: {error.message}"
        for one in written
        for error in SCHEMAS.get(one["kind"], SCHEMA).iter_errors(one)
    ]


OTHER_MODES = {
    "claim.made", "claim.judged", "judge.waiting", "approval.asked", "approval.answered", "step.declared",
    "step.verified", "message.delivered", "question.asked", "question.answered",
}  # fmt: skip
"""Kinds of goal mode, rate limits, approvals, messages, questions and tasks with steps: they have own tests."""


async def test_every_event_of_a_run_fits_the_schema_live_and_on_record() -> None:
    live, recorded = await run_of("a", "b", "c", "d")
    assert {event.kind for event in live} == set(KINDS) - OTHER_MODES
    assert misfits([as_json(event) for event in live]) == []
    assert [error.message for event in live for error in SCHEMA.iter_errors(as_json(event))] == []
    assert misfits(json.loads(json.dumps(recorded))) == []
    assert {event["kind"] for event in recorded} <= {event.kind for event in live}


async def test_the_schema_refuses_events_with_other_fields_or_kinds() -> None:
    live, _ = await run_of("a")
    good = as_json(live[0])
    assert SCHEMA.is_valid(good)
    assert not SCHEMA.is_valid(good | {"text": "more"})
    assert not SCHEMA.is_valid(good | {"kind": "model_called"})
    assert not SCHEMA.is_valid({name: value for name, value in good.items() if name != "at"})


async def test_each_event_names_its_run_and_task_in_the_order_of_time() -> None:
    live, recorded = await run_of("a", "b")
    run_id = live[0].run_id
    assert {event.run_id for event in live} == {run_id} == {event["run_id"] for event in recorded}
    of_runs = [event for event in live if event.task_index is None]
    assert [(event.kind, event.handle) for event in of_runs] == [("run.started", None), ("run.done", None)]
    assert (live[0], live[-1]) == tuple(of_runs)
    assert {(event.task_index, event.handle) for event in live[1:-1]} == {(0, f"{run_id}-0"), (1, f"{run_id}-1")}
    assert [event.at for event in live] == sorted(event.at for event in live)


async def test_a_delivered_text_is_cut_and_the_recorded_one_is_whole() -> None:
    live, recorded = await run_of("a")
    (*_, said) = (event for event in live if isinstance(event, ChildUsage))
    (*_, kept) = (event for event in recorded if event["kind"] == "child.usage")
    assert said.text == LONG[:LIVE_CHARS]
    assert kept["text"] == LONG
    assert kept["at"] == said.at


async def test_consumers_cannot_change_an_event_or_what_is_in_it() -> None:
    live, _ = await run_of("a")
    tool = next(event for event in live if isinstance(event, ChildTool))
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool.status = "error"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        tool.args["thought"] = "another"  # pyright: ignore[reportIndexIssue]
    usage = next(event for event in live if isinstance(event, ChildUsage))
    assert usage.calls[0].args == {"thought": LONG[:LIVE_CHARS]}


@pytest.mark.parametrize("depth", [450, 900])
async def test_deeply_nested_arguments_do_not_fail_a_run_that_is_watched(depth: int) -> None:
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested]
    statuses: list[str] = []
    for on_event in (None, as_json):
        client = words([Scripted.call("no_such_tool", nested=nested), LONG])
        async with Delegator(client=client, on_event=on_event) as delegator:
            statuses.append((await delegator.run(Task(goal="a"))).results[0].status)
    assert statuses[0] == statuses[1]


async def test_no_event_is_built_if_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: object, **fields: object) -> Event:
        raise AssertionError("built an event")

    monkeypatch.setattr(task_events, "from_json", build)
    async with Delegator(client=thinker()) as delegator:
        result = await delegator.run(task("a"))
    assert result.results[0].status == "completed"


async def test_a_batch_is_one_run_for_the_operators_consumer() -> None:
    live: list[Event] = []
    items: list[str] = []

    def watch(item: Item) -> EventSink:
        return lambda event: items.append(event.kind)

    async with Delegator(client=thinker(), on_event=live.append) as delegator:
        async for _ in delegator.batches.run([task("a"), task("b")], on_event=watch):
            pass
    kinds = [event.kind for event in live]
    assert kinds[0] == "run.started"
    assert kinds[-1] == "run.done"
    assert [kinds.count(kind) for kind in ("run.started", "run.done", "task.queued", "task.done")] == [1, 1, 2, 2]
    assert items.count("verdict") == 2
    assert misfits([as_json(event) for event in live]) == []
