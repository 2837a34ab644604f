"""The file by which the processes of a user share what they have learned of one model's limits.

It exists once a limit was found, and is only opened while one is known: until then, a process looks at most every
`LOOK_SECONDS` whether it is there. Each step of a rate limiter then locks it, goes on from what it says, and writes
what has changed, so that all processes together behave as one limiter. A file that is damaged, comes from before the
machine was started, or that nobody has written for long, counts as empty. While it can't be locked or read, each
process goes on by itself. It contains times, rates and counts, and no address, key or text of a server.
"""

import os
import platform
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from delegate._util.file_lock import lock_file, unlock_file
from delegate._util.redaction import logger
from delegate.models.pacing import MAX_PAUSE, Learned, Moment

FOLDER = "limits"
"""In the folder `home`."""
LOOK_SECONDS = 0.2
LOCK_SECONDS = 0.2
"""How long a step waits for another process's step. They take a tenth of a millisecond."""
ALONE_SECONDS = 10.0
"""How long a process goes on by itself where the file couldn't be used."""
KEPT_SECONDS = 300.0
"""After this time without a step of any process, what the file says is too old."""
CLOCK_SECONDS = 5.0
"""By which clocks may differ. More, and the file is of another start of the machine, or the machine has slept."""
MAX_BYTES = 1 << 18
MAX_FILES = 100
"""Beyond this, the oldest ones are removed."""

_log = logger(__name__)


def path_of(home: Path, *, url: str, key: str, model: str) -> Path:
    """The file of one model at one address, by a digest, since some addresses contain a key.

    Each key has limits of its own. All that the name tells of it is 12 bits, which thousands of keys have in common.
    """
    place = sha256(f"{platform.node()}\n{url}\n{model}".encode("utf-8", "replace")).hexdigest()[:24]
    return home / FOLDER / f"{place}-{sha256(key.encode('utf-8', 'replace')).hexdigest()[:3]}.json"


@dataclass(slots=True)
class _Document:
    # It holds for all that is inside as well.
    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Literal[1]
    clock: float
    """The time since the epoch when the clock of the event loops was 0."""
    at: Moment
    learned: Learned


@cache
def _documents() -> TypeAdapter[_Document]:
    return TypeAdapter(_Document)  # built where it is needed: it takes some milliseconds


class SharedLimits:
    """One file. Its methods are called by one thread at a time."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._next_look = -1.0
        self._alone_until = -1.0
        self.is_in_use = False
        """Whether the file had limits in it when it was last looked at."""

    def look(self, now: float) -> bool:
        """Whether other processes know limits, as far as this one has looked."""
        if not self.is_in_use and now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            with suppress(OSError):
                self.is_in_use = os.stat(self._path).st_size > 0
        return self.is_in_use and now >= self._alone_until

    @contextmanager
    def step(
        self, now: float, take_in: Callable[[Learned | None], object], pass_on: Callable[[], Learned | None]
    ) -> Generator[None]:
        """Hold the lock inside the block, if the file can be used now.

        `take_in` gets what other processes have learned (None if that is nothing, or can't be used) before the block,
        and `pass_on` returns what the file says after it (None: nothing that matters).
        """
        try:
            fd = self._open(now)
        except OSError as error:
            if self._alone_until < now:
                _log.debug("limits aren't shared for now: %s: %s", self._path, error)
            self._alone_until = now + ALONE_SECONDS
            yield
            return
        try:
            take_in(self._read(fd))
            yield
            learned = pass_on()
            with suppress(OSError):
                self._write(fd, learned)
                self.is_in_use = learned is not None
        finally:
            with suppress(OSError):
                unlock_file(fd)
            os.close(fd)

    def _open(self, now: float) -> int:
        if now < self._alone_until:
            raise OSError("it couldn't be used before")
        try:
            fd = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(OSError):
                files = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self._path.parent))
                for _, path in files[: max(0, len(files) - MAX_FILES + 1)]:
                    os.unlink(path)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(fd, LOCK_SECONDS)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _read(self, fd: int) -> Learned | None:
        now = self._clock()
        try:
            data = os.pread(fd, MAX_BYTES + 1, 0)
            document = _documents().validate_json(data) if 0 < len(data) <= MAX_BYTES else None
        except (OSError, ValueError):
            return None
        if document is None or abs(document.clock - self._started()) >= CLOCK_SECONDS:
            return None
        is_usable = now - document.at < KEPT_SECONDS and document.learned.is_possible(now + MAX_PAUSE + 1)
        return document.learned if is_usable else None

    def _write(self, fd: int, learned: Learned | None) -> None:
        if learned is None:
            os.ftruncate(fd, 0)
            return
        data = _documents().dump_json(_Document(1, self._started(), self._clock(), learned))
        # In one piece, and never shorter: a process that is killed leaves nothing that can't be read.
        os.pwrite(fd, data.ljust(min(os.fstat(fd).st_size, MAX_BYTES)), 0)

    def _started(self) -> float:
        return time.time() - self._clock()
