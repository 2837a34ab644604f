"""A program of its own: runs one command on Linux and leaves none of its descendants behind, however they hid.

    subreaper.py STATUS_FD HOST_PID PROGRAM [ARGUMENT …]

A process that calls `setsid` leaves its group, and a kill of the group misses it. But Linux gives every orphan to the
nearest ancestor that asked for orphans, and this process asks; so what the command starts stays within its reach. It
ends them all when the command has ended, when it is sent SIGTERM, and when its host is gone.

It reports on STATUS_FD as bubblewrap does, one JSON object a line: `child-pid`, and `exit-code` once the command came
to its end by itself. Every command waits for its start, so it imports little and needs no `site`.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence

TYPE_CHECKING = False  # `typing` costs a millisecond; type checkers know the name all the same
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # without the enums of `signal`: 10 ms to start instead of 14

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RETRY_SECONDS = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command of `arguments`. The exit code is the command's, or 1 where it didn't come to its end."""
    status, host, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    os.set_inheritable(status, False)
    # What the command sends to its parent is left pending, but for SIGTERM, SIGKILL and SIGSTOP.
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Linux means the thread that started this, not the process: the thread of the event loop that waits for it.
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:  # it died before that was set
        return 1
    child = _start(command, usual)
    try:
        os.write(status, b'{"child-pid": %d}\n' % child)
        exit_code = _wait(child)
    finally:
        _end_all()
    if exit_code is None:
        return 1
    os.write(status, b'{"exit-code": %d}\n' % exit_code)
    return exit_code


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _start(command: Sequence[str], mask: set[int]) -> int:
    """Run the command in a session of its own, so that what it sends to its own group doesn't come here."""
    launcher = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == launcher:
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, when it started
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execv(command[0], tuple(command))  # noqa: S606 - a shell is what it starts
    finally:  # only reached where it can't be started
        os.kill(launcher, signal.SIGTERM)
        os._exit(1)


def _wait(child: int) -> int | None:
    """The command's exit code as shells say it; None when SIGTERM came before."""
    while signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) != signal.SIGTERM:
        for pid, code in _reaped():
            if pid == child:
                return 128 - code if code < 0 else code
    return None


def _reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended, with their exit codes. Raises ChildProcessError when there are no others."""
    while (found := os.waitpid(-1, os.WNOHANG))[0]:
        yield found[0], os.waitstatus_to_exitcode(found[1])


def _end_all() -> None:
    """Kill children until there are none. Those that a dying one leaves become children in their turn."""
    while True:
        try:
            for _ in _reaped():
                pass
        except ChildProcessError:
            return
        for pid in _children():
            _kill(pid)
        signal.sigtimedwait({signal.SIGCHLD}, RETRY_SECONDS)


def _children() -> Iterator[int]:
    """Processes whose parent this is. `/proc/…/children` would be quicker, but not every kernel has it."""
    own = b"%d" % os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split(b" ", 2)
        except OSError:  # gone meanwhile
            continue
        if fields[1:2] == [own]:
            yield int(name)


def _kill(pid: int) -> None:
    """Kill a child and its group at one stroke, so that nothing in it can fork meanwhile.

    A child keeps its number until it is reaped, and its group has only descendants in it: no stranger is hit.
    """
    try:
        if (group := os.getpgid(pid)) != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # ended already, or of another user by now
        pass


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # without tidying up an interpreter that nothing is in
