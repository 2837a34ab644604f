"""What a criterion in words can be about, which decides where the judge's quote must come from.

* `report`: what the child's text says. The quote comes from the report.
* `file`: the content or existence of files. The quote comes from those files, or a check on them.
* `deed`: an action or a state outside the report. The quote comes from the receipt of a call that did it, or a check.
* `absence`: that something was not done. No quote can show that; a check or a `receipt` criterion can.

`about` on the criterion says it; otherwise `statements.py` reads it from its words.
"""

from dataclasses import dataclass
from typing import Literal

from delegate.types import AnyCriterion, QuestionCriterion

SubjectKind = Literal["report", "file", "deed", "absence"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a criterion is about. `paths` are the named files; empty means any file that the child left."""

    kind: SubjectKind
    paths: tuple[str, ...] = ()
    lookup: bool = False
    """For a deed: whether it is a look-up itself ("three sources were consulted"), which a look-up's receipt shows."""
    noun: str = ""
    """For a report: what the criterion calls it, such as "summary"; empty if it only says what a text contains."""

    def __str__(self) -> str:
        return f"file: {', '.join(self.paths)}" if self.paths else "files" if self.kind == "file" else self.kind


def statement_of(criterion: AnyCriterion) -> str:
    """The criterion's own words: of a question, without its threshold."""
    return criterion.question if isinstance(criterion, QuestionCriterion) else criterion.describe()
