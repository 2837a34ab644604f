"""The command line of bubblewrap: the whole machine read-only, one folder writable, no secrets, no other processes.

`$HOME` stays visible: hiding it would hide the user's toolchains (pyenv, nvm, cargo …), and another version of a
program would answer without a word. What is known to hold secrets is covered instead.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/op", ".docker", ".kube", ".netrc",
    ".git-credentials", ".npmrc", ".pypirc", ".password-store", ".local/share/keyrings", ".claude", ".claude.json",
    ".codex", ".gemini", ".hermes",
)  # fmt: skip
"""What is covered below the home folder, where it exists."""

SOCKETS = (
    "/run/user", "/run/dbus", "/run/systemd/private", "/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio",
    "/run/libvirt", "/run/snapd.socket",
)  # fmt: skip
"""Doors out: a read-only mount doesn't stop a program from connecting to a socket."""

_TMP = Path("/tmp")  # noqa: S108 - the folder itself is meant
_ALWAYS = (
    "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--cap-drop", "ALL", "--ro-bind", "/", "/",
)  # fmt: skip


def installed() -> str | None:
    """The path of `bwrap`, or None. That it is there doesn't mean that the kernel lets it work."""
    return shutil.which("bwrap")


def wrap(
    argv: Sequence[str],
    *,
    bwrap: str,
    cwd: Path,
    env: Mapping[str, str],
    network: Literal["host", "none"],
    status_fd: int,
    hidden: Sequence[Path] = (),
) -> list[str]:
    """`argv` as it runs inside bubblewrap, with `cwd` (a real path) as the only place of the machine to write to.

    `hidden` folders are covered as those of secrets are. Later mounts cover earlier ones. So what contains `cwd` is
    covered before `cwd` is mounted, and what lies within it after: a workspace in /tmp stays visible, and ~/.ssh stays
    hidden where the workspace is the home folder.
    """
    covers = list(_covers(env, hidden))
    above = [options for path, options in covers if cwd.is_relative_to(path)]
    below = [options for path, options in covers if not cwd.is_relative_to(path)]
    isolated = ["--unshare-net"] if network == "none" else []
    mounts = [option for mount in (*above, ("--bind", str(cwd), str(cwd)), *below) for option in mount]
    start = ["--setenv", "TMPDIR", str(_TMP), "--chdir", str(cwd), "--json-status-fd", str(status_fd), "--"]
    return [bwrap, *_ALWAYS, *isolated, *mounts, *start, *argv]


def _covers(env: Mapping[str, str], hidden: Sequence[Path]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield Path("/dev"), ("--dev", "/dev")
    yield Path("/proc"), ("--proc", "/proc")
    yield _TMP, ("--tmpfs", str(_TMP), *_tools_in_tmp(env))
    home = env.get("HOME", "/nonexistent")
    for place in (*SOCKETS, *(f"{home}/{name}" for name in SECRETS), *hidden):
        path = Path(os.path.realpath(place))
        if path.is_dir():
            yield path, ("--tmpfs", str(path))
        elif path.exists():
            yield path, ("--ro-bind", "/dev/null", str(path))


def _tools_in_tmp(env: Mapping[str, str]) -> Iterator[str]:
    """Programs on the PATH that lie in /tmp (an environment made there) stay reachable."""
    for entry in env.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        prefix = folder.parent if folder.name == "bin" and folder.parent != _TMP else folder
        if prefix.is_relative_to(_TMP) and prefix != _TMP and prefix.is_dir():
            yield from ("--ro-bind", str(prefix), str(prefix))
