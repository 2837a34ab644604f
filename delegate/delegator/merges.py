"""Brings the changes of tasks into a checkout or onto a branch, after their checks have held again in the result."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from delegate._util.documents import replace_text
from delegate._util.fencing import one_line
from delegate._util.threads import run_in_thread
from delegate.budget.runs import RunContext
from delegate.contract import Arguments, readback
from delegate.judging import standalone
from delegate.judging.submission import Submission
from delegate.judging.verdict import Judging
from delegate.records.history import Records, task_of
from delegate.sandbox.workspace import worktree
from delegate.sandbox.workspace.folder import Folder
from delegate.types import LEVELS, AnyCriterion, ChildRun, JsonObject, Level, Task, Verdict, Workspace
from delegate.types.errors import CallError

KEPT_MERGES = 100
_CHECKED = ("shell", "file")
"""The kinds of criteria that code decides by the files. A merge changes nothing that the others are about."""


@dataclass(frozen=True, slots=True)
class Merge:
    """What was merged. `diff` is what changed, in the file that undoes it."""

    id: str
    checkout: str
    branch: str | None
    """None: into the working tree, uncommitted."""
    handles: tuple[str, ...]
    checked: tuple[str, ...]
    """The criteria that were checked again, each as `HANDLE c1`."""
    diff: str
    before: str
    """The commit of what there was, and of what there is now."""
    after: str
    state: Literal["merging", "merged", "undone"] = "merging"

    def __str__(self) -> str:
        """What became of it, for a person or a model."""
        where = f"the branch {self.branch} of {self.checkout}" if self.branch else self.checkout
        work = ", ".join(self.handles)
        if self.state == "undone":
            return f"merge {self.id} is undone: {where} is without {work}"
        checked = ", ".join(self.checked) or "nothing, since no criterion is a check of files"
        undo = f"to undo it: delegate merge --undo {self.id}"
        return f"the work of {work} is in {where} now\nchecked again there: {checked}\n{undo}"


@dataclass(eq=False, repr=False)
class Merges:
    """Merges the work of tasks, each verified in what it is merged into. It is `delegator.merges`."""

    _home: Path
    _judging: Judging
    _records: Records
    _context: RunContext

    async def merge(self, *handles: str, onto: str | None = None, min_level: Level | None = None) -> Merge:
        """Merge the changes of tasks in this order into the checkout that their worktrees were made from.

        Each is merged by three ways in a worktree that is thrown away, and there its `shell` and `file` criteria are
        checked again, in what the tasks before it made. Only if all of them hold, the checkout is changed: all of it
        in one step, without a commit. Its uncommitted changes stay, and are part of what is checked.

        Args:
            handles: The handles of tasks, each with a PASS.
            onto: A branch that gets a commit instead. It must not be checked out anywhere.
            min_level: The least level of a PASS. By default, any that is verified: `proven` or `seen`.

        Raises:
            CallError: Nothing was changed; the message says why.
        """
        records = [await self._passed(handle, min_level) for handle in dict.fromkeys(handles)]
        diffs = [await run_in_thread(partial(judged_diff, record)) for record in records]
        checkouts = sorted({str(record["task"]["workspace"]["path"]) for record in records})
        if len(checkouts) != 1:
            raise _refused(f"these tasks are of {', '.join(checkouts) or 'no project'}", "name tasks of one project")
        checkout = Path(checkouts[0])
        before = await worktree.branch_commit(checkout, onto) if onto else await worktree.snapshot(checkout)
        after, checked = before, list[str]()
        for record, diff in zip(records, diffs, strict=True):
            after, ids = await self._verified(record, diff, checkout, after)
            checked += ids
        if await worktree.have_same_files(checkout, before, after):
            raise _refused(f"these changes are in {checkout} already", "nothing was changed")
        id = f"{time.strftime('%Y%m%d%H%M%S')}-{secrets.token_hex(4)}"
        diff = self._home / "merges" / f"{id}.diff"
        await run_in_thread(partial(diff.parent.mkdir, mode=0o700, parents=True, exist_ok=True))
        if onto is not None:
            after = await worktree.commit_files_of(checkout, after, before, _message(records))
        await worktree.diff_between(checkout, before, after, diff)  # by which it can be undone
        done = tuple(record["handle"] for record in records)
        merge = Merge(id, str(checkout), onto, done, tuple(checked), str(diff), before, after)
        await run_in_thread(partial(self._keep, merge))
        await self._apply(merge)
        return await run_in_thread(partial(self._keep, replace(merge, state="merged")))

    async def merge_call(self, arguments: Arguments, *, may_read: Callable[[str], bool] | None = None) -> str:
        """Execute a call of `merge_delegation`, and return what was merged as text. Raises CallError.

        `may_read` gets the id of a task's run and decides whether this caller may merge its work.
        """
        handles, onto = readback.parse_merge(arguments)
        if may_read is not None and not all(may_read(readback.run_of(handle)) for handle in handles):
            raise readback.unknown_handle()
        return str(await self.merge(*handles, onto=onto))

    async def undo(self, id: str | None = None) -> Merge:
        """Take back a merge, or the latest one. What was changed since in other places stays.

        Raises:
            CallError: It can't be taken back, since the same lines were changed since. Nothing was changed.
        """
        merge = await run_in_thread(partial(self._latest, id))
        if merge.branch is not None:
            await worktree.move_branch(Path(merge.checkout), merge.branch, merge.before, expected=merge.after)
        elif problem := await _change(merge, undo=True):
            message = f"merge {merge.id} can't be undone in {merge.checkout}: {problem}"
            if merge.state == "merging":
                await run_in_thread(partial(self._keep, replace(merge, state="undone")))
                message = f"merge {merge.id} was interrupted, and isn't in {merge.checkout}"
            raise _refused(message, f"its diff is {merge.diff}")
        return await run_in_thread(partial(self._keep, replace(merge, state="undone")))

    async def _passed(self, handle: str, min_level: Level | None) -> JsonObject:
        """The record of a task whose verdict is good enough. Raises CallError."""
        if (record := await self._records.read(handle)) is None:
            message = f"there is no record {one_line(handle, 100)!r}"
            raise CallError("unknown_handle", message, hint="see `delegate runs`")
        try:
            verdict = Verdict.model_validate(record["result"] and record["result"]["verdict"])
        except ValidationError:
            raise _refused(f"{handle} has no verdict", "only a PASS can be merged") from None
        if verdict.verdict != "PASS":
            raise _refused(f"{handle} is a {verdict}", "only a PASS can be merged")
        level, least = verdict.level or "trusted", min_level or "seen"
        if LEVELS.index(level) > LEVELS.index(least):
            hint = f"look at it yourself, and merge it with the level {level}"
            raise _refused(f"{handle} is a PASS ({verdict.worth}), below {least.replace('_', ' ')}", hint)
        return record

    async def _verified(self, record: JsonObject, diff: bytes, checkout: Path, base: str) -> tuple[str, list[str]]:
        """Merge one task's diff into the commit `base`, and check it. Returns the commit, and what was checked.

        Raises CallError if it can't be merged or its criteria don't hold there.
        """
        handle, task = record["handle"], task_of(record)
        place = Workspace(mode="worktree", path=checkout, base=base)
        folder = await Folder.open(place, home=self._home / "workspaces")
        try:
            await folder.record_start()
            if conflict := await worktree.merge_diff(folder.root, diff):
                raise _refused(f"{handle} can't be merged into {checkout}: {conflict}", "nothing was changed")
            merged = await worktree.snapshot(folder.root)
            criteria = _checks_of(task)
            if criteria:
                # Its level was decided before: what it rests on doesn't change here.
                again = task.model_copy(update={"acceptance_criteria": criteria, "min_level": "trusted"})
                run = ChildRun.model_validate(record["run"])
                run = run.model_copy(update={"artifacts": await folder.artifacts()})
                # What a model asked for stays a model's, also where a person merges it.
                author = "model" if await self._records.author(handle) == "model" else "person"
                submission = Submission(again, run, folder, author, None, has_receipts=False)
                verdict = await standalone.judge(self._judging, submission, self._context, None)
                if verdict.verdict != "PASS":
                    failing = "; ".join(f"{one.id}: {one.reason or one.code}" for one in verdict.criteria if one.fails)
                    why = one_line(failing or verdict.reasoning, 1_000)
                    raise _refused(f"{handle} doesn't hold once it is merged: {why}", "nothing was changed")
            return merged, [f"{handle} {criterion.id}" for criterion in criteria]
        finally:
            await folder.remove()

    async def _apply(self, merge: Merge) -> None:
        """Change the checkout or the branch, in one step, if it is still what was verified. Raises CallError."""
        checkout = Path(merge.checkout)
        if merge.branch is not None:
            await worktree.move_branch(checkout, merge.branch, merge.after, expected=merge.before)
            return
        if not await worktree.have_same_files(checkout, await worktree.snapshot(checkout), merge.before):
            raise _refused(f"{checkout} has changed since the checks began", "nothing was merged: merge again")
        if problem := await _change(merge):
            raise _refused(f"nothing was changed in {checkout}: {problem}", "move what is in the way, and merge again")
        if not await worktree.have_same_files(checkout, await worktree.snapshot(checkout), merge.after):
            undone = not await _change(merge, undo=True)
            hint = "it was undone: merge again" if undone else f"undo it with `delegate merge --undo {merge.id}`"
            raise _refused(f"{checkout} changed during the merge, so it isn't what was checked", hint)

    def _keep(self, merge: Merge) -> Merge:
        path = Path(merge.diff).with_suffix(".json")
        replace_text(path, TypeAdapter(Merge).dump_json(merge, indent=1).decode())
        for old in sorted(path.parent.glob("*.json"))[:-KEPT_MERGES]:
            old.unlink(missing_ok=True)
            old.with_suffix(".diff").unlink(missing_ok=True)
        return merge

    def _latest(self, id: str | None) -> Merge:
        """The merge with this id, or the latest one that isn't undone. Raises CallError."""
        for path in sorted((self._home / "merges").glob("*.json"), reverse=True):
            try:
                merge = TypeAdapter(Merge).validate_json(path.read_bytes())
            except (OSError, ValueError, TypeError):  # damaged
                continue
            if merge.id == id or (id is None and merge.state != "undone"):
                if merge.state == "undone":
                    raise _refused(f"merge {id} is undone already", "there is nothing to do")
                return merge
        message = f"there is no merge {one_line(id, 50)}" if id else "there is no merge to undo"
        raise _refused(message, f"the latest {KEPT_MERGES} can be undone")


