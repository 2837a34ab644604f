"""What a contender can do. Each module beside this one has `open_contender(url, work, folder)`."""

from typing import Protocol


class Contender(Protocol):
    """One way to make judged delegations."""

    async def delegate(self, count: int) -> None:
        """Make `count` judged delegations at once; raise unless every one of them passed."""
        ...

    async def converse(self, messages: int) -> None:
        """Make one model call with a conversation of that many messages."""
        ...
