"""Copies the files that a child left in its workspace to a folder that the user names.

The child may have been hostile: what it left can be links to anywhere, names such as `.git/config`, or a file that is
replaced during the copy. So nothing here follows a link, on either side; only what the verdict looked at is copied; and
a file that exists is overwritten only if the user asked for that.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from delegate._util.windows_paths import windows_path_hint
from delegate.sandbox.filesystem import files, paths
from delegate.types import Artifact
from delegate.types.errors import CallError, ToolError


@dataclass(frozen=True, slots=True)
class CopiedOut:
    """What came of a copy: the paths that were copied, and why others weren't, by path."""

    copied: list[str] = field(default_factory=list[str])
    exists: list[str] = field(default_factory=list[str])
    """What was there already, and was left alone."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    links: list[str] = field(default_factory=list[str])
    """Links are never copied, since they may lead anywhere."""


def open_target(folder: Path, *, shared: Sequence[Path] = ()) -> Path:
    """Create the folder if need be, and return its real path. Call it before the child starts.

    `shared` are the folders in which children work without a copy. Raises `CallError` if the folder can't be used, or
    lies in one of those, where a child could replace it by a link.
    """
    if "\\" in str(folder) and (hint := windows_path_hint(str(folder))):
        raise CallError("bad_output_folder", f"{folder} can't be created", field="out", hint=hint)
    real = Path(os.path.realpath(folder.expanduser()))
    for artifact in shared:
        if real.is_relative_to(os.path.realpath(artifact.expanduser())):
            message = f"{folder} is in {artifact}, where the child works itself"
            hint = "the child's files are there anyway: leave out this folder, or give the child a copy or a worktree"
            raise CallError("bad_output_folder", message, field="out", hint=hint)
    try:
        real.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        message = f"the folder {folder} can't be created: {problem.strerror}"
        raise CallError("bad_output_folder", message, field="out", hint="name a folder that can be written") from None
    return real


def copy_out(
    workspace: Path, artifacts: Sequence[Artifact], target: Path, *, within: str = "", force: bool = False
) -> CopiedOut:
    """Copy the created and changed files to the same paths in the folder `within` of `target`. Blocks. Raises nothing.

    `target` is a real path. Without `force`, files that exist are left alone. A file that isn't what it was when it
    was listed isn't copied.
    """
    result = CopiedOut()
    for artifact in artifacts:
        path = artifact.path
        if artifact.change == "deleted" or path.startswith("../"):  # the diff of a worktree, which isn't in it
            continue
        if artifact.link_to is not None:
            result.links.append(path)
            continue
        try:
            _copy(workspace, artifact, target, within, force=force)
            result.copied.append(path)
        except FileExistsError:
            result.exists.append(path)
        except ToolError as problem:
            result.refused[path] = str(problem)
        except OSError as problem:
            result.refused[path] = f"it can't be copied: {problem.strerror}"
    return result


def _copy(workspace: Path, artifact: Artifact, target: Path, within: str, *, force: bool) -> None:
    """Copy one file. Raises `FileExistsError`, `ToolError` and `OSError`; what was there is untouched then."""
    source, to = _below(workspace, artifact.path), _below(target / within, artifact.path)
    paths.refuse_git(target, to)
    paths.refuse_settings(to)
    descriptor, status = paths.open_file(workspace, source, os.O_RDONLY)
    with descriptor:
        mode = 0o777 if status.st_mode & stat.S_IXUSR else 0o666  # no other bit is copied, such as setuid
        try:
            with paths.new_file(target, to, replace=force, mode=mode) as copy:
                digest, size = hashlib.sha256(), 0
                for chunk in files.chunks(descriptor, artifact.bytes + 1):
                    digest.update(chunk)
                    size += len(chunk)
                    files.write_all(copy, chunk)
                if size != artifact.bytes or artifact.sha256 not in (None, digest.hexdigest()):
                    raise ToolError("it changed after the child had ended")
        except NotADirectoryError:
            raise ToolError("a file or a link is where its folder would be") from None


def _below(folder: Path, path: str) -> Path:
    """A path in the folder that is taken as it is. Raises `ToolError` for one that leads out of it."""
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ToolError("it isn't a plain path in the workspace")
    return folder / path
