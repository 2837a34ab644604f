"""Runs one program in its confinement, and tells a failure of the program from a failure of the confinement.

    subreaper ──▶ limits ──▶ bubblewrap or Landlock ──▶ program

The subreaper forks, and its child sets the limits and restricts itself with Landlock, or starts bubblewrap. That is
started by the subreaper too: in its first milliseconds it doesn't notice that its host is gone, and would leave itself
and the command running.
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from delegate._util.threads import run_in_thread
from delegate.policy import trust
from delegate.sandbox.commands import bubblewrap, system_calls
from delegate.sandbox.commands.kernel_files import unusual_kernel_paths
from delegate.sandbox.commands.launcher import StatusPipe, in_landlock, interpreter, under_subreaper
from delegate.sandbox.commands.system_calls import INTERNET, UNIX, system_call_filter
from delegate.sandbox.filesystem.files import shown
from delegate.sandbox.filesystem.secret_paths import hidden_paths, real_path
from delegate.sandbox.processes.environment import CACHES, cache_folder, command_environment
from delegate.sandbox.processes.limits import COMMAND_LIMITS, ProcessLimits, Watch, kernel_limits, limited
from delegate.sandbox.processes.process import ProcessResult, Stdio, run_process
from delegate.sandbox.tampering.git_files import Repository, configurations, without_credentials
from delegate.types.errors import ToolError

Network = Literal["host", "none"]
Sandbox = Literal["bubblewrap", "landlock"]


class Confinement(NamedTuple):
    """What a program runs under. With neither, it only has a process group of its own and limits. Landlock is always
    under the subreaper, which starts it.
    """

    sandbox: Sandbox | None
    subreaper: bool


class SandboxFailed(ToolError):
    """The confinement of the command failed or was killed before the command ended."""

    code = "sandbox_failed"


class ProcessesLeft(SandboxFailed):
    """The command started processes faster than they could be ended, and some may still run."""

    code = "processes_left"


class ResourceLimit(ToolError):
    """The command was ended, since it used more memory, processes or disk than a command may."""

    code = "resource_limit"


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A program, the folder it runs in and its limits. The subreaper needs an absolute path in `argv[0]`."""

    argv: Sequence[str]
    cwd: Path
    """A real path."""
    env: Mapping[str, str]
    timeout_seconds: float
    max_output_bytes: int
    network: Network = "host"
    """`none` works only in a sandbox."""
    hidden: Sequence[Path] = ()
    """Folders that a sandbox hides, besides those that hold credentials."""
    writable: Sequence[Path] = ()
    """Folders besides `cwd` that Landlock lets the command change."""
    repository: Repository | None = None
    """The git repository in `cwd`, of which a command can't change what git runs."""
    program: Sequence[Path] = ()
    """Folders in `cwd` with what runs delegate, which a sandbox with namespaces mounts read-only."""
    content: Path | None = None
    """A copy of `cwd` that a sandbox mounts there instead. Landlock needs user namespaces for it."""
    limits: ProcessLimits = COMMAND_LIMITS
    stdio: Stdio | None = None
    """The program's stdin and stdout, closed here once it has started. By default, nothing is read, and all is kept."""


PROBE_SECONDS = 5.0
_worked: set[tuple[str | None, str | None, Confinement, Network, bool]] = set()
"""What `works` found, with the programs that were used."""


def shell(command: str) -> list[str]:
    """The argv that runs `command` in bash, which models write, or in sh where bash isn't installed."""
    return [shutil.which("bash") or "/bin/sh", "-c", command]


async def works(confinement: Confinement, network: Network = "host", *, own_loopback: bool = False) -> bool:
    """Whether a command runs under `confinement`: many containers and distributions forbid what it needs.

    With `own_loopback`, the command must also be in a network of its own, rather than unable to open sockets.
    What worked once in this process isn't tried again: should it stop working, each command says so. What didn't work
    is, since somebody may have installed or permitted it.
    """
    tried = (bubblewrap.installed(), interpreter(), confinement, network, own_loopback)
    if tried in _worked:
        return True
    env, command = command_environment(os.environ), ":"
    with contextlib.suppress(OSError, SandboxFailed):
        if own_loopback:
            command = f"own=$(readlink /proc/self/ns/net) && [ \"$own\" != '{os.readlink('/proc/self/ns/net')}' ]"
        probe = CommandSpec(["/bin/sh", "-c", command], Path("/"), env, PROBE_SECONDS, 1_000, network=network)
        if (await execute(probe, confinement)).exit_code == 0:
            _worked.add(tried)
    return tried in _worked


