"""Code of the host that ignores a cancel delays a call only for the grace period, wherever it runs in a child."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from delegate import Cancellation, Delegator, Task
from delegate.engine import task_run
from delegate.models.providers.scripted import Scripted
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest
from delegate.types.ports import ChatReply, ChatRequest, Tool

Ignoring = Callable[[], Awaitable[None]]
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class IgnoringClient(Scripted):
    """A host's client whose calls ignore a cancel."""

    def __init__(self, ignoring: Ignoring) -> None:
        super().__init__(lambda request: "done")
        self._ignoring = ignoring

    async def complete(self, request: ChatRequest) -> ChatReply:
        await self._ignoring()
        return await super().complete(request)


def tool_of_host(ignoring: Ignoring) -> dict[str, Any]:
    async def call(arguments: object) -> str:
        await ignoring()
        return "late"

    return {"tools": [Tool("wait", "Waits.", NOTHING, call)], "client": Scripted([Scripted.call("wait"), "done"])}


def approval_of_host(ignoring: Ignoring) -> dict[str, Any]:
    async def call(arguments: object) -> str:
        return "sent"

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        await ignoring()
        return ApprovalAnswer(approved=True)

    tool = Tool("send", "Sends.", NOTHING, call, irreversible=True)
    client = Scripted([Scripted.call("send"), "done"])
    return {"tools": [tool], "client": client, "on_approval": ask, "policy": {"irreversible": "ask"}}


PLACES: dict[str, Callable[[Ignoring], dict[str, Any]]] = {
    "tool": tool_of_host,
    "client": lambda ignoring: {"client": IgnoringClient(ignoring)},
    "approval": approval_of_host,
}


@pytest.mark.parametrize("place", PLACES)
async def test_what_ignores_a_cancel_is_left_behind(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def ignoring() -> None:
        begun.set()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    monkeypatch.setattr(task_run, "GRACE_SECONDS", 0.05)
    async with Delegator(**PLACES[place](ignoring)) as delegator:
        cancellation = Cancellation()
        running = asyncio.create_task(delegator.run(Task(goal="Wait."), cancellation=cancellation))
        async with asyncio.timeout(5):
            await begun.wait()
            cancellation.cancel()
            (result,) = (await running).results
    go_on.set()  # what it records now would open the closed file again, which is an error in tests
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5)
    assert result.status == "cancelled"
    assert "was left behind after 0.05 s" in caplog.text
