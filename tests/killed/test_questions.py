"""A process is killed while its child asks: the question is on record, and a child that goes on reads its answer."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.killed.lost import kill
from tests.support import warm

WORK = Scripted.call("write_file", path="a.txt", content="hello")
CLAIM = Scripted.call("claim_complete", rationale="I wrote hello.")


@pytest.mark.parametrize("how", ["unanswered", "unread", "answered"])
async def test_a_child_that_goes_on_reads_what_it_asked_and_the_answer(tmp_path: Path, how: str) -> None:
    home, project = tmp_path / "killed", tmp_path / "project"
    project.mkdir()
    handle = killed(home, project, how)
    if how == "unread":
        answered_before_the_end(home, handle)

    def answer(request: ChatRequest) -> ChatReply:
        turn = sum(message.role == "assistant" for message in request.messages)
        return (asks, WORK, CLAIM)[turn]

    asks = Scripted.call("ask_parent", question="Shall I go on?")
    client = Scripted(answer)
    async with Delegator(client=client, home=home, commands="allow", on_question=say_yes) as delegator:
        before = await delegator.records.read(handle)
        with pytest.raises(CallError, match="its process was lost"):
            await delegator.background.message(handle, "2")
        result = await delegator.resume(handle)
        record = await delegator.records.read(handle)
    assert before
    assert record
    kinds = [event["kind"] for event in before["events"]]
    assert (kinds.count("question.asked"), kinds.count("question.answered")) == (1, how == "answered")
    assert result.results[0].goal_end == "verified"
    first = client.requests[0]
    assert "Your question 1: What shall I write?" in first.messages[0].text
    receipts = [receipt["tool"] for receipt in record["run"]["receipts"]]
    assert receipts == ["write_file"], "a question is no call whose end is unknown"
    heard = 'Answer to your question "What shall I write?":\nOption 1: hello'
    assert [heard in message.text for message in first.messages[1:]] == ([] if how == "unanswered" else [True])
    assert 'Answer to your question "Shall I go on?":\nyes' in client.requests[1].messages[-1].text
    asked = [event["n"] for event in record["events"] if event["kind"] == "question.asked"]
    assert asked == [1, 2]
    assert {message["state"] for message in record["messages"]} == {"delivered"}


async def say_yes(question: object) -> str:
    return "yes"


def killed(home: Path, project: Path, how: str) -> str:
    """Run the process until its child waits, and kill it. Returns the handle of its task."""
    command = [*warm.python(), "-m", "tests.killed.questions", str(home), str(project), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        handle = process.stdout.readline().strip()
        kill(process, home)
    return handle


def answered_before_the_end(home: Path, handle: str) -> None:
    """What another process writes just before the one that asks is killed."""
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection, connection:
        (process,) = connection.execute("SELECT process FROM tasks WHERE handle = ?", (handle,)).fetchone()
        connection.execute("INSERT INTO messages VALUES ('a1', ?, ?, 0, '1', NULL)", (handle, process))
        connection.execute("UPDATE questions SET message = 'a1' WHERE handle = ?", (handle,))
