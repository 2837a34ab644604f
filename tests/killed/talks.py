"""A process that is killed while its child reads messages: `python -m tests.killed.talks HOME LOG HOW [HANDLE]`.

With "continues", its task has ended and continues; with "resumes", it goes on with the task of that handle, which was
lost. It prints the handle of the task when the child works. What the model reads of its parent is appended to the log,
before it answers. The child counts: each call of its tool appends the next number to `LOG.acts`, and it goes on from
the last number that it finds in its conversation.
"""

import asyncio
import re
import sys
from pathlib import Path

from delegate import CallError, Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import Usage
from delegate.types.ports import ChatReply, ChatRequest

TURNS = 2_000


def acts(log: Path) -> Path:
    return log.with_suffix(".acts")


def last_act(request: ChatRequest) -> int:
    """The number of the last call that the model can know of."""
    texts = [message.text for message in request.messages]
    texts += [str(call.arguments) for message in request.messages for call in message.tool_calls]
    return max((int(number) for text in texts for number in re.findall(r"act-(\d+)", text)), default=0)


async def main(home: Path, log: Path, how: str, handle: str = "") -> None:
    """Run the task until this process is killed."""

    async def act(what: str) -> str:
        """Do something that must be done once."""
        with acts(log).open("a") as file:
            file.write(f"{what}\n")
        return "done"

    def note(event: Event) -> None:
        if event.kind == "child.started" and (how != "continues" or event.handle.endswith("-00")):
            print(event.handle, flush=True)

    async def answer(request: ChatRequest) -> ChatReply:
        with log.open("a") as file:
            file.write("".join(f"{message.text}\n" for message in request.messages if message.role == "user"))
        if how == "continues" and len(request.messages) == 1:
            return ChatReply("I wrote nothing.", "end", Usage())
        await asyncio.sleep(0.005)
        return Scripted.call("act", what=f"act-{last_act(request) + 1}")

    client = Scripted(answer)
    async with Delegator(client=client, home=home, tools=[act], on_event=note, max_steps=TURNS) as delegator:
        if how == "resumes":
            try:
                await delegator.resume(handle)
            except CallError as error:
                print(error, flush=True)
            return
        result = await delegator.run(Task(goal="Act."))
        await delegator.background.message(result.results[0].handle or "", "[first]")
        await delegator.background.join()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
