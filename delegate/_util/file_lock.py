"""Locks a file for one step. It is polled for, since a blocking `flock` could not time out."""

import fcntl
import time


def lock_file(fd: int, seconds: float) -> None:
    """Lock the open file against other processes. Raises OSError if one of them keeps the lock for so long, or the
    system or file system has no locks.
    """
    pause, deadline = 0.0005, time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(pause)
            pause = min(0.02, pause * 2)


def unlock_file(fd: int) -> None:
    """Release the lock, also where a forked process has the open file."""
    fcntl.flock(fd, fcntl.LOCK_UN)
