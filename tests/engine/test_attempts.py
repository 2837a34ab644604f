"""Several attempts at one task: which is chosen, what the parent reads, what they cost, and what is on record."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task, TaskResult
from delegate.batch.sources import Listed
from delegate.models.catalog import Model
from delegate.models.providers.scripted import Scripted
from delegate.types import Attempt, Workspace
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.git import git
from tests.support.words import is_judge

SOON = 30
GOOD = {"kind": "file", "path": "a.txt"}
SAID = {"kind": "regex", "pattern": "done"}
WRITE = Scripted.call("write_file", path="a.txt", content="a")
Script = list[ChatReply | str]


def model(name: str, usd: float = 1.0) -> Model:
    price = {"input": usd, "output": usd}
    return Model.model_validate(
        {
            "id": name, "provider": "openai", "endpoint": "own", "family": name, "tier": "standard", "tools": True,
            "structured_output": True, "context_tokens": 100_000, "max_output_tokens": 8_000, "prices": [price],
        }
    )  # fmt: skip


def clients(scripts: Mapping[str, Script | Callable[[ChatRequest], ChatReply | str]]) -> dict[Model, Scripted]:
    """Models of one tier, cheapest first, each with a client that plays its script."""

    def client(script: Script | Callable[[ChatRequest], ChatReply | str]) -> Scripted:
        if callable(script):
            return Scripted(script)
        return Scripted(lambda request: script[sum(m.role == "assistant" for m in request.messages)])

    return {model(name, 1.0 + n): client(script) for n, (name, script) in enumerate(scripts.items())}


def delegator(home: Path, hosts: Mapping[Model, Scripted], **options: Any) -> Delegator:
    return Delegator(host_models=hosts, home=home, **options)


async def run(home: Path, scripts: Mapping[str, Any], *tasks: Task, **options: Any) -> RunResult:
    async with delegator(home, clients(scripts), **options) as one, asyncio.timeout(SOON):
        return await one.run(*tasks)


def task(attempts: int = 2, **fields: Any) -> Task:
    given: dict[str, Any] = {"goal": "Write a.txt.", "acceptance_criteria": [GOOD], "attempts": attempts, **fields}
    return Task(**given)


def chosen(result: TaskResult) -> Attempt:
    (one,) = [attempt for attempt in result.attempts if attempt.chosen]
    return one


# --------------------------------------------------------------------------------------------------- the choice


async def test_the_one_with_a_pass_is_chosen_whatever_it_costs_and_all_are_on_record(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {"cheap": ["I wrote it, believe me."], "dear": [WRITE, "I wrote it."]}
    async with delegator(tmp_path, clients(scripts)) as one:
        run = await one.run(task())
        (result,) = run.results
        text = one.render(run)
        (summary,), tasks = await one.records.runs(), await one.records.tasks(run.run_id or "")
        assert (summary.tasks, summary.passed, summary.failed, summary.other) == (1, 1, 0, 0)
        assert summary.cost_usd == pytest.approx(run.totals.cost_usd), "all of them cost"
        assert [task.other_attempt for task in tasks] == [True, False]
        records = [await one.records.read(attempt.handle or "") for attempt in result.attempts]
    assert run.all_pass, text
    assert (result.model, result.handle) == ("dear", chosen(result).handle)
    assert [(attempt.model, attempt.verdict, attempt.chosen) for attempt in result.attempts] == [
        ("cheap", "FAIL", False),
        ("dear", "PASS", True),
    ]
    assert text.startswith("1 of 1 PASS\ntask 1: PASS (proven)\ntotal: ")
    (line,) = [line for line in text.splitlines() if line.startswith("- the best of")]
    assert line.startswith("- the best of 2 attempts, by verdict, level, score and cost; the other: FAIL not_met")
    assert records[0]
    assert records[1]
    assert [record and record["result"]["verdict"]["verdict"] for record in records] == ["FAIL", "PASS"]
    expected = [attempt.model_dump(mode="json") for attempt in result.attempts]
    assert [record and record["result"]["attempts"] for record in records] == [expected, expected]
    assert records[0]["workspace"] != records[1]["workspace"]
    totals = run.totals
    assert (totals.tasks, totals.passed, totals.failed) == (1, 1, 0)
    assert totals.child_usage.model_calls == 3
    assert totals.cost_usd == pytest.approx(sum(attempt.cost_usd or 0 for attempt in result.attempts))


async def test_a_better_level_beats_a_cheaper_one(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("a b")
    holds = {"kind": "file", "path": "a.txt", "contains": "a"}
    fields: dict[str, Any] = {"workspace": Workspace(mode="copy", path=project), "acceptance_criteria": [holds]}
    scripts = {"cheap": ["It holds already."], "dear": [WRITE, "done"]}
    (result,) = (await run(tmp_path / "home", scripts, task(**fields))).results
    assert [(attempt.verdict, attempt.level) for attempt in result.attempts] == [("PASS", "said"), ("PASS", "proven")]
    assert result.model == "dear"


async def test_of_equal_ones_the_cheaper_is_chosen_and_then_the_first(tmp_path: Path) -> None:
    same = [WRITE, "I wrote it."]
    (result,) = (await run(tmp_path, {"cheap": same, "dear": same}, task())).results
    assert (result.model, {attempt.level for attempt in result.attempts}) == ("cheap", {"proven"})
    looks = [Scripted.call("list_files", glob=f"*.{n}") for n in range(9)]
    (result,) = (await run(tmp_path, {"cheap": [*looks, *same], "dear": same}, task())).results
    assert result.model == "dear", "the model's price isn't the attempt's cost"
    (only,) = (await run(tmp_path, {"cheap": same}, task(3, model="cheap"))).results
    assert only.handle == only.attempts[0].handle
    assert {attempt.model for attempt in only.attempts} == {"cheap"}


async def test_where_all_fail_the_score_decides_and_it_is_a_fail(tmp_path: Path) -> None:
    both = [GOOD, SAID]
    scripts = {"cheap": ["nothing"], "dear": ["done, as I say"]}
    returned = await run(tmp_path, scripts, task(acceptance_criteria=both))
    (result,) = returned.results
    assert not returned.all_pass
    assert result.verdict
    assert (result.model, result.verdict.verdict, result.verdict.score) == ("dear", "FAIL", 0.5)


async def test_work_that_was_looked_at_is_chosen_before_a_child_that_could_not_run(tmp_path: Path) -> None:
    from delegate.types.errors import ProviderError

    def broken(request: ChatRequest) -> ChatReply | str:
        raise ProviderError("auth", "no credit", provider="own", status=401)

    (result,) = (await run(tmp_path, {"cheap": broken, "dear": ["nothing"]}, task())).results
    assert (result.model, result.status) == ("dear", "completed")
    assert result.attempts[0].status == "failed"


# ------------------------------------------------------------------------------------------------ time and limits


async def test_an_attempt_that_hangs_is_waited_for_until_its_deadline(tmp_path: Path) -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    scripts = {"cheap": [Scripted.call("hang")], "dear": ["done"]}
    fields: dict[str, Any] = {"acceptance_criteria": [SAID], "timeout_seconds": 0.5}
    returned = await run(tmp_path, scripts, task(**fields), tools=[hang])
    (result,) = returned.results
    assert (result.model, [attempt.status for attempt in result.attempts]) == ("dear", ["timeout", "completed"])
    assert result.attempts[0].code == "run_failed"


async def test_stopping_the_call_stops_all_attempts_and_what_is_done_counts(tmp_path: Path) -> None:
    hanging = asyncio.Event()

    async def hang() -> str:
        hanging.set()
        await asyncio.Event().wait()
        return "never"

    scripts: dict[str, Script] = {"cheap": ["done"], "dear": [Scripted.call("hang")]}
    async with delegator(tmp_path, clients(scripts), tools=[hang]) as one, asyncio.timeout(SOON):
        delegation = await one.background.start(task(acceptance_criteria=[SAID]))
        assert len(delegation.handles) == 2
        await hanging.wait()
        await delegation.wait(handle=delegation.handles[0])
        (summary,) = await one.records.runs()
        assert (summary.tasks, summary.passed) == (1, 1), "until one is chosen, the first counts"
        assert delegation.progress.line().startswith("1 of 2 done; task 1 uses `hang`")
        assert await one.background.read_answer({"handle": delegation.handles[0]})
        delegation.cancel()
        run = await delegation
        (result,) = run.results
        assert (result.model, result.good) == ("cheap", True)
        assert [attempt.status for attempt in result.attempts] == ["completed", "cancelled"]
        assert delegation.result(delegation.handles[0]) is result
        other = await one.background.read_answer({"handle": delegation.handles[1]})
        assert "not the best of 2 attempts" in other
        assert "chosen: PASS" in other


async def test_max_cost_is_for_all_attempts_together(tmp_path: Path) -> None:
    """At a dollar a token, the first calls leave too little for more."""
    looks = [Scripted.call("list_files", glob=f"*.{n}") for n in range(25)]
    hosts = {model(name, 100_000.0): Scripted([*looks, "done"]) for name in ("one", "two")}
    async with delegator(tmp_path, hosts) as one, asyncio.timeout(SOON):
        run = await one.run(task(acceptance_criteria=[SAID], max_cost_usd=2_000))
    (result,) = run.results
    assert run.totals.cost_usd is not None
    assert 0 < run.totals.cost_usd <= 2_000
    assert {attempt.status for attempt in result.attempts} == {"budget_exceeded"}
    assert result.error
    assert result.error.code == "budget_exceeded"


async def test_three_tasks_with_three_attempts_run_three_at_a_time(tmp_path: Path) -> None:
    running, most = 0, 0

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "ok"

    scripts = {name: [Scripted.call("work"), "done"] for name in ("one", "two")}
    async with delegator(tmp_path, clients(scripts), tools=[work], max_concurrent=3) as one, asyncio.timeout(SOON):
        call = {"goal": "x", "acceptance_criteria": ["regex: done"], "attempts": 3}
        run = await one.call({"tasks": [call] * 3})
    assert run.all_pass, str(run)
    assert most == 3
    assert [len(result.attempts) for result in run.results] == [3, 3, 3]
    assert [attempt.model for attempt in run.results[0].attempts] == ["one", "two", "one"]
    assert len({attempt.handle for result in run.results for attempt in result.attempts}) == 9


async def test_attempts_count_as_children_and_in_the_estimate(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(request: Any) -> bool:
        asked.append(request.reason)
        return False

    hosts = clients({"one": ["done"], "two": ["done"]})
    call: dict[str, Any] = {"goal": "x", "acceptance_criteria": ["regex: done"]}
    async with delegator(tmp_path, hosts, max_children=2) as one:
        refused = await one.call({**call, "attempts": 3})
        plans = [await one.batches.plan(Listed([Task(**call, attempts=n)], is_call=True)) for n in (1, 2)]
    assert refused.error
    assert (refused.error.code, refused.error.hint) == ("budget_exceeded", "nothing was run; send at most 2")
    assert [[group.model for group in plan.groups] for plan in plans] == [["one"], ["one", "two"]]
    single, double = (plan.estimate.usd or 0 for plan in plans)
    assert double > 2 * single > 0
    limit = (single + double) / 2
    async with delegator(tmp_path, hosts, ask_above_usd=limit, on_approval=approve) as one:
        assert (await one.call(call)).all_pass
        refused = await one.call({**call, "attempts": 2})
    assert refused.error
    assert refused.error.code == "not_approved"
    assert len(asked) == 1


# ---------------------------------------------------------------------------------------------- workspaces and needs


async def test_attempts_at_one_repository_have_worktrees_of_their_own(tmp_path: Path) -> None:
    repository = tmp_path / "project"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "README").write_text("hello\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    scripts = {"cheap": [Scripted.call("write_file", path="b.txt", content="b"), "done"], "dear": [WRITE, "done"]}
    workspace = Workspace(mode="worktree", path=repository)
    returned = await run(tmp_path / "home", scripts, task(3, workspace=workspace))
    (result,) = returned.results
    assert (result.model, [artifact.path for artifact in result.artifacts]) == ("dear", ["a.txt"])
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list").count("\n") == 1
    assert result.take_over
    assert result.handle
    assert result.handle in result.take_over


async def test_what_needs_it_gets_the_chosen_work(tmp_path: Path) -> None:
    def script(write: bool) -> Callable[[ChatRequest], ChatReply | str]:
        def reply(request: ChatRequest) -> ChatReply | str:
            turn = sum(m.role == "assistant" for m in request.messages)
            if request.messages[0].text.startswith("Then"):
                return [Scripted.call("read_file", path="inputs/1/files/a.txt"), "done"][turn]
            return [WRITE, "I wrote it."][turn] if write else "I wrote it, believe me."

        return reply

    scripts = {"cheap": script(False), "dear": script(True)}
    later = Task(goal="Then", needs="1", acceptance_criteria=[{"kind": "receipt", "calls": [{"tool": "read_file"}]}])
    result = await run(tmp_path, scripts, task(), later)
    assert result.all_pass, str(result)


@pytest.mark.parametrize(
    ("fields", "options", "code", "says"),
    [
        ({"workspace": "."}, {}, "shared_workspace", "copy or worktree"),
        ({"acceptance_criteria": []}, {}, "bad_attempts", "no acceptance criteria"),
        ({}, {"scratch": True}, "bad_attempts", "scratch"),
    ],
)
async def test_what_attempts_cannot_be_is_refused_before_anything_is_spent(
    tmp_path: Path, fields: Any, options: Any, code: str, says: str
) -> None:
    hosts = clients({"cheap": ["never"]})
    async with delegator(tmp_path, hosts) as one:
        with pytest.raises(CallError) as refused:
            await one.run(task(**fields), **options)
    assert (refused.value.code, refused.value.field) == (code, "attempts")
    assert says in f"{refused.value.message} {refused.value.hint}"
    assert all(not client.requests for client in hosts.values())


async def test_a_batch_has_one_attempt_at_each_row(tmp_path: Path) -> None:
    async with delegator(tmp_path, clients({"cheap": ["never"]})) as one:
        with pytest.raises(CallError, match="a task of a batch has one attempt"):
            async for _ in one.batches.run([task()]):
                pass


async def test_criteria_in_words_are_read_once_for_all_attempts(tmp_path: Path) -> None:
    from delegate.testing import judge_reply

    def script(request: ChatRequest) -> ChatReply | str:
        return judge_reply(c1=("met", "the sky is blue today")) if is_judge(request) else "the sky is blue today"

    client = Scripted(script)
    deed = {"kind": "text", "text": "The report says how the sky is."}
    async with Delegator(client=client, home=tmp_path) as one:
        result = await one.run(task(3, acceptance_criteria=[deed]))
    assert len(result.results[0].attempts) == 3
    readings = [one for one in client.requests if "statements" in json.dumps(one.reply_schema or {})]
    assert len(readings) <= 1
