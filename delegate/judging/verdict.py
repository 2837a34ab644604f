"""One case in, one verdict out: the order of judging, as it can be read in `Judging.verdict` and `_Judgement`."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from delegate.errors import ToolError
from delegate.judging import gate, judge, preflight, rubric
from delegate.judging.asking import Bench
from delegate.judging.case import Case, result
from delegate.judging.checks import is_check, run_checks
from delegate.judging.combine import blended, combine, findings_of
from delegate.judging.evidence import Evidence, gather
from delegate.judging.layers import decide_in_order
from delegate.judging.versions import judge_version, rubric_version
from delegate.ledger import Ledger
from delegate.ports import Notify
from delegate.sandbox.commands import Commands
from delegate.types import (
    AnyCriterion,
    CriterionResult,
    DecidedBy,
    Finding,
    JudgeRecord,
    RubricCriterion,
    ShellCriterion,
    Task,
    Verdict,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judging:
    """Gives verdicts. Holds what all verdicts of one delegator share."""

    bench: Bench
    commands: Commands
    use_gate: bool = True

    async def verdict(
        self, case: Case, ledger: Ledger, notify: Notify, *, seconds: float | None = None
    ) -> Verdict | None:
        """The verdict on one case; None when the task has no criteria. Never raises: what breaks here is a FAIL.

        `seconds` is the wall time that the run has left for it.
        """
        if not case.task.criteria:
            return None
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._verdict(case, ledger, notify)
        except Exception as error:  # the child's work must not be lost to a fault in judging it
            if deadline.expired():
                reason = "the run's wall time was used up before the verdict"
                return _refused(case.task, "nobody", "budget_exceeded", reason, None)
            _log.exception("judging failed")
            return _refused(case.task, "nobody", "internal_error", f"{type(error).__name__}: {error}", None)

    async def _verdict(self, case: Case, ledger: Ledger, notify: Notify) -> Verdict:
        rejection = gate.inspect(case.task, case.run, lambda path: _exists(case, path))
        reason = rejection.code if rejection else None
        # A run that ended badly has nothing to be judged, whatever the setting.
        if rejection and (self.use_gate or case.run.status != "completed"):
            return _refused(case.task, "gate", rejection.code, rejection.reason, reason)
        judgement = _Judgement(self, case, ledger, notify)
        results = await decide_in_order(case.task.criteria, is_check, judgement.check, judgement.judge)
        return await judgement.verdict(results, reason)


@dataclass(slots=True)
class _Judgement:
    """What one case gathers on its way to a verdict."""

    judging: Judging
    case: Case
    ledger: Ledger
    notify: Notify
    record: JudgeRecord | None = None
    findings: list[Finding] = field(default_factory=list[Finding])

    async def check(self, criteria: list[AnyCriterion], so_far: list[CriterionResult]) -> list[CriterionResult]:
        """Let code decide."""
        results = await run_checks(self.case, criteria, self.judging.commands)
        for one in results:
            self.notify("check_ended", f"{one.text}: {one.outcome}", id=one.id, outcome=one.outcome)
        return results

    async def judge(self, criteria: list[AnyCriterion], so_far: list[CriterionResult]) -> list[CriterionResult]:
        """Let a model decide: one call for everything in words, and one for each rubric."""
        evidence = gather(self.case, so_far)
        self.findings += [finding for finding in evidence.findings if finding not in self.findings]
        rubrics = [criterion for criterion in criteria if isinstance(criterion, RubricCriterion)]
        in_words = [criterion for criterion in criteria if not isinstance(criterion, RubricCriterion)]
        results: list[CriterionResult] = []
        bench, case = self.judging.bench, self.case
        if in_words:
            results, record = await judge.decide(bench, case, in_words, evidence, self.ledger, self.notify)
            self._book(record)
        for criterion in rubrics:
            results.append(await self._score(criterion, evidence))
        return results

    async def _score(self, criterion: RubricCriterion, evidence: Evidence) -> CriterionResult:
        bench = self.judging.bench
        scored, record, named = await rubric.decide(bench, self.case, criterion, evidence, self.ledger, self.notify)
        self._book(record)
        self.findings += named
        return scored

    def _book(self, record: JudgeRecord) -> None:
        """Several questions make one record: the first that was answered names the judge, the bill is of all."""
        before = self.record
        if before is None or before.model is None:
            self.record = record
        elif record.model is not None:
            costs = (before.cost_usd, record.cost_usd)
            self.record = before.model_copy(
                update={
                    "usage": before.usage + record.usage,
                    "cost_usd": None if None in costs else sum(cost or 0 for cost in costs),
                    "seconds": before.seconds + record.seconds,
                }
            )

    async def verdict(self, results: Sequence[CriterionResult], gate_code: str | None) -> Verdict:
        """Put everything together."""
        task, combined = self.case.task, combine(results)
        score, coverage = blended(results)
        shell = [criterion for criterion in task.criteria if isinstance(criterion, ShellCriterion)]
        return Verdict(
            verdict=combined.verdict,
            verified=combined.verified,
            decided_by=combined.decided_by,
            code=combined.code,
            reasoning=combined.reasoning,
            criteria=tuple(results),
            findings=(*self.findings, *findings_of(results), *_muffled(shell)),
            judge=self.record,
            score=score,
            coverage=coverage,
            gate=gate_code,
            rubric_version=rubric_version(task),
            judge_version=judge_version(self.record.model if self.record else None),
            sandbox=await self.judging.commands.mechanism() if shell else None,
        )


def _muffled(criteria: Sequence[ShellCriterion]) -> list[Finding]:
    """Shell criteria that cannot fail: their verdict stands, and whoever reads it is warned."""
    return [
        Finding(severity="major", code="muffled_check", message=f"{criterion.id}: {why}")
        for criterion in criteria
        for why in preflight.muffles(criterion)
    ]


def _refused(task: Task, decided_by: DecidedBy, code: str, reason: str, gate_code: str | None) -> Verdict:
    """A FAIL for the whole task, before any criterion was looked at."""
    return Verdict(
        verdict="FAIL",
        verified=False,
        decided_by=decided_by,
        code=code,
        reasoning=reason,
        criteria=tuple(result(criterion, "skipped", "nobody", "skipped", code) for criterion in task.criteria),
        gate=gate_code,
        rubric_version=rubric_version(task),
        judge_version=judge_version(None),
    )


def _exists(case: Case, path: str) -> bool:
    """Whether a path that the child named exists; what can't be looked at is not held against it."""
    if case.folder is None:
        return True
    try:
        return case.folder.resolve(path).exists()
    except (ToolError, OSError):
        return True
