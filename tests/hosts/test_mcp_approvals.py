"""Approvals over MCP: the user of a client is asked by elicitation, on every transport and protocol."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp.server.lowlevel")

from delegate import Delegator
from delegate._util.cancellation import Cancellation
from delegate.hosts.mcp.approvals import ClientApprovals, HeldCall, HeldCalls, Question
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, digest_of
from delegate.policy.settings import Settings, load_settings
from delegate.types import JsonObject
from tests.hosts.drivers.mcp import Session, connected, over_http, over_stdio
from tests.hosts.test_mcp import TIMEOUT_SECONDS, listening, on_every_transport, text_of
from tests.hosts.world import JUDGE, WORKER, World
from tests.support.model_server import Call, Reply

CALL: JsonObject = {"goal": "Say it", "acceptance_criteria": []}
YES: JsonObject = {"action": "accept", "content": {"approve": True}}


@pytest.fixture
def settings() -> Settings:
    return load_settings(model=WORKER, judge_model=JUDGE, sandbox="off", commands="ask")


@pytest.fixture
async def world(use: Callable[[World], None]) -> AsyncGenerator[World]:
    """A child that runs two commands."""

    def child(call: Call) -> Reply:
        done = len(call.tool_results)
        if done == 2:
            return Reply(f"I saw: {' / '.join(call.tool_results)}")
        return Reply(tool_calls=(("run_shell", {"command": f"echo word-$(({done}+7))"}),))

    world = World((), child=child)
    with world.server:
        use(world)
        yield world


@asynccontextmanager
async def session(transport: str, settings: Settings, person: Any) -> AsyncGenerator[Session]:
    latest = transport.endswith("latest protocol")
    if transport.startswith("stdio"):
        async with connected(over_stdio(settings), latest=latest, person=person) as client:
            yield client
    else:
        async with listening(settings) as server, connected(over_http(server.url), latest=latest, person=person) as one:
            yield one


@on_every_transport
async def test_the_user_of_a_client_is_asked_about_what_a_call_will_cost(transport: str, world: World) -> None:
    messages: list[str] = []

    async def person(message: str) -> JsonObject:
        messages.append(message)
        return {"action": "decline"}

    dear = load_settings(model=WORKER, judge_model=JUDGE, ask_above_usd=0.000001)
    async with session(transport, dear, person) as client:
        answer = await asyncio.wait_for(client.call(CALL), TIMEOUT_SECONDS)
    assert "not_approved" in text_of(answer)
    assert "a person refused it" in text_of(answer)
    assert world.server.calls == []
    (message,) = messages
    assert message.startswith("A model wants to call delegate_task:")
    assert " likely, " in message
    assert "$5.00 at most; calls above" in message


@on_every_transport
async def test_the_user_of_a_client_approves_one_command_and_not_another(
    transport: str, settings: Settings, world: World
) -> None:
    messages: list[str] = []

    async def person(message: str) -> JsonObject:
        messages.append(message)
        return YES if len(messages) == 1 else {"action": "decline"}

    async with session(transport, settings, person) as client:
        answer = await asyncio.wait_for(client.call(CALL), TIMEOUT_SECONDS)
    assert "word-7" in text_of(answer)
    assert "word-8" not in text_of(answer)
    assert [f"| echo word-$(({n}+7))" in message for n, message in enumerate(messages)] == [True, True]
    async with Delegator() as delegator:
        (run,) = await delegator.records.runs()
        (task,) = await delegator.records.tasks(run.run_id)
        record = await delegator.records.read(task.handle)
    assert record
    found = [(one["approved"], one["by"]) for one in record["events"] if one["kind"] == "approval.answered"]
    assert found == [(True, "the user of the MCP client"), (False, "the user of the MCP client")]


async def test_a_client_without_elicitation_approves_nothing(settings: Settings, world: World) -> None:
    async with session("stdio", settings, None) as client:
        answer = await asyncio.wait_for(client.call(CALL), TIMEOUT_SECONDS)
    assert "word-" not in text_of(answer)


def request() -> ApprovalRequest:
    digest = digest_of("run_shell", {}, "/w")
    return ApprovalRequest(
        tool="run_shell", arguments={}, sha256=digest, workspace="/w", code="no_sandbox", reason="none"
    )


@pytest.mark.parametrize(
    ("action", "content", "approved", "again"),
    [
        ("accept", {"approve": True}, True, False),
        ("accept", {"approve": True, "same_again": True}, True, True),
        ("cancel", {"approve": True}, False, False),
        ("accept", None, False, False),
        ("accept", {"approve": "yes"}, False, False),
        ("accept", {"approve": 1}, False, False),
        ("accept", {"approve": False}, False, False),
        ("ACCEPT", {"approve": True}, False, False),
    ],
)
async def test_only_accept_with_approve_as_true_is_a_yes(
    action: str, content: JsonObject | None, approved: bool, again: bool
) -> None:
    async def elicit(message: str, form: JsonObject) -> SimpleNamespace:
        return SimpleNamespace(action=action, content=content)

    approvals = ClientApprovals()
    with approvals.waits("a", elicit):
        answer = await approvals.asker("a")(request())
    assert isinstance(answer, ApprovalAnswer)
    assert (answer.approved, answer.same_again) == (approved, again)


async def test_a_call_is_continued_once_and_only_by_its_own_client() -> None:
    calls, held = HeldCalls(), HeldCall("a")

    async def work() -> JsonObject:
        return {"said": await held.elicit("may I?", {})}

    held.start(work())
    question = await calls.answer(held, None)
    assert isinstance(question, Question)
    assert calls.take("b", question.state) is None
    assert calls.take("a", "x") is None
    assert calls.take("a", question.state) is held
    assert calls.take("a", question.state) is None
    held.reply("yes")
    held.reply("no")
    assert await calls.answer(held, None) == {"said": "yes"}


async def test_a_late_reply_to_one_question_is_none_to_the_next() -> None:
    calls, held, answered = HeldCalls(), HeldCall("a"), asyncio.Event()

    async def work() -> JsonObject:
        first, second = (asyncio.ensure_future(held.elicit(text, {})) for text in ("first?", "second?"))
        await answered.wait()
        first.cancel()  # it was answered in another way
        second.cancel()
        return {"said": await held.elicit("third?", {})}

    held.start(work())
    question = await calls.answer(held, None)
    assert isinstance(question, Question)
    answered.set()
    await asyncio.sleep(0)
    assert calls.take("a", question.state) is held
    held.reply("yes, to the first")
    question = await calls.answer(held, None)
    assert isinstance(question, Question)
    assert question.message == "third?"
    held.reply("yes")
    assert await calls.answer(held, None) == {"said": "yes"}


async def test_a_client_that_leaves_while_its_call_goes_on_stops_it() -> None:
    calls, held, gone = HeldCalls(), HeldCall("a"), Cancellation()

    async def work() -> JsonObject:
        gone.cancel()
        return {"stopped": held.cancellation.cancelled}

    held.start(work())
    assert await calls.answer(held, gone) == {"stopped": True}


async def test_a_call_that_is_cancelled_ends_before_its_cancel_is_passed_on() -> None:
    calls, held, ended = HeldCalls(), HeldCall("a"), list[str]()

    async def work() -> JsonObject:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")
        return {}

    held.start(work())
    running = asyncio.create_task(calls.answer(held, None))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["work"]


async def test_only_a_client_that_waits_for_an_answer_is_asked() -> None:
    approvals, asked = ClientApprovals(), list[str]()

    async def elicit(message: str, form: JsonObject) -> None:
        asked.append(message)

    ask = approvals.asker("a")
    with approvals.waits("b", elicit), approvals.waits("a", None):
        assert await ask(request()) is None
    with approvals.waits("a", elicit):
        answer = await ask(request())
        assert isinstance(answer, ApprovalAnswer)
        assert not answer.approved
    assert await ask(request()) is None
    assert len(asked) == 1
