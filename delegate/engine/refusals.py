"""Keeps what a judge refused, so that a child that only claims again can't wear the judge down.

A judge errs once in a while. A child that may present the same work until it errs gets everything verified. So a
criterion that was refused stays so until what it is about has changed: the words of the report, the files that it
means, the calls that can bring it about.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from delegate.judging.combine import combine, findings_of, weighted_score
from delegate.judging.proof.files import same_file
from delegate.judging.submission import result
from delegate.judging.versions import judge_version, reading_version, rubric_version
from delegate.ports import Tool
from delegate.types import (
    AnyCriterion,
    Artifact,
    ChildRun,
    CriterionReading,
    CriterionResult,
    JsonObject,
    Receipt,
    StatementPart,
    Task,
    Verdict,
)

_WORD = re.compile(r"(?<!\w)[-+]\d\w*|\w+")
"""A word of a report. The sign of a number belongs to it."""


class Refusals:
    """What judges refused of one task. `stored` are refusals of a process that was lost."""

    def __init__(self, task: Task, tools: Sequence[Tool], stored: Sequence[Mapping[str, Any]] = ()) -> None:
        self._task = task
        self._tools = {tool.name: tool for tool in tools}
        self._kept = [(str(one["about"]), CriterionResult.model_validate(one["result"])) for one in stored]
        """Each with a digest of what it is about."""

    def of(self, run: ChildRun) -> dict[str, CriterionResult]:
        """What was refused of the same work, by the criterion's id."""
        if run.status != "completed":
            return {}
        return {one.id: one for about, one in self._kept if about == self._about(one.reading, run)}

    def keep(self, results: Sequence[CriterionResult], run: ChildRun) -> bool:
        """Keep what a judge refuses of this work. Whether there is anything new."""
        before = self.of(run)
        new = [one for one in results if _is_refused(one) and one.id not in before]
        self._kept += [(self._about(one.reading, run), one) for one in new]
        return bool(new)

    def as_json(self) -> list[JsonObject]:
        """All of them, for another process."""
        return [{"about": about, "result": one.model_dump(mode="json")} for about, one in self._kept]

    # ------------------------------------------------------------------------------------- what is judged without them

    def left(self, kept: Mapping[str, CriterionResult]) -> Task | None:
        """The task without these criteria and what depends on them; None if nothing is left."""
        gone = {*kept, *self._dependents(kept)}
        left = [one for one in self._task.acceptance_criteria if one.id not in gone]
        if not left and self._task.output_schema is None:
            return None
        # What they name is still what was asked for.
        named = [one.describe() for one in self._task.acceptance_criteria if one.id in gone]
        context = "\n".join(filter(None, (self._task.context, *named)))
        return self._task.model_copy(update={"acceptance_criteria": tuple(left), "context": context})

    def added_to(self, verdict: Verdict | None, kept: Mapping[str, CriterionResult]) -> Verdict:
        """The verdict on what was left, with what was refused before. None: nothing was left."""
        judged = {one.id: one for one in verdict.criteria} if verdict else {}
        again = {id: one.model_copy(update={"reason": _still(one)}) for id, one in kept.items()}
        known = {**judged, **again, **self._dependents(kept)}
        results = tuple(known[one.id or ""] for one in self._task.criteria)
        if verdict is not None and all(one.outcome == "skipped" for one in judged.values()):
            return verdict.model_copy(update={"criteria": results})  # the work was refused as a whole
        combined = combine(results)
        if verdict is None:
            return Verdict(
                **combined._asdict(),
                criteria=results,
                rubric_version=rubric_version(self._task),
                judge_version=judge_version(),
                reading_version=reading_version(),
            )
        score, coverage = weighted_score(results)
        fields: JsonObject = {
            "criteria": results,
            "findings": (*verdict.findings, *findings_of(list(again.values()))),
            "score": score,
            "coverage": coverage,
            "rubric_version": rubric_version(self._task),
        }
        # What is `findings_only` fails nothing, and what else failed still counts.
        counts = any(not one.findings_only for one in kept.values())
        return verdict.model_copy(update={**fields, **(combined._asdict() if counts else {})})

    def _dependents(self, kept: Mapping[str, CriterionResult]) -> dict[str, CriterionResult]:
        """The results of the criteria that depend on these, which are skipped."""
        found: dict[str, CriterionResult] = {}
        while True:
            more = {
                one.id or "": _skipped(one, unmet[0])
                for one in self._task.acceptance_criteria
                if one.id not in found
                and one.id not in kept
                and (unmet := [id for id in one.depends_on if id in kept or id in found])
            }
            if not more:
                return found
            found |= more

    # ------------------------------------------------------------------------------------- what a criterion is about

    def _about(self, reading: CriterionReading | None, run: ChildRun) -> str:
        """A digest of what a criterion is about: the words of the report, files, calls. Without a reading, of all."""
        digest = hashlib.blake2b(digest_size=16)
        if reading is None:
            sources = [_words(run), *_files(run), *self._calls(run)]
        else:
            sources = [text for part in reading.parts for text in self._sources(part, run)]
        for text in sources:
            digest.update(f"{text}\0".encode("utf-8", "replace"))
        return digest.hexdigest()

    def _sources(self, part: StatementPart, run: ChildRun) -> Iterator[str]:
        """What can show one statement to be true, as texts that differ if that does."""
        if part.about == "report":
            yield _words(run)
        if part.about == "absence":
            yield from (*_files(run), *self._calls(run))
        elif part.files:
            yield from _files(run, lambda one: any(same_file(one.path, named) for named in part.files))
        elif part.about == "file" or (part.about == "deed" and self._may_change_files(part.tools)):
            yield from _files(run)
        if part.about == "deed":
            yield from self._calls(run, part.tools)

    def _may_change_files(self, names: Sequence[str]) -> bool:
        """Whether what these tools do may be looked for in files. Any may, if they aren't known."""
        effects = [tool.effects if (tool := self._tools.get(name)) else None for name in names]
        return not names or any(one is None or bool(one & {"files", "commands"}) for one in effects)

    def _calls(self, run: ChildRun, names: Sequence[str] = ()) -> list[str]:
        """The calls of these tools; without names, of those that may change anything."""

        def counts(one: Receipt) -> bool:
            tool = self._tools.get(one.tool)
            return one.tool in names if names else tool is None or not tool.read_only

        found = filter(counts, run.receipts)
        return sorted(f"{one.tool}\0{one.status}\0{one.args_sha256}\0{one.output_sha256}" for one in found)


def _is_refused(one: CriterionResult) -> bool:
    """Whether a judge looked and didn't find it met. Where only a second judge is missing, nobody refused anything."""
    if one.decided_by != "judge" or not one.examined:
        return False
    return one.outcome == "not_met" or (one.outcome == "cannot_tell" and one.code != "not_confident")


def _still(one: CriterionResult) -> str:
    parts = one.reading.parts if one.reading else ()
    named = sorted({f"`{path}`" for part in parts for path in part.files if part.about == "file"})
    about = f"({', '.join(named)}) " if named else ""
    again = f"it was refused before, and what it is about {about}hasn't changed since"
    return f"{one.reason.rstrip('. ')}; {again}" if one.reason else again


def _skipped(criterion: AnyCriterion, unmet: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", f"{unmet}, which it depends on, is not met")


def _words(run: ChildRun) -> str:
    return " ".join(_WORD.findall(run.output.casefold()))


def _files(run: ChildRun, is_meant: Callable[[Artifact], bool] = lambda one: True) -> list[str]:
    meant = filter(is_meant, run.artifacts)
    return [f"{one.path}\0{one.change}\0{one.bytes}\0{one.sha256}\0{one.link_to}" for one in meant]
