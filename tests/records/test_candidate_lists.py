"""The candidate judges in the records: each list is stored once, and every reader gets the whole verdict."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, TaskResult
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import met_by, words

DAY = 86_400.0


def task(goal: str) -> Task:
    return Task.model_validate({"goal": goal, "acceptance_criteria": ["The report says that it is done."]})


def model(*judge_errors: ProviderError) -> Scripted:
    """A model whose first judgments fail with these errors."""
    errors = list(judge_errors)

    def judge(request: ChatRequest) -> ChatReply | str:
        if errors:
            raise errors.pop()
        return met_by("It is done")(request)

    return words(["It is done."], judge)


def execute(home: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(home / "records.sqlite3", isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


def lists(home: Path) -> list[str]:
    return [id for (id,) in execute(home, "SELECT id FROM candidate_lists ORDER BY id")]


async def judged(*goals: str) -> list[TaskResult]:
    async with Delegator(client=model()) as delegator:
        return [(await delegator.run(task(goal))).results[0] for goal in goals]


async def test_tasks_with_the_same_candidates_share_one_list(home: Path) -> None:
    results = await judged("first", "other")
    assert len(lists(home)) == 1
    stored = [json.loads(text) for (text,) in execute(home, "SELECT result FROM tasks")]
    assert {one["candidates"] for one in stored} == set(lists(home))
    async with Delegator() as delegator:
        records = [await delegator.records.read(one.handle or "") for one in results]
        verdicts = [verdict for _, _, verdict in await delegator.records.verdicts()]
    assert [TaskResult.model_validate(record and record["result"]) for record in records] == results
    assert verdicts == [one.verdict for one in results]
    assert verdicts[0].judge
    assert len(verdicts[0].judge.candidates) > 5


async def test_where_the_first_choice_failed_the_list_is_another_one(home: Path) -> None:
    failure = ProviderError("bad_reply", "nonsense", provider="x", final=True)
    async with Delegator(client=model(failure)) as delegator:
        results = [(await delegator.run(task("x"))).results[0] for _ in range(2)]
        records = [await delegator.records.read(one.handle or "") for one in results]
    assert [TaskResult.model_validate(record and record["result"]) for record in records] == results
    assert len(lists(home)) == 2
    first, second = (one.verdict.judge for one in results if one.verdict)
    assert first
    assert second
    assert first.candidates[0].reason == "bad_reply: nonsense"
    assert second.candidates[0].reason is None


async def test_a_list_is_removed_with_the_last_task_of_its_day(home: Path) -> None:
    await judged("old")
    (kept_id,) = lists(home)
    old_id = f"2020-01-01:{kept_id[11:]}"
    execute(home, "INSERT INTO candidate_lists SELECT ?, candidates FROM candidate_lists", old_id)
    execute(home, "UPDATE tasks SET began_at = began_at - ?", 40 * DAY)
    async with Delegator(client=model()) as delegator:
        await delegator.run(task("new"))
        for _ in range(20):  # a removal step runs before each
            await delegator.records.runs()
        assert [run.goal for run in await delegator.records.runs()] == ["new"]
    assert lists(home) == [kept_id]


@pytest.mark.parametrize("lost", ["DELETE FROM candidate_lists", "DROP TABLE candidate_lists"])
async def test_a_result_without_its_list_can_still_be_read(lost: str, home: Path) -> None:
    (result,) = await judged("x")
    execute(home, lost)
    async with Delegator() as delegator:
        record = await delegator.records.read(result.handle or "")
        ((_, _, verdict),) = await delegator.records.verdicts()
    read = TaskResult.model_validate(record and record["result"])
    assert read.verdict == verdict
    assert verdict.verdict == "PASS"
    assert verdict.judge
    assert verdict.judge.candidates == ()
