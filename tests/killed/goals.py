"""A process that is killed while two children work in goal mode: `python -m tests.killed.goals HOME PROJECT TAMPERS`.

Each child claims too early, and then works. The process prints the handles of the tasks when the model is called for
both for the last time, which never answers.
"""

import asyncio
import sys
from pathlib import Path

from delegate import Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatReply, ChatRequest
from tests.support.words import is_judge, met_by

GOAL = "Write hello to a.txt."
CRITERIA = ({"kind": "shell", "command": "sh tests/check.sh"}, "file notes.md: notes.md says what was done")


def task(project: Path) -> Task:
    return Task(
        goal=GOAL,
        acceptance_criteria=CRITERIA,
        mode="goal",
        max_steps=9,
        workspace={"mode": "copy", "path": project},
    )


async def main(home: Path, project: Path, tampers: bool) -> None:
    """Run the tasks until this process is killed."""
    handles: list[str] = []
    waiting: list[ChatRequest] = []
    path, content = ("tests/check.sh", "true") if tampers else ("notes.md", "I write hello")
    turns = [
        Scripted.call("write_file", path=path, content=content),
        Scripted.call("claim_complete", rationale="I wrote hello."),
        Scripted.call("write_file", path="a.txt", content="hel"),
    ]

    def note(event: Event) -> None:
        if event.kind == "task.queued":
            handles.append(event.handle)

    async def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return met_by("I write hello")(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn < len(turns):
            return turns[turn]
        waiting.append(request)
        if len(waiting) == 2:
            await asyncio.sleep(0.3)  # records are written up to a tenth of a second later
            print(*handles, flush=True)
        await asyncio.sleep(60)
        return ""

    async with Delegator(client=Scripted(answer), home=home, commands="allow", on_event=note) as delegator:
        await delegator.run(task(project), task(project))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "tampers"))
