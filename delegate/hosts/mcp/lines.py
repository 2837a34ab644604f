"""Reads the lines of a client, each of which is a message. It imports little, as clients don't wait long."""

import os
import time
from collections.abc import Generator

MAX_BYTES = 16 * 1024 * 1024
"""The maximum length of a line."""
_END_BYTES = 1_000
"""How much is kept of both ends of a line that is too long."""
_CHUNK = 65_536


class Line:
    """A line while it is read. Of one that is too long, only both ends are kept."""

    def __init__(self) -> None:
        self.start, self.end = bytearray(), b""
        self.at = 0.0
        """When it was read, in seconds of the monotonic clock."""
        self.length = 0
        """In bytes, including those that aren't kept."""

    def add(self, part: bytes) -> None:
        """Append to the line."""
        self.length += len(part)
        if self.length <= MAX_BYTES:
            self.start += part
        else:
            self.end = (self.end or bytes(self.start[-_END_BYTES:])) + part
            self.end = self.end[-_END_BYTES:]
            del self.start[_END_BYTES:]

    @property
    def is_too_long(self) -> bool:
        """Whether only both ends of it are kept, of which `text` has the start."""
        return self.length > MAX_BYTES

    @property
    def is_blank(self) -> bool:
        """Whether it contains nothing but white space."""
        return not self.is_too_long and not self.start.strip()

    @property
    def text(self) -> str:
        """The line, in which bytes that aren't UTF-8 are replaced."""
        return self.start.decode("utf-8", "replace")


def lines_of(descriptor: int) -> Generator[Line]:
    """Read lines until the end, including a last one that lacks its line break. Raises OSError if reading fails."""
    line = Line()
    while chunk := os.read(descriptor, _CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line.add(end)
            line.at = time.monotonic()
            yield line
            line = Line()
        line.add(rest)
    yield line
