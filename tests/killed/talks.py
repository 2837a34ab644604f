"""A process that is killed while its child reads messages: `python -m tests.killed.talks HOME LOG HOW`.

With "continues", its task has ended and continues. It prints the handle of the task when the child works. What the
model reads of its parent is appended to the log, before it answers.
"""

import asyncio
import sys
from pathlib import Path

from delegate import Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatReply, ChatRequest
from delegate.types import Usage

TURNS = 2_000


async def main(home: Path, log: Path, how: str) -> None:
    """Run the task until this process is killed."""

    def note(event: Event) -> None:
        if event.kind == "child.started" and (how != "continues" or event.handle.endswith("-00")):
            print(event.handle, flush=True)

    async def answer(request: ChatRequest) -> ChatReply:
        with log.open("a") as file:
            file.write("".join(f"{message.text}\n" for message in request.messages if message.role == "user"))
        if how == "continues" and len(request.messages) == 1:
            return ChatReply("I wrote nothing.", "end", Usage())
        await asyncio.sleep(0.005)
        return Scripted.call("write_file", path="a.txt", content=str(len(request.messages)))

    async with Delegator(client=Scripted(answer), home=home, on_event=note, max_steps=TURNS) as delegator:
        report = await delegator.run(Task(goal="Write."))
        await delegator.background.message(report.results[0].handle or "", "[first]")
        await delegator.background.join()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