async def execute(spec: CommandSpec, confinement: Confinement) -> ProcessResult:
    """Run `spec` and wait until it ends. Raises OSError or ValueError if it can't be started, `SandboxFailed`
    and `ResourceLimit`.

    Under a sandbox, what the command changed of a repository's deciding files is undone, and stderr says so.
    """
    undone: list[str] = []
    with contextlib.ExitStack() as stack:
        argv, pipes, descriptors = spec.argv, list[StatusPipe](), list[int]()
        has_subreaper = confinement.subreaper or confinement.sandbox == "landlock"
        if confinement.sandbox is not None:
            pipes.append(stack.enter_context(StatusPipe(confinement.sandbox)))
            if confinement.sandbox == "bubblewrap" and system_calls.is_supported():
                descriptors.append(stack.enter_context(_filter(spec.network)))
            mounts = stack.enter_context(_mounts(spec))
            argv = _in_sandbox(spec, confinement.sandbox, mounts, pipes[-1].fd, *descriptors)
        limits = kernel_limits(spec.timeout_seconds)
        if has_subreaper:
            pipes.append(stack.enter_context(StatusPipe("the subreaper")))
            argv = under_subreaper(argv, limits, status_fd=pipes[-1].fd)
        else:
            argv = limited(argv, limits)
        try:
            finished = await run_process(
                argv,
                cwd=spec.cwd,
                env=spec.env,
                timeout_seconds=spec.timeout_seconds,
                max_output_bytes=spec.max_output_bytes,
                pass_fds=[*(pipe.fd for pipe in pipes), *descriptors],
                graceful=has_subreaper,
                watch=Watch(spec.limits, spec.cwd),
                stdio=spec.stdio,
            )
        finally:
            for folder in filter(None, (pipe.temporary for pipe in pipes)):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if spec.repository is not None and confinement.sandbox is not None:
                mounted = confinement.sandbox == "bubblewrap" or (pipes[0].restricted and not pipes[0].temporary)
                undone = await run_in_thread(partial(spec.repository.put_back, held=mounted))
        _confirm(finished, pipes)
    if undone:
        note = f"\n[undone, since git runs it outside the sandbox: {', '.join(map(shown, undone[:5]))}]\n"
        return replace(finished, stderr=finished.stderr + note)
    return finished


class Mounts(NamedTuple):
    """What a command in a sandbox can't change in its folder."""

    pinned: Sequence[Path]
    """Folders that it can't move or replace, outermost first: those with what is mounted read-only."""
    read_only: Mapping[Path, Path]
    """What is mounted read-only, and over what: what runs delegate, and of a repository what git runs, with its
    configuration without the passwords in it."""


@contextlib.contextmanager
def _mounts(spec: CommandSpec) -> Generator[Mounts]:
    in_copy = spec.content is not None  # where nothing runs delegate
    shown = {path: path for path in spec.program if not in_copy and path.is_relative_to(spec.cwd)}
    pinned = sorted({folder for path in shown for folder in path.parents if spec.cwd in folder.parents})
    if spec.repository is None:
        yield Mounts(pinned, shown)
        return
    shown |= {path: path for path in spec.repository.read_only}
    with tempfile.TemporaryDirectory(prefix="delegate-git-", ignore_cleanup_errors=True) as folder:
        for path in configurations(spec.cwd):
            with contextlib.suppress(OSError):
                if (cleaned := without_credentials(path.read_bytes())) is not None:
                    shown[path] = Path(folder, str(len(shown)))
                    shown[path].write_bytes(cleaned)
        yield Mounts([*pinned, *spec.repository.pinned], shown)


