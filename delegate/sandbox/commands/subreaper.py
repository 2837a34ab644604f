"""A program that runs one command on Linux, with limits and maybe in Landlock, and leaves none of its descendants
running.

    main(STATUS_FD HOST_PID CORE FILE_SIZE CPU THREADS [landlock LANDLOCK_FD RULE … --] PROGRAM [ARGUMENT …])

    this process ──▶ a process in a session of its own, with the limits ──▶ the command, or `landlock.py`

A process that calls `setsid` leaves its group, so killing the group misses it. But Linux reparents every orphan to the
nearest ancestor that is a subreaper, and this process is one, so it can find everything that the command started. It
kills all of that when the command ends, when it gets SIGTERM, and when its host dies.

It reports on STATUS_FD like bubblewrap, one JSON object per line: `child-pid`, and `exit-code` if the command ends by
itself. Limits and sandbox are only for the process that it forks: this one must neither run out of CPU time nor be the
first to end where memory is used up, and a sandbox would keep it from killing what it should. PROGRAM is an absolute
path. Every command waits until this program has started, so it imports little and needs no `site`.
"""

import ctypes
import os
import sys

TYPE_CHECKING = False  # importing `typing` takes a millisecond; type checkers recognize the name anyway
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:
    import _signal as signal  # without the enums of `signal`: starts in 10 ms instead of 14
    from _collections_abc import Sequence  # `os` loads it; `collections` takes 2 ms

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RETRY_SECONDS, MAX_RETRY_SECONDS = 0.01, 1.0

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command in `arguments`. Returns the command's exit code, or 1 if it didn't end by itself."""
    status, host, *limits = map(int, arguments[:6])
    os.set_inheritable(status, False)
    # Signals from the command to its parent stay pending, except SIGTERM, SIGKILL and SIGSTOP.
    original_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Sent when the thread that started this dies, not the process: the event loop's thread, which waits for it.
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:  # the host died before the line above
        return 1
    child = _start(arguments[6:], limits, original_mask, status)
    try:
        os.write(status, b'{"child-pid": %d}\n' % child)
        exit_code = _wait(child)
    finally:
        _kill_all(child)
    if exit_code is None:
        return 1
    os.write(status, b'{"exit-code": %d}\n' % exit_code)
    return exit_code


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _start(command: Sequence[str], limits: Sequence[int], mask: set[int], status: int) -> int:
    """Run the command in a session of its own, so that signals to its own group don't reach this process."""
    launcher = os.getpid()
    if child := os.fork():
        return child
    try:
        os.close(status)
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
        _limit(limits)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these from its start
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if command[0] == "landlock":
            os._exit(__import__("landlock").main(command[1:]))  # beside this file, which is in no package here
        os.execv(command[0], tuple(command))  # noqa: S606 - the command is a shell
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:  # reached only if the command can't be started
        os.kill(launcher, signal.SIGTERM)
        os._exit(1)


def _limit(limits: Sequence[int]) -> None:
    """Set what `kernel_limits` explains. A limit that is already lower stays, since only root can raise it."""
    import resource  # the process that waits doesn't need it

    kinds = resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NPROC
    for kind, most in zip(kinds, limits, strict=True):
        try:  # noqa: SIM105 - `contextlib` takes a millisecond
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            pass
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"1000")
    except OSError:
        pass


def _wait(child: int) -> int | None:
    """The command's exit code, 128 + n after signal n; None if SIGTERM came first."""
    while signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) != signal.SIGTERM:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return 128 - code if code < 0 else code
    return None


def _kill_all(command: int) -> None:
    """Kill everything that descends from this process until nothing is left, the command first: what it started may
    end with it.

    Descendants at once, rather than only children: processes that start others would be faster than that.
    """
    pause, is_first = RETRY_SECONDS, True
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # nothing is left
            return
        if is_first:
            try:  # noqa: SIM105 - to run before thousands of others, where that is permitted: as root
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            except OSError:
                pass
            _kill(command, os.getpid())
        for pid, parent in _descendants().items():
            _kill(pid, parent)
        is_first = False
        # Some can't be killed, such as those of other users.
        pause = RETRY_SECONDS if signal.sigtimedwait({signal.SIGCHLD}, pause) else min(2 * pause, MAX_RETRY_SECONDS)


def _descendants() -> dict[int, int]:
    """The parent of each process that descends from this one. `/proc/…/children` would be faster, but not every kernel
    has it.
    """
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(_parent(int(name)), []).append(int(name))
    parents, waiting = dict[int, int](), [os.getpid()]
    while waiting:
        parent = waiting.pop()
        for pid in children.pop(parent, ()):
            parents[pid] = parent
            waiting.append(pid)
    return parents


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return int(file.read(512).rpartition(b") ")[2].split(b" ", 2)[1])
    except (OSError, IndexError):
        return 0


def _kill(pid: int, parent: int) -> None:
    """Kill a descendant, whose pid may have become that of an unrelated process in the meantime.

    A child keeps its pid until it is reaped, and its group has only descendants in it. So its whole group is killed at
    once, and nothing in it can fork in between. Of others, a descriptor is opened before the parent is looked up again.
    """
    own = os.getpid()
    try:
        if parent == own:
            if (group := os.getpgid(pid)) != os.getpgrp():
                os.killpg(group, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
            return
        descriptor = os.pidfd_open(pid)
        try:
            if _parent(pid) in (parent, own):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
    except (AttributeError, OSError):  # already exited, now running as another user, or an old kernel
        pass
