"""Count delegate's functions between `Delegator.call` and the model provider, for a child and for a judge.

    PYTHONPATH=. python scripts/count_hops.py

A hop is a coroutine or function of this package that waits for the provider's reply, in any asyncio task. Fewer hops
make the code easier to follow; the number says nothing about speed.
"""

import asyncio
import sys
from pathlib import Path
from types import CodeType, CoroutineType, FrameType
from typing import Any, cast

import delegate
from delegate import Delegator
from delegate.types import Usage
from delegate.types.ports import ChatReply, ChatRequest

PACKAGE = Path(delegate.__file__).parent
VERDICT = '{"answers": [{"id": "c1", "source": "report", "evidence": "the report", "reason": "r", "verdict": "met"}]}'


class Client:
    """A client for all models that records which functions wait for its reply."""

    def __init__(self) -> None:
        self.paths: dict[str, list[str]] = {}

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Reply as a child or as a judge."""
        role = "judge" if request.reply_schema else "child"
        self.paths[role] = [name for task in _outermost_first() for name in _waiting(task)]
        return ChatReply(VERDICT if request.reply_schema else "the report", "end", Usage(model_calls=1))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _outermost_first() -> list[asyncio.Task[Any]]:
    """Return all tasks in the order in which they were created."""
    return sorted(asyncio.all_tasks(), key=lambda task: int(task.get_name().rpartition("-")[2]))


def _waiting(task: asyncio.Task[Any]) -> list[str]:
    """Return the package's functions in one task, outermost first."""
    if task is asyncio.current_task():
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return [_name(frame.f_code) for frame in reversed(frames) if _is_in_package(frame.f_code)]
    names: list[str] = []
    waiting: Any = task.get_coro()
    while isinstance(waiting, CoroutineType):
        names += [_name(waiting.cr_code)] if _is_in_package(waiting.cr_code) else []
        waiting = cast("Any", waiting.cr_await)
    return names


def _is_in_package(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(PACKAGE)


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_qualname}"


async def main() -> None:
    """Delegate one task with one criterion, and print both paths."""
    client = Client()
    async with Delegator(client=client) as delegator:
        await delegator.call({"goal": "report", "acceptance_criteria": ["the report says something"]})
    for role, path in client.paths.items():
        print(f"{role}: {len(path)} hops", *path, sep="\n  ")


if __name__ == "__main__":
    asyncio.run(main())
