"""A process that is killed while its child works: `python -m tests.killed.tasks HOME PLAN`.

PLAN is JSON: the fields of the `task`, the `turns` of its child, and `settings`. A turn is a text, which is the report,
or a list of calls; after the last one the process prints the task's handle, and the model never answers. Where there is
a `message`, the task continues with it when it has ended, and those are the turns of what continues. Where there is a
`log`, the child's tools are `act`, which appends to it, and `hang`, which does so too and never ends.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delegate import Delegator, Event, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Parent
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import is_judge


def tools(log: str, handle: Callable[[], str] = str) -> list[Callable[..., Any]]:
    """Tools that leave a line for each call of them."""

    async def act(what: str) -> str:
        """Do something."""
        with Path(log).open("a") as file:
            file.write(f"{what}\n")
        return f"did {what}"

    async def hang(what: str) -> str:
        """Do something that doesn't end."""
        await act(what)
        print(handle(), flush=True)
        await asyncio.sleep(60)
        return ""

    return [act, hang]


async def main(home: Path, plan: dict[str, Any]) -> None:
    """Run the task until this process is killed."""
    handles: list[str] = []
    turns: list[str | list[tuple[str, JsonObject]]] = list(plan["turns"])
    first = ["I did nothing."] if "message" in plan else []

    def note(event: Event) -> None:
        if event.kind == "task.queued":
            handles.append(event.handle)
        if event.kind == "child.tool.started" and plan.get("until") == event.tool:
            print(handles[-1], flush=True)

    async def answer(request: ChatRequest) -> ChatReply | str:
        if not is_judge(request) and (turn := next(iter(first or turns), None)) is not None:
            del (first or turns)[0]
            return turn if isinstance(turn, str) else Scripted.calls(*turn)
        if not plan.get("soon"):
            await delegator.records.read(handles[-1])  # which is answered once all that was recorded is written
        print(handles[-1], flush=True)
        await asyncio.sleep(60)
        return ""

    own = tools(plan["log"], lambda: handles[-1]) if "log" in plan else None
    client = Scripted(answer)
    async with Delegator(client=client, home=home, on_event=note, tools=own, **plan.get("settings", {})) as delegator:
        if plan.get("by_model"):
            await delegator.call(plan["task"], parent=Parent(tools=("write_file", "run_shell")))
            return
        result = await delegator.run(Task.model_validate(plan["task"]))
        if "message" in plan:
            await delegator.background.message(result.results[0].handle or "", plan["message"])
            await delegator.background.join()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
