"""A task that has ended continues when its parent says more: what its child knows, how it is judged, what it spends."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, TaskResult
from delegate.models.providers.scripted import Scripted
from delegate.types import Parent
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.git import git
from tests.support.words import is_judge, met_by

SOON = 20
WRITE = Scripted.call("write_file", path="a.txt", content="hello")
A, B = {"kind": "file", "path": "a.txt", "contains": "hello"}, {"kind": "file", "path": "b.txt"}


def child(*replies: ChatReply | str) -> Scripted:
    given = iter(replies)
    return Scripted(lambda request: met_by("hello")(request) if is_judge(request) else next(given))


def asked(client: Scripted) -> list[ChatRequest]:
    return [request for request in client.requests if not is_judge(request)]


async def ended(home: Path, *replies: ChatReply | str, criteria: Sequence[Any] = (A,), **fields: Any) -> TaskResult:
    """The result of a task of an earlier process, as far as this one knows."""
    client = child(*replies or (WRITE, "I wrote hello."))
    async with Delegator(client=client, home=home, commands="allow") as delegator:
        result = await delegator.run(Task(goal="Write hello.", acceptance_criteria=criteria, **fields))
    return result.results[0]


async def go_on(
    delegator: Delegator, handle: str | None, text: str = "Also write b.txt.", **more: Any
) -> tuple[str, TaskResult]:
    assert handle
    async with asyncio.timeout(SOON):
        sent = await delegator.background.message(handle, text, **more)
        result = await delegator.background.result(sent.handle, wait_seconds=SOON)
    assert result
    return sent.handle, result


async def test_a_task_goes_on_after_a_restart_with_its_files_its_record_and_a_verdict_of_its_own(
    tmp_path: Path,
) -> None:
    first = await ended(tmp_path)
    client = child(Scripted.call("write_file", path="b.txt", content="x"), "I wrote both.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        handle, result = await go_on(delegator, first.handle)
        record = await delegator.records.read(handle)
        before = await delegator.records.read(first.handle or "")
    assert record
    assert before
    assert (handle.partition("-")[0], handle != first.handle) == ((first.handle or "").partition("-")[0], True)
    assert result.good
    assert (result.workspace, result.report) == (first.workspace, "I wrote both.")
    assert [artifact.path for artifact in result.artifacts] == ["a.txt", "b.txt"]
    assert [receipt["n"] for receipt in record["run"]["receipts"]] == [1, 2]
    assert [(message["state"], message["text"]) for message in record["messages"]] == [
        ("delivered", "Also write b.txt.")
    ]
    assert before["messages"] == []
    assert before["result"]["report"] == "I wrote hello."
    request = asked(client)[0]
    assert request.messages[0].text.startswith("Write hello.")
    assert "You worked on this before" in request.messages[0].text
    assert "You said: I wrote hello." in request.messages[0].text
    assert "Also write b.txt." in request.messages[1].text
    assert result.usage.model_calls == 2, "what was spent before is in the first result"


async def test_new_criteria_decide_and_the_old_verdict_stays(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    async with Delegator(client=child("I did nothing more."), home=tmp_path) as delegator:
        _, result = await go_on(delegator, first.handle, acceptance_criteria=[A, B])
        before = await delegator.records.read(first.handle or "")
    assert result.verdict
    assert before
    assert [one.outcome for one in result.verdict.criteria] == ["met", "not_met"]
    assert before["result"]["verdict"]["verdict"] == "PASS"


async def test_who_reads_and_who_judges_new_criteria_knows_what_was_asked_for(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    client = child("I wrote hello, auch auf Deutsch: Hallo.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        await go_on(delegator, first.handle, "Nenne es auch auf Deutsch.", acceptance_criteria=["It still says hello."])
    read, judged = client.readings[-1], next(request for request in client.requests if is_judge(request))
    for request in (read, judged):
        assert "Write hello." in request.messages[0].text
        assert "Nenne es auch auf Deutsch." in request.messages[0].text


async def test_work_that_was_undone_since_does_not_pass_by_its_earlier_receipts(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    client = child(Scripted.call("write_file", path="a.txt", content="gone"), "All is well.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        _, result = await go_on(delegator, first.handle)
    assert result.verdict
    assert result.verdict.verdict == "FAIL"


async def test_a_task_continues_once_and_then_its_continuation_does(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    client = child("Again.", "And again.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        both = await asyncio.gather(
            *(delegator.background.message(first.handle or "", "More.") for _ in range(2)), return_exceptions=True
        )
        (sent,) = (one for one in both if not isinstance(one, BaseException))
        (refused,) = (one for one in both if isinstance(one, CallError))
        assert refused.code == "cannot_message"
        assert "was continued before" in str(refused)
        await delegator.background.join()
        handle, result = await go_on(delegator, sent.handle, "Still more.")
    assert result.report == "And again."
    assert handle not in (first.handle, sent.handle)
    last = asked(client)[-1].messages
    assert [("More." in message.text, "Still more." in message.text) for message in last[1:]] == [
        (True, False),
        (False, True),
    ]


async def test_a_continuation_is_within_the_ledger_of_its_run_also_after_a_restart(tmp_path: Path) -> None:
    async with Delegator(client=child(WRITE, "I wrote hello."), home=tmp_path, max_children=1) as delegator:
        result = await delegator.call({"goal": "Write hello.", "acceptance_criteria": ["file: a.txt"]})
        handle = result.results[0].handle or ""
        with pytest.raises(CallError) as here:
            await delegator.background.message(handle, "More.", author="model")
    async with Delegator(client=child(), home=tmp_path, max_children=1) as delegator:
        with pytest.raises(CallError) as later:
            await delegator.background.message(handle, "More.", parent=Parent(), author="model")
    assert (here.value.code, later.value.code) == ("budget_exceeded", "budget_exceeded")


async def test_a_task_in_a_copy_goes_on_in_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "given.txt").write_text("given")
    first = await ended(tmp_path, workspace={"mode": "copy", "path": project})
    client = child(Scripted.call("write_file", path="b.txt", content="x"), "I wrote both.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        _, result = await go_on(delegator, first.handle, acceptance_criteria=[A, B])
    assert result.verdict
    assert result.verdict.verdict == "PASS"
    assert result.workspace == first.workspace
    assert [one.path for one in result.artifacts] == ["a.txt", "b.txt"]
    assert [path.name for path in project.iterdir()] == ["given.txt"]


async def test_a_copy_in_which_nothing_was_changed_is_made_anew(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "given.txt").write_text("given")
    first = await ended(
        tmp_path, "I only looked.", criteria=["report: hello"], workspace={"mode": "copy", "path": project}
    )
    assert first.workspace is None
    client = child(Scripted.call("write_file", path="b.txt", content="x"), "I wrote b.txt.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        _, result = await go_on(delegator, first.handle, acceptance_criteria=[B])
    assert result.verdict
    assert result.verdict.verdict == "PASS"
    assert result.workspace
    assert (Path(result.workspace) / "given.txt").read_text() == "given"


async def test_a_check_that_was_bent_before_a_task_in_a_copy_continued_stays_bent(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "check.py").write_text("import sys; sys.exit(open('a.txt').read() != 'right')")
    check = {"kind": "shell", "command": "python3 check.py"}
    bend = Scripted.call("write_file", path="check.py", content="import sys; sys.exit(0)")
    workspace = {"mode": "copy", "path": project}
    first = await ended(tmp_path, WRITE, bend, "I wrote it.", criteria=[check], workspace=workspace)
    assert first.verdict
    assert first.verdict.verdict == "FAIL"
    codes = [one.code for one in first.verdict.criteria]
    async with Delegator(client=child("It was right all along."), home=tmp_path, commands="allow") as delegator:
        _, result = await go_on(delegator, first.handle)
    assert result.verdict
    assert result.verdict.verdict == "FAIL"
    assert [one.code for one in result.verdict.criteria] == codes


async def test_what_cannot_continue_is_refused_with_the_reason(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    first = await ended(tmp_path)
    in_project = await ended(tmp_path, workspace={"mode": "shared", "path": project})
    async with Delegator(client=child(), home=tmp_path) as delegator:
        with pytest.raises(CallError, match="what its workspace was at its start is kept only of worktrees and copies"):
            await delegator.background.message(in_project.handle or "", "More.")
        with pytest.raises(CallError) as invalid:
            await delegator.background.message(first.handle or "", "More.", acceptance_criteria=[{"kind": "file"}])
        assert invalid.value.field == "acceptance_criteria"
        assert first.workspace
        Path(first.workspace).rename(tmp_path / "elsewhere")
        with pytest.raises(CallError, match="isn't there any more"):
            await delegator.background.message(first.handle or "", "More.")
        assert len(await delegator.records.tasks((first.handle or "").partition("-")[0])) == 1


async def test_what_a_model_wrote_stays_a_models_when_a_person_sends_the_message(tmp_path: Path) -> None:
    call = {"goal": "Write hello.", "acceptance_criteria": ["shell: grep hello a.txt"]}
    async with Delegator(client=child(WRITE, "I wrote hello."), home=tmp_path, commands="allow") as delegator:
        run = await delegator.call(call)
    (first,) = run.results
    assert first.good
    async with Delegator(client=child("All is as it was."), home=tmp_path, commands="deny") as delegator:
        _, result = await go_on(delegator, first.handle)
    assert result.verdict
    assert [one.code for one in result.verdict.criteria] == ["commands_not_allowed"]


async def test_criteria_change_only_when_a_task_has_ended(tmp_path: Path) -> None:
    working, may_end = asyncio.Event(), asyncio.Event()

    async def reply(request: ChatRequest) -> str:
        working.set()
        await may_end.wait()
        return "I wrote hello."

    async with Delegator(client=Scripted(reply), home=tmp_path) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="Write hello."))
        await working.wait()
        with pytest.raises(CallError, match="can't be changed") as refused:
            await delegator.background.message(delegation.handles[0], "More.", acceptance_criteria=[A])
        may_end.set()
        await delegation
        assert await delegator.background.messages(delegation.handles[0]) == []
    assert refused.value.field == "acceptance_criteria"


async def test_a_task_in_goal_mode_goes_on_until_its_claim_is_verified(tmp_path: Path) -> None:
    claim = Scripted.call("claim_complete", rationale="I wrote hello.")
    first = await ended(tmp_path, WRITE, claim, mode="goal")
    wrote = Scripted.call("write_file", path="b.txt", content="x")
    async with Delegator(client=child(claim, wrote, claim), home=tmp_path) as delegator:
        _, result = await go_on(delegator, first.handle, acceptance_criteria=[A, B])
    assert (first.goal_end, result.goal_end, result.good) == ("verified", "verified", True)
    assert [one.code for one in result.claims] == ["not_met", "met"]


def project(folder: Path) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/check.sh").write_text("grep -q hello a.txt\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    return folder


async def test_work_in_a_worktree_goes_on_in_a_new_one_and_is_measured_against_the_same_commit(tmp_path: Path) -> None:
    folder, home = project(tmp_path / "project"), tmp_path / "home"
    workspace = {"mode": "worktree", "path": folder}
    first = await ended(home, WRITE, "I wrote hello.", workspace=workspace)
    (folder / "later.txt").write_text("x")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "y")
    client = child(Scripted.call("write_file", path="b.txt", content="x"), "I wrote both.")
    async with Delegator(client=client, home=home) as delegator:
        handle, result = await go_on(delegator, first.handle)
        before = await delegator.records.read(first.handle or "")
        again, last = await go_on(delegator, handle, acceptance_criteria=[A, B, {"kind": "file", "path": "c.txt"}])
        merged = await delegator.merges.merge(first.handle or "")
        await delegator.merges.undo(merged.id)
        await delegator.merges.merge(handle)
    assert before
    assert (result.good, [one.path for one in result.artifacts]) == (True, ["a.txt", "b.txt"])
    assert result.workspace != first.workspace
    assert {path.name for path in folder.iterdir()} >= {"a.txt", "b.txt", "later.txt"}
    assert git(folder, "worktree", "list").count("\n") == 1
    assert again.endswith("-000")
    assert [one.path for one in last.artifacts] == ["a.txt", "b.txt"]


async def test_a_check_that_was_bent_in_a_worktree_is_no_proof_when_the_task_goes_on(tmp_path: Path) -> None:
    folder, home = project(tmp_path / "project"), tmp_path / "home"
    bend = Scripted.call("write_file", path="tests/check.sh", content="true")
    check, workspace = {"kind": "shell", "command": "sh tests/check.sh"}, {"mode": "worktree", "path": folder}
    first = await ended(home, bend, "I wrote hello.", criteria=[check], workspace=workspace)
    async with Delegator(client=child("All is well."), home=home, commands="allow") as delegator:
        _, result = await go_on(delegator, first.handle)
    assert result.verdict
    assert [one.code for one in result.verdict.criteria] == ["check_tampered"]


async def test_all_that_was_done_and_said_before_is_known_in_later_continuations(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    client = child("Again.", "And again.", "Still.")
    async with Delegator(client=client, home=tmp_path) as delegator:
        second, _ = await go_on(delegator, first.handle, "More.")
        third, _ = await go_on(delegator, second, "Still more.")
        await go_on(delegator, third, "The last.")
    messages = asked(client)[-1].messages
    for said in ("You called write_file", "You said: I wrote hello.", "You said: Again.", "You said: And again."):
        assert said in messages[0].text
    said = [text for message in messages[1:] for text in ("More.", "Still more.", "The last.") if text in message.text]
    assert said == ["More.", "Still more.", "The last."]


async def test_the_tokens_and_model_calls_of_before_count_in_the_limits_of_the_run(tmp_path: Path) -> None:
    first = await ended(tmp_path)
    limits: list[dict[str, Any]] = [{"max_run_model_calls": 2}, {"max_run_tokens": first.usage.total_tokens + 600}]
    for limit in limits:
        async with Delegator(client=child("Never."), home=tmp_path, **limit) as delegator:
            handle, result = await go_on(delegator, first.handle)
        assert result.error
        assert result.error.code == "budget_exceeded"
        first = first.model_copy(update={"handle": handle})
