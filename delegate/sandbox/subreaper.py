"""A program that runs one command on Linux and leaves none of its descendants running.

    main(STATUS_FD HOST_PID PROGRAM [ARGUMENT …])

A process that calls `setsid` leaves its group, so killing the group misses it. But Linux reparents every orphan to the
nearest ancestor that is a subreaper, and this process is one, so it can find everything that the command started. It
kills all of that when the command ends, when it gets SIGTERM, and when its host dies.

It reports on STATUS_FD like bubblewrap, one JSON object per line: `child-pid`, and `exit-code` if the command ends by
itself. Every command waits until this program has started, so it imports little and needs no `site`.
"""

import ctypes
import os

TYPE_CHECKING = False  # importing `typing` takes a millisecond; type checkers recognize the name anyway
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Sequence
else:
    import _signal as signal  # without the enums of `signal`: starts in 10 ms instead of 14
    from _collections_abc import Iterator, Sequence  # `os` loads it; `collections` takes 2 ms

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RETRY_SECONDS = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command in `arguments`. Returns the command's exit code, or 1 if it didn't end by itself."""
    status, host, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    os.set_inheritable(status, False)
    # Signals from the command to its parent stay pending, except SIGTERM, SIGKILL and SIGSTOP.
    original_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Sent when the thread that started this dies, not the process: the event loop's thread, which waits for it.
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:  # the host died before the line above
        return 1
    child = _start(command, original_mask)
    try:
        os.write(status, b'{"child-pid": %d}\n' % child)
        exit_code = _wait(child)
    finally:
        _kill_all()
    if exit_code is None:
        return 1
    os.write(status, b'{"exit-code": %d}\n' % exit_code)
    return exit_code


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _start(command: Sequence[str], mask: set[int]) -> int:
    """Run the command in a session of its own, so that signals to its own group don't reach this process."""
    launcher = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == launcher:
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these from its start
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execv(command[0], tuple(command))  # noqa: S606 - the command is a shell
    finally:  # reached only if the command can't be started
        os.kill(launcher, signal.SIGTERM)
        os._exit(1)


def _wait(child: int) -> int | None:
    """The command's exit code, 128 + n after signal n; None if SIGTERM came first."""
    while signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) != signal.SIGTERM:
        for pid, code in _reaped():
            if pid == child:
                return 128 - code if code < 0 else code
    return None


def _reaped() -> Iterator[tuple[int, int]]:
    """Children that have exited, with their exit codes. Raises ChildProcessError if no children are left."""
    while (found := os.waitpid(-1, os.WNOHANG))[0]:
        yield found[0], os.waitstatus_to_exitcode(found[1])


def _kill_all() -> None:
    """Kill children until none are left. The children of a killed process become children of this one."""
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
    """Processes whose parent is this one. `/proc/…/children` would be faster, but not every kernel has it."""
    own = b"%d" % os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split(b" ", 2)
        except OSError:  # exited in the meantime
            continue
        if fields[1:2] == [own]:
            yield int(name)


def _kill(pid: int) -> None:
    """Kill a child and its whole group at once, so that nothing in the group can fork in between.

    A child keeps its pid until it is reaped, and its group has only descendants in it, so no other process is hit.
    """
    try:
        if (group := os.getpgid(pid)) != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # already exited, or now running as another user
        pass
