"""Writes receipts for the tool calls of a child that is an agent of Hermes's, from the agent's callbacks."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from delegate.child.job import Job
from delegate.ports import ToolOutput


class ReceiptWriter:
    """The callbacks of one agent. Hermes calls them on the agent's thread; receipts are written on the event loop."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._loop = loop
        self._is_error = False
        self._seconds = 0.0

    def on_progress(self, event: str, *_: Any, **details: Any) -> None:
        """Remember how a tool call ended. Hermes reports it right before `on_tool_complete`, on the same thread."""
        if event == "tool.completed":
            self._is_error = bool(details.get("is_error"))
            self._seconds = float(details.get("duration") or 0)

    def on_tool_complete(self, _call_id: str, tool: str, args: Mapping[str, Any] | None, result: Any) -> None:
        """Write the receipt. Hermes doesn't report calls that it refused, and which therefore did nothing."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        output, seconds = ToolOutput(text, "error" if self._is_error else "ok"), self._seconds
        with suppress(RuntimeError):  # the loop is closed: the child was abandoned
            self._loop.call_soon_threadsafe(
                lambda: self._job.record_tool(tool, dict(args or {}), output, seconds=seconds)
            )
