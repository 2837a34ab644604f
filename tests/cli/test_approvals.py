"""What the terminal shows of a request, what it takes for a yes, and what `delegate show` tells of approvals."""

import asyncio
import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TextIO

import pytest
from rich.console import Console
from rich.live import Live

from delegate import Delegator, Task
from delegate.cli.screen import progress
from delegate.cli.screen.approvals import ANSWER, CHOICE, QUESTION, TerminalApprovals, at_terminal
from delegate.contract import CallProgress
from delegate.models.providers.scripted import Scripted
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, digest_of
from delegate.types import ParentQuestion
from delegate.types.events import ChildWaiting, WaitReason
from tests.cli.command import delegate, openai_at
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import words


class Terminal:
    """A terminal with somebody who reads it and types."""

    def __init__(self) -> None:
        self.fd, slave = pty.openpty()
        self.stdin: TextIO = os.fdopen(slave, "r")
        self.stderr: TextIO = os.fdopen(os.dup(slave), "w")
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read_until(self, text: str, times: int = 1) -> None:
        while self.seen.count(text) < times:
            self.seen += os.read(self.fd, 65_536).decode()

    def close(self) -> None:
        self.stdin.close()
        self.stderr.close()
        os.close(self.fd)


@pytest.fixture
def terminal() -> Generator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def request(command: str = "make", **fields: Any) -> ApprovalRequest:
    return ApprovalRequest(
        tool="run_shell",
        arguments={"command": command},
        sha256=digest_of("run_shell", {"command": command}, "/w"),
        workspace="/w",
        code="no_sandbox",
        reason="no sandbox here",
        goal="Build it",
        **fields,
    )


async def asked(terminal: Terminal, typed: str, *requests: ApprovalRequest) -> list[ApprovalAnswer]:
    """The answers to requests that are made at once, where each is answered with `typed`."""

    def person() -> None:
        for n in range(len(requests)):
            terminal.read_until(QUESTION, n + 1)
            terminal.type(typed)

    typing = threading.Thread(target=person, daemon=True)
    typing.start()
    ask = TerminalApprovals(terminal.stdin, terminal.stderr)
    answers = await asyncio.gather(*map(ask, requests))
    await asyncio.to_thread(typing.join)
    return list(answers)


@pytest.mark.parametrize(
    ("typed", "approved", "again"),
    [
        ("y\n", True, False),
        (" YES \n", True, False),
        ("a\n", True, True),
        ("\n", False, False),
        ("n\n", False, False),
        ("yy\n", False, False),
        ("y; rm\n", False, False),
        ("\x04", False, False),
    ],
)
async def test_only_a_clear_yes_at_the_terminal_is_one(
    terminal: Terminal, typed: str, approved: bool, again: bool
) -> None:
    (answer,) = await asked(terminal, typed, request())
    assert (answer.approved, answer.same_again) == (approved, again)


async def test_a_request_shows_the_exact_command_its_reason_and_its_digest(terminal: Terminal) -> None:
    one = request("rm -rf build\u202e\x1b[2J")
    await asked(terminal, "n\n", one)
    seen = terminal.seen.replace("\r\n", "\n")
    assert "Task 1 (Build it) wants to call run_shell:\n  | rm -rf build\\u202e\\x1b[2J\n" in seen
    assert "why it asks: no sandbox here (no_sandbox)" in seen
    assert one.sha256 in seen
    assert "\x1b" not in seen


async def test_what_was_typed_before_a_request_does_not_answer_it(terminal: Terminal) -> None:
    terminal.type("y\ny\ny\n")
    (answer,) = await asked(terminal, "n\n", request())
    assert not answer.approved


async def test_requests_of_three_children_are_shown_one_after_the_other(terminal: Terminal) -> None:
    answers = await asked(terminal, "y\n", *(request(f"make {n}", task_index=n) for n in range(3)))
    assert [one.approved for one in answers] == [True] * 3
    parts = terminal.seen.split(QUESTION)
    assert [sum(f"| make {n}" in part for n in range(3)) for part in parts[:3]] == [1, 1, 1]


async def test_a_request_that_is_given_up_leaves_the_terminal_to_the_next(terminal: Terminal) -> None:
    ask = TerminalApprovals(terminal.stdin, terminal.stderr)
    first = asyncio.create_task(ask(request("one")))
    await asyncio.to_thread(terminal.read_until, QUESTION)
    second = asyncio.create_task(ask(request("two")))
    first.cancel()
    await asyncio.to_thread(terminal.read_until, QUESTION, 2)
    terminal.type("y\n")
    assert (await second).approved
    assert first.cancelled()


async def test_a_live_display_makes_room_for_a_question(terminal: Terminal) -> None:
    console = Console(file=terminal.stderr, force_terminal=True, width=60)
    with progress.shown(Live("the tree", console=console, auto_refresh=False)) as _:
        (answer,) = await asked(terminal, "y\n", request())
    assert answer.approved
    assert QUESTION in terminal.seen


