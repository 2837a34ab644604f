"""Finds the user's project, and decides how children get it. The parent's model has no part in this.

    the operator's path, or what the host names, or its working folder ──▶ the repository around it ──▶ a worktree,
    a copy, or an empty folder

The project is the top of the repository, and the folder inside it that the parent works in is kept. It ends where what
the host names ends. What isn't a project, such as the home folder, is given to no child.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from delegate._util.fencing import one_line
from delegate._util.threads import run_in_thread
from delegate.hosts.workspaces import WorkspacePolicy, repository_above
from delegate.sandbox.filesystem.secret_paths import real_path, secret_paths
from delegate.sandbox.workspace.worktree import snapshot
from delegate.types import Workspace
from delegate.types.errors import CallError

MAX_COPY_BYTES = 50_000_000
MAX_COPY_FILES = 5_000
"""A larger project isn't copied for each child, unless the operator says so."""


@dataclass(frozen=True, slots=True)
class Project:
    """What the children of one call work with."""

    workspace: Workspace | None = None
    """None for an empty folder."""
    note: str = ""
    """What the parent should know, such as why the folder is empty."""

    def noted(self, text: str) -> str:
        """The text of an answer, with the note before its last line, which counts the verdicts like the first."""
        if not self.note:
            return text
        folders = "from the last commit" if self.workspace else "in empty folders"
        text, _, last = text.rpartition("\n")
        return f"{text}\nchildren work {folders}: {self.note}\n{last}"


@dataclass(frozen=True, slots=True)
class Projects:
    """Finds the project of each call of one host. `home` is the folder of delegate's own records."""

    policy: WorkspacePolicy
    home: Path

    async def find(self, folders: Callable[[], Awaitable[Sequence[str]]] | None, cwd: Path) -> Project:
        """The project of a parent that works in `cwd`, if the operator names none.

        `folders` returns those that the host names, as paths or URIs. Raises CallError if the operator's own folder
        can't be used.
        """
        cwd = real_path(cwd)
        if self.policy.mode == "fresh":
            return Project()
        if self.policy.path is not None:
            return await self._made(real_path(self.policy.path), cwd)
        named = await folders() if folders is not None else ()
        place = await run_in_thread(partial(_place, named, cwd, self.home))
        if isinstance(place, str):
            return Project(note=place)
        try:
            return await self._made(*place)
        except CallError as error:
            return Project(note=one_line(error.message, 400))  # git's own words, and therefore the repository's

    async def _made(self, path: Path, start: Path, above: Path | None = None) -> Project:
        """The folder `path` in the operator's mode, or as a part of the repository `above` it. Raises CallError."""
        mode, top = self.policy.mode, above or path
        is_own = mode == "auto" and await run_in_thread(partial(_has_own_repository, top))
        if mode == "worktree" or is_own:
            folder, whole = _inside(start, top), above is None
            worktree = Workspace(mode="worktree", path=top, folder=folder, only_folder=not whole)
            try:
                return Project(worktree.model_copy(update={"base": await snapshot(top)}))
            except CallError as error:
                if error.code == "workspace_too_large":
                    return Project(worktree, f"{error.message}; the children don't see it")
                if mode == "worktree":
                    raise
        if mode == "auto":
            if problem := await run_in_thread(partial(_too_large, path)):
                return Project(note=f"{path} {problem}")
            mode = "copy"
        return Project(Workspace(mode=mode, path=path, folder=_inside(start, path)))


def _place(named: Sequence[str], cwd: Path, home: Path) -> tuple[Path, Path, Path | None] | str:
    """The project, the folder that the parent works in, and the repository of which only the project may be seen.

    Returns why there is none.
    """
    if not named:
        top = repository_above(cwd)
        if top is None:
            return "no project is named, and the working folder is in no git repository"
        path, problem = _usable(str(top), home)
        return (path, cwd, None) if path else f"{top} {problem}"
    checked = [_usable(one, home) for one in named]
    roots = [path for path, _ in checked if path]
    if not roots:
        return f"{_shown(named[0])} {checked[0][1]}"
    root = next((one for one in roots if cwd.is_relative_to(one)), roots[0])
    start = cwd if cwd.is_relative_to(root) else root
    if top := repository_above(start, bound=root):
        return top, start, None
    above = repository_above(root)
    is_above = above is not None and _usable(str(above), home)[0] and _has_own_repository(above)
    return root, root if is_above else start, above if is_above else None


def _inside(folder: Path, top: Path) -> str | None:
    """The path of a folder from the top; None if it is the top itself, or elsewhere."""
    return folder.relative_to(top).as_posix() if folder != top and folder.is_relative_to(top) else None


def _usable(named: str, home: Path) -> tuple[Path | None, str]:
    """The real folder that a client names by its path or its URI, or what is wrong with it."""
    uri = urlsplit(named)
    path = named if named.startswith("/") else unquote(uri.path)
    is_local = uri.scheme == "file" and uri.netloc in ("", "localhost") and not uri.query and not uri.fragment
    if not named.startswith("/") and (not is_local or not path.startswith("/") or "\0" in path):
        return None, "is not a file:// URI of this machine"
    try:
        real = real_path(Path(path))
        if not real.is_dir():
            return None, "is not a folder"
    except (OSError, ValueError):
        return None, "is not a folder"
    user = real_path(Path.home())
    if real == user or real in user.parents:
        return None, "is not a project: it contains the home folder"
    if any(real == secret or secret in real.parents for secret in (*secret_paths(os.environ), real_path(home))):
        return None, "is not a project: credentials or records are kept there"
    if not (real / ".git").exists() and all((real / name).exists() for name in ("HEAD", "objects", "refs")):
        return None, "is a bare repository, without files to work on"
    return real, ""


def _has_own_repository(folder: Path) -> bool:
    """Whether the folder is the checkout of a repository: its own, or one that knows the folder as its worktree.

    A downloaded folder can refer to any repository of the user, whose files nobody meant to give to a child.
    """
    git = folder / ".git"
    if git.is_dir():
        parts = (git, *(git / name for name in ("HEAD", "objects", "refs", "packed-refs")))
        return not (git / "commondir").exists() and not any(part.is_symlink() for part in parts)
    try:
        admin = Path(git.read_text().removeprefix("gitdir:").strip())
        return admin.is_absolute() and (admin / "gitdir").read_text().strip() == str(git)
    except (OSError, ValueError):
        return False


def _too_large(folder: Path) -> str:
    """Why a folder isn't copied; empty if it can be."""
    files = total = 0
    unreadable: list[OSError] = []
    for parent, _, names in os.walk(folder, onerror=unreadable.append):
        for name in names:
            path = os.path.join(parent, name)
            files += 1
            total += os.lstat(path).st_size if os.path.lexists(path) else 0
            if files > MAX_COPY_FILES or total > MAX_COPY_BYTES:
                limits = f"{MAX_COPY_FILES:,} files or {MAX_COPY_BYTES / 1e6:g} MB"
                return f"is no git repository with a commit, and has over {limits}, so that it isn't copied"
            if not os.path.islink(path) and os.path.isfile(path) and not os.access(path, os.R_OK):
                return f"can't be copied: {_shown(path)} can't be read"
    return f"can't be copied: {_shown(str(unreadable[0].filename))} can't be read" if unreadable else ""


def _shown(named: str) -> str:
    return one_line(named, 300)
