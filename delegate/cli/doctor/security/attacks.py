"""Attacks by commands: what they run, and how to detect that they succeeded.

Attacks with system calls are in `probes.py`.
"""

import contextlib
import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from delegate.cli.doctor.security.scene import CommandScene, sleepers
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.sandbox.processes.limits import COMMAND_LIMITS, MAX_FILE_BYTES, ProcessLimits
from delegate.sandbox.processes.process import ProcessResult
from delegate.sandbox.tampering.git_files import Repository

ATTACK_SECONDS = 5.0
FORKS = 300
_SETTLE_SECONDS = 0.5
"""How long killed processes may take to leave the process table."""
_DEPTH = 1_500
_TOO_MUCH_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class CommandAttack:
    """A command and how to detect that it succeeded. `stopped` and `possible` explain the outcomes in the table."""

    name: str
    command: str
    stopped: str
    possible: str = ""
    needs: tuple[str, ...] = ()
    """Programs that the attack needs."""
    timeout_seconds: float = ATTACK_SECONDS
    uses_network: bool = False
    limits: ProcessLimits = COMMAND_LIMITS
    """An attack tries lower limits than commands have, so that it doesn't take the machine's memory."""
    succeeded: Callable[[CommandScene, ProcessResult], bool] = lambda _, finished: finished.exit_code == 0


# ------------------------------------------------------------------------------------------------- detecting success


def _survives(scene: CommandScene, finished: ProcessResult) -> bool:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while sleepers(scene.marker):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)  # runs in a thread
    return False


def _goes_on(scene: CommandScene, finished: ProcessResult) -> bool:
    counted = scene.work / "forks"
    size = counted.stat().st_size
    time.sleep(_SETTLE_SECONDS)  # runs in a thread
    return counted.stat().st_size > size


def _shows_canary(scene: CommandScene, finished: ProcessResult) -> bool:
    return scene.canary in finished.stdout + finished.stderr


def _plants(scene: CommandScene, finished: ProcessResult) -> bool:
    git = scene.work / ".git"
    hooks = [path for path in git.glob("hooks/*") if path.name != "hook.sample"]
    return bool(hooks) or (git / "commondir").exists() or "monitor" in (git / "config").read_text()


def _links(scene: CommandScene, finished: ProcessResult) -> bool:
    return any((scene.work / ".git" / name).is_symlink() for name in ("logs/HEAD", "COMMIT_EDITMSG"))


def _changes_named(scene: CommandScene, finished: ProcessResult) -> bool:
    files = (scene.work / "included", *(scene.work / ".husky").iterdir())
    return any("evil" in file.read_text() for file in files)


def _adds_unnoticed(scene: CommandScene, finished: ProcessResult) -> bool:
    repository = Repository.of(scene.work, nested=True)
    return repository is None or scene.work / "sub" / "config" not in repository.state


def _changes_start_files(scene: CommandScene, finished: ProcessResult) -> bool:
    return any((scene.home / name).exists() for name in (".bashrc", ".profile", ".config/autostart", ".local/lib"))


def _resists_removal(scene: CommandScene, finished: ProcessResult) -> bool:
    remove_tree(scene.work)
    return scene.work.exists()


def _fills_pipe(scene: CommandScene, finished: ProcessResult) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(os.read(scene.pipe, 1))
    return False


def _kills_host(scene: CommandScene, finished: ProcessResult) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        scene.host.wait(0.1)
    return scene.host.returncode is not None


def _makes_large_file(scene: CommandScene, finished: ProcessResult) -> bool:
    large = scene.work / "large"
    return large.exists() and large.stat().st_size > MAX_FILE_BYTES


def _changes_host(scene: CommandScene, finished: ProcessResult) -> bool:
    limits = Path(f"/proc/{scene.host.pid}/limits")  # there is no such command where there is no such file
    has_new_limit = limits.exists() and re.search(r"^Max open files +64 ", limits.read_text(), re.MULTILINE)
    is_batch = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(scene.host.pid) == os.SCHED_BATCH
    return bool(has_new_limit) or is_batch or os.getpriority(os.PRIO_PROCESS, scene.host.pid) == 19


