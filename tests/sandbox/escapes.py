"""Attacks by a command on what started it, and how each ends.

python -m tests.sandbox.escapes ATTACK SANDBOX FOLDER MARKER
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from delegate.sandbox.commands.confinement import CommandSpec, Confinement, SandboxFailed, execute, shell
from delegate.sandbox.processes.environment import command_environment

_PROGRAM = r"""
import ctypes, os, resource, signal, sys, time

def supervisors():
    pid = os.getppid()
    while pid not in (0, int(sys.argv[2])):
        yield pid
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(") ")[2].split()[1])

def attempt(attack, *arguments):
    try:
        attack(*arguments)
    except OSError:
        return
    print("possible:", attack.__name__, *arguments, flush=True)

def leave_daemon(*ignored):
    if os.fork():
        os.wait()
        return
    os.setsid()
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", sys.argv[3]])

def leave_process():
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[3]])

def send(number):
    # Without a sandbox, a daemon survives a subreaper that is killed.
    leave_process() if number == signal.SIGKILL and sys.argv[4] == "process" else leave_daemon()
    for pid in supervisors():
        attempt(os.kill, pid, number)
    time.sleep(0.2)

def trace(pid):
    if ctypes.CDLL(None).ptrace(0x4206, pid, None, None) != 0:  # PTRACE_SEIZE
        raise PermissionError

def read_memory(pid):
    open(f"/proc/{pid}/mem", "rb").close()

def read_environment(pid):
    open(f"/proc/{pid}/environ", "rb").read()

def write_report(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        if int(name) > 2:
            os.write(os.open(f"/proc/{pid}/fd/{name}", os.O_WRONLY), b'{"exit-code": 0}\n')

def change_limit(pid):
    if pid == 1:  # of its own namespace, where it only waits
        raise PermissionError
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 64))

def kills():
    send(signal.SIGKILL)

def terminates():
    send(signal.SIGTERM)

def stops():
    send(signal.SIGSTOP)

def reaches_in():
    for pid in supervisors():
        for attack in (trace, read_memory, read_environment, write_report, change_limit):
            attempt(attack, pid)

def raises_limits():
    for one in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NPROC):
        _, most = resource.getrlimit(one)
        try:
            resource.setrlimit(one, (most + 1, most + 1))
            print("possible:", one)
        except ValueError:
            pass

def outlives():
    leave_daemon()
    leave_daemon(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

def closes_all():
    os.closerange(0, 256)
    leave_daemon()

def ignores_all():
    for one in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(one, signal.SIG_IGN)
    leave_daemon(signal.SIGTERM)
    time.sleep(30)

def leaves_its_session():
    if os.fork():
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    os.setsid()
    leave_daemon()

globals()[sys.argv[1]]()
os._exit(7)
"""
"""`python -S escape.py ATTACK HOST SECONDS SANDBOX`. It leaves processes alone from HOST on, and ends with 7."""
_INHERITED = (
    "ls /proc/self/fd | tr '\\n' ' '; grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; "
    '[ "$(cut -d " " -f 1,5,6 /proc/$$/stat)" = "$$ $$ $$" ] && echo " leader"; exit 7'
)


@dataclass(frozen=True)
class Escape:
    """How an attack ended, and whether a process of it, or one that confined it, is left."""

    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    failed: str = ""
    is_left: bool = False


async def escape(attack: str, sandbox: str, folder: str, marker: str) -> Escape:
    """Run an attack. `marker` is a number of seconds that no other process on this machine sleeps for."""
    Path(folder, "escape.py").write_text(_PROGRAM)
    arguments = f"{attack} {os.getpid()} {marker} {sandbox}"
    command = _INHERITED if attack == "inherits" else f"exec python3 -S escape.py {arguments}"
    seconds = 1.0 if attack == "ignores_all" or (attack, sandbox) == ("stops", "process") else 20.0
    spec = CommandSpec(shell(command), Path(folder), command_environment(os.environ), seconds, 5_000)
    try:
        done = await execute(spec, Confinement("landlock" if sandbox == "landlock" else None, subreaper=True))
    except SandboxFailed as failure:
        return Escape(failed=str(failure), is_left=await _stays(marker))
    return Escape(done.exit_code, done.stdout, done.stderr, done.timed_out, is_left=await _stays(marker))


async def _stays(marker: str) -> bool:
    """Whether a process has `marker` on its command line after the moment that a killed one takes to be gone."""
    for _ in range(100):
        if not _is_running(marker):
            return False
        await asyncio.sleep(0.02)
    return True


def _is_running(marker: str) -> bool:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(name) != os.getpid() and marker.encode() in Path("/proc", name, "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(escape(*sys.argv[1:])))))
