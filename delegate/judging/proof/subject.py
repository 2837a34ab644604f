"""What a proof is about: one part of a criterion, and all that there is about the work."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from delegate.judging.judge.evidence import Evidence
from delegate.judging.proof.calls import Calls
from delegate.judging.proof.files import same_file
from delegate.judging.proof.literals import literals_in
from delegate.judging.submission import Submission
from delegate.types import ReadBy, StatementPart


@dataclass(frozen=True)
class Subject:
    """One part of a criterion about one submission."""

    part: StatementPart
    by: ReadBy
    submission: Submission
    evidence: Evidence
    calls: Calls

    def is_source(self, source: str) -> bool:
        kind, _, path = source.partition(":")
        return kind in ("artifact", "file") and self.is_meant(path)

    def is_meant(self, path: str) -> bool:
        folder = self.submission.folder
        if folder is not None and folder.is_given(path):  # it is another child's work
            return False
        return not self.part.files or any(same_file(path, name) for name in self.part.files)

    @cached_property
    def names(self) -> Sequence[str]:
        """The literals that a call must contain; where no model told them, those that code can tell."""
        is_told = self.is_read and (self.part.names or self.part.tools)
        return self.part.names if is_told else literals_in(self.part.text)

    @property
    def is_read(self) -> bool:
        return self.by in ("model", "stored")
