"""The interface of contenders. Each other module in this folder has `open_contender(url, work, folder)`."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from scripts.bench.workload import Json, Workload, use_tool

Use = Callable[[str, Json], str]
"""Runs a tool by name."""


def tools_for_files(folder: Path) -> Use:
    """Create the folder and return the tools of a child in it."""
    folder.mkdir()
    return partial(use_tool, folder)


class Contender(Protocol):
    """An implementation of judged delegations."""

    async def delegate(self, count: int) -> None:
        """Run `count` judged delegations concurrently. Raises an error unless all of them pass."""
        ...

    async def converse(self, messages: int) -> None:
        """Make one model call with a conversation of the given number of messages."""
        ...


class HandWritten(ABC):
    """A tool loop and a judge call, written by hand."""

    def __init__(self, work: Workload, folder: Path) -> None:
        self._work = work
        self._folders = (folder / str(n) for n in itertools.count())
        """A new one for each delegation, as delegate's children have. An old one costs the file system less."""

    async def delegate(self, count: int) -> None:
        await asyncio.gather(*map(self._delegation, itertools.islice(self._folders, count)))

    async def converse(self, messages: int) -> None:
        await self._ask(self._work.conversation[:messages], tools=self._work.tools)

    @abstractmethod
    async def _delegation(self, folder: Path) -> None:
        """Run one judged delegation in a folder, which is created if the tools need it."""

    @abstractmethod
    async def _ask(self, messages: list[Any], **asked: Any) -> Any:
        """Make one model call and return the message of the reply."""


class JsonLoop(HandWritten):
    """Requests and replies are JSON. `loads` parses it."""

    def __init__(
        self,
        work: Workload,
        folder: Path,
        loads: Callable[[str], Any],
        tools: Callable[[Path], Use] = tools_for_files,
    ) -> None:
        super().__init__(work, folder)
        self._loads = loads
        self._tools = tools

    async def _delegation(self, folder: Path) -> None:
        use = self._tools(folder)
        messages = self._work.child_messages()
        while calls := (message := await self._ask(messages, tools=self._work.tools)).get("tool_calls"):
            messages.append(message)
            for call in calls:
                text = use(call["function"]["name"], self._loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        judged = await self._ask(self._work.judge_messages(), response_format=self._work.response_format)
        self._work.check(message["content"], self._loads(judged["content"]))
