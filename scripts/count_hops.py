"""Count the functions of delegate between `Delegator.call` and the model provider, for a child and for a judge.

    PYTHONPATH=. python scripts/count_hops.py

A hop is a coroutine or function of this package that is waiting for the provider's answer, in whatever asyncio task.
Fewer hops make the code easier to follow; nothing here is about speed.
"""

import asyncio
import sys
from pathlib import Path
from types import CodeType, CoroutineType, FrameType
from typing import Any, cast

import delegate
from delegate import Delegator
from delegate.ports import ChatReply, ChatRequest
from delegate.types import Usage

PACKAGE = Path(delegate.__file__).parent
VERDICT = '{"answers": [{"id": "c1", "source": "output", "evidence": "the report", "reason": "r", "verdict": "met"}]}'


class Client:
    """Answers for every model, and notes who waits for the answer."""

    def __init__(self) -> None:
        self.paths: dict[str, list[str]] = {}

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer as a child or as a judge."""
        asked = "judge" if request.reply_schema else "child"
        self.paths[asked] = [name for task in _outermost_first() for name in _waiting(task)]
        return ChatReply(VERDICT if request.reply_schema else "the report", "end", Usage(model_calls=1))

    async def aclose(self) -> None:
        """Nothing to close."""


def _outermost_first() -> list[asyncio.Task[Any]]:
    """All tasks, in the order in which they were made."""
    return sorted(asyncio.all_tasks(), key=lambda task: int(task.get_name().rpartition("-")[2]))


def _waiting(task: asyncio.Task[Any]) -> list[str]:
    """The functions of the package in one task, the outermost first."""
    if task is asyncio.current_task():
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return [_name(one.f_code) for one in reversed(frames) if _is_ours(one.f_code)]
    names: list[str] = []
    waiting: Any = task.get_coro()
    while isinstance(waiting, CoroutineType):
        names += [_name(waiting.cr_code)] if _is_ours(waiting.cr_code) else []
        waiting = cast("Any", waiting.cr_await)
    return names


def _is_ours(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(PACKAGE)


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_qualname}"


async def main() -> None:
    """Delegate one task with one criterion, and print both paths."""
    client = Client()
    async with Delegator(client=client) as delegator:
        await delegator.call({"goal": "report", "acceptance_criteria": ["the report says something"]})
    for who, path in client.paths.items():
        print(f"{who}: {len(path)} hops", *path, sep="\n  ")


if __name__ == "__main__":
    asyncio.run(main())
