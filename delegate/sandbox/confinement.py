"""Runs one program under what confines it, and tells the program's end from a failure of what confined it.

    subreaper ──▶ limits ──▶ bubblewrap ──▶ program

Bubblewrap is started by the subreaper too: in its first milliseconds it can't yet tell that its host is gone, and
would leave itself and the command behind.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from delegate.errors import ToolError
from delegate.sandbox import bubblewrap
from delegate.sandbox.environment import command_environment
from delegate.sandbox.launcher import StatusPipe, under_subreaper
from delegate.sandbox.limits import limited
from delegate.sandbox.process import ProcessResult, run_process

Network = Literal["host", "none"]


class Confinement(NamedTuple):
    """What a program runs under. With neither, it only has a process group of its own, and limits."""

    bubblewrap: bool
    subreaper: bool


class SandboxFailed(ToolError):
    """What confined the command failed, or was ended, before the command came to its end."""

    code = "sandbox_failed"


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A program (`argv`, its first item absolute for the subreaper), where it runs and what bounds it."""

    argv: Sequence[str]
    cwd: Path
    """A real path."""
    env: Mapping[str, str]
    timeout_seconds: float
    max_output_bytes: int
    network: Network = "host"
    """`none` only under bubblewrap."""
    hidden: Sequence[Path] = ()
    """Folders to cover, under bubblewrap."""


PROBE_SECONDS = 5.0


def shell(command: str) -> list[str]:
    """Models write bash; where it is missing, sh has to do."""
    return [shutil.which("bash") or "/bin/sh", "-c", command]


async def works(confinement: Confinement, network: Network = "host") -> bool:
    """Try it by doing nothing under it: many containers and distributions forbid what it needs."""
    env = command_environment(os.environ)
    job = CommandSpec(["/bin/sh", "-c", ":"], Path("/"), env, PROBE_SECONDS, max_output_bytes=1_000, network=network)
    try:
        return (await execute(job, confinement)).exit_code == 0
    except (OSError, SandboxFailed):
        return False


async def execute(job: CommandSpec, confinement: Confinement) -> ProcessResult:
    """Run `job` to its end. Raises OSError or ValueError where it can't be started, and `SandboxFailed`."""
    with contextlib.ExitStack() as stack:
        argv, reports = job.argv, list[StatusPipe]()
        if confinement.bubblewrap:
            reports.append(stack.enter_context(StatusPipe("bubblewrap")))
            argv = _in_bubblewrap(job, reports[-1].fd)
        argv = limited(argv, timeout_seconds=job.timeout_seconds)
        if confinement.subreaper:
            reports.append(stack.enter_context(StatusPipe("the subreaper")))
            argv = under_subreaper(argv, status_fd=reports[-1].fd)
        finished = await run_process(
            argv,
            cwd=job.cwd,
            env=job.env,
            timeout_seconds=job.timeout_seconds,
            max_output_bytes=job.max_output_bytes,
            pass_fds=[report.fd for report in reports],
            tidies=confinement.subreaper,
        )
        _confirm(finished, reports)
    return finished


def _in_bubblewrap(job: CommandSpec, status_fd: int) -> list[str]:
    if (bwrap := bubblewrap.installed()) is None:
        raise FileNotFoundError("bubblewrap is not installed")
    return bubblewrap.wrap(
        job.argv, bwrap=bwrap, cwd=job.cwd, env=job.env, network=job.network, status_fd=status_fd, hidden=job.hidden
    )


def _confirm(finished: ProcessResult, reports: Sequence[StatusPipe]) -> None:
    """Believe an exit code only when everything between here and the command says that it is the command's."""
    if finished.timed_out:
        return
    for report in reversed(reports):
        if report.exit_code != finished.exit_code:
            report.end_leftovers()
            last = finished.stderr.strip()[-500:] or "it said nothing"
            raise SandboxFailed(f"{report.name} failed, or was ended, before the command came to its end: {last}")
