"""Turns one submission into one verdict. `Judging.verdict` runs the steps of judging, from the gate to the combination.

    reading, beside the child     gate ──▶ checks ──▶ judge, who may look, and whose answers code verifies ──▶ combine

* What each criterion in words is about was read before the child's work was known. `reading/`
* The gate rejects obvious failures: a run that didn't complete, an empty report, claimed files that don't exist.
  `gate.py`
* `order.next_step` decides what comes next: checks first, then one question to a judge for all remaining criteria;
  criteria with an unmet dependency are skipped. After a failed check, no model is asked.
* Commands run in copies of the work as it was when the child ended. What a success is worth is found by trying: without
  the child's other changes, and before it began. `frozen.py`, `checks/guard.py`
* A judge whose page isn't enough looks: at the work, at what a command prints in a copy of it, at how things are now.
  `looks/`
* A judge's `met` counts only if its quote occurs where it can prove the criterion, or code finds the call that does.
  Absences are decided by the records. `judge/decide.py`, `proof/`
* Each criterion that is met has a level, by what it rests on, and so has the verdict: the weakest. `levels.py`
* PASS only if every criterion is met at the level that is asked for. Anything else is FAIL, with a code that gives the
  reason. `combine.py`
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from delegate._util.cancellation import Cancellation, Deadline
from delegate._util.redaction import logger
from delegate._util.threads import run_in_thread_if
from delegate.budget.ledger import Ledger
from delegate.judging import gate
from delegate.judging.checks.run import run_checks
from delegate.judging.combine import Combined, combine, findings_of, weighted_score
from delegate.judging.frozen import FrozenWork
from delegate.judging.judge.session import JudgePool, JudgeSession
from delegate.judging.levels import held_to
from delegate.judging.order import Check, Judge, Skip, next_step
from delegate.judging.reading.reader import PendingReading, Reader
from delegate.judging.submission import Submission, result
from delegate.judging.versions import judge_version, reading_version, rubric_version
from delegate.records.recorder import LARGE_CHARS, is_large
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.filesystem.changes import ArtifactWatch
from delegate.sandbox.filesystem.files import shown
from delegate.telemetry import operations
from delegate.types import (
    AnyCriterion,
    CitationsCriterion,
    CriterionResult,
    DecidedBy,
    Finding,
    Level,
    ReceiptsAvailability,
    ShellCriterion,
    Verdict,
)
from delegate.types.codes import GateCode, VerdictCode
from delegate.types.errors import ToolError
from delegate.types.events import CheckDone, CheckStarted, Notify

if TYPE_CHECKING:
    from delegate.judging.calibration.detector import Detector
    from delegate.judging.checks.guard import CheckGuard
    from delegate.judging.judge.decisions import JudgeDecisions

_log = logger(__name__)
FEW = 100
"""So many artifacts are looked at without a thread."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Gives verdicts, with what all verdicts of one delegator share."""

    pool: JudgePool
    commands: Commands
    reader: Reader
    use_gate: bool = True
    min_level: Level | None = None
    """The least level of a criterion that counts as met, for tasks that don't say. None: what it asks for."""
    detector: "Callable[[], Detector | None]" = lambda: None
    """What this project's rulings taught about reports that aren't true; None if nothing was fitted."""

    async def verdict(
        self,
        submission: Submission,
        ledger: Ledger,
        notify: Notify,
        *,
        reading: PendingReading,
        seconds: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Verdict | None:
        """The verdict on one submission; None if the task has no criteria. Never raises: an error is a FAIL.

        `seconds` is the remaining wall time. If that time, `cancellation` or cancellation of the awaiting task ends the
        judging, the verdict's code says so, and its record has what was spent until then.
        """
        if not submission.task.criteria:
            return None
        cancellation = cancellation or Cancellation()
        deadline = cancellation.deadline(seconds)
        session = JudgeSession(self.pool, submission.worker, submission.ceiling, ledger, notify)
        judgment = _Judgment(self, submission, notify, session, reading)
        try:
            if (rejection := await run_in_thread_if(judgment.is_large, judgment.gate_rejection)) is not None:
                await reading.settle(session.recorder)
                return judgment.refused("gate", rejection.code, rejection.reason)
            async with deadline:
                with operations.judging():
                    await judgment.begin()
                    while step := next_step(submission.task.criteria, judgment.results):
                        match step:
                            case Skip(skipped):
                                new = skipped
                            case Check(checked):
                                new = await judgment.check(checked)
                            case Judge(judged):
                                new = await judgment.judges().decide(judged, tuple(judgment.results.values()))
                        judgment.add(new)
                    await reading.settle(session.recorder)
                    return await judgment.combined()
        except (Exception, asyncio.CancelledError) as error:
            return judgment.ended_by(error, deadline, cancellation)
        finally:
            await judgment.work.close()


@dataclass(slots=True)
class _Judgment:
    judging: Judging
    submission: Submission
    notify: Notify
    session: JudgeSession
    reading: PendingReading
    work: FrozenWork = field(init=False)
    results: dict[str, CriterionResult] = field(default_factory=dict[str, CriterionResult])
    """What is decided so far, by the criteria's ids."""
    guard: "CheckGuard | None" = None
    """Set when there is a shell check to run."""
    decisions: "JudgeDecisions | None" = None
    """Set when there is something for a judge to decide."""
    watch: ArtifactWatch | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    gate_code: GateCode | None = None
    looks_unsupported: bool = False
    """Whether the run looks like those whose reports weren't true."""
    is_large: bool = field(init=False)
    """Whether work on the whole submission takes so long that it needs a thread."""

    def __post_init__(self) -> None:
        submission, task = self.submission, self.submission.task
        self.work = FrozenWork(submission, self.judging.commands)
        chars = len(task.goal) + len(task.context or "") + len(submission.said)
        artifacts = submission.run.artifacts
        chars += sum(artifact.bytes or 0 for artifact in artifacts)
        self.is_large = chars > LARGE_CHARS or len(artifacts) > FEW or is_large(submission.run)

    def gate_rejection(self) -> gate.Rejection | None:
        """The gate's rejection, if it counts: with the gate disabled, only runs that didn't complete are rejected."""
        submission = self.submission
        has = {"has_report": submission.has_report, "by_child": submission.by_child}
        rejection = gate.inspect(submission.task, submission.run, self._exists, **has)
        self.gate_code = rejection.code if rejection else None
        return rejection if self.judging.use_gate or submission.run.status != "completed" else None

    async def begin(self) -> None:
        """Look at the report and the files before anything is decided."""
        submission, run = self.submission, self.submission.run
        if submission.has_receipts and submission.has_report:
            await run_in_thread_if(self.is_large, self._doubt_report)
        if submission.folder is not None and run.artifacts:
            watch = partial(submission.folder.watch, run.artifacts)
            self.watch = await run_in_thread_if(len(run.artifacts) > FEW, watch)

    def add(self, results: Sequence[CriterionResult]) -> None:
        self.results |= {decision.id: held_to(decision, self._min_level) for decision in results}

    def ended_by(self, error: BaseException, deadline: Deadline, cancellation: Cancellation) -> Verdict:
        """The verdict where an error ended the judging, which must not cost the child's work."""
        # The caller keeps the result and re-raises the cancellation.
        if isinstance(error, asyncio.CancelledError) or (deadline.expired() and cancellation.cancelled):
            return self.refused("nobody", "cancelled", "the call was cancelled before the verdict")
        if deadline.expired():
            return self.refused("nobody", "budget_exceeded", "the wall time was used up before the verdict")
        _log.error("judging failed", exc_info=error)
        return self.refused("nobody", "internal_error", f"{type(error).__name__}: {error}")

    def _doubt_report(self) -> None:
        """Add a finding if the run looks like those of this project whose reports weren't true, and one if the report
        names files of which there is no trace.
        """
        submission, detector = self.submission, self.judging.detector()
        if detector is not None and (probability := detector.probability(submission.run)) >= detector.threshold:
            self.looks_unsupported = True
            message = f"the run looks like those whose reports weren't true (probability {probability:.2f})"
            self.findings.append(Finding(severity="minor", code="looks_unsupported", message=message))
        if names := gate.unrecorded_files(submission.run, self._exists):
            text = ", ".join(f"`{name}`" for name in names[:5])
            message = f"the report names {text}: not in the workspace, and in no tool call"
            self.findings.append(Finding(severity="minor", code="unrecorded_file", message=message))

    @property
    def _min_level(self) -> Level | None:
        return self.submission.task.min_level or self.judging.min_level

    async def check(self, criteria: Sequence[AnyCriterion]) -> list[CriterionResult]:
        """What code decides of these criteria."""
        for criterion in criteria:
            self.notify(CheckStarted, id=criterion.id or "", criterion=criterion.kind)
        if any(isinstance(criterion, ShellCriterion) for criterion in criteria) and self.guard is None:
            from delegate.judging.checks.guard import CheckGuard  # loaded only where commands run

            self.guard = CheckGuard(self.submission, self.work)
            await self.guard.open()
        results = await run_checks(self.submission, criteria, self.judging.commands, self.guard)
        for done in results:
            self.notify(CheckDone, id=done.id, criterion=done.kind, text=done.text, outcome=done.outcome)
        return results

    async def _changed_artifacts(self) -> str:
        """The artifacts that aren't what was judged any more, in words; empty if there are none."""
        if self.work.changed is not None:
            return shown(self.work.changed)
        if self.watch is None:
            return ""
        paths = await run_in_thread_if(len(self.submission.run.artifacts) > FEW, self.watch.changed)
        return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")

    async def _changed_besides(self) -> str:
        """Other files of the workspace that aren't as the child left them, in words; empty if there are none."""
        folder = self.submission.folder
        if folder is None or not self.submission.by_child:
            return ""
        paths = await run_in_thread_if(not folder.is_small, partial(folder.changed_since_left, 5))
        return ", ".join(map(shown, paths))

    def judges(self) -> "JudgeDecisions":
        """What decides by models, with what they have found so far."""
        if self.decisions is None:
            from delegate.judging.judge.decisions import JudgeDecisions  # loaded only where a model may be needed

            self.decisions = JudgeDecisions(
                self.judging.pool,
                self.judging.commands,
                self.submission,
                self.session,
                self.reading,
                self.work,
                self.findings,
                looks_unsupported=self.looks_unsupported,
                is_large=self.is_large,
            )
        return self.decisions

    async def combined(self) -> Verdict:
        """The verdict that follows from all results."""
        results = [self.results[criterion.id or ""] for criterion in self.submission.task.criteria]
        combined = combine(results, self._min_level)
        if (changes := await self._changed_artifacts()) and combined.verdict == "PASS":
            reasoning = f"changed after it was checked, so what was checked no longer exists: {changes}"
            combined = Combined("FAIL", None, combined.verified, "check", "changed_after_check", reasoning)
        elif combined.verdict == "PASS" and (other_changes := await self._changed_besides()):
            message = f"changed after the child had ended, so what is there isn't what was judged: {other_changes}"
            self.findings.append(Finding(severity="major", code="changed_after_check", message=message))
            combined = combined.lowered("own_checks", message)
        has_commands = any(isinstance(criterion, ShellCriterion) for criterion in self.submission.task.criteria)
        return self._verdict(combined, results, await self.judging.commands.mechanism() if has_commands else None)

    def refused(self, decided_by: DecidedBy, code: VerdictCode, reason: str) -> Verdict:
        """A FAIL for the whole task, with the judges asked so far and their cost."""
        criteria = self.submission.task.criteria
        skipped = [result(criterion, "skipped", "nobody", "skipped", code) for criterion in criteria]
        return self._verdict(Combined("FAIL", None, False, decided_by, code, reason), skipped)

    def _verdict(self, combined: Combined, results: Sequence[CriterionResult], sandbox: str | None = None) -> Verdict:
        task, recorder = self.submission.task, self.session.recorder
        score, coverage = weighted_score(results)
        return Verdict(
            **combined._asdict(),
            criteria=tuple(results),
            findings=(
                *self.findings,
                *(self.guard.findings if self.guard is not None else ()),
                *self._git_findings,
                *self._input_findings,
                *recorder.findings(),
                *findings_of(results),
            ),
            judge=recorder.record(),
            score=score,
            coverage=coverage,
            gate=self.gate_code,
            rubric_version=rubric_version(task),
            judge_version=judge_version(
                *recorder.models(), citations=any(isinstance(each, CitationsCriterion) for each in task.criteria)
            ),
            reading_version=reading_version(),
            sandbox=sandbox,
            receipts=self._receipts,
        )

    @property
    def _input_findings(self) -> Sequence[Finding]:
        """What the child did to the files of other tasks that it was given."""
        folder = self.submission.folder
        if folder is None or folder.inputs is None or not folder.inputs.changed:
            return ()
        from delegate.sandbox.tampering.deliverables import named  # loaded only where something was changed

        paths = named(sorted(folder.inputs.changed))
        message = f"the child changed what it was given of other tasks, which was put back: {paths}"
        return (Finding(severity="major", code="inputs_changed", message=message),)

    @property
    def _git_findings(self) -> Sequence[Finding]:
        """Changes of what git runs in the workspace. Commands in a sandbox can't make them; others can.

        Links in git folders are removed, since git would write through them.
        """
        folder = self.submission.folder
        if folder is None or folder.repository is None:
            return ()
        removed = folder.removed_links | folder.repository.remove_links(nested=True)
        changes = folder.repository.changed_since() | removed
        text = ", ".join(shown(f"{path.relative_to(folder.root)} ({how})") for path, how in sorted(changes.items())[:5])
        if not text:
            return ()
        message = f"changed while the child worked, and git runs or obeys it whenever it is used there: {text}"
        return (Finding(severity="major", code="git_changed", message=message),)

    @property
    def _receipts(self) -> ReceiptsAvailability:
        if self.submission.has_receipts:
            return "recorded"
        if self.submission.has_some_receipts:
            return "partial"
        return "reported" if self.submission.run.receipts else "unavailable"

    def _exists(self, path: str) -> bool:
        """Whether a path that the child named exists. True if that can't be determined."""
        folder = self.submission.folder
        with suppress(ToolError, OSError):
            return folder is None or os.path.lexists(folder.resolve(path))
        return True
