"""Agents of the Agent2Agent protocol give tasks to `delegate serve --a2a`: the SDK's own client over HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("a2a", reason="the extra `a2a` isn't installed")

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_data_part, new_raw_part, new_text_part
from a2a.types import a2a_pb2 as types
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict
from sse_starlette.sse import AppStatus

from delegate import Cancellation, Delegator
from delegate.hosts.serve import http
from delegate.testing import Scripted
from delegate.types.ports import ChatRequest
from tests.support.gate import Gate

SOON = 20
TOKENS = {"ann": "a" * 32, "bob": "b" * 32}
WRITE = "Write a.txt.\n\nAcceptance criteria:\n- file: a.txt\n"


def writes(request: ChatRequest) -> Any:
    """A child that writes the file, and says so."""
    wrote = any(message.role == "tool" for message in request.messages)
    return "I wrote it." if wrote else Scripted.call("write_file", path="a.txt", content="x")


def lies(request: ChatRequest) -> Any:
    return "PASS. I wrote it."


def asks(request: ChatRequest) -> Any:
    """A child that asks, and says what it was answered."""
    if any(message.role == "tool" for message in request.messages):
        return f"Used {request.messages[-1].text}"
    return Scripted.call("ask_parent", question="Which one?", options=["A", "B"])


class Agent:
    """The client of one agent."""

    def __init__(self, client: Client, card: types.AgentCard) -> None:
        self.client = client
        self.url = card.supported_interfaces[0].url

    async def send(self, *parts: Any, at_once: bool = False, **message: Any) -> list[Any]:
        """Send a message, and return what came: each the field of a StreamResponse."""
        made = types.Message(message_id="m1", role=types.ROLE_USER, parts=[as_part(part) for part in parts], **message)
        how = types.SendMessageConfiguration(return_immediately=at_once)
        async with asyncio.timeout(SOON):
            sent = self.client.send_message(types.SendMessageRequest(message=made, configuration=how))
            return [getattr(one, str(one.WhichOneof("payload"))) async for one in sent]

    async def task(self, handle: str) -> types.Task:
        return await self.client.get_task(types.GetTaskRequest(id=handle))

    async def refusal(self, *parts: Any, **message: Any) -> str:
        with pytest.raises(A2AError) as caught:
            await self.send(*parts, **message)
        return str(caught.value)


def as_part(part: Any) -> types.Part:
    return (
        new_text_part(part) if isinstance(part, str) else part if isinstance(part, types.Part) else new_data_part(part)
    )


def state(update: Any) -> str:
    return types.TaskState.Name(update.status.state).removeprefix("TASK_STATE_").lower()


def said(update: Any) -> str:
    return "".join(part.text for part in update.status.message.parts)


def data(artifact: types.Artifact) -> Any:
    return next(MessageToDict(part.data) for part in artifact.parts if part.HasField("data"))


@asynccontextmanager
async def serving(
    script: Callable[[ChatRequest], Any] = writes,
    *,
    streaming: bool = True,
    max_open: int = 100,
    names: Sequence[str] = ("ann", "bob"),
    **options: Any,
) -> AsyncGenerator[dict[str, Agent]]:
    """A server, and a client of each name."""
    tokens = {name: TOKENS[name] for name in names}
    async with Delegator(client=Scripted(script), **options) as delegator:
        listener = http.listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop, AppStatus.should_exit = Cancellation(), False  # a server that has ended leaves it set in this process
        how: Any = {"tokens": tokens, "a2a": True, "max_open": max_open, "cancellation": stop}
        running = asyncio.create_task(http.serve(delegator, listener, **how))
        agents: dict[str, Agent] = {}
        opened = AsyncExitStack()
        try:
            for name, token in tokens.items():
                mine = {"Authorization": f"Bearer {token}"}
                web = await opened.enter_async_context(httpx.AsyncClient(headers=mine, timeout=SOON))
                card = await A2ACardResolver(web, url).get_agent_card()
                config = ClientConfig(streaming=streaming, httpx_client=web)
                agents[name] = Agent(ClientFactory(config).create(card), card)
            yield agents
        finally:
            await opened.aclose()
            stop.cancel()
            await running


async def test_a_message_is_a_task_whose_verdict_is_streamed_with_what_its_child_does() -> None:
    async with serving() as agents:
        first, *updates, artifact, last = await agents["ann"].send(WRITE)
        assert (state(first), first.id) == ("working", last.task_id)
        assert {state(update) for update in updates} == {"working"}
        assert any("runs write_file" in said(update) for update in updates)
        assert state(last) == "completed"
        assert "PASS" in said(last)
        result = data(artifact.artifact)
        assert result["verdict"]["verdict"] == "PASS"
        assert result["verdict"]["criteria"][0]["decided_by"] == "check"
        assert artifact.artifact.parts[0].text.startswith("1 of 1 PASS") or "PASS" in artifact.artifact.parts[0].text
        read = await agents["ann"].task(first.id)
        assert (state(read), read.context_id, len(read.artifacts)) == ("completed", first.context_id, 1)


async def test_a_lie_ends_as_failed_whatever_its_report_says() -> None:
    async with serving(lies, streaming=False) as agents:
        (task,) = await agents["ann"].send(WRITE)
        assert state(task) == "failed"
        assert said(task).startswith("task 1: FAIL")
        assert data(task.artifacts[0])["verdict"]["criteria"][0]["outcome"] == "not_met"


async def test_data_parts_have_the_other_fields_of_a_task() -> None:
    async with serving(streaming=False) as agents:
        more = {"acceptance_criteria": [{"kind": "file", "path": "b.txt", "min_bytes": 1}], "context": "Any text."}
        (task,) = await agents["ann"].send(WRITE, more)
        first, second = data(task.artifacts[0])["verdict"]["criteria"]
        assert (first["outcome"], second["outcome"]) == ("met", "not_met")
        (task,) = await agents["ann"].send({"goal": "Write a.txt.", "acceptance_criteria": "file: a.txt"})
        assert state(task) == "completed"


async def test_the_question_of_a_child_needs_input_and_the_next_message_answers_it() -> None:
    async with serving(asks) as agents:
        *_, asked = await agents["ann"].send("Choose one.")
        assert (state(asked), said(asked)) == ("input_required", "Which one?\n1. A\n2. B")
        assert state(await agents["ann"].task(asked.task_id)) == "input_required"
        first, *_, artifact, last = await agents["ann"].send("2", task_id=asked.task_id)
        assert (first.id, state(last)) == (asked.task_id, "completed"), said(last)
        assert "B" in data(artifact.artifact)["report"]


async def test_a_running_task_is_followed_sent_messages_and_canceled() -> None:
    gate = Gate()
    async with serving(gate) as agents:
        ann = agents["ann"]
        task = await begun(ann, gate)
        canceled: list[types.Task] = []

        async def cancel() -> None:
            canceled.append(await ann.client.cancel_task(types.CancelTaskRequest(id=task.id)))

        assert state((await updates_of(ann, task.id, cancel))[-1]) == state(canceled[0]) == "canceled"
        with pytest.raises(A2AError, match="cancel"):
            await ann.client.cancel_task(types.CancelTaskRequest(id=task.id))
        with pytest.raises(A2AError, match="has ended"):
            await updates_of(ann, task.id)


async def begun(agent: Agent, gate: Gate) -> types.Task:
    """A task that runs: the first update of its stream, which is cut then."""
    made = types.Message(message_id="m1", role=types.ROLE_USER, parts=[new_text_part("Wait.")])
    stream: Any = agent.client.send_message(types.SendMessageRequest(message=made))
    first = await anext(stream)
    await asyncio.wait_for(gate.waiting.wait(), SOON)
    await stream.aclose()
    return first.task


async def updates_of(agent: Agent, handle: str, then: Callable[[], Awaitable[object]] | None = None) -> list[Any]:
    """What comes of a task that is subscribed to. `then` is awaited after the first of it."""
    found: list[Any] = []
    async with asyncio.timeout(SOON):
        async for one in agent.client.subscribe(types.SubscribeToTaskRequest(id=handle)):
            if not found and then is not None:
                await then()
            found.append(getattr(one, str(one.WhichOneof("payload"))))
    return found


async def test_a_task_goes_on_when_its_stream_is_cut() -> None:
    gate = Gate()
    async with serving(gate) as agents:
        task = await begun(agents["ann"], gate)

        async def let_on() -> None:
            gate.open.set()

        assert state((await updates_of(agents["ann"], task.id, let_on))[-1]) == "completed"


async def test_a_task_that_has_ended_is_continued_by_naming_it() -> None:
    async with serving(streaming=False) as agents:
        (task,) = await agents["ann"].send(WRITE)
        assert "referenceTaskIds" in await agents["ann"].refusal("Again.", task_id=task.id)
        (next_one,) = await agents["ann"].send("Write it again.", reference_task_ids=[task.id])
        assert next_one.id != task.id
        assert (state(next_one), next_one.context_id) == ("completed", task.context_id)


async def test_a_task_is_read_and_continued_after_a_restart_of_the_server() -> None:
    async with serving(streaming=False, names=["ann"]) as agents:
        (task,) = await agents["ann"].send(WRITE)
    async with serving(streaming=False, names=["ann"]) as agents:
        read = await agents["ann"].task(task.id)
        assert (state(read), data(read.artifacts[0])["verdict"]["verdict"]) == ("completed", "PASS")
        (again,) = await agents["ann"].send("Write it again.", reference_task_ids=[task.id])
        assert state(again) == "completed"


async def test_a_client_reads_stops_and_lists_only_its_own_tasks() -> None:
    async with serving(streaming=False) as agents:
        (mine,) = await agents["ann"].send(WRITE, context_id="same")
        (other,) = await agents["bob"].send(WRITE, context_id="same")
        assert mine.context_id == other.context_id == "same"
        for request in (
            agents["bob"].task(mine.id),
            agents["bob"].client.cancel_task(types.CancelTaskRequest(id=mine.id)),
        ):
            with pytest.raises(A2AError, match="not found"):
                await request
        assert "not found" in await agents["bob"].refusal("Go on.", task_id=mine.id)
        assert "not found" in (await agents["bob"].refusal("Go on.", reference_task_ids=[mine.id])).lower()
        listed = await agents["bob"].client.list_tasks(types.ListTasksRequest(context_id="same"))
        assert [task.id for task in listed.tasks] == [other.id]
        assert not listed.tasks[0].artifacts


async def test_tasks_are_listed_by_pages_and_states() -> None:
    async with serving(streaming=False) as agents:
        made = [(await agents["ann"].send(WRITE))[0].id for _ in range(3)]
        first = await agents["ann"].client.list_tasks(types.ListTasksRequest(page_size=2, include_artifacts=True))
        assert [task.id for task in first.tasks] == made[:0:-1]
        assert (first.total_size, len(first.tasks[0].artifacts)) == (3, 1)
        rest = types.ListTasksRequest(page_size=2, page_token=first.next_page_token)
        assert [task.id for task in (await agents["ann"].client.list_tasks(rest)).tasks] == made[:1]
        failed = types.ListTasksRequest(status=types.TASK_STATE_FAILED)
        assert not (await agents["ann"].client.list_tasks(failed)).tasks


WRONG: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "no task": ([""], {}, "no task"),
    "a file": ([new_raw_part(b"x", media_type="text/plain")], {}, "as text"),
    "several tasks": ([{"tasks": [{"goal": "a"}]}], {}, "a message is one task"),
    "no such field": (["Do it.", {"workspaces": "x"}], {}, "workspaces"),
    "a list": ([[1]], {}, "should be an object"),
    "two goals": (["Do it.", {"goal": "Do it."}], {}, "not both"),
    "a bad criterion": (['Do it.\nAcceptance criteria:\n- {"kind": "magic"}'], {}, "magic"),
    "a blank context": (["Do it."], {"context_id": " "}, "run_id"),
    "no such task": (["Do it."], {"task_id": "nope-1"}, "not found"),
}


async def test_what_is_wrong_with_a_message_is_said_and_nothing_runs() -> None:
    async with serving(streaming=False) as agents:
        for name, (parts, message, expected) in WRONG.items():
            assert expected in (await agents["ann"].refusal(*parts, **message)).lower(), name
        assert not (await agents["ann"].client.list_tasks(types.ListTasksRequest())).tasks


async def test_a_client_may_have_only_so_many_tasks_running() -> None:
    gate = Gate()
    async with serving(gate, max_open=1) as agents:
        task = await begun(agents["ann"], gate)
        assert "1 calls are running" in await agents["ann"].refusal("One more.")
        gate.open.set()
        assert state(await done(agents["ann"], task.id)) == "completed"


async def done(agent: Agent, handle: str) -> types.Task:
    with suppress(A2AError):  # it may have ended already
        await updates_of(agent, handle)
    return await agent.task(handle)


async def test_the_card_needs_no_token_and_all_else_does() -> None:
    async with serving() as agents, httpx.AsyncClient() as web:
        url = agents["ann"].url
        card = (await web.get(url.replace("/a2a", "/.well-known/agent-card.json"))).json()
        assert card["skills"][0]["name"] == "Do this and prove it"
        assert card["capabilities"]["streaming"] is True
        refused = await web.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}})
        assert refused.status_code == 401
        mine = {"Authorization": f"Bearer {TOKENS['ann']}", "A2A-Version": "1.0"}
        for body in (b"{", b"[]", b'{"jsonrpc": "2.0", "method": 1}', b"[" * 100_000, b" " * (http.MAX_BODY_BYTES + 1)):
            answer = await web.post(url, content=body, headers=mine)
            assert answer.status_code == 200
            assert answer.json()["error"]["message"]


async def test_clients_of_the_version_before_are_answered_too() -> None:
    async with serving() as agents, httpx.AsyncClient(timeout=SOON) as web:
        url = agents["ann"].url
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": WRITE}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        answer = (await web.post(url, json=body, headers={"Authorization": f"Bearer {TOKENS['ann']}"})).json()
        assert answer["result"]["status"]["state"] == "completed", json.dumps(answer)
