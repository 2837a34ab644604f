"""Finds the user's project, and decides how children get it. The parent's model has no part in this.

    the operator's path, or else what the client names ──▶ one folder ──▶ a worktree, a copy, or an empty folder

A client names its project in the request, as Codex does, or as a root. If it names none, the project is the server's
working folder, provided that is a repository. What isn't a project, such as the home folder, is given to no child.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from delegate._util.fencing import one_line
from delegate._util.threads import run_in_thread
from delegate.errors import CallError
from delegate.hosts.mcp.codex import codex_turn
from delegate.hosts.mcp.policy import WorkspacePolicy
from delegate.sandbox.filesystem.secret_paths import real_path, secret_paths
from delegate.sandbox.workspace.worktree import snapshot
from delegate.types import Workspace

ListRoots = Callable[[], Awaitable[list[str]]]
"""Asks the client for the URIs of its roots."""
ROOTS_SECONDS = 2.0
"""How long a client may take to name its roots."""
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


class Projects:
    """Finds the project of each call of one server."""

    def __init__(self, policy: WorkspacePolicy, *, home: Path) -> None:
        self._policy = policy
        self._home = home
        """The folder of delegate's own records."""
        self._silent: set[str] = set()
        """Clients that didn't answer when they were asked for their roots."""

    async def of_call(self, client: str, meta: Mapping[str, Any], list_roots: ListRoots | None) -> Project:
        """The project for the children of a call. Raises CallError if the operator's own folder can't be used."""
        if self._policy.mode == "fresh":
            return Project()
        if self._policy.path is not None:
            return await self._made(self._policy.path)
        named = _named_by_codex(meta) or await self._roots(client, list_roots)
        if not named and (Path.cwd() / ".git").exists():
            named = [str(Path.cwd())]
        if not named:
            return Project(note="the client names no project")
        path, problem = await run_in_thread(partial(_usable, named[0], self._home))
        if path is None:
            return Project(note=f"{_shown(named[0])} {problem}")
        try:
            return await self._made(path)
        except CallError as error:
            return Project(note=one_line(error.message, 400))  # git's own words, and therefore the repository's

    async def _roots(self, client: str, list_roots: ListRoots | None) -> list[str]:
        """The client's roots. A client that doesn't answer isn't asked again."""
        if list_roots is None or client in self._silent:
            return []
        try:
            async with asyncio.timeout(ROOTS_SECONDS):
                return await list_roots()
        except TimeoutError:
            self._silent.add(client)
            return []

    async def _made(self, path: Path) -> Project:
        """The project in the operator's mode. Raises CallError."""
        is_own = self._policy.mode == "auto" and await run_in_thread(partial(_has_own_repository, path))
        if self._policy.mode == "worktree" or is_own:
            try:
                return Project(Workspace(mode="worktree", path=path, base=await snapshot(path)))
            except CallError as error:
                if error.code == "workspace_too_large":
                    return Project(Workspace(mode="worktree", path=path), f"{error.message}; the children don't see it")
                if self._policy.mode == "worktree":
                    raise
        if self._policy.mode == "auto":
            if problem := await run_in_thread(partial(_too_large, path)):
                return Project(note=f"{path} {problem}")
            return Project(Workspace(mode="copy", path=path))
        return Project(Workspace(mode=self._policy.mode, path=path))


def _named_by_codex(meta: Mapping[str, Any]) -> list[str]:
    """The repositories that Codex names."""
    workspaces = codex_turn(meta).get("workspaces")
    return [str(path) for path in cast("Mapping[str, object]", workspaces)] if isinstance(workspaces, dict) else []


def _usable(named: str, home: Path) -> tuple[Path | None, str]:
    """The real folder that a client names by its path or its URI, or what is wrong with it."""
    path = _path_in(named)
    if path is None:
        return None, "is not a file:// URI of this machine"
    try:
        real = real_path(path)
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


def _path_in(named: str) -> Path | None:
    if named.startswith("/"):
        return Path(named)
    uri = urlsplit(named)
    is_local = uri.scheme == "file" and uri.netloc in ("", "localhost") and not uri.query and not uri.fragment
    path = unquote(uri.path)
    return Path(path) if is_local and path.startswith("/") and "\0" not in path else None


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
