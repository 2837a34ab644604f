"""Opens, confines and closes the folder that a child works in, and lists what the child changed there.

Whatever looks at all files of a folder runs in a thread: a child may have left a hundred thousand of them.
"""

import itertools
import logging
import math
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from delegate._util.fencing import one_line
from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate._util.windows_paths import windows_path_hint
from delegate.sandbox.filesystem import changes, files, paths
from delegate.sandbox.filesystem.changes import ArtifactWatch, Changes, FileState
from delegate.sandbox.filesystem.files import Excerpt
from delegate.sandbox.filesystem.trees import copy_tree, remove_rest, remove_soon, remove_tree, tree_bytes
from delegate.sandbox.tampering.git_files import Repository, refuse_repository
from delegate.sandbox.workspace import worktree
from delegate.sandbox.workspace.inputs import INPUTS, Inputs, is_in_inputs
from delegate.sandbox.workspace.snapshot import Frozen, Snapshot, differences
from delegate.sandbox.workspace.worktree import Worktree
from delegate.sandbox.workspace.write_locks import WriteLocks, Writer
from delegate.types import Artifact, TaskResult, Workspace
from delegate.types.errors import CallError, ToolDenied, ToolError, WorkspaceTooLarge

_SMALL_FOLDER = 32
_SMALL_FILE_BYTES = 65_536
_BLOCK_BYTES = 8_192
"""More than a file or a folder takes up on the disk besides its content."""
PAUSES = 20
"""Between two checks of a folder's size, this many times as long passes as a check takes."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Folder:
    """The folder that one child works in. Open it with `open`, and `close` it when the child and its checks are done.

    `owned` is true for a folder that is made for this child (fresh, copy, worktree) and may be removed. A fresh one is
    created when something is first written to it, or by `make`.
    """

    root: Path
    owned: bool
    no_take_over: str | None = None
    """Why the changes can't be brought into the user's checkout; empty if they can. None if there are none to bring.
    See `artifacts`."""
    unlisted: int = 0
    """How many more files changed than `artifacts` listed."""
    before: Snapshot | None = None
    """The files of before the child started, if `record_start` was called and there were any."""
    knows_start: bool = False
    """Whether it is known what there was before the child started."""
    repository: Repository | None = None
    """What git runs here, as it was before the child started."""
    removed_links: dict[Path, str] = field(default_factory=dict[Path, str])
    """The links in git folders that the child left, which `artifacts` removed."""
    inputs: Inputs | None = None
    """What other tasks left that the child was given, in a folder that isn't its work."""
    max_bytes: float = math.inf
    """How much a child may add to it."""
    exists: bool = True
    """Whether there is anything to look at: a fresh one isn't made before something is written to it."""
    home: Path | None = None
    """Where folders of this workspace, such as a clean room, are created."""
    states_before: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    """All files when it was opened."""
    bytes_before: int = 0
    worktree: Worktree | None = None
    is_copy: bool = False
    writer: Writer | None = None
    _added: int = 0
    """How much was added when that was last looked at, and by `write` since."""
    _next_look: float = 0
    _started_empty: bool = False
    """Whether it is a fresh one, so that everything in it is the child's."""
    _most_added: float = math.inf
    """The most that can have been added, as long as nothing but `write` has created anything in a fresh one."""
    _found: Changes = changes.UNSEEN
    """What `changes` found last."""

    @classmethod
    async def open(
        cls,
        workspace: Workspace | None,
        *,
        home: Path,
        write_locks: WriteLocks | None = None,
        who: str = "another task of this run",
        max_bytes: float = math.inf,
    ) -> "Folder":
        """Open the folder for `workspace`; new folders are created in `home` under a random name.

        For a shared folder, `write_locks` are those of the run, and `who` names this child in messages to its siblings.
        Raises `CallError` if the given folder can't be used (it doesn't exist, is too large, is not a git repository);
        nothing is left behind then.
        """
        home = _real(home)
        folder = cls(home / secrets.token_hex(8), owned=True, max_bytes=max_bytes, exists=False, home=home)
        if workspace is None or workspace.path is None:
            folder._started_empty, folder._most_added = True, 0
            return folder
        given = existing(workspace.path)
        if workspace.mode == "shared":
            # Join before the snapshot, so that what a sibling writes during it counts as the sibling's.
            writer = write_locks.join(who) if write_locks is not None else None
            folder = replace(folder, root=given, owned=False, exists=True, writer=writer)
        try:
            folder.make()
            await folder._fill(given, workspace)
        except BaseException:
            await folder.remove()
            raise
        return folder

    @classmethod
    def of_existing(cls, path: Path) -> "Folder":
        """An existing folder with finished work: every file in it counts as created. Raises `CallError`."""
        return cls(existing(path), owned=False)

    def make(self) -> Path:
        """Create the folder if it is a fresh one that doesn't exist yet, and return its path. Raises `OSError`.

        To be called before anything other than this class uses the folder. Thread-safe.
        """
        self._most_added = math.inf
        self._make()
        return self.root

    async def give(self, given: Mapping[str, TaskResult]) -> None:
        """Put what other tasks left into the folder `inputs`, before `record_start` is called. Raises `CallError`."""
        self.make()
        inputs = Inputs(self.root, self.copies, given)
        await run_in_thread(inputs.place)
        self.inputs, self._started_empty = inputs, False
        self.states_before = {**self.states_before, **inputs.states}
        await self._measure()

    def is_given(self, path: str) -> bool:
        """Whether a path in the folder is of what other tasks left, and so isn't the child's work."""
        return self.inputs is not None and is_in_inputs(path)

    def expect_writers(self) -> None:
        """Others may write to the folder, if it exists: from now on, its size is looked at."""
        self._most_added = math.inf

    def resolve(self, path: str) -> Path:
        """The real path of `path`, with links and `..` followed. Raises `ToolDenied` if it is outside the folder."""
        return paths.resolve(self.root, path)

    def read(self, path: str, limit: int) -> Excerpt:
        """The first `limit` bytes of a regular file in the folder, or of the diff that `artifacts` wrote.

        Raises `ToolError`, and its subclass `ToolDenied` for a path outside the folder.
        """
        if self.worktree is not None and path == f"../{self.worktree.diff_path.name}":
            whole = files.read(self.root.parent, self.worktree.diff_path, worktree.MAX_DIFF_BYTES)
            shown = worktree.without_binary(whole.data)
            return Excerpt(shown[:limit], len(shown))
        return files.read(self.root, self.resolve(path), limit)

    def excerpt(self, artifact: Artifact, limit: int) -> Excerpt:
        """The first `limit` bytes of an artifact: what was digested when it was listed, unless it has changed since.

        Raises `ToolError` as `read` does.
        """
        path, kept = artifact.path, self._found.contents.get(artifact.path)
        if kept is None or len(kept) > limit or changes.state_of(self.root, path) != self._found.states.get(path):
            return self.read(path, limit)
        return Excerpt(kept, len(kept))

    def write(self, path: str, data: bytes) -> None:
        """Replace the content of a regular file in the folder, creating missing folders.

        Raises `ToolError`, and its subclass `ToolDenied` for a path outside the folder or in `.git`, for the
        operator's settings and what runs delegate, for a file with hard links, for one that another child of the run
        writes, and for more than `max_bytes`.
        """
        real = self.resolve(path)
        if self.is_given("/".join(paths.parts(self.root, real))):
            raise ToolDenied("inputs/ has what other tasks left and can't be changed; write a copy somewhere else")
        refuse_repository(self.root, real)
        if self.repository is not None:
            self.repository.refuse(real)
        paths.refuse_settings(real)
        paths.refuse_own_program(self.root, real)
        if self.writer is not None:
            self.writer.acquire(real)
        try:
            self._make()
        except OSError as problem:
            raise ToolError(f"the workspace can't be created: {problem.strerror}") from problem
        # Every part of the path may be a new folder.
        self._most_added += len(data) + _BLOCK_BYTES * (1 + path.count("/"))
        added = len(data) - (os.lstat(real).st_size if os.path.lexists(real) else 0)
        if added > 0 and self._added + added > self.max_bytes:
            raise ToolError(f"not written, since {self._too_large('would have')}; delete files that you don't need")
        files.write(self.root, real, data)
        self._added += added

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing in it when it was opened."""
        return not self.states_before

    @property
    def is_small(self) -> bool:
        """Whether it is the child's own and has, and had, only a few small files and no folders.

        Looking at all of them is faster than starting a thread.
        """
        if not self.owned or len(self.states_before) > _SMALL_FOLDER:
            return False
        if not self.exists or self._most_added <= _SMALL_FILE_BYTES:
            return True
        with suppress(OSError), os.scandir(self.root) as entries:
            few = list(itertools.islice(entries, _SMALL_FOLDER + 1))
            return len(few) <= _SMALL_FOLDER and all(
                entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= _SMALL_FILE_BYTES
                for entry in few
            )
        return False

    @property
    def may_be_too_large(self) -> bool:
        """Whether more than `max_bytes` may have been added, as far as is known without looking."""
        return self.exists and self.max_bytes < math.inf and self._most_added > self.max_bytes

    async def check_size(self, *, soon: bool = True) -> None:
        """Raise `WorkspaceTooLarge` if more than `max_bytes` were added since `open`.

        Without `soon`, nothing is done if it was checked only recently, for the time that the last check took.
        """
        if not self.may_be_too_large or (not soon and time.monotonic() < self._next_look):
            return
        started = time.monotonic()
        measure = partial(tree_bytes, self.root, self.bytes_before + self.max_bytes)
        size = await run_in_thread_if(not self.is_small, measure)
        self._next_look = time.monotonic() + PAUSES * (time.monotonic() - started)
        self._added = size - self.bytes_before
        if self._added > self.max_bytes:
            raise WorkspaceTooLarge(self._too_large("has"))

    def _make(self) -> None:
        if not self.exists:
            # By another tool call at the same time, it may be there already.
            self.root.mkdir(0o700, parents=True, exist_ok=True)
            self.exists = True

    def _too_large(self, have: str) -> str:
        return f"the child {have} added more than {self.max_bytes / 1e6:,.6g} MB to its workspace"

    @property
    def _foreign(self) -> Collection[Path]:
        return self.writer.foreign if self.writer is not None else ()

    def changes(self) -> tuple[Artifact, ...]:
        """What was created, changed or deleted since `open`, sorted by path, without files that siblings wrote.

        Blocks; `artifacts` uses a thread.
        """
        if not self.exists:
            return ()
        found = changes.changes_since(self.states_before, self.root, without=self._foreign)
        self._found, self.unlisted = found, found.unlisted
        return found.artifacts

    def is_as_left(self, path: str) -> bool:
        """Whether a file, or that there is none, is as it was when `artifacts` listed the files.

        That isn't known of what siblings write, and of what isn't listed, such as `node_modules`.
        """
        if self._found.left is None:
            return True
        real = self.resolve(path)
        if real in self._foreign or not real.is_relative_to(self.root):
            return True
        names = paths.parts(self.root, real)
        if not files.IGNORED_FOLDERS.isdisjoint(names):
            return True
        relative = "/".join(names)
        state = changes.state_of(self.root, relative)
        is_file = state is not None and (stat.S_ISREG(state.mode) or stat.S_ISLNK(state.mode))
        return (state if is_file else None) == self._found.left.get(relative)

    def changed_since_left(self, most: int) -> list[str]:
        """Files that changed since `artifacts` listed them, and new and missing ones, at most so many. Blocks."""
        if self._found.left is None or not self.exists:
            return []
        foreign = {str(path) for path in self._foreign}
        found = changes.changed_paths(self._found.left, self.root, most + len(foreign))
        return [path for path in found if str(self.root / path) not in foreign][:most]

    def watch(self, artifacts: Sequence[Artifact]) -> ArtifactWatch:
        """Find out later which of these artifacts have changed since `artifacts` listed them, or since now."""
        return ArtifactWatch(self.root, artifacts, self._found.states)

    async def artifacts(self) -> tuple[Artifact, ...]:
        """The same as `changes`, without blocking the event loop.

        For a worktree with changes, the first artifact is the diff, which is stored next to the folder. Links in git
        folders that weren't there before are removed, and what the child did to its inputs is undone.
        """
        if not self.exists:
            return ()
        if self.inputs is not None and await run_in_thread(self.inputs.put_back):
            others = {path: state for path, state in self.states_before.items() if not is_in_inputs(path)}
            self.states_before = {**others, **self.inputs.states}
        if self.repository is not None:
            self.removed_links |= await run_in_thread(partial(self.repository.remove_links, nested=False))
        found = await run_in_thread_if(not self.is_small, self.changes)
        if found and self.is_copy:
            self.no_take_over = "the workspace is a copy; take what you want from it"
        if self.worktree is None or not found:
            return found
        diff = self.worktree.diff_path
        self.no_take_over = await self.worktree.write_diff(without=INPUTS if self.inputs is not None else None)
        try:
            size = diff.stat().st_size
        except OSError:  # `write_diff` logged why
            return found
        sha256 = await run_in_thread(partial(files.digest, diff.parent, diff, size))
        return (Artifact(path=f"../{diff.name}", change="created", bytes=size, sha256=sha256), *found)

    async def record_start(self) -> None:
        """Copy the files, by which the child's work is measured. To be called before the child starts.

        What can't be copied isn't known then.
        """
        if self._started_empty:
            self.knows_start = True
            return
        name = f"{self.root.name if self.owned else secrets.token_hex(8)}.start"
        try:
            self.before, self.knows_start = await Snapshot.take(self.root, self.copies, name=name), True
        except (CallError, OSError) as problem:
            _log.warning("what is in %s can't be remembered: %s", self.root, problem)

    async def freeze(self) -> Frozen:
        """A copy of the folder as it is now, and how it differs from what it was before the child started.

        The caller removes its `end`. Raises `CallError` and OSError.
        """
        knows_start = self.knows_start or self._started_empty
        if self.before is not None and (changed := await run_in_thread(self.before.changed_since)) is not None:
            _log.warning("the copy of what %s was has changed: %s", self.root, changed)
            knows_start = False
        end = await Snapshot.take(self.make(), self.copies, name=f"{secrets.token_hex(8)}.end")
        if not knows_start:
            return Frozen(None, end, self.copies, (), knows_start=False)
        changed = await run_in_thread(partial(differences, self.before, end))
        foreign = {one.path for one in changed if self.root / one.path in self._foreign}
        deleted = (self.root / one.path for one in changed if one.change == "deleted")
        special = {str(path.relative_to(self.root)) for path in deleted if path.exists() and not path.is_dir()}
        return Frozen(self.before, end, self.copies, changed, foreign, special)

    @property
    def copies(self) -> Path:
        """Where copies of the folder are made: outside of it."""
        if self.home is None or (not self.owned and self.home.is_relative_to(self.root)):
            return Path(tempfile.gettempdir())
        return self.home

    async def close(self, *, keep: bool = False) -> None:
        """Remove an owned folder, unless the child left changes in it that the parent may want.

        With `keep`, the folder stays without a search for changes. A worktree that stays is a plain folder then, which
        its repository doesn't know; with a copy stays what it was, since its task may be continued. What takes long to
        remove is removed in the background.
        """
        is_own = self.exists and self.owned
        stays = is_own and (keep or await run_in_thread(partial(changes.has_changes, self.states_before, self.root)))
        if is_own and not stays:
            await self.remove()
            return
        await self._leave(keep_start=stays and self.is_copy)
        if stays:
            self._unregister()

    async def remove(self) -> None:
        """Remove an owned folder, whatever is in it, and what is kept of its start."""
        await self._leave()
        if self.owned:
            try:
                self._unregister()
                self.root.with_name(f"{self.root.name}.diff").unlink(missing_ok=True)
                await remove_soon(self.root)
            except OSError as problem:
                _log.warning("the workspace %s can't be removed: %s", self.root, problem)

    async def _leave(self, *, keep_start: bool = False) -> None:
        if self.writer is not None:
            self.writer.leave()
        if self.before is not None and not keep_start:
            with suppress(OSError):
                await self.before.remove()

    async def _fill(self, given: Path, workspace: Workspace) -> None:
        if workspace.mode == "worktree":
            only = workspace.folder if workspace.only_folder else None
            self.worktree = await Worktree.add(given, workspace.base or "HEAD", self.root, only=only)
        elif workspace.mode == "copy":
            stop = threading.Event()
            self.is_copy = True
            await run_in_thread(partial(copy_tree, given, self.root, stop), stop=stop)
        self.repository = await run_in_thread(partial(Repository.of, self.root, nested=True))
        self.states_before = await run_in_thread(partial(changes.snapshot, self.root))
        await self._measure()

    async def _measure(self) -> None:
        if self.max_bytes < math.inf:
            self.bytes_before = await run_in_thread(partial(tree_bytes, self.root))

    def _unregister(self) -> None:
        """Let a worktree's repository forget it, and the commit of uncommitted work that it was made from."""
        if self.worktree is not None:
            try:
                worktree.remove_entry(self.worktree.admin)
                if (pointer := self.root / ".git").is_file():
                    pointer.unlink()
            except OSError as problem:
                _log.warning("the worktree %s is still registered: %s", self.root, problem)


def discard(root: Path) -> None:
    """Remove a folder that `close` kept, in any mode, together with its worktree entry and diff. Raises `OSError`."""
    worktree.unregister(root)
    root.with_name(f"{root.name}.diff").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        remove_tree(root.with_name(f"{root.name}.start"))
    remove_tree(root)


def existing(path: Path) -> Path:
    """The real path of a folder. Raises `CallError` if there is none."""
    with suppress(ValueError, RuntimeError):  # no path at all, or the home of an unknown user
        real = Path(os.path.realpath(path.expanduser()))
        if os.path.isdir(real):
            return real
    name, hint = one_line(str(path), 1_000), windows_path_hint(str(path)) or "name a folder that exists"
    raise CallError("workspace_not_found", f"workspace {name} is not a folder", field="workspace", hint=hint)


@lru_cache(16)
def _real(home: Path) -> Path:
    """The real path. The first time, what earlier processes couldn't remove there is removed."""
    real = Path(os.path.realpath(home))
    remove_rest(real)
    return real
