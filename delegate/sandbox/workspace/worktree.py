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
from dataclasses import dataclass
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

ADD_SECONDS = 120.0
DIFF_SECONDS = 60.0
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
        env = await _environment(repository)
        common = await _common_folder(repository, env)
        commit = await _commit(repository, base, env)
        worktree = cls(root, repository, commit, common / "worktrees" / root.name)
        try:
            async with _add_locks.setdefault((asyncio.get_running_loop(), common), asyncio.Lock()):
                args = ("worktree", "add", "--quiet", "--detach", "--no-checkout", str(root), commit)
                added = await _git(args, repository, env, ADD_SECONDS)
                if added.exit_code == 0:  # other configuration may apply there: `includeIf "gitdir:…"`
                    env = await _environment(root)
                    if only:
                        (worktree.admin / "info").mkdir(exist_ok=True)
                        escaped = re.sub(r"([*?[\]\\!# ])", r"\\\1", only)
                        (worktree.admin / "info" / "sparse-checkout").write_text(f"/{escaped}/\n")
                    reset = (*(_SPARSE if only else ()), "reset", "--hard", "--quiet")
                    added = await _git(reset, root, env, ADD_SECONDS)
            if added.exit_code != 0:
                message = f"git can't create a worktree of {repository}: {_failure(added, ADD_SECONDS)}"
                raise CallError("workspace_git_failed", message, field="workspace")
            # The diff uses a copy of the index: in its own, the child can mark files as unchanged.
            with suppress(FileNotFoundError):  # the commit is empty
                copy = partial(shutil.copyfile, worktree.admin / "index", worktree.admin / _INDEX)
                await run_in_thread(copy)
        except BaseException:
            await run_in_thread(worktree.unregister)
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
        folders = ("--git-dir", str(self.admin), "--work-tree", str(self.root))
        # The configuration may have changed while the child worked.
        env = {**await _environment(self.root, *folders), "GIT_INDEX_FILE": str(self.admin / _INDEX)}
        new = await _git((*folders, *_NEW_FILES, *paths), self.root, env, DIFF_SECONDS)
        if new.exit_code not in (0, 1):  # 1: some files can't be added, such as a repository without commits
            return _failure(new, DIFF_SECONDS)
        args = (*folders, *_DIFF, f"--output={self.diff_path}", self.base, "--", *paths)
        written = await _git(args, self.root, env, DIFF_SECONDS)
        if written.exit_code != 0:
            return _failure(written, DIFF_SECONDS)
        size = self.diff_path.stat().st_size
        if size > MAX_DIFF_BYTES:
            return f"it has {size:,} bytes, over {MAX_DIFF_BYTES:,}"
        if not (self.repository / ".git").exists():
            return "its repository is bare: it has no checkout"
        return "" if size else "only files changed that git ignores, or caches"

    def unregister(self) -> None:
        """Remove the worktree's entry from the repository. Raises `OSError`.

        Git isn't used: it refuses an incomplete worktree, and `git worktree prune` would remove other entries too.
        """
        _remove_entry(self.admin)


def without_binary(diff: bytes) -> bytes:
    """A diff for readers: of binary files, it has the names."""
    return _BINARY.sub(b"Binary content\n", diff) if b"GIT binary patch" in diff else diff


def unregister(root: Path) -> None:
    """Remove the entry of the worktree in `root` from its repository, if both refer to each other. Raises `OSError`."""
    with suppress(ToolError):
        pointer = files.read(root, root / ".git", 4_096).text.rstrip("\n")
        admin = Path(pointer.removeprefix("gitdir: "))
        if admin.is_absolute() and files.read(admin, admin / "gitdir", 4_096).text.rstrip("\n") == str(root / ".git"):
            _remove_entry(admin)


def _remove_entry(admin: Path) -> None:
    if admin.is_dir() and not admin.is_symlink():
        remove_tree(admin)


