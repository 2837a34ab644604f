"""Gives a child a git worktree: the files of a commit, separate from the user's checkout and from other children's.

    repository, at `base` ──▶ worktree, on a detached HEAD ──▶ child ──▶ diff against `base`

Nothing that the repository or the user's configuration names is run: no hooks, file monitor, diff drivers or filters
(so Git LFS files are pointers, and git-crypt files stay encrypted), and no network. Submodules are empty folders.
"""

import asyncio
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from delegate._util.threads import run_in_thread
from delegate.sandbox.filesystem import files
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.sandbox.processes.environment import command_environment, find_program
from delegate.sandbox.processes.process import ProcessResult, run_process
from delegate.sandbox.workspace.snapshot import CACHES
from delegate.types.errors import CallError, ToolError

GIT_SECONDS = 120.0
MAX_DIFF_BYTES = 16 << 20
MAX_UNCOMMITTED_BYTES = 50_000_000
_MAX_OUTPUT_BYTES = 64_000
_INDEX = "delegate-index"

_HARMLESS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "submodule.recurse=false", "-c", "worktree.useRelativePaths=false",
)  # fmt: skip
_SPARSE = ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false")
"""The repository's configuration stays as it is."""
_QUIET = {
    "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
}  # fmt: skip
_NEW_FILES = (
    "add", "--intent-to-add", "--ignore-errors", "--", ".",
    *(f":(exclude,glob)**/{name}/**" for name in sorted({*CACHES, *files.IGNORED_FOLDERS})),
)  # fmt: skip
_DIFF = (
    "diff", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--src-prefix=a/",
    "--dst-prefix=b/",
)  # fmt: skip

_UNCOMMITTED = (
    "status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames",
)  # fmt: skip
_SNAPSHOT_AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "delegate"), ("EMAIL", ""))
}

_BINARY = re.compile(rb"(?<=\n)GIT binary patch\n(?:(?:literal|delta) \d+\n(?:.+\n)*\n?){1,2}")
_CONFLICT = re.compile(r"^Applied patch to '(.+)' with conflicts\.$", re.MULTILINE)
_log = logging.getLogger(__name__)
_add_locks: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, Path], asyncio.Lock] = WeakValueDictionary()
"""Worktrees are added to a repository one at a time: git's own locks fail instead of waiting."""