def test_without_a_terminal_nobody_is_asked() -> None:
    assert at_terminal() is None


def test_show_tells_what_was_asked_and_who_answered() -> None:
    async def person(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(approved=request.command == "echo one", by="ada\x1b[2J")

    turns = [Scripted.call("run_shell", command=f"echo {word}") for word in ("one", "two")]
    with Delegator(client=words([*turns, "Done."]), on_approval=person, sandbox="off", commands="ask") as delegator:
        delegator.run_sync(Task(goal="Say it"))
    shown = delegate("show", "last", COLUMNS="120").stdout
    assert "✓ echo one  approved by ada, after " in shown
    assert "✗ echo two  refused by ada, after " in shown
    transcript = delegate("show", "last", "--transcript", COLUMNS="120").stdout
    assert "asks 1: run_shell: there is no sandbox here" in transcript
    assert "answer 2: refused by ada" in transcript
    assert "\x1b" not in shown + transcript


# -------------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("typed", "answer"), [("2\n", "2"), (" blau, 青 \n", "blau, 青"), ("\n", None), (" \n", None), ("\x04", None)]
)
async def test_a_line_at_the_terminal_is_the_answer_to_a_question(
    terminal: Terminal, typed: str, answer: str | None
) -> None:
    question = ParentQuestion(
        handle="a-0", task_index=1, goal="Paint", n=1, text="Which\ncolor?", options=("red", "blue"), answer_before=0
    )

    def person() -> None:
        terminal.read_until(CHOICE)
        terminal.type(typed)

    typing = threading.Thread(target=person, daemon=True)
    typing.start()
    assert await TerminalApprovals(terminal.stdin, terminal.stderr).answer(question) == answer
    await asyncio.to_thread(typing.join)
    assert "Task 2 (Paint) asks:\r\n  | Which\r\n  | color?\r\n  1. red\r\n  2. blue\r\n" in terminal.seen


async def test_a_question_that_another_answered_leaves_the_terminal_to_the_next(terminal: Terminal) -> None:
    question = ParentQuestion(handle="a-0", task_index=0, goal="g", n=1, text="Why?", answer_before=0)
    ask = TerminalApprovals(terminal.stdin, terminal.stderr)
    first = asyncio.create_task(ask.answer(question))
    await asyncio.to_thread(terminal.read_until, ANSWER)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    second = asyncio.create_task(ask.answer(question))
    await asyncio.to_thread(terminal.read_until, ANSWER, 2)
    terminal.type("Because.\n")
    assert await second == "Because."


def test_a_child_of_a_command_asks_at_its_terminal_and_otherwise_not_at_all(terminal: Terminal) -> None:
    def worker(call: Call) -> Reply:
        if call.tool_results:
            return Reply("It is blue." if "Option 2: blue" in str(call.body) else "It is any color.")
        offered = "ask_parent" in str(call.body["tools"])
        question = {"question": "Which color?", "options": ["red", "blue"]}
        return Reply(tool_calls=(("ask_parent", question),)) if offered else Reply("I could not ask.")

    with ModelServer(worker) as server:
        environment = {**os.environ, **openai_at(server)}
        streams: Any = {"stdin": terminal.stdin, "stderr": terminal.stderr, "stdout": subprocess.PIPE}
        command = [*warm.delegate(), "run", "Paint it.", "--format", "json"]
        with subprocess.Popen(command, env=environment, text=True, **streams) as process:
            terminal.read_until(CHOICE)
            terminal.type("2\n")
            assert process.stdout
            painted = json.loads(process.stdout.read())
        assert painted["results"][0]["report"] == "It is blue."
        alone = json.loads(delegate("run", "Paint it.", "--format", "json", **openai_at(server)).stdout)
    assert alone["results"][0]["report"] == "I could not ask."
    shown = delegate("show", painted["results"][0]["handle"], "--transcript").stdout
    assert "\nquestion answered: Which color?\nanswer delivered: 2\n" in shown
    lines = [re.sub(r"^\+\S+ s | after .*", "", line.strip()) for line in shown.split("transcript:")[1].split("\n")]
    told = "\n".join(lines)
    assert "question 1: to its parent\nWhich color?\n1. red\n2. blue\n" in told, told
    assert "question 1: answered,\n2\n" in told, told
    assert "its parent says\nOption 2: blue\n" in told, told


@pytest.mark.parametrize("reason", WaitReason.__args__)
def test_every_reason_to_wait_is_shown(reason: WaitReason) -> None:
    shown, told = progress.RunProgress(["Paint it."]), CallProgress()
    for show in (shown.show, told.add):
        show(ChildWaiting(reason=reason))
    assert "waits for" in told.line()
