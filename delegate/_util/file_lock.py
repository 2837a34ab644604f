"""Locks a file for the few microseconds of one step."""

import fcntl
import time


def lock_file(fd: int, seconds: float) -> None:
    """Lock the open file against other processes. Raises OSError if one of them keeps the lock for so long, or the
    system or file system has no locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def unlock_file(fd: int) -> None:
    """Release the lock, also where a forked process has the open file."""
    fcntl.flock(fd, fcntl.LOCK_UN)