async def source_of(repository: Path, base: str) -> "tuple[_Git, Path, str]":
    """What a worktree is created of: git, the folder that all worktrees share, and the commit. Raises CallError."""
    git = await _Git.of(repository)
    return git, await git.common_folder(), await git.commit(base)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree in the folder `root`, created by `add`. Its `Folder` ends it."""

    root: Path
    repository: Path
    base: str
    """The full hash of the commit."""
    admin: Path
    """The repository's own folder for this worktree, in `.git/worktrees`."""

    @classmethod
    async def add(cls, repository: Path, base: str, root: Path, *, only: str | None = None) -> "Worktree":
        """Check out `base`, a revision of `repository`, or `only` a folder of it, in the empty folder `root`.

        Raises `CallError` if that fails; nothing is left of it in the repository then.
        """
        git, common, commit = await source_of(repository, base)
        worktree = cls(root, repository, commit, common / "worktrees" / root.name)
        try:
            async with _add_locks.setdefault((asyncio.get_running_loop(), common), asyncio.Lock()):
                create = f"create a worktree of {repository}"
                add = ("worktree", "add", "--quiet", "--detach", "--no-checkout")
                await git.ask(*add, str(root), commit, to=create)
                if only:
                    (worktree.admin / "info").mkdir(exist_ok=True)
                    escaped = re.sub(r"([*?[\]\\!# ])", r"\\\1", only)
                    (worktree.admin / "info" / "sparse-checkout").write_text(f"/{escaped}/\n")
                inside = await _Git.of(root)  # other configuration may apply there: `includeIf "gitdir:…"`
                await inside.ask(*(_SPARSE if only else ()), "reset", "--hard", "--quiet", to=create)
            # The diff uses a copy of the index: in its own, the child can mark files as unchanged.
            with suppress(FileNotFoundError):  # the commit is empty
                await run_in_thread(partial(shutil.copyfile, worktree.admin / "index", worktree.admin / _INDEX))
        except BaseException:
            await run_in_thread(partial(remove_entry, worktree.admin))
            raise
        return worktree

    @property
    def diff_path(self) -> Path:
        """Where `write_diff` writes the diff: next to the worktree, where a confined child can't write."""
        return self.root.with_name(f"{self.root.name}.diff")

    async def write_diff(self, *, without: str | None = None) -> str:
        """Write what differs from `base`, with commits, binary files and new files, but no ignored ones and no caches.

        `without` is a folder that isn't looked at. Returns why the diff can't be applied; empty if it can.
        """
        try:
            self.diff_path.unlink(missing_ok=True)
            # Private like the worktree itself, which git knows nothing about.
            self.diff_path.touch(0o600, exist_ok=False)
            failure = await self._diff((f":(exclude,top,literal){without}",) if without else ())
            if failure:
                self.diff_path.write_text(f"There is no diff against {self.base}: {failure}\n")
            return failure
        except (OSError, CallError) as problem:
            _log.warning("%s: the diff can't be written: %s", self.root, problem)
            return f"the diff can't be written: {problem}"

    async def _diff(self, paths: Sequence[str]) -> str:
        """Write the diff, limited to what `paths` leave. Returns what went wrong, if anything."""
        # The configuration may have changed while the child worked.
        git = await _Git.of(self.root, "--git-dir", str(self.admin), "--work-tree", str(self.root))
        git = git.with_env(GIT_INDEX_FILE=str(self.admin / _INDEX))
        new = await git.run(*_NEW_FILES, *paths)
        if new.exit_code not in (0, 1):  # 1: some files can't be added, such as a repository without commits
            return _failure(new)
        written = await git.run(*_DIFF, f"--output={self.diff_path}", self.base, "--", *paths)
        if written.exit_code != 0:
            return _failure(written)
        size = self.diff_path.stat().st_size
        if size > MAX_DIFF_BYTES:
            return f"it has {size:,} bytes, over {MAX_DIFF_BYTES:,}"
        if not (self.repository / ".git").exists():
            return "its repository is bare: it has no checkout"
        return "" if size else "only files changed that git ignores, or caches"


def without_binary(diff: bytes) -> bytes:
    """A diff for readers: of binary files, it has the names."""
    return _BINARY.sub(b"Binary content\n", diff) if b"GIT binary patch" in diff else diff


def unregister(root: Path) -> None:
    """Remove the entry of the worktree in `root` from its repository, if both refer to each other. Raises `OSError`."""
    with suppress(ToolError):
        pointer = files.read(root, root / ".git", 4_096).text.rstrip("\n")
        admin = Path(pointer.removeprefix("gitdir: "))
        if admin.is_absolute() and files.read(admin, admin / "gitdir", 4_096).text.rstrip("\n") == str(root / ".git"):
            remove_entry(admin)


def remove_entry(admin: Path) -> None:
    """Remove a worktree's entry from its repository. Raises `OSError`.

    Git isn't used: it refuses an incomplete worktree, and `git worktree prune` would remove other entries too.
    """
    if admin.is_dir() and not admin.is_symlink():
        remove_tree(admin)


async def snapshot(repository: Path) -> str:
    """Commit what the checkout contains, with uncommitted changes and new files that aren't ignored. Returns the hash.

    The user's branches, index and files stay as they are. Git removes the commit in time once nothing uses it.

    Raises:
        CallError: The folder is no repository with a commit, git fails, or too much is uncommitted
            (`workspace_too_large`).
    """
    git = await _Git.of(repository)
    await git.common_folder()
    head = await git.commit("HEAD")
    index = repository / (await git.ask("rev-parse", "--git-path", "index")).strip()
    with tempfile.TemporaryDirectory(prefix="delegate-") as folder:
        copied = Path(folder) / "index"
        with suppress(FileNotFoundError):  # nothing has been added yet
            await run_in_thread(partial(shutil.copyfile, index, copied))
        # The repository's own setting for its working folder could name any folder of the user.
        git = git.with_env(GIT_INDEX_FILE=str(copied), GIT_WORK_TREE=str(repository), **_SNAPSHOT_AUTHOR)
        changed = await git.ask(*_UNCOMMITTED)
        await run_in_thread(partial(_refuse_too_much, repository, changed))
        if not changed:
            return head
        await git.ask("add", "--all", "--ignore-errors", "--", ".", or_code=1)
        tree = (await git.ask("write-tree")).strip()
        message = "Uncommitted changes, for a worktree of delegate"
        return (await git.ask("commit-tree", tree, "-p", head, "-m", message)).strip()


