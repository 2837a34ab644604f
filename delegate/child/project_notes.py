"""What a project says to agents in `AGENTS.md` or `CLAUDE.md`: for a child, data from the project's owner."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from delegate._util.fencing import clean
from delegate.types import Workspace

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
    for name in NAMES:
        try:
            path = os.path.realpath(root / name)
            if not Path(path).is_relative_to(os.path.realpath(root)) or not stat.S_ISREG(os.stat(path).st_mode):
                continue
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError:
            continue
        cut = "\n[The rest is left out: read the file.]" if len(data) > MAX_BYTES else ""
        if text := clean(data[:MAX_BYTES].decode(errors="replace")).text.strip():
            return ProjectNotes(name, text + cut)
    return None