def _changes_notes(scene: CommandScene, finished: ProcessResult) -> bool:
    status = (scene.home / "notes").stat()
    return status.st_mode & 0o777 == 0o604 or status.st_mtime == 1


def _leaves_memory(scene: CommandScene, finished: ProcessResult) -> bool:
    kernel = ctypes.CDLL(None)
    if (id := kernel.shmget(int(scene.marker), 0, 0)) >= 0:
        kernel.shmctl(id, 0, None)  # removes it
    return id >= 0


_CHAINS = """
import os, time
os.fork(), os.fork(), os.fork()
end = time.monotonic() + 4
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(1, b"x")
"""
_WAIT = "n=0; until [ -e up ] || [ $n -ge 100 ]; do sleep 0.02; n=$((n+1)); done"
"""Waits until a daemon has left the process group; a slow attack would otherwise look stopped."""
_KILLED = "all processes of a command are killed when it ends"
_ENVIRONMENT = "commands get only allowed environment variables"
_OWN_PROCESSES = "the sandbox keeps it from all other processes"
_ALL_PROCESSES = "the command runs as the user and can access the user's processes"
_READ_ONLY = "the sandbox makes everything except the workspace read-only"
_HIDDEN = "the sandbox hides these files"
_GIT = "what git runs is read-only in the sandbox, or put back when the command ends"
_CHANGES = "the command runs as the user and can change the user's files"
_AS_USER = "the command runs as the user and can read the user's files"
_NO_SOCKETS = "commands without the network have no sockets for it"
_SOCKETS = "no sandbox, or bubblewrap with the machine's network: Unix sockets can be opened"
_CALLS = "the sandbox denies this system call"
_PYTHON = ("python3",)
_AS_ROOT = "delegate runs as root on this machine"

