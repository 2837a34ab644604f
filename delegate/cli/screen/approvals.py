"""Asks the person at the terminal whether a child may make a call, and what a child wants to know.

What several children ask waits for each other.
"""

import asyncio
import os
import sys
import termios
from typing import TextIO

from delegate.cli.screen import progress
from delegate.cli.screen.output import user
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, describe
from delegate.types import ParentQuestion

QUESTION = "Allow it? y: yes, this once; a: yes, and the same call again in this task; else no [N] "
ANSWER = "Your answer, or nothing for none: "
CHOICE = "Your answer, the number of an option, or nothing for none: "
_YES, _AGAIN = ("y", "yes"), ("a", "always")


def at_terminal() -> "TerminalApprovals | None":
    """Asks the person at the terminal. None if stdin or stderr isn't one."""
    try:
        is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None
    return TerminalApprovals(sys.stdin, sys.stderr) if is_terminal else None


class TerminalApprovals:
    """Shows one request after the other, and reads a line for each. What was typed before a request doesn't count."""

    def __init__(self, stdin: TextIO, stderr: TextIO) -> None:
        self._stdin, self._stderr = stdin, stderr
        self._asking = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The person's answer. Everything but a clear yes is a no."""
        reply = (await self._reply(request.describe(), QUESTION)).lower()
        return ApprovalAnswer(approved=reply in _YES + _AGAIN, by=user(), same_again=reply in _AGAIN)

    async def answer(self, question: ParentQuestion) -> str | None:
        """The person's answer to a question of a child. None if there is none."""
        return await self._reply(describe(question), CHOICE if question.options else ANSWER) or None

    async def _reply(self, text: str, prompt: str) -> str:
        """What the person types in reply to a text."""
        async with self._asking:
            with progress.hidden():
                self._write(f"\n{text}\n")
                termios.tcflush(self._stdin.fileno(), termios.TCIFLUSH)
                self._write(prompt)
                line = ""
                try:
                    line = await self._line()
                finally:
                    if not line.endswith("\n"):
                        self._write("\n")
        return line.strip()

    async def _line(self) -> str:
        """The next line, or what there is of it at the end of the input."""
        loop, fd = asyncio.get_running_loop(), self._stdin.fileno()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        return os.read(fd, 4_096).decode(errors="replace")

    def _write(self, text: str) -> None:
        self._stderr.write(text)
        self._stderr.flush()
