"""What a project says to agents in `AGENTS.md` or `CLAUDE.md`: for a child, data from the project's owner."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from delegate._util.fencing import clean
from delegate.sandbox.filesystem import files, paths
from delegate.types import Workspace
from delegate.types.errors import ToolError

NAMES = ("AGENTS.md", "CLAUDE.md")
MAX_BYTES = 32_000


@dataclass(frozen=True, slots=True)
class ProjectNotes:
    """The beginning of such a file, without hidden characters."""

    name: str
    text: str


def is_own_project(workspace: Workspace | None) -> bool:
    """Whether a task works in, or on a copy of, the project that holds the folder in which delegate runs."""
    if workspace is None or workspace.path is None:
        return False
    project = os.path.realpath(workspace.path)
    return project != os.sep and Path(os.getcwd()).is_relative_to(project)


def read_notes(root: Path) -> ProjectNotes | None:
    """The notes of the project in the folder `root`, if there are any. A link may not lead out of it."""
    real = Path(os.path.realpath(root))
    for name in NAMES:
        with suppress(ToolError):
            found = files.read(real, paths.resolve(real, name), MAX_BYTES)
            cut = "\n[The rest is left out: read the file.]" if found.cut else ""
            if text := clean(found.text).text.strip():
                return ProjectNotes(name, text + cut)
    return None
