"""Tasks of a capable model that went on with a message, asked their parent, or were done together with another one,
played with all recorded answers.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, TaskResult
from delegate.models.providers.scripted import Scripted
from delegate.types import ParentQuestion
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.live import Run, rows
from tests.support.readings import Row, replayed
from tests.support.samples import MORE_CASES, sampled

ROWS, ASKED, TOGETHER = rows("followups.jsonl"), rows("questions.jsonl"), rows("several.jsonl")
QUICK = ("fr", "it", "fake2")
"""Those that `make test` plays. In `fake1`, the judge runs something for twenty seconds."""


def judged(result: TaskResult | None) -> tuple[str, bool]:
    assert result
    assert result.verdict, result.error
    return result.verdict.verdict, result.verdict.verified


def _log(part: Row) -> list[list[Any]]:
    return part.get("log", [])


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"], marks=() if row["id"] in QUICK else MORE_CASES) for row in ROWS]
)
@pytest.mark.timeout(180)
async def test_work_that_goes_on_gets_a_verdict_of_its_own(row: Row, home: Path) -> None:
    part = Run(row["first"], row["first"])
    # Eight have files, a context and perhaps function tools too.
    begins = Run({"files": {}, "git": False, "tools": [], **row}, {"log": [*_log(row["first"]), *_log(row["second"])]})
    folder = Path("work").absolute()
    begins.prepare(folder)

    def answer(request: ChatRequest) -> ChatReply | str:
        return part.answer(request)

    def read(request: ChatRequest) -> str:
        return replayed(part.task)(request)

    client = Scripted(answer, reading=read)
    task = Task(
        goal=row["goal"],
        context=row.get("context", ""),
        acceptance_criteria=row["criteria"],
        workspace={"mode": "copy", "path": folder} if begins.task["files"] else None,
    )
    async with Delegator(client=client, tools=begins.tools(folder)) as delegator:
        (first,) = (await delegator.run(task)).results
        assert first.handle
        assert judged(first) == (row["first"]["verdict"], row["first"]["verified"])
        part = Run(row["second"], row["second"])
        sent = await delegator.background.message(
            first.handle, row["message"], acceptance_criteria=row["message_criteria"]
        )
        second = await delegator.background.result(sent.handle)
    assert judged(second) == (row["second"]["verdict"], row["second"]["verified"])


def test_honest_follow_ups_pass_and_faked_ones_fail() -> None:
    verdicts = [(row["second"]["kind"], row["second"]["verdict"], row["second"]["verified"]) for row in ROWS]
    assert sorted(verdicts) == [
        *[("faked", "FAIL", True)] * 6, ("honest", "PASS", False), *[("honest", "PASS", True)] * 11
    ]  # fmt: skip


@pytest.mark.parametrize("row", sampled(ASKED, id=lambda row: row["id"]))
async def test_a_child_asks_what_only_its_parent_knows_and_nothing_else(row: Row, home: Path) -> None:
    run, folder = Run(row, row), Path("work")
    run.prepare(folder)
    task = Task(
        goal=row["goal"], context=row["context"], acceptance_criteria=row["criteria"], workspace=folder.absolute()
    )
    asked: list[ParentQuestion] = []

    async def parent(question: ParentQuestion) -> str:
        asked.append(question)
        return row["answers"][len(asked) - 1]

    async with Delegator(client=run.client(), on_question=parent) as delegator:
        (result,) = (await delegator.run(task)).results
    assert judged(result) == ("PASS", True)
    assert len(asked) == len(row["answers"])


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TOGETHER])
async def test_tasks_that_build_on_each_other_are_judged_as_they_were(row: Row, home: Path) -> None:
    runs = [Run(task, task) for task in row["tasks"]]

    def answer(request: ChatRequest) -> ChatReply | str:
        return next(run for run in runs if run.task["goal"] in request.messages[0].text).answer(request)

    def read(request: ChatRequest) -> str:
        asked = request.messages[0].text.rpartition("exactly once: ")[2].split(", ")
        read = {f"{n}.{id}": parts for n, run in enumerate(runs, 1) for id, parts in run.task["readings"].items()}
        return json.dumps({"criteria": [{"id": id, "parts": read[id]} for id in asked], "effects": []})

    tasks = [
        Task(id=task["id"], needs=task["needs"], goal=task["goal"], acceptance_criteria=task["criteria"])
        for task in row["tasks"]
    ]
    async with Delegator(client=Scripted(answer, reading=read)) as delegator:
        returned = await delegator.run(*tasks, scratch=row["scratch"])
    assert [judged(result) for result in returned.results] == [
        (run.row["verdict"], run.row["verified"]) for run in runs
    ]
