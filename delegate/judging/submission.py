"""Defines `Submission`, a finished run to be judged, and creates the results of its criteria."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delegate.models.catalog import Model
from delegate.sandbox.commands.commands import Approve
from delegate.sandbox.workspace.folder import Folder
from delegate.types import (
    AnyCriterion,
    Author,
    ChildRun,
    Citation,
    CriterionOutcome,
    CriterionReading,
    CriterionResult,
    DecidedBy,
    PartResult,
    Task,
    Tier,
)
from delegate.types.codes import VerdictCode
from delegate.types.ports import Tool

if TYPE_CHECKING:
    from delegate.judging.checks.before import ChecksBefore


def asked(goal: str, messages: Sequence[str]) -> str:
    """A goal, with the messages that the parent sent later."""
    told = "Asked for later, as a part of the goal (it says what is wanted, and shows nothing of the work):\n"
    return "\n\n".join([goal, *(told + text for text in messages if text)])


@dataclass(frozen=True, slots=True)
class Submission:
    """What was asked, what the child did, and where its files are."""

    task: Task
    run: ChildRun
    folder: Folder | None
    """None if there are no files to check."""
    author: Author
    worker: Model | None
    """The catalog entry of the model that did the work; None if a host's own agent did it."""
    ceiling: Tier = "deep"
    """No judge above this tier, or above the worker's, is asked."""
    by_child: bool = True
    """Whether a child worked in `folder`. Its files are then untrusted: checks of them need a sandbox."""
    has_receipts: bool = True
    """Whether every tool call was recorded. If so, a call without a receipt wasn't made."""
    has_some_receipts: bool = False
    """Whether those that are there are the runtime's, though not every tool call was recorded."""
    has_report: bool = True
    """Whether the worker wrote a report. Without one, the files and the receipts are all there is to judge."""
    said: str = ""
    """All that was said in the worker's conversation with a user, if it is known. It shows what the user was told."""
    tools: tuple[Tool, ...] | None = None
    """The tools that the child had; None if they aren't known."""
    known_tools: frozenset[str] = frozenset()
    """The names of tools that there were for the child, whether or not it was given them. Others may exist."""
    probe_tools: tuple[Tool, ...] = ()
    """The tools for `probe` criteria. Those that aren't read-only are never called."""
    state_tools: tuple[Tool, ...] = ()
    """The tools with which a judge may look how things are now. Those that change anything are never called."""
    checks_before: "ChecksBefore | None" = None
    """Which shell checks succeeded before the child began; None if they weren't run then."""
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a probe or a look, so that tools are called one at a time."""
    approve: Approve | None = None
    """Asks a person about a check's command that nothing would confine; None if no person can be asked."""
    messages: tuple[str, ...] = ()
    """What the parent told the child while it worked, and the child has read."""

    @property
    def asked(self) -> str:
        """The goal as judges read it, with what the parent asked for later. Neither is evidence."""
        return asked(self.task.goal, self.messages)

    @property
    def why_no_receipts(self) -> str:
        """Why no criterion about tool calls can be decided, if `has_receipts` is false."""
        if not self.by_child:
            if self.run.receipts:
                return "the tool calls are what the worker says: it could have written their record"
            return "no tool calls were recorded for this work: no receipts were given"
        if self.has_some_receipts:
            return "the child has tools of its own besides those on record, so what isn't there proves nothing"
        return (
            "the child's runner doesn't promise a complete record of its tool calls, so the receipts prove nothing "
            "(a runner that records every call says so with `records_tools=True`)"
        )


def result(
    criterion: AnyCriterion,
    outcome: CriterionOutcome,
    decided_by: DecidedBy,
    code: VerdictCode,
    reason: str = "",
    *,
    evidence: str | None = None,
    source: str | None = None,
    score: float | None = None,
    scores: Mapping[str, float] | None = None,
    reading: CriterionReading | None = None,
    parts: Sequence[PartResult] = (),
    citations: Sequence[Citation] = (),
) -> CriterionResult:
    """The result of one criterion; its `id`, text and kind are copied from the criterion."""
    return CriterionResult(
        id=criterion.id or "",
        text=criterion.describe(),
        kind=criterion.kind,
        outcome=outcome,
        decided_by=decided_by,
        code=code,
        reason=reason,
        evidence=evidence,
        source=source,
        scores=dict(scores or {}),
        reading=reading,
        parts=tuple(parts),
        citations=tuple(citations),
        score=score,
        weight=criterion.weight,
        findings_only=criterion.findings_only,
    )