def _in_sandbox(
    spec: CommandSpec, sandbox: Sandbox, mounts: Mounts, status_fd: int, filter_fd: int | None = None
) -> list[str]:
    if sandbox == "landlock":
        return in_landlock(
            spec.argv,
            write=(spec.cwd, *spec.writable),
            read=bubblewrap.tools_in_tmp(spec.env),
            hidden=hidden_paths(spec.env, spec.hidden),
            network=spec.network == "host",
            pinned=mounts.pinned,
            read_only=mounts.read_only,
            placed={spec.cwd: spec.content} if spec.content is not None else {},
            masked=unusual_kernel_paths(),
            cache=_cache(spec),
            status_fd=status_fd,
        )
    if (bwrap := bubblewrap.installed()) is None:
        raise FileNotFoundError("bubblewrap is not installed")
    return in_bubblewrap(spec, mounts, bwrap, status_fd, filter_fd)


def _cache(spec: CommandSpec) -> Path | None:
    """The folder of caches that a command may change for itself; None where it may change it anyway."""
    folder = cache_folder(spec.env)
    return None if folder.is_relative_to(spec.cwd) else folder


def in_bubblewrap(
    spec: CommandSpec, mounts: Mounts, bwrap: str, status_fd: int, filter_fd: int | None = None
) -> list[str]:
    """The command line that runs a program inside bubblewrap, with `spec.cwd` as the only writable folder.

    Later mounts cover earlier ones, so the parents of that folder are covered before it is mounted, and the folders in
    it afterwards: a workspace in /tmp stays visible, and ~/.ssh stays hidden when the workspace is the home folder. So
    is the operator's configuration of delegate. `filter_fd` is a file with a filter of system calls.
    """
    cwd, covers = spec.cwd, list(bubblewrap.covers(spec.env, spec.hidden, bwrap))
    own = real_path(trust.own_folder())
    if not own.is_dir() and own.is_relative_to(cwd):  # a command could otherwise create it
        covers.append((own, ("--tmpfs", str(own))))
    binds = [
        *(options for path, options in covers if cwd.is_relative_to(path)),
        ("--bind", str(spec.content or cwd), str(cwd)),
        *(options for path, options in covers if not cwd.is_relative_to(path)),
        *(("--bind", str(path), str(path)) for path in mounts.pinned),
        *(("--ro-bind", str(source), str(path)) for path, source in mounts.read_only.items()),
    ]
    isolated = ("--unshare-net",) if spec.network == "none" else ()
    filtered = () if filter_fd is None else ("--seccomp", str(filter_fd))
    caches = CACHES.items() if _cache(spec) else ()
    folders = {"TMPDIR": "/tmp"} | {name: f"/tmp/{folder}" for name, folder in caches}  # noqa: S108
    set_env = itertools.chain(*(("--setenv", *folder) for folder in folders.items()))
    start = ("--chdir", str(cwd), "--json-status-fd", str(status_fd), "--")
    return [bwrap, *bubblewrap.ALWAYS, *isolated, *itertools.chain(*binds), *filtered, *set_env, *start, *spec.argv]


@contextlib.contextmanager
def _filter(network: Network) -> Generator[int]:
    """A descriptor from which bubblewrap reads the filter of system calls."""
    sockets = (*INTERNET, UNIX) if network == "host" else INTERNET
    descriptor = os.memfd_create("delegate-filter")
    try:
        os.write(descriptor, system_call_filter(sockets=sockets, own_processes=True, own_queues=True))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _confirm(finished: ProcessResult, pipes: Sequence[StatusPipe]) -> None:
    """Accept an exit code only if all that confines the command reports the same one for it. Raises `SandboxFailed`.

    Where Landlock becomes the command, it only reports that its restrictions are in force.
    """
    if finished.processes_left:
        raise ProcessesLeft(
            "the command started processes faster than they could be ended, and some may still run; in a sandbox with "
            "user namespaces none would"
        )
    if finished.exceeded:
        output = (finished.stdout + finished.stderr).strip()[-500:] or "nothing"
        raise ResourceLimit(f"the command was ended, since {finished.exceeded}; its last output: {output}")
    if finished.timed_out:
        return
    for pipe in reversed(pipes):
        if not pipe.became_command and pipe.exit_code != finished.exit_code:
            pipe.kill_leftovers()
            stderr = finished.stderr.strip()[-500:] or "no output on stderr"
            raise SandboxFailed(f"{pipe.name} failed or was killed before the command ended: {stderr}")
