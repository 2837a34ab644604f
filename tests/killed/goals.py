"""A process that is killed while two children work in goal mode: `python -m tests.killed.goals HOME PROJECT HOW`.

Each child claims too early, and then works. With "tampers" it bends the check first, with "refused" a judge refuses its
claim, and with "held" it claims without any work. The process prints the handles of the tasks when the model is called
for both for the last time, which never answers.
"""

import asyncio
import sys
from pathlib import Path

from delegate import Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import is_judge, met_by

GOAL = "Write hello to a.txt."
CRITERIA = ({"kind": "shell", "command": "sh tests/check.sh"}, "file notes.md: notes.md says what was done")


def task(project: Path, how: str) -> Task:
    return Task(
        goal=GOAL,
        acceptance_criteria=CRITERIA[:1] if how == "held" else CRITERIA,
        mode="goal",
        max_steps=9,
        workspace={"mode": "copy", "path": project},
    )


async def main(home: Path, project: Path, how: str) -> None:
    """Run the tasks until this process is killed."""
    handles: list[str] = []
    waiting: list[ChatRequest] = []
    path, content = ("tests/check.sh", "true") if how == "tampers" else ("notes.md", "I write hello")
    claim, hello = Scripted.call("claim_complete", rationale="I wrote hello."), "hello" if how == "refused" else "hel"
    notes = Scripted.call("write_file", path=path, content=content)
    work = Scripted.call("write_file", path="a.txt", content=hello)
    turns = {"refused": [notes, work, claim], "held": [claim]}.get(how, [notes, claim, work])

    def note(event: Event) -> None:
        if event.kind == "task.queued":
            handles.append(event.handle)

    async def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            refuses = how == "refused"
            return judge_reply(c2=("not_met", "")) if refuses else met_by("I write hello")(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn < len(turns):
            return turns[turn]
        waiting.append(request)
        if len(waiting) == 2:
            for handle in handles:
                await delegator.records.read(handle)  # which is answered once all that was recorded is written
            print(*handles, flush=True)
        await asyncio.sleep(60)
        return ""

    async with Delegator(client=Scripted(answer), home=home, commands="allow", on_event=note) as delegator:
        await delegator.run(task(project, how), task(project, how))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
