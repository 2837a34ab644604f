"""The one place that says where a path leads, and opens what is there without leaving the folder on the way.

    path, as a model wrote it ──▶ resolve: the real place, or denied ──▶ open_file: link by link the same, or refused

`resolve` looks, `open_file` acts; in between, a command may have put a link in the place of a folder. So opening goes
down from the root one folder at a time and follows no link at all: a resolved path has none.
"""

import os
import stat
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from delegate.errors import ToolDenied, ToolError

MAX_LINKS = 40
"""As many as Linux follows; a circle of links ends here."""
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4_095
_SHOWN = 200

# Without O_NONBLOCK, opening a named pipe waits for its other end; a terminal must not become ours.
_FILE = os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH also opens folders that may be passed through but not listed; macOS has no such thing.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def resolve(root: Path, path: str) -> Path:
    """The real place of `path`, meant from `root` (a real path), links and `..` followed; it need not exist.

    Raises `ToolDenied` where that is outside of `root`, and for what can't be a path.
    """
    real = _followed(str(root), _checked(path))
    if not real.is_relative_to(root):
        raise ToolDenied(f"{path[:_SHOWN]!r} leads out of the workspace; use paths inside it, such as 'notes.md'")
    return real


def refuse_git(root: Path, real: Path) -> None:
    """Raise `ToolDenied` for a place in a `.git`: what is written there is run by git later, outside of any sandbox."""
    if any(_is_git(name) for name in real.relative_to(root).parts):
        raise ToolDenied("files of .git are git's own and can't be written; use git for that")


def open_file(root: Path, real: Path, how: int) -> int:
    """A descriptor of the regular file `real`, a resolved path in `root`; with `O_CREAT`, missing folders are made.

    Raises `ToolError` where it is something else than a regular file, `OSError` where it can't be opened or was moved.
    """
    *folders, name = real.relative_to(root).parts or (".",)
    with _opened(root, folders, make=bool(how & os.O_CREAT)) as folder:
        _refuse_odd(folder, name)
        descriptor = os.open(name, how | _FILE, 0o666, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was put there a moment ago
            raise ToolError(f"{name} is not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def link_target(root: Path, real: Path) -> str | None:
    """Where the link at `real` points, as it is written there; None where there is none."""
    *folders, name = real.relative_to(root).parts
    try:
        with _opened(root, folders) as folder:
            return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


@contextmanager
def entries(root: Path, folder: str) -> Generator[Iterator["os.DirEntry[str]"]]:
    """What lies in `folder`, a resolved path from `root`. The entries can be asked only inside the `with`."""
    with _opened(root, Path(folder).parts) as path_only:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_only)
    try:
        with os.scandir(descriptor) as found:
            yield found
    finally:
        os.close(descriptor)


def _checked(path: str) -> str:
    if not path.strip():
        raise ToolDenied("the path is empty")
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError as problem:  # a lone surrogate
        raise ToolDenied(f"the path {path[:_SHOWN]!r} can't be a path: {problem}") from problem
    if b"\0" in data:
        raise ToolDenied(f"the path {path[:_SHOWN]!r} can't be a path: it has a NUL byte")
    if len(data) > MAX_PATH_BYTES or any(len(name) > MAX_NAME_BYTES for name in data.split(b"/")):
        raise ToolDenied(f"the path {path[:_SHOWN]!r} … is too long")
    return path


def _followed(start: str, path: str) -> Path:
    """As the kernel would go from the folder `start`, but `..` also undoes a name that isn't there.

    `os.path.realpath` isn't used: once it has met a circle of links, it leaves the links behind it unfollowed.
    """
    at, links = "/" if path.startswith("/") else start, 0
    ahead = path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name == "..":
            at = os.path.dirname(at)
        elif name not in ("", "."):
            below = os.path.join(at, name)
            target = _link(below)
            if target is None:
                at = below
                continue
            links += 1
            if links > MAX_LINKS:
                raise ToolDenied(f"{path[:_SHOWN]!r} goes through too many links, perhaps in a circle")
            at = "/" if target.startswith("/") else at
            ahead += target.split("/")[::-1]
    return Path(at)


def _link(path: str) -> str | None:
    """Where a link points; None for what is no link, isn't there, or can't be looked at."""
    try:
        return os.readlink(path)
    except OSError:
        return None


@contextmanager
def _opened(root: Path, folders: Sequence[str], *, make: bool = False) -> Generator[int]:
    """A descriptor of a folder below `root`, reached without following a link."""
    at = os.open(root, _FOLDER)
    try:
        for name in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
            below = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _refuse_odd(folder: int, name: str) -> None:
    """Pipes, sockets, devices and links: opening alone can do something. What isn't there is fine."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise ToolError(f"{name} is {what}")


def _is_git(name: str) -> bool:
    """Whether some file system takes `name` for `.git`: in capitals, with invisible characters, as its short name."""
    visible = "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return visible.casefold().rstrip(" .") in (".git", "git~1")