ATTACKS = (
    CommandAttack(
        "a background process that keeps the output open", "sleep {marker} & echo done", _KILLED,
        succeeded=lambda scene, finished: finished.timed_out or _survives(scene, finished),
    ),
    CommandAttack("a background process", "sleep {marker} >/dev/null 2>&1 &", _KILLED, succeeded=_survives),
    CommandAttack(
        "a daemon in its own session", "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT, _KILLED,
        "without a subreaper, only the process group is killed", ("setsid",), succeeded=_survives,
    ),
    CommandAttack(
        "a double-forked daemon", "(setsid sh -c '(: > up; exec sleep {marker}) & exit' >/dev/null 2>&1 &) ; " + _WAIT,
        _KILLED, "without a subreaper, only the process group is killed", ("setsid",), succeeded=_survives,
    ),
    CommandAttack(
        "a daemon that kills its supervisor",
        "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT + "; "
        "[ $PPID = {self} ] || kill -9 $PPID; sleep 0.2", "the sandbox keeps it from the supervisor",
        "the command runs as the user and can kill the subreaper; the check is then an error, never met", ("setsid",),
        succeeded=_survives,
    ),
    CommandAttack(
        "chains of forks, each in a session of its own", "{python} -c '" + _CHAINS + "' > forks & sleep 0.2",
        "the kernel kills all processes of the command's namespace",
        "they start faster than they can be found; the check is then an error, never met", _PYTHON, timeout_seconds=0.5,
        succeeded=_goes_on,
    ),
    CommandAttack(
        "a command that ignores all signals", "trap '' TERM INT HUP QUIT; while :; do sleep {marker}; done",
        "it is killed at its deadline", timeout_seconds=0.3,
        succeeded=lambda scene, finished: finished.seconds > ATTACK_SECONDS or _survives(scene, finished),
    ),
    CommandAttack(
        "300 background processes", f"i=0; while [ $i -lt {FORKS} ]; do sleep {{marker}} & i=$((i+1)); done", _KILLED,
        succeeded=_survives,
    ),
    CommandAttack(
        "too many concurrent processes",
        f"i=0; while [ $i -lt {FORKS} ]; do sleep {{marker}} & i=$((i+1)); done; sleep 3; kill -0 $!",
        "what runs too many is ended", "no limit on this machine", limits=ProcessLimits(processes=FORKS // 2),
    ),
    CommandAttack(
        "reading a key from its own environment", "env; cat /proc/self/environ", _ENVIRONMENT, succeeded=_shows_canary,
    ),
    CommandAttack(
        "reading a key from another process's environment", "grep -aho 'canary[0-9a-f]*' /proc/[0-9]*/environ",
        _OWN_PROCESSES, _ALL_PROCESSES, succeeded=_shows_canary,
    ),
    CommandAttack(
        "reading a file that usually holds secrets", "cat ~/.ssh/id ~/.netrc ~/.bash_history", _HIDDEN, _AS_USER,
        succeeded=_shows_canary,
    ),
    CommandAttack(
        "reading delegate's records and other children's files", "cat ../../records ../other/notes", _HIDDEN, _AS_USER,
        succeeded=_shows_canary,
    ),
    CommandAttack(
        "reading other files of the user", "cat ~/notes", "only the workspace is visible",
        "toolchains are in the home folder, so only known secrets are hidden", succeeded=_shows_canary,
    ),
    CommandAttack(
        "writing a file outside the workspace", "echo > {outside}/written", _READ_ONLY, "the command runs as the user",
        succeeded=lambda scene, _: (scene.folder / "written").exists(),
    ),
    CommandAttack(
        "writing into a named pipe of another program", "echo > {outside}/pipe", "the sandbox denies it",
        "a folder that is mounted read-only doesn't protect pipes in it", succeeded=_fills_pipe,
    ),
    CommandAttack(
        "locking a file of the user", "flock -n ~/notes true", "only the workspace is visible",
        "what can be read can be locked, until the command ends", ("flock",),
    ),
    CommandAttack(
        "connecting to localhost", "exec 3<>/dev/tcp/127.0.0.1/{port}", "commands in a sandbox have no network",
        "the command has the machine's network", ("bash",), uses_network=True,
    ),
    # Sends nothing: it only asks the kernel for a route to a test address.
    CommandAttack(
        "reaching other machines", "exec 3<>/dev/udp/192.0.2.1/9",
        "commands in a sandbox have no network, or this machine has none", "the command has the machine's network",
        ("bash",), uses_network=True,
    ),
    CommandAttack(
        "planting a git hook",
        "echo 'exit 0' > .git/hooks/pre-commit; rm -rf .git/hooks; mkdir -p .git/hooks; echo > .git/hooks/pre-push",
        _GIT, _CHANGES, succeeded=_plants,
    ),
    CommandAttack(
        "naming a program in git's configuration",
        "echo '[core] fsmonitor = x' >> .git/config; echo '[core] fsmonitor = x' > new && mv -f new .git/config", _GIT,
        _CHANGES, succeeded=_plants,
    ),
    CommandAttack(
        "putting another git repository in place",
        "mkdir -p evil/hooks; echo > evil/hooks/pre-commit; echo '[core] fsmonitor = x' > evil/config; "
        "echo ../evil > .git/commondir; mv .git old; mv evil .git", _GIT, _CHANGES, succeeded=_plants,
    ),
    CommandAttack(
        "linking what git writes to a file outside",
        "mkdir .git/logs; ln -s {outside}/written .git/logs/HEAD; ln -s {outside}/written .git/COMMIT_EDITMSG",
        "links in git's folder are removed when the command ends",
        "the command runs as the user; such links are removed only when the child ends",
        succeeded=_links,
    ),
    CommandAttack(
        "hiding a bare git repository in a folder",
        "mkdir -p sub/objects sub/refs; cp .git/HEAD sub; echo '[core] fsmonitor = x' > sub/config",
        "it isn't removed, but the verdict names it (`git_changed`)", succeeded=_adds_unnoticed,
    ),
    CommandAttack(
        "reading a password in git's configuration", "cat .git/config",
        "the sandbox shows the configuration without it", _AS_USER, succeeded=_shows_canary,
    ),
    # `sleep` holds it.
    CommandAttack(
        "allocating too much memory", f"head -c {_TOO_MUCH_BYTES} /dev/zero | tail -c {_TOO_MUCH_BYTES} | sleep 3",
        "what uses too much is ended", "no limit on this machine", ("head", "tail"), timeout_seconds=5,
        limits=ProcessLimits(memory_bytes=_TOO_MUCH_BYTES // 2),
    ),
    CommandAttack(
        "allocating too much memory in several processes",
        f"for i in 1 2 3 4; do head -c {_TOO_MUCH_BYTES} /dev/zero | tail -c {_TOO_MUCH_BYTES} | sleep 3 & done; wait",
        "what uses too much is ended", "no limit on this machine", ("head", "tail"), timeout_seconds=5,
        limits=ProcessLimits(total_memory_bytes=3 * _TOO_MUCH_BYTES),
    ),
    CommandAttack(
        "writing a huge file", f"dd if=/dev/zero of=large bs=1 count=1 seek={MAX_FILE_BYTES}",
        "the kernel limits the size of a file", "no limit on this machine", ("dd",), succeeded=_makes_large_file,
    ),
    CommandAttack(
        "endless output", "yes", "all output is read, and only its end is kept", needs=("yes",), timeout_seconds=0.3,
        succeeded=lambda _, finished: len(finished.stdout) > 100_000,
    ),
    CommandAttack("killing the host process", "kill -9 {host}", _OWN_PROCESSES, _ALL_PROCESSES, succeeded=_kills_host),
    CommandAttack(
        "forging the exit code", "[ $PPID = {self} ] && exit 3; " "for way in /proc/self/fd/* /proc/$PPID/fd/*; do "
        "[ ${{way##*/}} -gt 2 ] && echo '{{\"exit-code\": 0}}' > $way; done 2>/dev/null; exit 3",
        "a reported exit code must equal that of the kernel", succeeded=lambda _, finished: finished.exit_code != 3,
    ),
    CommandAttack("opening the user's terminal", ": < /dev/tty", "commands run in a session without a terminal"),
    # In a mount namespace, so that nothing changes on this machine.
    CommandAttack(
        "mounting a file system", "unshare --mount mount -t tmpfs none .",
        "only root can mount, and the sandbox drops that privilege", _AS_ROOT, ("unshare", "mount"),
    ),
    # Opens it, and writes nothing.
    CommandAttack(
        "changing a setting of the kernel", "exec 3<>/proc/sys/vm/swappiness",
        "only root can change them, and they are read-only in the sandbox", _AS_ROOT,
    ),
    CommandAttack(
        "reading which keys the kernel holds", "grep -q . /proc/keys",
        "the sandbox shows the usual files of the kernel", "they belong to the user",
    ),
    CommandAttack("storing a key in the kernel", "{probe} store_key", _CALLS, "the command runs as the user", _PYTHON),
    CommandAttack(
        "making a program setuid", "cp /bin/true program; chmod 4755 program; install -m 2755 /bin/true program2",
        _CALLS, "the command runs as the user", ("install",),
        succeeded=lambda scene, _: any(path.stat().st_mode & 0o6000 for path in scene.work.glob("program*")),
    ),
    CommandAttack(
        "changing mode and times of the user's file", "chmod 604 ~/notes; touch -d @1 ~/notes",
        "all but the workspace is mounted read-only", "without user namespaces, Landlock doesn't restrict them",
        ("touch",), succeeded=_changes_notes,
    ),
    CommandAttack(
        "reading another terminal", "exec 3< {terminal}", "the sandbox shows only the command's own terminals",
        "they belong to the user",
    ),
    CommandAttack(
        "leaving shared memory behind", "{probe} shared_memory {marker}", "it is the command's own, or denied",
        "it stays until the machine is restarted", _PYTHON, succeeded=_leaves_memory,
    ),
    CommandAttack(
        "changing limits and priority of the host process",
        "prlimit --pid {host} --nofile=64:64; renice -n 19 -p {host}; chrt --batch --pid 0 {host}", _OWN_PROCESSES,
        _ALL_PROCESSES, ("prlimit", "renice"), succeeded=_changes_host,
    ),
    CommandAttack(
        "connecting to a service on this machine", "{probe} service {service}", _NO_SOCKETS, _SOCKETS, _PYTHON,
        uses_network=True,
    ),
    CommandAttack(
        "connecting to a service without a file, such as X11", "{probe} service @{abstract}", _NO_SOCKETS, _SOCKETS,
        _PYTHON, uses_network=True,
    ),
    CommandAttack(
        "taking a port of this machine", "{probe} port {port}", "commands in a sandbox have no network",
        "the command has the machine's network", _PYTHON, uses_network=True,
    ),
    CommandAttack(
        "opening a socket for raw packets or the hypervisor", "{probe} raw_socket", "the sandbox denies such sockets",
        "the command runs as the user", _PYTHON, uses_network=True,
    ),
    CommandAttack(
        "reading or tracing another process's memory", "{probe} memory {host}", _OWN_PROCESSES, _ALL_PROCESSES, _PYTHON,
    ),
    CommandAttack(
        "reaching files through another process", "{probe} files_of {host}", _OWN_PROCESSES, _ALL_PROCESSES, _PYTHON,
    ),
    CommandAttack(
        "taking an open file of another process", "{probe} descriptor_of {host}", _OWN_PROCESSES, _ALL_PROCESSES,
        _PYTHON,
    ),
    CommandAttack(
        "reading the arguments of other processes",
        "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -x '[6]0.{marker}' || ps -axww | grep '[6]0.{marker}'",
        _OWN_PROCESSES, "without a namespace of its own, it sees all processes",
    ),
    CommandAttack(
        "opening the machine's memory, disks and other devices",
        "for device in {outside}/device /dev/mem /dev/port /dev/fuse /dev/kvm /dev/loop-control /dev/[shv]d[a-z] "
        "/dev/nvme[0-9]*; do (exec 3< $device) && exit 0; done; exit 1", "the sandbox shows only the usual devices",
        "the user may open some of them",
    ),
    CommandAttack(
        "making a device", "mknod device c 1 5", "only root can, and the sandbox drops that privilege", _AS_ROOT,
        ("mknod",),
    ),
    CommandAttack(
        "opening controls of the kernel in /sys and /proc",
        "for control in /proc/sysrq-trigger /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled "
        "/sys/module/*/parameters/*; do (exec 3>> $control) && exit 0; done; exit 1",
        "only root can change them, and they are read-only in the sandbox", _AS_ROOT,
    ),
    CommandAttack(
        "moving to another control group", "{probe} control_group", _READ_ONLY, "the user may write to control groups",
        _PYTHON,
    ),
    CommandAttack(
        "reading the kernel's messages", "{probe} messages", "the sandbox denies the call and the device",
        "the user may read them", _PYTHON,
    ),
    CommandAttack(
        "watching the machine with bpf, perf or fanotify", "{probe} watch", _CALLS, "the command runs as the user",
        _PYTHON,
    ),
    CommandAttack(
        "evading the filter of system calls with io_uring", "{probe} ring", _CALLS, "there is no filter", _PYTHON,
    ),
    CommandAttack(
        "evading the filter with calls of another architecture", "{probe} other_architecture",
        "the sandbox kills what makes such a call", "there is no filter", _PYTHON,
    ),
    CommandAttack("opening a file by its number on the disk", "{probe} handle", _CALLS, _AS_ROOT, _PYTHON),
    CommandAttack("setting the clock or the machine's name", "{probe} clock", _CALLS, _AS_ROOT, _PYTHON),
    CommandAttack("loading a module into the kernel", "{probe} module", _CALLS, _AS_ROOT, _PYTHON),
    CommandAttack(
        "becoming root in a namespace of its own", "unshare --user --map-root-user true", _CALLS,
        "this machine permits it to every user", ("unshare",),
    ),
    CommandAttack(
        "gaining rights from a setuid program", "grep -q 'NoNewPrivs:.*0' /proc/self/status",
        "the sandbox sets `no_new_privs`, which prevents it", "the command runs as the user",
    ),
    CommandAttack(
        "raising its own limits", "(ulimit -H -f unlimited) || (echo -1000 > /proc/self/oom_score_adj)",
        "only root can, and the sandbox drops that privilege", _AS_ROOT,
    ),
    CommandAttack(
        "reading a file that its mode protects", "cat ~/sealed", "only root can, and the sandbox drops that privilege",
        _AS_ROOT, succeeded=_shows_canary,
    ),
    CommandAttack("reading the machine's password hashes", "grep -q . /etc/shadow", _HIDDEN, _AS_ROOT),
    CommandAttack(
        "reading temporary files of other programs", "cat {temporary}", "its /tmp is its own, or hidden", _AS_USER,
        succeeded=_shows_canary,
    ),
    CommandAttack(
        "leaving files in /tmp and /dev/shm", "for file in {left}; do echo > $file; done",
        "they are the command's own, or hidden", _CHANGES,
        succeeded=lambda scene, _: any(path.exists() for path in scene.left),
    ),
    CommandAttack(
        "writing through a hard link to the user's file", "ln ~/notes linked; echo evil >> linked",
        "the sandbox prevents links into the workspace", _CHANGES,
        succeeded=lambda scene, _: "evil" in (scene.home / "notes").read_text(),
    ),
    CommandAttack(
        "planting what the user's shell, session or Python starts",
        "echo >> ~/.bashrc; echo >> ~/.profile; mkdir -p ~/.config/autostart ~/.local/lib/python3/site-packages",
        _READ_ONLY, _CHANGES, succeeded=_changes_start_files,
    ),
    CommandAttack(
        "putting a link in place of the workspace", "cd ..; mv own away && ln -s {outside} own",
        "the sandbox keeps the folder in its place", _CHANGES, succeeded=lambda scene, _: scene.work.is_symlink(),
    ),
    CommandAttack(
        "changing the program that runs delegate",
        "echo evil >> tool/env/main.py; mv tool/env old || mv tool old; mkdir -p tool/env; "
        "echo evil > tool/env/main.py", "it is mounted read-only",
        "without namespaces, nothing in the workspace can be read-only",
        succeeded=lambda scene, _: "evil" in (scene.program / "main.py").read_text(),
    ),
    CommandAttack(
        "folders too deep or too locked to be removed", "mkdir locked; echo > locked/file; chmod 0 locked; "
        f"mkdir -p $(printf 'd/%.0s' $(seq {_DEPTH}))", "they are removed all the same", succeeded=_resists_removal,
    ),
    CommandAttack(
        "leaving a rebase that runs commands when it is continued",
        "mkdir .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo",
        "it is moved away when the command ends", "the command runs as the user; the verdict names it (`git_changed`)",
        succeeded=lambda scene, _: (scene.work / ".git" / "rebase-merge" / "git-rebase-todo").exists(),
    ),
    CommandAttack(
        "changing hooks and configuration that git's configuration names",
        "echo '[core] fsmonitor = evil' >> included; echo evil >> .husky/pre-commit; mv .husky old; mkdir .husky; "
        "echo evil > .husky/pre-push", "they are put back when the command ends", _CHANGES, ("git",),
        succeeded=_changes_named,
    ),
)  # fmt: skip
