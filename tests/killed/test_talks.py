"""A process is killed while its child is sent messages: each was delivered or never read, and never both. The task that
was lost is resumed, by a process that is killed too: nothing that the child did is done twice.
"""

import asyncio
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.records.mailbox import MAX_MESSAGES
from delegate.types import JsonObject
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.killed.talks import TURNS, acts, last_act
from tests.support import warm
from tests.support.samples import sampled


async def talked_until_killed(home: Path, log: Path, moment: float, texts: list[str], *how: str) -> str:
    """Send messages to the child of a process that is killed so many seconds after it has begun. Returns its handle."""
    command = [*warm.python(), "-m", "tests.killed.talks", str(home), str(log), *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        line = (await asyncio.to_thread(process.stdout.readline)).strip()
        handle = how[-1] if len(how) > 1 else line
        async with Delegator(client=Scripted([]), home=home) as delegator:
            killing = asyncio.get_running_loop().call_later(moment, process.kill)
            with suppress(CallError):
                while len(texts) < MAX_MESSAGES:
                    sent = await delegator.background.message(handle, f"[message {len(texts)}]")
                    assert sent.handle == handle
                    texts.append(sent.text)
            await asyncio.to_thread(process.stdout.read)  # to its end, which comes when the forked process ends
            killing.cancel()
            async with asyncio.timeout(20):
                # It isn't quite gone yet.
                while ((await delegator.records.read(handle)) or {})["state"] == "running":  # noqa: ASYNC110
                    await asyncio.sleep(0)
    return handle


async def check_messages(home: Path, log: Path, handle: str, texts: list[str], *states: str) -> None:
    """Each message has one of these states, the same each time, and none that was never read was read."""
    async with Delegator(client=Scripted([]), home=home) as delegator:
        messages = await delegator.background.messages(handle)
        again = await delegator.background.messages(handle)
    read = log.read_text() if log.exists() else ""
    assert [message.text for message in messages] == texts
    assert {message.state for message in messages} <= set(states)
    assert [message.state for message in messages] == [message.state for message in again]
    assert not [message for message in messages if message.state == "never_read" and message.text in read]


@pytest.mark.parametrize("seed", sampled(range(10), 2))
@pytest.mark.parametrize("how", ["runs", "continues"])
async def test_whenever_a_process_is_killed_each_message_was_delivered_or_never_read(
    tmp_path: Path, how: str, seed: int
) -> None:
    home, log, moment = tmp_path / "home", tmp_path / "log", random.Random(seed).uniform(0, 0.1)
    texts = ["[first]"] if how == "continues" else []
    handle = await talked_until_killed(home, log, moment, texts, how)
    states = ("delivered", "never_read", "queued") if how == "continues" else ("delivered", "never_read")
    await check_messages(home, log, handle, texts, *states)
    async with Delegator(client=Scripted([]), home=home) as delegator:
        with pytest.raises(CallError, match="its process was lost"):
            await delegator.background.message(handle, "Too late.")
        if how == "continues":
            with pytest.raises(CallError, match="was continued before"):
                await delegator.background.message(handle.removesuffix("0"), "Once more.")


@pytest.mark.parametrize("seed", sampled(range(10), 1))
@pytest.mark.parametrize("how", ["runs", "continues"])
async def test_whenever_processes_are_killed_a_task_can_be_resumed_and_nothing_is_done_twice(
    tmp_path: Path, how: str, seed: int
) -> None:
    home, log, moments = tmp_path / "home", tmp_path / "log", random.Random(seed)
    texts = ["[first]"] if how == "continues" else []
    handle = await talked_until_killed(home, log, moments.uniform(0, 0.3), texts, how)
    for _ in range(moments.randint(0, 2)):
        await talked_until_killed(home, log, moments.uniform(0, 0.3), texts, "resumes", handle)
    states = ("delivered", "never_read", "queued") if how == "continues" else ("delivered", "never_read")
    await check_messages(home, log, handle, texts, *states)
    done = acts(log).read_text().split() if acts(log).exists() else []

    def reply(request: ChatRequest) -> ChatReply | str:
        assert last_act(request) >= len(done), "what was done is known to the child"
        return "I am done."

    run = None
    async with Delegator(client=Scripted(reply), home=home, tools=[], max_steps=TURNS) as delegator:
        with suppress(CallError):
            run = await delegator.resume(handle)
        record = await delegator.records.read(handle)
    assert record
    assert len(done) == len(set(done)), "nothing is done twice"
    if run is None:  # it was killed before its child was on record
        assert (record["workspace"], done) == (None, [])
        return
    (result,) = run.results
    assert (result.status, result.report, record["state"]) == ("completed", "I am done.", "ended")
    assert {what for what in done if what not in receipts(record)} == set()
    await check_messages(home, log, handle, texts, "delivered", "never_read")


def receipts(record: JsonObject) -> dict[str, str]:
    return {receipt["args"]["what"]: receipt["status"] for receipt in record["run"]["receipts"]}
