"""One case in, one verdict out: the order of judging, as it can be read in `Judging.verdict` and `_Judgment`."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from delegate._util.cancellation import Cancellation
from delegate._util.redaction import logger
from delegate.budget.ledger import Ledger
from delegate.errors import ToolError
from delegate.judging import gate, validate
from delegate.judging.checks.run import is_check, run_checks
from delegate.judging.combine import blended, combine, findings_of
from delegate.judging.judge import decide, escalation, rubric
from delegate.judging.judge.evidence import Evidence, gather
from delegate.judging.judge.session import JudgePool, JudgeSession
from delegate.judging.order import decide_in_order
from delegate.judging.submission import Submission, result
from delegate.judging.versions import judge_version, rubric_version
from delegate.ports import Notify
from delegate.sandbox.commands import Commands
from delegate.types import (
    AnyCriterion,
    CriterionResult,
    DecidedBy,
    Finding,
    ReceiptsAvailability,
    RubricCriterion,
    ShellCriterion,
    Verdict,
)

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Judging:
    """Gives verdicts. Holds what all verdicts of one delegator share."""

    pool: JudgePool
    commands: Commands
    use_gate: bool = True

    async def verdict(
        self,
        submission: Submission,
        ledger: Ledger,
        notify: Notify,
        *,
        seconds: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Verdict | None:
        """The verdict on one case; None when the task has no criteria. Never raises: what breaks here is a FAIL.

        `seconds` is the wall time that is left for it. Cut short by it, by `cancellation` or by a cancel of the
        awaiting task, the verdict says so, with what was spent until then.
        """
        if not submission.task.criteria:
            return None
        judgement = _Judgment(self, submission, JudgeSession(self.pool, submission, ledger, notify), notify)
        cancellation = cancellation or Cancellation()
        limit = cancellation.deadline(seconds)
        try:
            if (refused := judgement.at_the_gate()) is not None:
                return refused
            async with limit:
                return await judgement.reach()
        except asyncio.CancelledError:  # the caller keeps what there is, and lets it travel on
            return judgement.refused("nobody", "cancelled", "the call was cancelled before the verdict")
        except Exception as error:  # the child's work must not be lost to a fault in judging it
            if limit.expired() and not cancellation.cancelled:
                reason = "the wall time was used up before the verdict"
                return judgement.refused("nobody", "budget_exceeded", reason)
            if limit.expired():
                return judgement.refused("nobody", "cancelled", "the call was cancelled before the verdict")
            _log.exception("judging failed")
            return judgement.refused("nobody", "internal_error", f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class _Judgment:
    """What one case gathers on its way to a verdict."""

    judging: Judging
    submission: Submission
    session: JudgeSession
    notify: Notify
    findings: list[Finding] = field(default_factory=list[Finding])
    gate_code: str | None = None

    def at_the_gate(self) -> Verdict | None:
        """The gate's verdict, where it is a "no"."""
        submission = self.submission
        rejection = gate.inspect(submission.task, submission.run, lambda path: _exists(submission, path))
        self.gate_code = rejection.code if rejection else None
        # A run that ended badly has nothing to be judged, whatever the setting.
        if rejection and (self.judging.use_gate or submission.run.status != "completed"):
            return self.refused("gate", rejection.code, rejection.reason)
        return None

    async def reach(self) -> Verdict:
        """Checks and judge, in their order."""
        return await self._verdict(
            await decide_in_order(self.submission.task.criteria, is_check, self.check, self.judge)
        )

    async def check(self, criteria: list[AnyCriterion], so_far: list[CriterionResult]) -> list[CriterionResult]:
        """Let code decide."""
        results = await run_checks(self.submission, criteria, self.judging.commands)
        for one in results:
            self.notify("check_ended", f"{one.text}: {one.outcome}", id=one.id, outcome=one.outcome)
        return results

    async def judge(self, criteria: list[AnyCriterion], so_far: list[CriterionResult]) -> list[CriterionResult]:
        """Let a model decide: one call for everything in words, and one for each rubric."""
        evidence = gather(self.submission, so_far)
        self.findings += [finding for finding in evidence.findings if finding not in self.findings]
        rubrics = [criterion for criterion in criteria if isinstance(criterion, RubricCriterion)]
        in_words = [criterion for criterion in criteria if not isinstance(criterion, RubricCriterion)]
        results = await self._in_words(in_words, so_far, evidence) if in_words else []
        return [*results, *[await self._score(criterion, evidence) for criterion in rubrics]]

    async def _in_words(
        self, criteria: Sequence[AnyCriterion], so_far: list[CriterionResult], evidence: Evidence
    ) -> list[CriterionResult]:
        results = await decide.decide(self.session.ask, self.submission, criteria, evidence)
        if not self.judging.pool.escalate or self.session.recorder.escalated:
            return results
        return await escalation.ask_again(self.session, self.submission, results, so_far, evidence)

    async def _score(self, criterion: RubricCriterion, evidence: Evidence) -> CriterionResult:
        scored, named = await rubric.decide(self.session, self.submission, criterion, evidence)
        self.findings += named
        return scored

    async def _verdict(self, results: Sequence[CriterionResult]) -> Verdict:
        """Put everything together."""
        task, combined, recorder = self.submission.task, combine(results), self.session.recorder
        score, coverage = blended(results)
        shell = [criterion for criterion in task.criteria if isinstance(criterion, ShellCriterion)]
        return Verdict(
            verdict=combined.verdict,
            verified=combined.verified,
            decided_by=combined.decided_by,
            code=combined.code,
            reasoning=combined.reasoning,
            criteria=tuple(results),
            findings=(*self.findings, *recorder.findings(), *findings_of(results), *_muffled(shell)),
            judge=recorder.record(),
            score=score,
            coverage=coverage,
            gate=self.gate_code,
            rubric_version=rubric_version(task),
            judge_version=judge_version(*recorder.models()),
            sandbox=await self.judging.commands.mechanism() if shell else None,
            receipts=self.receipts,
        )

    def refused(self, decided_by: DecidedBy, code: str, reason: str) -> Verdict:
        """A FAIL for the whole task, with the judges that were asked until then and what they cost."""
        task, recorder = self.submission.task, self.session.recorder
        return Verdict(
            verdict="FAIL",
            verified=False,
            decided_by=decided_by,
            code=code,
            reasoning=reason,
            criteria=tuple(result(criterion, "skipped", "nobody", "skipped", code) for criterion in task.criteria),
            findings=(*self.findings, *recorder.findings()),
            judge=recorder.record(),
            gate=self.gate_code,
            rubric_version=rubric_version(task),
            judge_version=judge_version(*recorder.models()),
            receipts=self.receipts,
        )

    @property
    def receipts(self) -> ReceiptsAvailability:
        """Whether tool calls were recorded for this case."""
        return "recorded" if self.submission.has_receipts else "unavailable"


def _muffled(criteria: Sequence[ShellCriterion]) -> list[Finding]:
    """Shell criteria that cannot fail: their verdict stands, and whoever reads it is warned."""
    return [
        Finding(severity="major", code="muffled_check", message=f"{criterion.id}: {why}")
        for criterion in criteria
        for why in validate.muffles(criterion)
    ]


def _exists(submission: Submission, path: str) -> bool:
    """Whether a path that the child named exists; what can't be looked at is not held against it."""
    if submission.folder is None:
        return True
    try:
        return os.path.lexists(submission.folder.resolve(path))
    except (ToolError, OSError):
        return True