def _refuse_too_much(repository: Path, status: str) -> None:
    """Raise CallError if the files of this status can't be committed in a short time."""
    total = 0
    for entry in filter(None, status.split("\0")):
        with suppress(OSError):  # it is deleted
            total += os.lstat(repository / entry[3:]).st_size
    if len(status) >= _MAX_OUTPUT_BYTES or total > MAX_UNCOMMITTED_BYTES:
        message = f"too much is uncommitted in {repository}: over {MAX_UNCOMMITTED_BYTES / 1e6:g} MB, or many files"
        hint = "commit it, or let git ignore it"
        raise CallError("workspace_too_large", message, field="workspace", hint=hint)


# ------------------------------------------------------------------------------------------------------ merging


async def apply(diff: bytes, checkout: Path, *, undo: bool = False) -> str:
    """Apply a diff to the checkout that its worktree was made from, or take it back, all or nothing.

    Returns why nothing was changed; empty if everything was.
    """
    git, way = _Git(checkout, (), os.environ), ("--reverse",) if undo else ()  # with the user's filters
    try:
        done = await git.apply(diff, *way)
        if done.exit_code == 0:
            return ""
        if not undo and (await git.apply(diff, "--reverse", "--check")).exit_code == 0:
            return "these changes are there already"
        return _failure(done) if done.timed_out else done.stderr.strip() or "git failed"
    except CallError as error:
        return error.message
    except OSError as error:
        return f"{checkout}: {error.strerror}"


async def merge_diff(root: Path, diff: bytes) -> str:
    """Merge a diff into the worktree at `root`, by three ways. Returns what conflicts; empty if all of it is there."""
    done = await (await _Git.of(root)).apply(diff, "--3way")
    if done.exit_code == 0:
        return ""
    conflicts = ", ".join(_CONFLICT.findall(done.stderr))
    return f"it conflicts with what is there now in {conflicts}" if conflicts else _failure(done)


async def branch_commit(repository: Path, branch: str) -> str:
    """The commit of a branch. Raises `CallError` if there is none, or if it is checked out somewhere."""
    git = await _Git.of(repository)
    await git.common_folder()
    commit = await git.commit(f"refs/heads/{branch}")
    listed = await git.ask("worktree", "list", "--porcelain")
    if f"branch refs/heads/{branch}" in listed.splitlines():
        message = f"the branch {branch} is checked out"
        raise CallError("cannot_merge", message, field="onto", hint="merge into its checkout, without a branch")
    return commit


async def commit_files_of(repository: Path, files_of: str, parent: str, message: str) -> str:
    """A commit by the user of the files of another one. Returns its hash. Raises `CallError`."""
    git = await _Git.of(repository)
    return (await git.ask("commit-tree", f"{files_of}^{{tree}}", "-p", parent, "-m", message)).strip()


async def move_branch(repository: Path, branch: str, commit: str, *, expected: str) -> None:
    """Let a branch point to a commit, in one step. Raises `CallError` if it isn't at `expected` anymore."""
    await branch_commit(repository, branch)
    git = await _Git.of(repository)
    done = await git.run("update-ref", "-m", "delegate merge", f"refs/heads/{branch}", commit, expected)
    if done.exit_code != 0:
        message = f"the branch {branch} has other commits now: {_failure(done)}"
        raise CallError("cannot_merge", message, hint="nothing was changed")


async def diff_between(repository: Path, first: str, last: str, path: Path) -> None:
    """Write the diff of two commits to a new file. Raises `CallError` and OSError."""
    await run_in_thread(partial(path.touch, 0o600, exist_ok=False))
    await (await _Git.of(repository)).ask(*_DIFF, f"--output={path}", first, last, "--")


