"""One case in, one verdict out: the order of judging, as it can be read in `Judging.verdict`."""

import hashlib
import json
import logging
from dataclasses import dataclass
from functools import cache

from delegate.errors import ToolError
from delegate.judging import gate, prompt
from delegate.judging.asking import Bench
from delegate.judging.case import Case, result
from delegate.judging.checks import run_checks
from delegate.judging.combine import combine
from delegate.judging.evidence import gather
from delegate.judging.judge import decide
from delegate.judging.reply import PARSER_VERSION
from delegate.ledger import Ledger
from delegate.ports import Notify
from delegate.resources import text
from delegate.sandbox.commands import Commands
from delegate.types import AnyCriterion, CriterionResult, DecidedBy, Finding, JudgeRecord, Task, Verdict

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judging:
    """Gives verdicts. Holds what all verdicts of one delegator share."""

    bench: Bench
    commands: Commands
    use_gate: bool = True

    async def verdict(self, case: Case, ledger: Ledger, notify: Notify) -> Verdict | None:
        """The verdict on one case; None when the task has no criteria. Never raises: what breaks here is a FAIL."""
        if not case.task.criteria:
            return None
        try:
            return await self._verdict(case, ledger, notify)
        except Exception as error:  # the child's work must not be lost to a fault in judging it
            _log.exception("judging failed")
            return _refused(case.task, "nobody", "internal_error", f"{type(error).__name__}: {error}")

    async def _verdict(self, case: Case, ledger: Ledger, notify: Notify) -> Verdict:
        criteria = case.task.criteria
        if self.use_gate and (rejection := gate.inspect(case.task, case.run, lambda path: _exists(case, path))):
            return _refused(case.task, "gate", rejection.code, rejection.reason)
        results = await run_checks(case, criteria, self.commands)
        for check in results:
            notify("check_ended", f"{check.text}: {check.outcome}", id=check.id, outcome=check.outcome)
        decided = {check.id for check in results}
        undecided = [criterion for criterion in criteria if criterion.id not in decided]
        if any(check.outcome not in ("met", "trusted") for check in results):
            results += [_skipped(criterion, "a check had already decided") for criterion in undecided]
            undecided = []
        findings, record = (), None
        if undecided:
            evidence = gather(case, results)
            judged, record = await decide(self.bench, case, undecided, evidence, ledger, notify)
            results, findings = results + judged, evidence.findings
        return await self._assemble(case, results, findings, record)

    async def _assemble(
        self, case: Case, results: list[CriterionResult], findings: tuple[Finding, ...], record: JudgeRecord | None
    ) -> Verdict:
        order = {criterion.id: n for n, criterion in enumerate(case.task.criteria)}
        results.sort(key=lambda one: order[one.id])
        word, verified, decided_by, code, reasoning = combine(results)
        ran_commands = any(criterion.kind == "shell" for criterion in case.task.criteria)
        return Verdict(
            verdict=word,
            verified=verified,
            decided_by=decided_by,
            code=code,
            reasoning=reasoning,
            criteria=tuple(results),
            findings=findings,
            judge=record,
            rubric_version=rubric_version(case.task),
            judge_version=judge_version(record.model if record else None),
            sandbox=await self.commands.mechanism() if ran_commands else None,
        )


def _refused(task: Task, decided_by: DecidedBy, code: str, reason: str) -> Verdict:
    """A FAIL for the whole task, before any criterion was looked at."""
    return Verdict(
        verdict="FAIL",
        verified=False,
        decided_by=decided_by,
        code=code,
        reasoning=reason,
        criteria=tuple(_skipped(criterion, code) for criterion in task.criteria),
        rubric_version=rubric_version(task),
        judge_version=judge_version(None),
    )


def _skipped(criterion: AnyCriterion, reason: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", reason)


def _exists(case: Case, path: str) -> bool:
    """Whether a path that the child named exists; what can't be looked at is not held against it."""
    if case.folder is None:
        return True
    try:
        return case.folder.resolve(path).exists()
    except (ToolError, OSError):
        return True


def rubric_version(task: Task) -> str:
    """A digest of what is asked: it changes when the goal or a criterion does."""
    asked = [criterion.model_dump(mode="json", exclude_none=True) for criterion in task.criteria]
    return _digest(json.dumps([task.goal, asked], sort_keys=True, separators=(",", ":"), ensure_ascii=False))


@cache
def judge_version(model: str | None) -> str:
    """A digest of how it is judged: card, reply schema, parser, model."""
    return _digest("\n".join((prompt.card(), text("schemas", "judge_reply.json"), PARSER_VERSION, model or "")))


def _digest(canonical: str) -> str:
    return "sha256:" + hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
