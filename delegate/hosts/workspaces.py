"""What an operator decided about the folders of children. It imports little: see `delegate.hosts.mcp.definitions`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast, get_args

from delegate.types.errors import ConfigError

Mode = Literal["auto", "worktree", "copy", "shared", "fresh"]
_OWN = "the user's files don't change. Results say how to take changes over."


@dataclass(frozen=True, slots=True)
class WorkspacePolicy:
    """Where children work. `auto` is a worktree where the project is a repository, or else a copy of a small one."""

    mode: Mode = "fresh"
    path: Path | None = None
    """The project. None: the one that the host names, or the repository that it works in."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `MODE` or `MODE:PATH`. Raises ConfigError."""
        mode, _, path = text.partition(":")
        if mode not in get_args(Mode):
            raise ConfigError(f"{text!r} is not a workspace; use worktree, copy, shared, fresh or auto, and :PATH")
        if not path:
            return cls(cast("Mode", mode))
        if mode == "fresh":
            raise ConfigError("a fresh workspace has no path: it is empty")
        real = Path(path).expanduser().absolute()
        if not real.is_dir():
            raise ConfigError(f"the workspace {real} is not a folder")
        return cls(cast("Mode", mode), real)

    def sentence(self, cwd: Path | None = None) -> str:
        """The policy for a parent, in its tool's description. It works in `cwd`, or else where its client says."""
        found = self.path or repository_above(cwd or Path.cwd())
        project = str(found or "the client's project, or in an empty folder without one")
        if self.mode == "fresh" or (found is None and cwd is not None):
            return "Each child works in an empty folder and doesn't see the user's files."
        if self.mode == "shared":
            return f"Children work in {project} itself: what they change there is changed at once."
        is_repository = found is not None and (found / ".git").exists()
        auto = "git worktree" if is_repository else "copy" if found else "git worktree or copy"
        kind = auto if self.mode == "auto" else self.mode.replace("worktree", "git worktree")
        uncommitted = "" if kind == "copy" else ", with uncommitted changes"
        return f"Each child works in its own {kind} of {project}{uncommitted}: {_OWN}"


def repository_above(folder: Path, *, bound: Path | None = None) -> Path | None:
    """The git repository that a folder is or lies in: the nearest one, not above `bound`, and not the home folder's."""
    home = Path(os.path.realpath(Path.home()))
    for one in (folder, *folder.parents):
        if one == home or one in home.parents:
            return None
        if (one / ".git").exists():
            return one
        if one == bound:
            return None
    return None
