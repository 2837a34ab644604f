"""A child that a test holds."""

import asyncio

from delegate.types.ports import ChatRequest


class Gate:
    """A child that waits until it is let on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = asyncio.Event()

    async def __call__(self, request: ChatRequest) -> str:
        self.waiting.set()
        await self.open.wait()
        return "Done."