async def snapshot(repository: Path) -> str:
    """Commit what the checkout contains, with uncommitted changes and new files that aren't ignored. Returns the hash.

    The user's branches, index and files stay as they are. Git removes the commit in time once nothing uses it.

    Raises:
        CallError: The folder is no repository with a commit, git fails, or too much is uncommitted
            (`workspace_too_large`).
    """
    env = await _environment(repository)
    await _common_folder(repository, env)
    head = await _commit(repository, "HEAD", env)
    index = repository / (await _asked(("rev-parse", "--git-path", "index"), repository, env)).strip()
    with tempfile.TemporaryDirectory(prefix="delegate-") as folder:
        copied = Path(folder) / "index"
        with suppress(FileNotFoundError):  # nothing has been added yet
            await run_in_thread(partial(shutil.copyfile, index, copied))
        # The repository's own setting for its working folder could name any folder of the user.
        env = {**env, **_SNAPSHOT_AUTHOR, "GIT_INDEX_FILE": str(copied), "GIT_WORK_TREE": str(repository)}
        changed = await _asked(_UNCOMMITTED, repository, env)
        await run_in_thread(partial(_refuse_too_much, repository, changed))
        if not changed:
            return head
        await _asked(("add", "--all", "--ignore-errors", "--", "."), repository, env, or_code=1)
        tree = (await _asked(("write-tree",), repository, env)).strip()
        commit = ("commit-tree", tree, "-p", head, "-m", "Uncommitted changes, for a worktree of delegate")
        return (await _asked(commit, repository, env)).strip()


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


async def merge_diff(root: Path, diff: bytes) -> str:
    """Merge a diff into the worktree at `root`, by three ways. Returns what conflicts; empty if all of it is there."""
    env = await _environment(root)
    with tempfile.TemporaryDirectory(prefix="delegate-") as folder:
        path = Path(folder) / "diff"
        await run_in_thread(partial(path.write_bytes, diff))
        done = await _git(("apply", "--3way", "--whitespace=nowarn", str(path)), root, env, ADD_SECONDS)
    if done.exit_code == 0:
        return ""
    conflicts = _CONFLICT.findall(done.stderr)
    return (
        f"it conflicts with what is there now in {', '.join(conflicts)}" if conflicts else _failure(done, ADD_SECONDS)
    )


async def branch_commit(repository: Path, branch: str) -> str:
    """The commit of a branch. Raises `CallError` if there is none, or if it is checked out somewhere."""
    env = await _environment(repository)
    await _common_folder(repository, env)
    commit = await _commit(repository, f"refs/heads/{branch}", env)
    listed = await _asked(("worktree", "list", "--porcelain"), repository, env)
    if f"branch refs/heads/{branch}" in listed.splitlines():
        message = f"the branch {branch} is checked out"
        raise CallError("cannot_merge", message, field="onto", hint="merge into its checkout, without a branch")
    return commit


async def commit_files_of(repository: Path, files_of: str, parent: str, message: str) -> str:
    """A commit by the user of the files of another one. Returns its hash. Raises `CallError`."""
    args = ("commit-tree", f"{files_of}^{{tree}}", "-p", parent, "-m", message)
    return (await _asked(args, repository, await _environment(repository))).strip()


async def move_branch(repository: Path, branch: str, commit: str, *, expected: str) -> None:
    """Let a branch point to a commit, in one step. Raises `CallError` if it isn't at `expected` anymore."""
    await branch_commit(repository, branch)
    args = ("update-ref", "-m", "delegate merge", f"refs/heads/{branch}", commit, expected)
    done = await _git(args, repository, await _environment(repository), ADD_SECONDS)
    if done.exit_code != 0:
        message = f"the branch {branch} has other commits now: {_failure(done, ADD_SECONDS)}"
        raise CallError("cannot_merge", message, hint="nothing was changed")


async def diff_between(repository: Path, first: str, last: str, path: Path) -> None:
    """Write the diff of two commits to a new file. Raises `CallError` and OSError."""
    await run_in_thread(partial(path.touch, 0o600, exist_ok=False))
    await _asked((*_DIFF, f"--output={path}", first, last, "--"), repository, await _environment(repository))


