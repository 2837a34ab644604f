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
from delegate.types import (
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
from delegate.types.ports import Tool

_WORD = re.compile(r"(?<!\w)[-+]\d\w*|\w+")
"""A word of a report. The sign of a number belongs to it."""


class Refusals:
    """What judges refused of one task. `stored` are refusals of a process that was lost."""

    def __init__(self, task: Task, tools: Sequence[Tool], stored: Sequence[Mapping[str, Any]] = ()) -> None:
        self._task = task
        self._tools = {tool.name: tool for tool in tools}
        self._refusals = [(str(entry["about"]), CriterionResult.model_validate(entry["result"])) for entry in stored]
        """Each with a digest of what it is about."""

    def of(self, run: ChildRun) -> dict[str, CriterionResult]:
        """What was refused of the same work, by the criterion's id."""
        if run.status != "completed":
            return {}
        return {refusal.id: refusal for about, refusal in self._refusals if about == self._about(refusal.reading, run)}

    def keep(self, results: Sequence[CriterionResult], run: ChildRun) -> bool:
        """Keep what a judge refuses of this work. Whether there is anything new."""
        before = self.of(run)
        new = [criterion for criterion in results if _is_refused(criterion) and criterion.id not in before]
        self._refusals += [(self._about(criterion.reading, run), criterion) for criterion in new]
        return bool(new)

    def as_json(self) -> list[JsonObject]:
        return [{"about": about, "result": refusal.model_dump(mode="json")} for about, refusal in self._refusals]

    def task_without(self, refusals: Mapping[str, CriterionResult]) -> Task | None:
        """The task without these criteria and what depends on them; None if nothing is left."""
        ids = {*refusals, *self._dependents(refusals)}
        criteria = [criterion for criterion in self._task.acceptance_criteria if criterion.id not in ids]
        if not criteria and self._task.output_schema is None:
            return None
        # What they name is still what was asked for.
        texts = [criterion.describe() for criterion in self._task.acceptance_criteria if criterion.id in ids]
        context = "\n".join(filter(None, (self._task.context, *texts)))
        return self._task.model_copy(update={"acceptance_criteria": tuple(criteria), "context": context})

    def added_to(self, verdict: Verdict | None, refusals: Mapping[str, CriterionResult]) -> Verdict:
        """The verdict on what was left, with what was refused before. None: nothing was left."""
        new = {criterion.id: criterion for criterion in verdict.criteria} if verdict else {}
        again = {id: refusal.model_copy(update={"reason": _still(refusal)}) for id, refusal in refusals.items()}
        by_id = {**new, **again, **self._dependents(refusals)}
        results = tuple(by_id[criterion.id or ""] for criterion in self._task.criteria)
        if verdict is not None and all(criterion.outcome == "skipped" for criterion in new.values()):
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
        counts = any(not refusal.findings_only for refusal in refusals.values())
        return verdict.model_copy(update={**fields, **(combined._asdict() if counts else {})})

    def _dependents(self, refusals: Mapping[str, CriterionResult]) -> dict[str, CriterionResult]:
        dependents: dict[str, CriterionResult] = {}
        while True:
            count = len(dependents)
            for criterion in self._task.acceptance_criteria:
                unmet = [id for id in criterion.depends_on if id in refusals or id in dependents]
                if unmet and criterion.id not in dependents and criterion.id not in refusals:
                    why = f"{unmet[0]}, which it depends on, is not met"
                    dependents[criterion.id or ""] = result(criterion, "skipped", "nobody", "skipped", why)
            if len(dependents) == count:
                return dependents

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
            yield from _files(run, lambda artifact: any(same_file(artifact.path, path) for path in part.files))
        elif part.about == "file" or (part.about == "deed" and self._may_change_files(part.tools)):
            yield from _files(run)
        if part.about == "deed":
            yield from self._calls(run, part.tools)

    def _may_change_files(self, names: Sequence[str]) -> bool:
        """Whether what these tools do may be looked for in files. Any may, if they aren't known."""
        effects = [tool.effects if (tool := self._tools.get(name)) else None for name in names]
        return not names or any(effect is None or bool(effect & {"files", "commands"}) for effect in effects)

    def _calls(self, run: ChildRun, names: Sequence[str] = ()) -> list[str]:
        """The calls of these tools; without names, of those that may change anything."""
        harmless = {tool.name for tool in self._tools.values() if tool.read_only}
        receipts = [one for one in run.receipts if (one.tool in names if names else one.tool not in harmless)]
        return sorted(map(text_of_call, receipts))


def _is_refused(criterion: CriterionResult) -> bool:
    """Whether a judge looked and didn't find it met. Where only a second judge is missing, no judge refused it."""
    if criterion.decided_by != "judge" or not criterion.examined:
        return False
    return criterion.outcome == "not_met" or (criterion.outcome == "cannot_tell" and criterion.code != "not_confident")


def _still(refusal: CriterionResult) -> str:
    parts = refusal.reading.parts if refusal.reading else ()
    paths = sorted({f"`{path}`" for part in parts for path in part.files if part.about == "file"})
    about = f"({', '.join(paths)}) " if paths else ""
    again = f"it was refused before, and what it is about {about}hasn't changed since"
    return f"{refusal.reason.rstrip('. ')}; {again}" if refusal.reason else again


def _words(run: ChildRun) -> str:
    return " ".join(_WORD.findall(run.output.casefold()))


def _files(run: ChildRun, is_meant: Callable[[Artifact], bool] = lambda artifact: True) -> list[str]:
    return [text_of_file(artifact) for artifact in run.artifacts if is_meant(artifact)]


def text_of_file(artifact: Artifact) -> str:
    """An artifact as a text that differs if the file does."""
    return f"{artifact.path}\0{artifact.change}\0{artifact.bytes}\0{artifact.sha256}\0{artifact.link_to}"


def text_of_call(receipt: Receipt) -> str:
    """A call as a text that differs if its arguments, its result or its status does."""
    return f"{receipt.tool}\0{receipt.status}\0{receipt.args_sha256}\0{receipt.output_sha256}"
