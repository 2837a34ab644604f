"""Judges the claims of a child in goal mode, each as a finished run would be, and keeps what came of them.

claim ──▶ nothing changed since the last one was refused: refused again, at no cost
   └──▶ without the criteria that a judge refused of the same work, which stay refused
           └──▶ gate, checks, judge, quotes ──▶ PASS, every decision on evidence: verified
                                            └──▶ anything else: refused, with what failed

A judge errs once in a while. A child that may present the same work until it errs gets everything verified. So a
criterion that was refused stays so until what it is about has changed: the words of the report, the files that it
means, the calls that can bring it about.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegate._util.cancellation import reraise_pending_cancel
from delegate.budget import costs
from delegate.budget.costs import Charge
from delegate.child.job import ClaimReply
from delegate.control.review import refusal, refused_criteria
from delegate.judging.combine import combine, findings_of, weighted_score
from delegate.judging.levels import VERIFIED
from delegate.judging.order import with_skipped
from delegate.judging.proof.files import same_file
from delegate.judging.versions import judge_version, reading_version, rubric_version
from delegate.records.recorder import Recorder
from delegate.sandbox.workspace.folder import Folder
from delegate.types import (
    Artifact,
    ChildRun,
    Claim,
    CriterionReading,
    CriterionResult,
    ErrorDetail,
    JsonObject,
    StatementPart,
    Task,
    Verdict,
)
from delegate.types.codes import VerdictCode
from delegate.types.events import ClaimJudged, ClaimMade, Notify
from delegate.types.ports import Tool

RATIONALE_CHARS = 4_000
_WORD = re.compile(r"(?<!\w)[-+]\d\w*|\w+")
"""A word of a report. The sign of a number belongs to it."""


@dataclass(slots=True)
class TaskClaims:
    """The claims of one task."""

    task: Task
    recorder: Recorder
    folder: Folder
    verdict_of: Callable[[ChildRun, Task], Awaitable[Verdict | None]]
    """Gives the verdict on a run, by the task or by a part of its criteria."""
    notify: Notify
    refusals: "Refusals"
    store: Callable[[list[JsonObject]], Awaitable[None]]
    """Stores what judges refused for another process."""
    made: list[Claim]
    """At first those that were judged by a process that was lost."""
    _refused_state: str | None = None
    """The state of the latest claim that was examined and refused."""
    _latest: tuple[ChildRun, Verdict] | None = None
    """The run of the latest claim, with its verdict."""

    @property
    def max_claims(self) -> int:
        return self.task.max_claims

    @property
    def left(self) -> int:
        return self.max_claims - len(self.made)

    async def judge(self, rationale: str) -> ClaimReply:
        """Judge a claim by the files as they are now, unless it only repeats the one before."""
        n = len(self.made) + 1
        run = self.recorder.finish("completed", report=rationale)
        artifacts = await self.folder.artifacts()
        if artifacts:
            run = run.model_copy(update={"artifacts": artifacts})
        self.notify(ClaimMade, n=n, step=run.steps, rationale=run.report[:RATIONALE_CHARS])
        # The report, the files, and the calls that may have changed anything.
        state = "\0".join([run.report, *map(_text_of_file, run.artifacts), *sorted({*self.refusals.calls(run)})])
        if self._latest is not None and state == self._refused_state:
            self._latest = run, self._latest[1]
            unlike = {"n": n, "step": run.steps, "code": "no_progress", "seconds": 0.0}
            again = self.made[-1].model_copy(update={**unlike, **Charge().fields})
            text = f"Not judged again: nothing has changed since claim {n - 1}, which was refused."
            return self._noted(again, text, repeats=True)
        start = time.monotonic()
        verdict = self._only_verified(await self._judged(run))
        self._latest = run, verdict
        self._refused_state = state if verdict.examined else None
        claim = Claim(
            n=n,
            rationale=run.report[:RATIONALE_CHARS],
            step=run.steps,
            verdict=verdict.verdict,
            code=verdict.code,
            decided_by=verdict.decided_by,
            reasoning=verdict.reasoning,
            refused=() if verdict.verdict == "PASS" else tuple(refused_criteria(verdict)),
            seconds=round(time.monotonic() - start, 6),
            **costs.of_judge(verdict).fields,
        )
        if verdict.verdict == "PASS":
            self._note(claim)
            return ClaimReply(True, "Verified. You are finished.")
        is_spent = "budget_exceeded" in (verdict.code, *(criterion.code for criterion in verdict.criteria))
        limit = ErrorDetail(code="budget_exceeded", message=verdict.reasoning) if is_spent else None
        reply = self._noted(claim, refusal(verdict), limit)
        if verdict.code == "cancelled":  # a verdict holds it back, so that its cost is kept
            raise asyncio.CancelledError
        reraise_pending_cancel()
        return reply

    async def _judged(self, run: ChildRun) -> Verdict:
        """The verdict on a claim. What a judge refused of the same work isn't put to it again, and stays refused."""
        refusals = self.refusals.of(run)
        task = self.refusals.task_without(refusals) if refusals else self.task
        verdict = await self.verdict_of(run, task) if task is not None else None
        if refusals:
            verdict = self.refusals.added_to(verdict, refusals)
        assert verdict is not None, "a task in goal mode has criteria"
        if self.refusals.keep(verdict.criteria, run):
            await self.store(self.refusals.as_json())
        return verdict

    def artifacts_of(self, child: ChildRun) -> tuple[Artifact, ...] | None:
        """The artifacts that the latest claim was judged by, if the child made no model call since; else None."""
        return self._latest[0].artifacts if self._latest and self._latest[0].steps == child.steps else None

    def verdict_on(self, child: ChildRun) -> tuple[ChildRun, Verdict | None]:
        """The run with its verdict, if the child made no model call since its latest claim. Without one, judge the run.

        A PASS counts only for a run that completed, and no run completes without a claim that was judged.
        """
        if self._latest is None or child.steps != self._latest[0].steps:
            if child.status != "completed":
                return child, None
            error = ErrorDetail(code="bad_report", message="the child ended without a claim, which goal mode needs")
            return child.model_copy(update={"status": "failed", "error": error}), None
        run, verdict = self._latest
        if verdict.verdict == "PASS" and child.status != "completed":
            return child, None
        return child.model_copy(update={"artifacts": run.artifacts}), verdict

    def _noted(self, claim: Claim, text: str, limit: ErrorDetail | None = None, *, repeats: bool = False) -> ClaimReply:
        self._note(claim)
        text = f"{text}\n\nThis was claim {claim.n} of {self.max_claims}."
        return ClaimReply(False, text, repeats, limit)

    def _note(self, claim: Claim) -> None:
        self.made.append(claim)
        self.notify(ClaimJudged, **claim.model_dump(mode="json"))

    def _only_verified(self, verdict: Verdict) -> Verdict:
        """The verdict, refused if it is a PASS that doesn't rest on evidence of the work: no goal is reached by it."""
        if verdict.verdict != "PASS":
            return verdict
        weak = refused_criteria(verdict)
        if not weak and verdict.level in (*VERIFIED, "said"):  # what is only said is all that the criterion asks for
            return verdict
        reasoning = f"every criterion is met, but not all of them on evidence: {verdict.worth}"
        if weak and all(result.held_before and result.level in VERIFIED for result in weak):
            reasoning = "every criterion is met, but all that shows more than the child's word held before it began"
        code: VerdictCode = "not_verified"
        return verdict.model_copy(update={"verdict": "FAIL", "code": code, "reasoning": reasoning})


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
        ids = with_skipped(self._task.acceptance_criteria, refusals)
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
        by_id = {**new, **with_skipped(self._task.acceptance_criteria, again), **again}
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

    def _about(self, reading: CriterionReading | None, run: ChildRun) -> str:
        """A digest of what a criterion is about: the words of the report, files, calls. Without a reading, of all."""
        digest = hashlib.blake2b(digest_size=16)
        if reading is None:
            sources = [_words(run), *_files(run), *self.calls(run)]
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
            yield from (*_files(run), *self.calls(run))
        elif part.files:
            yield from _files(run, lambda artifact: any(same_file(artifact.path, path) for path in part.files))
        elif part.about == "file" or (part.about == "deed" and self._may_change_files(part.tools)):
            yield from _files(run)
        if part.about == "deed":
            yield from self.calls(run, part.tools)

    def _may_change_files(self, names: Sequence[str]) -> bool:
        """Whether what these tools do may be looked for in files. Any may, if they aren't known."""
        effects = [tool.effects if (tool := self._tools.get(name)) else None for name in names]
        return not names or any(effect is None or bool(effect & {"files", "commands"}) for effect in effects)

    def calls(self, run: ChildRun, names: Sequence[str] = ()) -> list[str]:
        """The calls of these tools; without names, of those that may change anything. Each is a text that differs if
        its arguments, its result or its status does.
        """
        harmless = {tool.name for tool in self._tools.values() if tool.read_only}
        receipts = [one for one in run.receipts if (one.tool in names if names else one.tool not in harmless)]
        return sorted(f"{one.tool}\0{one.status}\0{one.args_sha256}\0{one.output_sha256}" for one in receipts)


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
    return " ".join(_WORD.findall(run.report.casefold()))


def _files(run: ChildRun, is_meant: Callable[[Artifact], bool] = lambda artifact: True) -> list[str]:
    return [_text_of_file(artifact) for artifact in run.artifacts if is_meant(artifact)]


def _text_of_file(artifact: Artifact) -> str:
    """An artifact as a text that differs if the file does."""
    return f"{artifact.path}\0{artifact.change}\0{artifact.bytes}\0{artifact.sha256}\0{artifact.link_to}"
