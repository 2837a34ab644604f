"""A process is killed while a child works in goal mode: the task goes on from its record, in its folder."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, RunResult, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject
from delegate.types.ports import ChatReply, ChatRequest
from tests.cli.command import delegate, openai_at
from tests.killed.lost import kill
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import is_judge, met_by

WORK = Scripted.call("write_file", path="a.txt", content="hello")


def killed(home: Path, project: Path, how: str = "") -> list[str]:
    """Run the process until its children wait for the model, and kill it. Returns the handles of its tasks."""
    (project / "tests").mkdir(parents=True)
    if how == "held":
        (project / "a.txt").write_text("hello")
    (project / "tests" / "check.sh").write_text("grep -q hello a.txt\n")
    command = [*warm.python(), "-m", "tests.killed.goals", str(home), str(project), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        handles = process.stdout.readline().split()
        kill(process, home)
    return handles


async def resumed(
    home: Path, handle: str, turns: list[ChatReply], **options: Any
) -> tuple[RunResult, JsonObject, Scripted]:
    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return met_by("I write hello")(request)
        return turns[sum(message.role == "assistant" for message in request.messages)]

    client = Scripted(answer)
    async with Delegator(client=client, home=home, commands="allow", **options) as delegator:
        before = await delegator.records.read(handle)
        assert before
        assert (before["state"], before["result"]) == ("outcome_unknown", None)
        result = await delegator.resume(handle)
        record = await delegator.records.read(handle)
        with pytest.raises(CallError, match="it has ended"):
            await delegator.resume(handle)
    assert record
    return result, record, client


async def test_a_goal_whose_process_was_killed_goes_on_from_its_record(tmp_path: Path) -> None:
    home = tmp_path / "killed"
    handle, other = killed(home, tmp_path / "project")
    claim = Scripted.call("claim_complete", rationale="Now a.txt has hello.")
    run, record, client = await resumed(home, handle, [WORK, claim])
    (result,) = run.results
    assert (result.handle, result.goal_end, result.good) == (handle, "verified", True)
    assert [(one.n, one.step, one.code) for one in result.claims] == [(1, 2, "not_met"), (2, 5, "met")]
    assert result.usage.model_calls == 5
    assert [receipt["args"]["path"] for receipt in record["run"]["receipts"]] == ["notes.md", "a.txt", "a.txt"]
    assert {artifact.path for artifact in result.artifacts} == {"a.txt", "notes.md"}, "also what it wrote before"
    assert record["run"]["steps"] == 5
    first = client.requests[0].messages[0].text
    assert "You were interrupted while you worked on this" in first
    assert "Claim 1: refused, not_met" in first
    assert "You called write_file" in first
    assert result.cost_usd == pytest.approx(
        sum(event["cost_usd"] for event in record["events"] if event["kind"] == "child.usage")
        + sum(one.cost_usd or 0 for one in result.claims)
    )
    run, _, client = await resumed(home, other, [WORK, claim], max_run_model_calls=3)
    (result,) = run.results
    assert (result.goal_end, result.status, client.requests) == ("budget_limited", "budget_exceeded", [])
    assert result.usage.model_calls == 3, "its limits were used up before"


def test_a_check_that_was_changed_before_the_kill_is_no_proof_after_it(tmp_path: Path) -> None:
    home = tmp_path / "killed"
    handle, _ = killed(home, tmp_path / "project", "tampers")

    def worker(call: Call) -> Reply:
        if call.wants_json:
            answer = {"id": "c2", "source": "", "evidence": "I write hello", "reason": "", "verdict": "met"}
            return Reply(json.dumps({"answers": [answer]}))
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "notes.md", "content": "I write hello"}),))
        return Reply(tool_calls=(("claim_complete", {"rationale": f"All is well, {len(call.tool_results)}."}),))

    with ModelServer(worker) as server:
        environment = {**openai_at(server), "DELEGATE_HOME": str(home), "DELEGATE_COMMANDS": "allow"}
        shown = delegate("show", handle, **environment)
        done = delegate("run", "--resume", handle, "--format", "json", **environment)
    assert f"delegate run --resume {handle}" in shown.stdout
    assert "claim 1  I wrote hello.  " in shown.stdout
    assert done.returncode == 1, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert (result["goal_end"], result["verdict"]["verdict"]) == ("budget_limited", "FAIL")
    assert [one["code"] for one in result["claims"][1:]] == ["check_tampered", "check_tampered"]
    assert "tests/check.sh" in result["claims"][1]["refused"][0]["reason"]


async def test_what_a_judge_refused_before_the_kill_stays_refused_after_it(tmp_path: Path) -> None:
    handle, _ = killed(tmp_path / "killed", tmp_path / "project", "refused")
    turns = [
        Scripted.call("claim_complete", rationale="In other words, I wrote hello."),
        Scripted.call("write_file", path="notes.md", content="As asked, I write hello"),
        Scripted.call("claim_complete", rationale="Now the notes are better."),
    ]
    run, _, client = await resumed(tmp_path / "killed", handle, turns)
    (result,) = run.results
    assert [(one.code, one.decided_by) for one in result.claims] == [("not_met", "judge")] * 2 + [("met", "judge")]
    assert result.goal_end == "verified"
    assert len([request for request in client.requests if is_judge(request)]) == 1, "of the changed work only"


async def test_what_held_before_the_child_began_is_known_after_a_kill(tmp_path: Path) -> None:
    handle, _ = killed(tmp_path / "killed", tmp_path / "project", "held")
    turns = [
        Scripted.call("claim_complete", rationale="It is all as you want it."),
        Scripted.call("abort_with_report", reason="There is nothing to do.", learned=""),
    ]
    run, _, _ = await resumed(tmp_path / "killed", handle, turns)
    (result,) = run.results
    assert (result.goal_end, [one.code for one in result.claims]) == ("aborted", ["not_verified"] * 2)
    assert result.claims[1].refused[0].held_before


async def test_only_a_lost_goal_can_be_resumed(home: Path) -> None:
    async with Delegator(client=Scripted(lambda request: "I looked."), home=home) as delegator:
        ended = (await delegator.run(Task(goal="x"))).results[0].handle or ""
        for handle, code in ((ended, "cannot_resume"), ("0" * 20 + "-0", "unknown_handle")):
            with pytest.raises(CallError) as refused:
                await delegator.resume(handle)
            assert refused.value.code == code
