"""Resolves the paths that models write, and opens files without leaving the workspace.

    path, as a model wrote it ──▶ resolve: the real path, or denied ──▶ open_file: the same file, or refused

Between `resolve` and `open_file`, a command may replace a folder by a link. So `open_file` opens one folder after
another from the root and follows no links: a resolved path has none.
"""

import os
import secrets
import stat
import sys
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Self

from delegate._util.redaction import redactor
from delegate.policy import trust
from delegate.sandbox.filesystem.secret_paths import is_secret_by_another_name, secrets_in
from delegate.types.errors import ToolDenied, ToolError

MAX_LINKS = 40
"""As many as Linux follows; this also ends cycles of links."""
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4_095
_SHOWN = 200
_PACKAGE = Path(__file__).parents[2]

# Without O_NONBLOCK, opening a named pipe waits for its other end; O_NOCTTY keeps a terminal from becoming ours.
_FILE = os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH also opens folders that may be traversed but not listed; macOS doesn't have it.
_FOLDER = _LISTED | getattr(os, "O_PATH", 0)


def resolve(root: Path, path: str) -> Path:
    """The real path of `path`, relative to `root` (a real path), with links and `..` followed; it need not exist.

    Raises `ToolDenied` if it is outside `root`, is where credentials usually are, or can't be a path.
    """
    if not path.strip():
        raise ToolDenied("the path is empty; use '.' for the workspace itself")
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError as problem:  # a lone surrogate
        raise ToolDenied(f"{_shown(path)} is not a valid path: {problem}") from problem
    if b"\0" in data:
        raise ToolDenied(f"{_shown(path)} is not a valid path: it contains a NUL byte")
    if len(data) > MAX_PATH_BYTES or max(map(len, data.split(b"/"))) > MAX_NAME_BYTES:
        raise ToolDenied(
            f"the path {_shown(path)} … is too long; use at most {MAX_NAME_BYTES} bytes per name and "
            f"{MAX_PATH_BYTES:,} in total"
        )
    real = _follow(str(root), path)
    if _below(str(root), real) is None:
        raise ToolDenied(f"{_shown(path)} is outside the workspace; use paths inside it, such as 'notes.md'")
    if holds_secrets(root, real):
        raise ToolDenied(f"{_shown(path)} is where credentials usually are, which no child can use; work without it")
    return Path(real)


def holds_secrets(root: Path, real: str) -> bool:
    """Whether a real path in `root` is one that sandboxes hide, since credentials are usually there, or is in one."""
    secrets = secrets_in(str(root), os.environ.get("HOME", ""))
    return bool(secrets) and any(_below(secret, real) is not None for secret in secrets)


def refuse_git(root: Path, real: Path) -> None:
    """Raise `ToolDenied` for a path in a `.git` folder: git would later run what is there, outside any sandbox."""
    if any(map(_is_git, parts(root, real))):
        raise ToolDenied("files in .git can't be written directly; run git commands instead")


def refuse_settings(real: Path) -> None:
    """Raise `ToolDenied` for a file with which the operator decides what children may do."""
    if trust.is_protected(real):
        raise ToolDenied(
            f"{real.name} holds the operator's settings of delegate, which a child can't write; report what should be "
            "in it instead"
        )


def own_program(root: Path) -> Sequence[Path]:
    """The real paths in `root`, a real path, of this Python, of its virtual environment, and of delegate's package with
    those installed in the same folder: who changes them runs code outside of any sandbox. A folder inside another of
    these is left out.
    """
    inside = [path for path in _program() if _below(str(root), path)]
    return [Path(path) for path in inside if not any(path != other and _below(other, path) for other in inside)]


@cache
def _program() -> Sequence[str]:
    package = _PACKAGE.parent if _PACKAGE.parent.name in ("site-packages", "dist-packages") else _PACKAGE
    return [*{os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, package)}]


def refuse_own_program(root: Path, real: Path) -> None:
    """Raise `ToolDenied` for a path in what runs delegate, which would run outside any sandbox."""
    if any(real.is_relative_to(folder) for folder in own_program(root)):
        raise ToolDenied(
            f"{real.relative_to(root)} is part of what runs delegate, which a child can't change; "
            "report what should be in it instead"
        )


