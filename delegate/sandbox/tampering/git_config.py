"""Finds the files of the work that git's configuration names: included configuration, hooks, and programs.

What is in them decides what git runs, as a hook in `.git` does. Programs that they start in turn aren't found.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from delegate.sandbox.processes.environment import find_program

_MAX_BYTES = 1 << 20
_MAX_INCLUDED = 100
_GIT_SECONDS = 5.0
_PROGRAM = re.compile(
    r"core\.(fsmonitor|sshcommand|editor|pager|gitproxy|askpass|alternaterefscommand)|sequence\.editor"
    r"|credential\.(.*\.)?helper|diff\.external|diff\..*\.(command|textconv)|interactive\.difffilter|merge\..*\.driver"
    r"|(diff|merge)tool\..*\.(cmd|path)|filter\..*\.(clean|smudge|process)|gpg\.(.*\.)?program|pager\..*"
    r"|trailer\..*\.(cmd|command)|remote\..*\.(uploadpack|receivepack)|submodule\..*\.update"
)
"""Keys whose value is a command line. An alias is one if it begins with `!`."""
_WORD = re.compile(r"[^\s\"'`;|&()<>=!]+")


class Named(NamedTuple):
    """The real paths, in the workspace, of what git's configuration names. It need not exist."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    """Those with hooks."""

    def has(self, real: Path) -> bool:
        """Whether `real` is one of them, or in one of the folders."""
        return real in self.files or any(real.is_relative_to(folder) for folder in self.folders)


NOTHING_NAMED = Named()


def named_in(root: Path, configurations: Iterable[Path], git_folders: Iterable[Path]) -> Named:
    """What these configurations, the user's own, and links among the hooks of `git_folders` name in `root`.

    Blocks, for some milliseconds if a configuration wasn't seen before; never raises.
    """
    files, folders, git_folders = list[Path](), list[Path](), tuple(git_folders)
    home = os.path.expanduser("~")
    of_user = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git", "config")
    by_name = Path(os.environ.get("GIT_CONFIG_GLOBAL") or os.path.join(home, ".gitconfig"))
    waiting, seen = [of_user, by_name, *configurations], set[Path]()
    while waiting and len(seen) < _MAX_INCLUDED:
        if (file := waiting.pop()) in seen:
            continue
        seen.add(file)
        files.append(file)
        values = _values(_content(file))
        work = next((file.parent / value for key, value in values if key == "core.worktree"), root)
        for key, value in values:
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                waiting.append(file.parent / os.path.expanduser(value))
            elif key == "core.hookspath":
                hooks = work / os.path.expanduser(value)
                folders.append(hooks.parent if hooks.name == "_" else hooks)  # husky's has only their starters
            elif _PROGRAM.fullmatch(key) or (key.startswith("alias.") and value.startswith("!")):
                files += _programs(work, value)
    for folder in git_folders:
        hooks = folder / "hooks"
        folders += [hooks] if hooks.is_symlink() else []
        with suppress(OSError):
            files += [path for path in hooks.iterdir() if path.is_symlink()]
    return Named(_inside(root, files, git_folders), _inside(root, folders, git_folders))


def _content(file: Path) -> bytes:
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as opened:
                return opened.read(_MAX_BYTES)
    return b""


@lru_cache(maxsize=64)
def _values(configuration: bytes) -> tuple[tuple[str, str], ...]:
    """The keys and values, as git reads them. Nothing that they name is opened."""
    if not configuration or (git := find_program("git")) is None:  # without git, nothing here is run by it
        return ()
    argv = (git, "config", "--file", "-", "--no-includes", "--list", "--null")
    try:
        listed = subprocess.run(
            argv, input=configuration, capture_output=True, cwd="/", timeout=_GIT_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    pairs = (entry.partition("\n") for entry in os.fsdecode(listed).split("\0"))
    return tuple((key.lower(), value) for key, _, value in pairs if key)


def _programs(work: Path, command: str) -> Iterator[Path]:
    for word in _WORD.findall(command):
        path = work / os.path.expanduser(word)
        if path.is_file() or ("/" in word and word[0] not in "-$%"):
            yield path


def _inside(root: Path, files: Iterable[Path], git_folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """Those that are in `root`, but neither it nor in a git folder, with what they link to."""
    paths = dict[Path, None]()
    for path in files:
        with suppress(OSError, ValueError):
            written = Path(os.path.realpath(path.parent), path.name)
            paths |= dict.fromkeys((Path(os.path.normpath(written)), Path(os.path.realpath(path))))
    return tuple(
        path for path in paths
        if path != root and path.is_relative_to(root) and not any(path.is_relative_to(folder) for folder in git_folders)
    )  # fmt: skip
