"""A process that is killed while its child asks: `python -m tests.killed.questions HOME PROJECT HOW`.

With "answered", the child has read the answer. It prints the handle of the task when the child waits.
"""

import asyncio
import sys
from pathlib import Path

from delegate import Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import ParentQuestion
from delegate.types.ports import ChatReply, ChatRequest

CRITERIA = ({"kind": "shell", "command": "grep -q hello a.txt"},)


async def main(home: Path, project: Path, how: str) -> None:
    """Run the task until this process is killed."""

    def note(event: Event) -> None:
        if how != "answered" and event.kind == "child.waiting":
            print(event.handle, flush=True)

    async def answer(request: ChatRequest) -> ChatReply:
        if how == "answered" and len(request.messages) > 1:
            await delegator.records.runs()  # which is answered once all that was recorded is written
            print(handles[0], flush=True)
            await asyncio.sleep(60)
        return Scripted.call("ask_parent", question="What shall I write?", options=["hello", "bye"])

    async def parent(question: ParentQuestion) -> str:
        if how != "answered":
            await asyncio.sleep(60)
        handles.append(question.handle)
        return "1"

    handles: list[str] = []
    workspace = {"mode": "copy", "path": project}
    task = Task(goal="Write.", acceptance_criteria=CRITERIA, mode="goal", workspace=workspace)
    async with Delegator(client=Scripted(answer), home=home, on_event=note) as delegator:
        await delegator.run(task, on_question=parent)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
