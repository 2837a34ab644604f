"""One finished run that waits for its verdict."""

from dataclasses import dataclass, field
from typing import Literal

from delegate._util.redaction import Redactor
from delegate.models.catalog import Model
from delegate.sandbox.workspace import Folder
from delegate.types import AnyCriterion, ChildRun, CriterionOutcome, CriterionResult, DecidedBy, Task, Tier

Author = Literal["model", "person"]
"""Who wrote the task: commands that a model wrote obey the `commands` setting."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What was asked, what the child did, and where its files are."""

    task: Task
    run: ChildRun
    folder: Folder | None
    """None when there are no files to look at."""
    author: Author
    worker: Model | None
    """The catalog's entry of the model that did the work; None when a host's own agent did."""
    ceiling: Tier = "deep"
    """No judge above this tier is asked, nor above the worker's."""
    has_receipts: bool = True
    """Whether tool calls were recorded: where they were, the absence of one says that it wasn't made."""
    redactor: Redactor = field(default_factory=Redactor)
    """Keeps secrets out of what a judge sees, and so out of what it quotes. The `run` comes without them."""


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
) -> CriterionResult:
    """The result of one criterion; `id`, text and kind come from the criterion itself."""
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
        score=score,
        weight=criterion.weight,
        findings_only=criterion.findings_only,
    )
