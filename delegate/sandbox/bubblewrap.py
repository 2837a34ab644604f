"""Builds the command line of bubblewrap: a read-only machine, one writable folder, no secrets, no other processes.

`$HOME` stays visible: hiding it would hide the user's toolchains (pyenv, nvm, cargo …), and a different version of a
program would run without notice. Paths that are known to hold secrets are covered instead.
"""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from delegate import trust
from delegate.sandbox.secret_paths import real_path, secret_paths

_TMP = Path("/tmp")  # noqa: S108 - the folder itself is meant
_ALWAYS = (
    "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--cap-drop", "ALL", "--ro-bind", "/", "/",
)  # fmt: skip

_INSTALLERS = {
    "debian": "apt install", "ubuntu": "apt install", "fedora": "dnf install", "rhel": "dnf install",
    "centos": "dnf install", "amzn": "dnf install", "arch": "pacman -S", "suse": "zypper install",
    "opensuse": "zypper install", "alpine": "apk add", "gentoo": "emerge", "void": "xbps-install",
}  # fmt: skip
"""How the distributions of each family install a package."""


def installed() -> str | None:
    """The path of `bwrap`, or None. An installed `bwrap` may still be forbidden by the kernel."""
    return shutil.which("bwrap")


def how_to_install() -> str | None:
    """The command line that installs bubblewrap on this machine; None if that isn't known, as on macOS."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((f"sudo {_INSTALLERS[name]} bubblewrap" for name in names if name in _INSTALLERS), None)


def wrap(
    argv: Sequence[str],
    *,
    bwrap: str,
    cwd: Path,
    env: Mapping[str, str],
    network: Literal["host", "none"],
    status_fd: int,
    hidden: Sequence[Path] = (),
    content: Path | None = None,
    pinned: Sequence[Path] = (),
    read_only: Mapping[Path, Path] = MappingProxyType({}),
) -> list[str]:
    """The command line that runs `argv` inside bubblewrap, with `cwd` (a real path) as the only writable folder.

    With `content`, that folder is mounted at `cwd`, so that the command sees it under the path of the original.
    `hidden` folders are covered like those with secrets. Later mounts cover earlier ones, so the parents of `cwd` are
    covered before `cwd` is mounted, and the folders in it afterwards: a workspace in /tmp stays visible, and ~/.ssh
    stays hidden when the workspace is the home folder. So is the operator's configuration of delegate. `pinned` folders
    can't be moved or removed, and the paths of `read_only` show what they stand for, which can't be changed.
    """
    covers = list(_covers(env, hidden))
    own = real_path(trust.own_folder())
    if not own.is_dir() and own.is_relative_to(cwd):  # a command could otherwise create it
        covers.append((own, ("--tmpfs", str(own))))
    above = [options for path, options in covers if cwd.is_relative_to(path)]
    below = [options for path, options in covers if not cwd.is_relative_to(path)]
    isolated = ["--unshare-net"] if network == "none" else []
    pins = [("--bind", str(path), str(path)) for path in pinned]
    fixed = [("--ro-bind", str(source), str(path)) for path, source in read_only.items()]
    binds = (*above, ("--bind", str(content or cwd), str(cwd)), *below, *pins, *fixed)
    mounts = [option for mount in binds for option in mount]
    start = ["--setenv", "TMPDIR", str(_TMP), "--chdir", str(cwd), "--json-status-fd", str(status_fd), "--"]
    return [bwrap, *_ALWAYS, *isolated, *mounts, *start, *argv]


def _covers(env: Mapping[str, str], hidden: Sequence[Path]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield Path("/dev"), ("--dev", "/dev")
    yield Path("/proc"), ("--proc", "/proc")
    tools = [option for folder in tools_in_tmp(env) for option in ("--ro-bind", str(folder), str(folder))]
    yield _TMP, ("--tmpfs", str(_TMP), *tools)
    for path in (*secret_paths(env), *map(real_path, hidden)):
        if path.is_dir():
            yield path, ("--tmpfs", str(path))
        elif path.exists():
            yield path, ("--ro-bind", "/dev/null", str(path))


def tools_in_tmp(env: Mapping[str, str]) -> Iterator[Path]:
    """The folders in /tmp with programs on the PATH, such as a virtual environment. They have to stay reachable."""
    for entry in env.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        prefix = folder.parent if folder.name == "bin" and folder.parent != _TMP else folder
        if prefix.is_relative_to(_TMP) and prefix != _TMP and prefix.is_dir():
            yield prefix
