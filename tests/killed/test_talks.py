"""A process is killed while its child is sent messages: each was delivered or never read, and never both."""

import asyncio
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.errors import CallError
from delegate.models.providers.scripted import Scripted
from delegate.records.mailbox import MAX_MESSAGES
from tests.support import warm
from tests.support.samples import sampled


@pytest.mark.parametrize("seed", sampled(range(60), 3))
@pytest.mark.parametrize("how", ["runs", "continues"])
async def test_whenever_a_process_is_killed_each_message_was_delivered_or_never_read(
    tmp_path: Path, how: str, seed: int
) -> None:
    home, log, moment = tmp_path / "home", tmp_path / "log", random.Random(seed).uniform(0, 0.1)
    command = [*warm.python(), "-m", "tests.killed.talks", str(home), str(log), how]
    texts = ["[first]"] if how == "continues" else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        handle = (await asyncio.to_thread(process.stdout.readline)).strip()
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
            messages = await delegator.background.messages(handle)
            again = await delegator.background.messages(handle)
            with pytest.raises(CallError, match="its process was lost"):
                await delegator.background.message(handle, "Too late.")
            if how == "continues":
                with pytest.raises(CallError, match="was continued before"):
                    await delegator.background.message(handle.removesuffix("0"), "Once more.")
    read = log.read_text() if log.exists() else ""
    assert [message.text for message in messages] == texts
    assert {message.state for message in messages} <= {"delivered", "never_read"}
    assert [message.state for message in messages] == [message.state for message in again]
    assert not [message for message in messages if message.state == "never_read" and message.text in read]