class Descriptor(int):
    """A file descriptor that is closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self)


def open_file(root: Path, real: Path, flags: int) -> tuple[Descriptor, os.stat_result]:
    """A descriptor of the regular file `real`, a resolved path in `root`, and its status after it was opened.

    `O_CREAT` also creates missing folders. Raises `ToolError` if it isn't a regular file, and `OSError` if it can't be
    opened or was moved. Nothing is opened where credentials usually are, nor what is a hard link to a file there.
    """
    if holds_secrets(root, str(real)):
        raise ToolDenied(f"{real.name} is where credentials usually are, which no child can use")
    *folders, name = parts(root, real) or (".",)
    with _open_folder(root, folders, create=bool(flags & os.O_CREAT)) as folder:
        _refuse_irregular(folder, name)
        descriptor = Descriptor(os.open(name, flags | _FILE, 0o666, dir_fd=folder))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):  # replaced since the check above
            raise ToolError(f"{name} is not a regular file")
        if is_secret_by_another_name(str(root), status):
            raise ToolDenied(f"{name} is a hard link to a file with credentials, which no child can use")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


@contextmanager
def new_file(root: Path, real: Path, *, replace: bool, mode: int = 0o666) -> Generator[int]:
    """A descriptor of a new file at `real`, a resolved path in `root`, creating missing folders.

    The file is there once the block ends without an exception. With `replace`, it then takes the place of a regular
    file, whose other hard links stay as they are. Raises `FileExistsError` for one without `replace`, `ToolError` if
    anything else is there, and `OSError`.
    """
    *folders, name = parts(root, real)
    with _open_folder(root, folders, create=True) as folder:
        _refuse_irregular(folder, name)
        written = f".delegate-{secrets.token_hex(8)}" if replace else name
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=folder)
        try:
            yield descriptor
            if replace:
                os.replace(written, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(written, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)


def remove_file(root: Path, real: Path) -> None:
    """Remove a file or a link at a resolved path. Raises `OSError`."""
    *folders, name = parts(root, real)
    with _open_folder(root, folders) as folder:
        os.unlink(name, dir_fd=folder)


def link_target(root: Path, real: Path) -> str | None:
    """The target of the link at `real`, unresolved; None if there is no link."""
    *folders, name = parts(root, real)
    try:
        with _open_folder(root, folders) as folder:
            return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


@contextmanager
def entries(root: Path, folder: str) -> Generator[Iterator["os.DirEntry[str]"]]:
    """The entries of `folder`, a resolved path relative to `root`. They are valid only inside the `with` block."""
    names = [name for name in folder.split("/") if name]
    with _open_folder(root, names, flags=_LISTED) as descriptor, os.scandir(descriptor) as entries:
        yield entries


def _shown(path: str) -> str:
    return repr(redactor.beginning(path, _SHOWN))


def parts(root: Path, real: Path) -> list[str]:
    """The names from `root` to a resolved path in it. Raises `ValueError` if it isn't in it."""
    below = _below(str(root), str(real))
    if below is None:
        raise ValueError(f"{real} is not in {root}")
    return below.split("/") if below else []


def _below(root: str, real: str) -> str | None:
    """The resolved path relative to `root`, empty for itself; None if it is outside. `pathlib` takes 10 µs longer."""
    if real == root:
        return ""
    folder = root if root.endswith("/") else f"{root}/"
    return real[len(folder) :] if real.startswith(folder) else None


def _follow(start: str, path: str) -> str:
    """Resolve `path` as the kernel would from the folder `start`, except that `..` also undoes a missing name.

    `os.path.realpath` isn't used: after a cycle of links, it leaves the remaining links unfollowed.
    """
    at, links = "" if path.startswith("/") else start.rstrip("/"), 0  # empty for the root
    ahead = path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name == "..":
            at = at.rpartition("/")[0]
        elif name not in ("", "."):
            try:
                target = os.readlink(f"{at}/{name}")
            except OSError:  # it is no link, or isn't there
                at = f"{at}/{name}"
                continue
            links += 1
            if links > MAX_LINKS:
                raise ToolDenied(f"{_shown(path)} goes through more than {MAX_LINKS} links, perhaps in a cycle")
            at = "" if target.startswith("/") else at
            ahead += target.split("/")[::-1]
    return at or "/"


def _open_folder(root: Path, folders: Sequence[str], *, create: bool = False, flags: int = _FOLDER) -> Descriptor:
    """A descriptor of a folder below `root`, opened without following a link. `flags` are for this folder alone."""
    at = Descriptor(os.open(root, _FOLDER if folders else flags))
    for n, name in enumerate(folders, 1):
        with at:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
            at = Descriptor(os.open(name, _FOLDER if n < len(folders) else flags, dir_fd=at))
    return at


def _refuse_irregular(folder: int, name: str) -> None:
    """Raise `ToolError` for pipes, sockets, devices and links, which opening can affect. Missing files are fine."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ToolError(f"{name} is {what}")


def _is_git(name: str) -> bool:
    """Whether some file system treats `name` as `.git`: in capitals, with invisible characters, or as a short name."""
    if not name.isascii():
        name = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return name.casefold().rstrip(" .") in (".git", "git~1")