async def have_same_files(repository: Path, first: str, second: str) -> bool:
    """Whether two commits have the same files. Raises `CallError`."""
    asked = await (await _Git.of(repository)).ask("rev-parse", f"{first}^{{tree}}", f"{second}^{{tree}}")
    return len(set(asked.split())) == 1


# -------------------------------------------------------------------------------------------------- running git


@dataclass(frozen=True, slots=True)
class _Git:
    """Git in `folder`, with `options`. Make it with `of`."""

    folder: Path
    options: tuple[str, ...]
    env: Mapping[str, str]

    @classmethod
    async def of(cls, folder: Path, *options: str) -> "_Git":
        """Disables every filter that is configured now, since git has no setting that disables all of them."""
        git = cls(folder, options, {**command_environment(os.environ), **_QUIET})
        listed = await git.run("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        drivers = sorted({name.rpartition(".")[0] for name in listed.stdout.split("\0") if name})
        off = {"clean": "", "smudge": "", "process": "", "required": "false"}
        settings = [(f"{driver}.{key}", value) for driver in drivers for key, value in off.items()]
        keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(settings)}
        values = {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(settings)}
        return git.with_env(GIT_CONFIG_COUNT=str(len(settings)), **keys, **values)

    def with_env(self, **more: str) -> "_Git":
        """The same with more variables."""
        return replace(self, env={**self.env, **more})

    async def common_folder(self) -> Path:
        """The folder that all worktrees of a repository share: its `.git`, or the repository itself if it is bare."""
        asked = await self.run("rev-parse", "--git-common-dir", "--show-prefix")
        common, _, prefix = asked.stdout.partition("\n")
        if asked.exit_code != 0:
            message = f"workspace {self.folder} can't be used as a git repository: {_failure(asked)}"
            hint = "name the top folder of a git repository, or use mode copy (`--copy`) or shared"
            raise CallError("workspace_not_a_repository", message, field="workspace", hint=hint)
        if prefix.strip():
            top = self.folder.parents[prefix.strip().count("/") - 1]
            message = f"workspace {self.folder} is a folder inside the repository {top}"
            raise CallError("workspace_not_a_repository", message, field="workspace", hint="name the repository itself")
        return Path(os.path.realpath(self.folder / common))  # noqa: ASYNC240 - a few lstat calls

    async def commit(self, base: str) -> str:
        """The hash of a commit. Raises CallError if there is none."""
        asked = await self.run("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
        if asked.exit_code != 0:
            message = f"the repository {self.folder} has no commit {base}"
            hint = "commit something first" if base == "HEAD" else "name a branch, a tag or a commit"
            raise CallError("workspace_base_not_found", message, field="workspace", hint=hint)
        return asked.stdout.strip()

    async def ask(self, *args: str, or_code: int = 0, to: str = "") -> str:
        """What git prints. Raises CallError if it fails `to` do that, with any other code than `or_code`."""
        done = await self.run(*args)
        if done.exit_code not in (0, or_code):
            message = f"git can't {to or f'read the checkout {self.folder}'}: {_failure(done)}"
            raise CallError("workspace_git_failed", message, field="workspace")
        return done.stdout

    async def apply(self, diff: bytes, *options: str) -> ProcessResult:
        """Run `git apply` with a diff."""
        with tempfile.TemporaryDirectory(prefix="delegate-") as folder:
            path = Path(folder) / "diff"
            await run_in_thread(partial(path.write_bytes, diff))
            return await self.run("apply", "--whitespace=nowarn", *options, str(path))

    async def run(self, *args: str) -> ProcessResult:
        """Run it. Raises CallError if it isn't installed."""
        if (git := find_program("git")) is None:
            message, hint = "mode worktree needs git, which isn't installed", "install git, or use mode copy or shared"
            raise CallError("workspace_git_missing", message, field="workspace", hint=hint)
        return await run_process(
            (git, *_HARMLESS, *self.options, *args),
            cwd=self.folder,
            env=self.env,
            timeout_seconds=GIT_SECONDS,
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )


def _failure(finished: ProcessResult) -> str:
    if finished.timed_out:
        return f"git took longer than {GIT_SECONDS:g} s"
    return " ".join(finished.stderr.split())[-400:] or f"git exited with code {finished.exit_code}"
