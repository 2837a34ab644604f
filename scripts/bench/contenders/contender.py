"""The interface of contenders. Each other module in this folder has `open_contender(url, work, folder)`."""

from typing import Protocol


class Contender(Protocol):
    """An implementation of judged delegations."""

    async def delegate(self, count: int) -> None:
        """Run `count` judged delegations concurrently. Raises an error unless all of them pass."""
        ...

    async def converse(self, messages: int) -> None:
        """Make one model call with a conversation of the given number of messages."""
        ...
