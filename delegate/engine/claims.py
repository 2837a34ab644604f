"""Judges the claims of a child in goal mode, each as a finished run would be, and keeps what came of them.

claim ──▶ nothing changed since the last one was refused: refused again, at no cost
   └──▶ without the criteria that a judge refused of the same work, which stay refused (`refusals.py`)
           └──▶ gate, checks, judge, quotes ──▶ PASS, every decision on evidence: verified
                                            └──▶ anything else: refused, with what failed
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from delegate._util.cancellation import reraise_pending_cancel
from delegate.budget import costs
from delegate.budget.costs import Charge
from delegate.child.job import ClaimReply
from delegate.control.review import refusal, refused_criteria
from delegate.engine.refusals import Refusals, text_of_call, text_of_file
from delegate.judging.levels import VERIFIED
from delegate.records.recorder import Recorder
from delegate.sandbox.workspace.folder import Folder
from delegate.types import Artifact, ChildRun, Claim, ErrorDetail, JsonObject, Task, Verdict
from delegate.types.codes import VerdictCode
from delegate.types.events import ClaimJudged, ClaimMade, Notify

RATIONALE_CHARS = 4_000


@dataclass(slots=True)
class TaskClaims:
    """The claims of one task."""

    task: Task
    recorder: Recorder
    folder: Folder
    verdict_of: Callable[[ChildRun, Task], Awaitable[Verdict | None]]
    """Gives the verdict on a run, by the task or by a part of its criteria."""
    notify: Notify
    refusals: Refusals
    store: Callable[[list[JsonObject]], Awaitable[None]]
    """Stores what judges refused for another process."""
    only_reads: Callable[[str], bool]
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
        run = self.recorder.finish("completed", output=rationale)
        artifacts = await self.folder.artifacts()
        if artifacts:
            run = run.model_copy(update={"artifacts": artifacts})
        self.notify(ClaimMade, n=n, step=run.steps, rationale=run.output[:RATIONALE_CHARS])
        state = self._state_of(run)
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
        result = Claim(
            n=n,
            rationale=run.output[:RATIONALE_CHARS],
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
            self._note(result)
            return ClaimReply(True, "Verified. You are finished.")
        is_spent = "budget_exceeded" in (verdict.code, *(criterion.code for criterion in verdict.criteria))
        limit = ErrorDetail(code="budget_exceeded", message=verdict.reasoning) if is_spent else None
        reply = self._noted(result, refusal(verdict), limit)
        if verdict.code == "cancelled":  # a verdict holds it back, so that its cost is kept
            raise asyncio.CancelledError
        reraise_pending_cancel()
        return reply

    def _state_of(self, run: ChildRun) -> str:
        """The report, the files, and the calls that may have changed anything."""
        calls = {text_of_call(receipt) for receipt in run.receipts if not self.only_reads(receipt.tool)}
        return "\0".join([run.output, *map(text_of_file, run.artifacts), *sorted(calls)])

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