async def _change(merge: Merge, *, undo: bool = False) -> str:
    """Change the checkout, or change it back. Returns why nothing was changed."""
    diff = await run_in_thread(Path(merge.diff).read_bytes)
    return await worktree.apply(diff, Path(merge.checkout), undo=undo)


def judged_diff(record: JsonObject) -> bytes:
    """A task's diff, as it was judged. Raises CallError if there is none, or another one now."""
    handle: str = record["handle"]
    result: JsonObject = record["result"] or {}
    if not result.get("take_over"):
        why = result.get("no_take_over") or ("it changed nothing in a worktree" if result else "it hasn't ended")
        where = f"; its files are in {result['workspace']}" if result.get("workspace") else ""
        raise _refused(f"the changes of {handle} can't be taken over: {why}{where}", "")
    path = Path(f"{record['workspace']}.diff")
    judged = [one["sha256"] for one in record["run"]["artifacts"] if one["path"] == f"../{path.name}"]
    try:
        diff = path.read_bytes()
    except OSError as error:
        raise _refused(f"the diff of {handle} can't be read: {path}: {error.strerror}", "") from None
    if sha256(diff).hexdigest() not in judged:
        raise _refused(f"the diff of {handle} was changed after its verdict: {path}", "")
    return diff


def _checks_of(task: Task) -> tuple[AnyCriterion, ...]:
    """The criteria that code decides by the files, without what they depend on otherwise."""
    checks = [criterion for criterion in task.criteria if criterion.kind in _CHECKED]
    ids = {criterion.id for criterion in checks}
    return tuple(
        criterion.model_copy(update={"depends_on": tuple(id for id in criterion.depends_on if id in ids)})
        for criterion in checks
    )


def _message(records: Sequence[JsonObject]) -> str:
    goals = [f"{one_line(str(record['task']['goal']), 60)} ({record['handle']})" for record in records]
    return goals[0] if len(goals) == 1 else "\n".join((f"The work of {len(goals)} tasks", "", *goals))


def _refused(message: str, hint: str) -> CallError:
    return CallError("cannot_merge", message, hint=hint or None)
