"""Stdin and stdout while they are reserved for the protocol. It imports little, as clients don't wait long."""

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from queue import Queue
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from delegate.hosts.mcp.opening import Opening

_MAX_WAITING = 100
"""How many lines are read ahead of the server."""


class Line(NamedTuple):
    """A line, which is a message, and when it was read, in seconds of the monotonic clock."""

    text: str
    at: float


class StdioConnection:
    """The connection to the client that started this process. All methods block, and may be called in any thread."""

    def __init__(self, stdin: int, stdout: int, opening: "Opening | None") -> None:
        self._stdin, self._stdout = stdin, stdout
        self._opening = opening
        self._lines: Queue[Line | OSError | None] = Queue(_MAX_WAITING)
        self._writing = threading.Lock()

    def read(self) -> None:
        """Read lines until the end, and answer those that the opening can. Bytes that aren't UTF-8 are replaced."""
        try:
            with open(self._stdin, "rb", closefd=False) as stdin:
                for line in stdin:
                    text, at = line.decode("utf-8", "replace").removesuffix("\n"), time.monotonic()
                    if self._opening is not None and (answer := self._opening.answer(text)) is not None:
                        self._write(answer)
                    self._lines.put(Line(text, at))
        except OSError as error:
            self._lines.put(error)
        else:
            self._lines.put(None)

    def end_opening(self) -> None:
        """Leave all answers to the server."""
        if self._opening is not None:
            self._opening.end()

    def next_line(self) -> Line | None:
        """The next line for the server, also one that the opening answered. None at the end.

        Raises OSError if the connection is broken.
        """
        line = self._lines.get()
        if isinstance(line, OSError):
            raise line
        return line

    def send(self, text: str) -> None:
        """Send a message of the server, unless the opening has sent it. Raises OSError if the connection is broken."""
        if self._opening is None or not self._opening.has_answered(text):
            self._write(text)

    def _write(self, text: str) -> None:
        with self._writing:
            remaining = memoryview(text.encode())
            while remaining:
                remaining = remaining[os.write(self._stdout, remaining) :]


@contextmanager
def reserved_stdio(opening: "Opening | None" = None) -> Generator[StdioConnection]:
    """Reserve stdin and stdout for the protocol. For all other code stdin is empty, and stdout goes to stderr.

    They are read at once, and `opening` answers what it can until the server does.
    """
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    connection = StdioConnection(stdin, stdout, opening)
    # The end of the process doesn't wait for this thread.
    threading.Thread(target=connection.read, name="delegate-stdio", daemon=True).start()
    try:
        yield connection
    finally:
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)  # the copies stay open: a thread may still be blocked on one
