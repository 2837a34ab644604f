"""Defines `Submission`, a finished run to be judged, and creates the results of its criteria."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from delegate._util.redaction import Redactor
from delegate.judging.effects import is_named_like_a_lookup
from delegate.models.catalog import Model
from delegate.ports import Tool
from delegate.sandbox.commands import Approve
from delegate.sandbox.workspace import Folder
from delegate.types import AnyCriterion, ChildRun, CriterionOutcome, CriterionResult, DecidedBy, Task, Tier

Author = Literal["model", "person"]
"""Who wrote the task: the `commands` setting applies to commands that a model wrote."""


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
    has_report: bool = True
    """Whether the worker wrote a report. Without one, the files and the receipts are all there is to judge."""
    said: str = ""
    """All that was said in the worker's conversation, if it is known: its own word, which proves no deed."""
    tools: tuple[Tool, ...] | None = None
    """The tools that the child had; None if they aren't known."""
    probe_tools: tuple[Tool, ...] = ()
    """The tools for `probe` criteria. Those that aren't read-only are never called."""
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a probe, so that tools are called one at a time."""
    approve: Approve | None = None
    """Asks a person about a check's command that nothing would confine; None if nobody is there."""
    redactor: Redactor = field(default_factory=Redactor)
    """Removes secrets from what a judge sees, and so from what it quotes. `run` is already redacted."""

    def only_looks_up(self, tool: str) -> bool:
        """Whether a tool changes nothing: it is marked so, or its name says so, as in `get_weather`."""
        known = next((one for one in self.tools or () if one.name == tool), None)
        return (known is not None and known.read_only) or is_named_like_a_lookup(tool)

    @property
    def why_no_receipts(self) -> str:
        """Why no criterion about tool calls can be decided, if `has_receipts` is false."""
        if not self.by_child:
            return "no tool calls were recorded for this work: no receipts were given"
        return (
            "the child's runner doesn't promise a complete record of its tool calls, so the receipts prove nothing "
            "(a runner that records every call says so with `records_tools=True`)"
        )

    @property
    def can_act(self) -> bool | None:
        """Whether the child had a tool that can change anything; None if its tools aren't known."""
        if self.tools is None:
            return None
        return not all(tool.read_only or is_named_like_a_lookup(tool.name) for tool in self.tools)


def result(
    criterion: AnyCriterion,
    outcome: CriterionOutcome,
    decided_by: DecidedBy,
    code: str,
    reason: str = "",
    *,
    evidence: str | None = None,
    source: str | None = None,
    score: float | None = None,
    about: str | None = None,
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
        about=about,
        score=score,
        weight=criterion.weight,
        findings_only=criterion.findings_only,
    )
