"""Decides absences in code: that files were not changed, and that something was not called.

A violation that is found, by its names, decides. That none is found decides only where everything is on record: the
list of changes of a child's workspace always is complete, the list of calls where the runtime records them. A command
may have done more than its record says, and so may a tool whose effect isn't known.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from delegate.judging.proof.calls import Calls
from delegate.judging.proof.files import same_file
from delegate.judging.proof.literals import missing
from delegate.judging.proof.values import leaves
from delegate.judging.submission import Submission
from delegate.types import PartResult, ReadBy, Receipt, StatementPart
from delegate.types.codes import WorkCode


def check(part: StatementPart, by: ReadBy, submission: Submission, calls: Calls) -> PartResult | None:
    """What the records say about an absence; None if a judge has to decide, or the part is about something else."""
    if part.about != "absence" or by == "nobody":
        return None
    if not (part.files or part.tools):
        only_looked = all(calls.effect(receipt) == "reads" for receipt in calls.receipts)
        if submission.run.artifacts or not only_looked or _general_gap(submission, calls):
            return None
        return _decided(part, "met", "nothing at all was done or changed")
    barred = [glob for glob in part.files if not glob.startswith("!")]
    free = [glob[1:] for glob in part.files if glob.startswith("!")]
    for artifact in submission.run.artifacts if _knows_changes(submission) else ():
        if _is_covered(artifact.path, barred) and not _is_covered(artifact.path, free):
            return _decided(part, "not_met", f"{artifact.path} was changed", "artifacts")
    suspects = _suspects(part, calls)
    for receipt in suspects if part.names and not part.allowed else ():
        # Without a name in its arguments, a call may be meant or not: "no adjustment of over 20 %", "nothing in Lyon".
        if not missing(part.names, "\n".join(leaves(receipt.args))):
            return _decided(part, "not_met", f"{receipt.tool} was called", f"receipt:{receipt.n}")
    if suspects or _gap(part, submission, calls):
        return None
    reason = "the complete record has nothing of the kind: no such tool call, and no such file was changed"
    return _decided(part, "met", reason)


def _decided(part: StatementPart, outcome: Literal["met", "not_met"], reason: str, source: str = "") -> PartResult:
    return PartResult(text=part.text, outcome=outcome, code=outcome, reason=reason, source=source or None)


def worth(part: StatementPart, by: ReadBy, submission: Submission, calls: Calls) -> WorkCode:
    """What a judge's word is worth on an absence that code can't decide: `met`, or the code of an unverified one."""
    if by == "nobody":
        return "not_read"
    if not (part.tools or part.files):  # about anything at all: the judge sees every call and every change
        return _general_gap(submission, calls) or "met"
    return _gap(part, submission, calls) or ("incomplete_record" if _suspects(part, calls) else "met")


def _suspects(part: StatementPart, calls: Calls) -> list[Receipt]:
    """Calls that could violate it: that weren't refused, with all names, and with nothing that is allowed."""
    return [
        receipt
        for receipt in calls.not_refused
        if receipt.tool in part.tools
        and calls.effect(receipt) != "commands"
        and calls.contains(receipt, part.names)
        and not any(calls.allows(receipt, name) for name in part.allowed)
    ]


def _gap(part: StatementPart, submission: Submission, calls: Calls) -> WorkCode | None:
    """Why the record may lack something, as a code; None if it lacks nothing."""
    if part.files and not _knows_changes(submission):
        return "incomplete_record"
    if not part.tools:
        return None
    if not submission.has_receipts:
        return "incomplete_record"
    commands = [receipt for receipt in calls.receipts if calls.effect(receipt) == "commands"]
    may_write = submission.run.artifacts and any(calls.effects.get(tool) == "files" for tool in part.tools)
    if commands and (may_write or any(map(partial(_could_reach_out, submission), commands))):
        return "own_commands"
    return "unknown_effect" if any(calls.effect(receipt) is None for receipt in calls.receipts) else None


def _general_gap(submission: Submission, calls: Calls) -> WorkCode | None:
    """Why something may have been done or changed that isn't on record, as a code; None if all is."""
    if not submission.has_receipts or (submission.folder is not None and not submission.by_child):
        return "incomplete_record"
    commands = (receipt for receipt in calls.receipts if calls.effect(receipt) == "commands")
    return "own_commands" if any(map(partial(_could_reach_out, submission), commands)) else None


def _could_reach_out(submission: Submission, receipt: Receipt) -> bool:
    """Whether a command could have done more than change files of the workspace, whose changes are on record."""
    tool = next((candidate for candidate in submission.tools or () if candidate.name == receipt.tool), None)
    is_confined = receipt.sandbox is not None and receipt.sandbox != "process"
    return not is_confined or tool is None or tool.effects is None or bool(tool.effects & {"network", "delegation"})


def _knows_changes(submission: Submission) -> bool:
    """Whether the list of changes is complete: that of a child's workspace is, that of existing work isn't known."""
    return submission.folder is not None and submission.by_child


def _is_covered(path: str, globs: Sequence[str]) -> bool:
    return any(glob in ("**", "*", ".", "**/*") or same_file(path, glob) for glob in globs)
