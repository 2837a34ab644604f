"""A process that delegates tasks until it is killed: `python -m tests.killed.batches HOME NAME SEED`.

It prints a line when it starts and, after each call, a line with the handles of the results, which are the ones that it
acknowledges. The start of every child is appended to the file `starts`, outside the records.
"""

import asyncio
import os
import random
import sys
from itertools import count
from pathlib import Path

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import goal_of, is_judge, met_by


async def main(home: Path, name: str, seed: int) -> None:
    """Delegate three tasks per call, in two concurrent endless loops."""
    chance, numbers = random.Random(seed), count()
    starts = os.open(home.with_name("starts"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def answer(request: ChatRequest) -> ChatReply | str:
        await asyncio.sleep(chance.random() * 0.01)
        if is_judge(request):
            return met_by("hello reader")(request)
        if len(request.messages) > 1:
            return f"I wrote note.md for {goal_of(request)}"
        os.write(starts, f"{goal_of(request)}\n".encode())
        return Scripted.call("write_file", path="note.md", content="hello reader " * 300)

    async def batches(delegator: Delegator) -> None:
        while True:
            tasks = [
                {"goal": f"{name}-{next(numbers)}", "acceptance_criteria": ["file note.md: it greets"]}
                for _ in range(3)
            ]
            run = await delegator.run(*map(Task.model_validate, tasks))
            print(*(result.handle for result in run.results), flush=True)

    async with Delegator(client=Scripted(answer), home=home) as delegator:
        print("started", flush=True)
        await asyncio.gather(batches(delegator), batches(delegator))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
