"""Classifies what a criterion in words is about, which decides where the judge's quote must come from.

* `report`: what the child's text says. The quote comes from the report.
* `file`: the content or existence of files. The quote comes from those files, or a check on them.
* `deed`: an action or a state outside the report. The quote comes from the receipt of a call that did it, or a check.
* `absence`: that something was not done. No quote can show that; a check or a `receipt` criterion can.

The classification reads English by fixed patterns, so that the same criterion is always read the same way. Whatever the
patterns don't recognize, other languages included, counts as a deed: a criterion that is read too strictly fails with a
hint, while one that is read too leniently would pass on the child's word. `about` on the criterion overrides all this.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from delegate.types import AboutFile, AnyCriterion, QuestionCriterion, TextCriterion

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


def subject_of(criterion: AnyCriterion, files: Collection[str] = (), *, can_act: bool | None = None) -> Subject:
    """What the criterion is about: as it says itself, else as its statement reads.

    `files` are the paths of the child's artifacts. `can_act` is whether the child had a tool that can change anything;
    None if that isn't known.
    """
    about = criterion.about if isinstance(criterion, (TextCriterion, QuestionCriterion)) else None
    if isinstance(about, AboutFile):
        return Subject("file", (about.file,))
    if about is not None:
        return Subject(about)
    from delegate.judging.judge.statements import read_statement

    statement = criterion.question if isinstance(criterion, QuestionCriterion) else criterion.describe()
    return read_statement(statement, frozenset(files), can_act)
