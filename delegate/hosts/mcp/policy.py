"""What the operator of the server decided about the folders of its children. It imports little: see `definitions`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast, get_args

from delegate.errors import ConfigError

Mode = Literal["auto", "worktree", "copy", "shared", "fresh"]
_OWN = "the user's files don't change. Each result says where its files are, and how to take changes over."


@dataclass(frozen=True, slots=True)
class WorkspacePolicy:
    """Where children work. `auto` is a worktree where the project is a repository, or else a copy of a small one."""

    mode: Mode = "fresh"
    path: Path | None = None
    """The project. None: the one that the client names."""

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

    @property
    def sentence(self) -> str:
        """The policy for the parent, in the tool's description."""
        project = str(self.path) if self.path else "the user's project"
        if self.mode == "fresh":
            return "Each child works in an empty folder and doesn't see the user's files."
        if self.mode == "shared":
            return f"Children work in {project} itself: what they change there is changed at once."
        kind = {"copy": "copy", "worktree": "git worktree"}.get(self.mode, "copy or git worktree")
        uncommitted = "" if self.mode == "copy" else ", with uncommitted changes"
        return f"Each child works in its own {kind} of {project}{uncommitted}: {_OWN}"
