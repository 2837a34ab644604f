"""Receipts of what a child of Hermes's does, from its agent's own callbacks."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from delegate.child.job import Job
from delegate.ports import ToolOutput


class Watch:
    """The callbacks of one agent. They come on its thread, and write on the loop, in order."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._loop = loop
        self._is_error = False
        self._seconds = 0.0

    def progress(self, event: str, *_: Any, **known: Any) -> None:
        """How a tool ended, which Hermes tells right before `completed`, and on the same thread."""
        if event == "tool.completed":
            self._is_error = bool(known.get("is_error"))
            self._seconds = float(known.get("duration") or 0)

    def completed(self, _call_id: str, tool: str, args: Mapping[str, Any] | None, result: Any) -> None:
        """Write the receipt. Calls that Hermes refused to make never come here: nothing was done."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        output, seconds = ToolOutput(text, "error" if self._is_error else "ok"), self._seconds
        with suppress(RuntimeError):  # the loop is closed: the child was given up
            self._loop.call_soon_threadsafe(
                lambda: self._job.record_tool(tool, dict(args or {}), output, seconds=seconds)
            )