async def have_same_files(repository: Path, first: str, second: str) -> bool:
    """Whether two commits have the same files. Raises `CallError`."""
    asked = ("rev-parse", f"{first}^{{tree}}", f"{second}^{{tree}}")
    return len(set((await _asked(asked, repository, await _environment(repository))).split())) == 1


# -------------------------------------------------------------------------------------------------- running git


async def _environment(repository: Path, *options: str) -> Mapping[str, str]:
    """The environment for git, run in `repository` with `options`, with every filter disabled that is configured now.

    Git has no setting that disables all of them.
    """
    env = {**command_environment(os.environ), **_QUIET}
    asked = (*options, "config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    listed = await _git(asked, repository, env, ADD_SECONDS)
    drivers = sorted({name.rpartition(".")[0] for name in listed.stdout.split("\0") if name})
    off = {"clean": "", "smudge": "", "process": "", "required": "false"}
    settings = [(f"{driver}.{key}", value) for driver in drivers for key, value in off.items()]
    env["GIT_CONFIG_COUNT"] = str(len(settings))
    for n, (key, value) in enumerate(settings):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return env


async def _common_folder(repository: Path, env: Mapping[str, str]) -> Path:
    """The folder that all worktrees of a repository share: its `.git`, or the repository itself if it is bare."""
    asked = await _git(("rev-parse", "--git-common-dir", "--show-prefix"), repository, env, ADD_SECONDS)
    common, _, prefix = asked.stdout.partition("\n")
    if asked.exit_code != 0:
        raise CallError(
            "workspace_not_a_repository",
            f"workspace {repository} can't be used as a git repository: {_failure(asked, ADD_SECONDS)}",
            field="workspace",
            hint="name the top folder of a git repository, or use mode copy or shared",
        )
    if prefix.strip():
        top = repository.parents[prefix.strip().count("/") - 1]
        message = f"workspace {repository} is a folder inside the repository {top}"
        raise CallError("workspace_not_a_repository", message, field="workspace", hint="name the repository itself")
    return Path(os.path.realpath(repository / common))  # noqa: ASYNC240 - a few lstat calls


async def _commit(repository: Path, base: str, env: Mapping[str, str]) -> str:
    asked = await _git(("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"), repository, env, ADD_SECONDS)
    if asked.exit_code != 0:
        message = f"the repository {repository} has no commit {base}"
        hint = "commit something first" if base == "HEAD" else "name a branch, a tag or a commit"
        raise CallError("workspace_base_not_found", message, field="workspace", hint=hint)
    return asked.stdout.strip()


async def _asked(args: Sequence[str], repository: Path, env: Mapping[str, str], *, or_code: int = 0) -> str:
    """What git prints. Raises CallError if it fails, with any other code than `or_code`."""
    done = await _git(args, repository, env, ADD_SECONDS)
    if done.exit_code not in (0, or_code):
        message = f"git can't read the checkout {repository}: {_failure(done, ADD_SECONDS)}"
        raise CallError("workspace_git_failed", message, field="workspace")
    return done.stdout


async def _git(args: Sequence[str], cwd: Path, env: Mapping[str, str], seconds: float) -> ProcessResult:
    git = find_program("git")
    if git is None:
        hint = "install git, or use mode copy or shared"
        raise CallError("workspace_git_missing", "mode worktree needs git, which isn't installed", field="workspace",
                        hint=hint)  # fmt: skip
    return await run_process(
        (git, *_HARMLESS, *args), cwd=cwd, env=env, timeout_seconds=seconds, max_output_bytes=_MAX_OUTPUT_BYTES
    )


def _failure(finished: ProcessResult, seconds: float) -> str:
    if finished.timed_out:
        return f"git took longer than {seconds:g} s"
    return " ".join(finished.stderr.split())[-400:] or f"git exited with code {finished.exit_code}"
