"""What the parent receives: `TaskResult` and `RunResult`."""

from collections.abc import Callable
from typing import Annotated, Any, Self, cast, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from delegate.types.base import AS_TEXT, GoalEnd, Level, Tier, Value
from delegate.types.codes import ChildCode, CouldNotRunCode, VerdictCode
from delegate.types.lines import html_table, one_line
from delegate.types.money import rough_usd, usd
from delegate.types.verdict import CriterionResult, DecidedBy, Verdict, VerdictWord, criteria_table
from delegate.types.work import Artifact, ErrorDetail, Provenance, RunStatus, Usage

_COULD_NOT_RUN = frozenset(get_args(CouldNotRunCode)) - {"context_overflow"}
_FAILED_LINES = 4


class ReceiptCounts(Value):
    """Counts of the child's tool calls. `tools` counts the successful calls by tool name."""

    recorded: bool = True
    """False if the runner doesn't record tool calls. All counts are then 0 and mean nothing."""
    total: int = 0
    ok: int = 0
    error: int = 0
    denied: int = 0
    timeout: int = 0
    unknown: int = 0
    tools: dict[str, int] = Field(default_factory=dict)
    why_denied: str | None = None
    """What the first denied call was told: the reason, and the setting."""


class Claim(Value):
    """One claim of a child in goal mode that its work is done, and what came of it.

    The cost is that of its judges. A claim that repeats the one before, with nothing changed, isn't judged again: its
    code is `no_progress`.
    """

    n: int
    """1 for the first claim."""
    rationale: str
    """The child's report, truncated to 4,000 characters."""
    step: int
    """The number of model calls that the child had made."""
    verdict: VerdictWord
    code: Annotated[VerdictCode | ChildCode, AS_TEXT]
    """The verdict's code; `not_verified` if every criterion is met, but not all of them on evidence."""
    decided_by: DecidedBy
    reasoning: str = ""
    refused: tuple[CriterionResult, ...] = ()
    """The criteria for which it was refused."""
    seconds: float = 0
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    cost_known_usd: float = 0
    cost_provenance: Provenance = "observed"


class FailedModel(Value):
    """A model that failed before the child had done anything, so that another one of its tier did the task."""

    model: str
    """Its catalog id."""
    error: ErrorDetail


class Attempt(Value):
    """One of several attempts at a task. Its whole result is on record under its handle."""

    handle: str | None
    chosen: bool
    """Whether its result is the task's."""
    status: RunStatus
    verdict: VerdictWord | None
    code: Annotated[VerdictCode, AS_TEXT] | None
    level: Level | None
    score: float | None
    model: str | None
    cost_usd: float | None
    """None if a price is unknown."""


class TaskResult(Value):
    """The final result of one task. The verdict is the first field, so that truncation can't remove it."""

    verdict: Verdict | None
    """None if the task had no criteria. No verdict doesn't mean PASS."""
    task_index: int
    status: RunStatus
    report: str
    """The child's own report, truncated with a notice if it is long. See `whole_report` for the whole text."""
    structured_output: Any = None
    artifacts: tuple[Artifact, ...] = ()
    receipts: ReceiptCounts = ReceiptCounts()
    error: ErrorDetail | None = None
    model: str | None = None
    """The model that answered, as named by the provider."""
    requested_model: str | None = None
    """The catalog id of the requested model."""
    substituted: bool = False
    """Whether the provider served a different model than the one requested."""
    failed_models: tuple[FailedModel, ...] = ()
    """The models that were selected before `requested_model`, and failed before the child had done anything."""
    tier: Tier | None = None
    usage: Usage = Usage()
    """The child's model calls. The judge's are in `verdict.judge`, and those of the child's own children in
    `delegated`."""
    cost_usd: float | None = None
    """The cost of the child, its judges and everything that it delegated. None if a price is unknown."""
    cost_known_usd: float = 0
    """The sum of all known costs."""
    cost_provenance: Provenance = "unknown"
    verification_share: float | None = None
    """The share of the cost that was spent on judges, 0 to 1. None if the cost is unknown or zero."""
    delegated: "Totals | None" = None
    """Totals of the tasks that the child delegated. None if there were none."""
    seconds: float = 0
    workspace: str | None = None
    goal_end: GoalEnd | None = None
    """How work in goal mode ended. None in all other tasks, and where an error or a cancel ended it: see `error`."""
    claims: tuple[Claim, ...] = ()
    """In goal mode: when the child claimed to be done, and what was refused. Their cost is part of the task's."""
    take_over: str | None = None
    """The shell command that brings the changes of a worktree into the checkout that it was made from. None if there
    are no changes, or if no command can: see `no_take_over`."""
    no_take_over: str | None = None
    """Why no command brings the changes of a worktree or a copy to where it was made from."""
    attempts: tuple[Attempt, ...] = ()
    """All attempts at the task, in the order in which they began, if there were several. The cost and usage of this
    result are those of the chosen one; a run's totals have those of all."""
    handle: str | None = None
    """The key of the task's record, for `delegate show HANDLE` and `Delegator.records.read(handle)`."""
    _read_report: Callable[[], str] | None = None

    @property
    def whole_report(self) -> str:
        """The child's whole report. If `report` is truncated, every access reads the report from the task's record.

        A result parsed from JSON has no access to its record and returns its `report`.

        Raises:
            DelegateError: The record was removed or can't be read.
        """
        return self.report if self._read_report is None else self._read_report()

    @property
    def good(self) -> bool:
        """Whether the child completed and the verdict isn't FAIL."""
        return self.status == "completed" and (self.verdict is None or self.verdict.verdict == "PASS")

    @property
    def examined(self) -> bool:
        """Whether the result says something about the work. False if the child couldn't run (no access to the provider,
        no workspace, cancelled, no budget), or if no judge or check could look at its work.
        """
        if self.status in ("cancelled", "budget_exceeded"):
            return False
        if self.status == "failed" and self.error is not None:
            return self.error.code not in _COULD_NOT_RUN
        return self.status != "completed" or self.verdict is None or self.verdict.examined

    def with_whole_report(self, read: Callable[[], str]) -> Self:
        """Return a copy of the result whose `whole_report` is read by `read`."""
        result = self.model_copy()
        result._read_report = read
        return result

    def __str__(self) -> str:
        """The result in one line: the task's number, and its verdict or how it ended."""
        text = str(self.verdict) if self.verdict is not None else "no verdict (no criteria)"
        if self.status != "completed":
            text = f"{self.status}: {one_line(self.error.message)}" if self.error else self.status
            text = f"FAIL, {text}" if self.verdict is not None else text
        return f"task {self.task_index + 1}: {text}"

    def _repr_html_(self) -> str:
        """A table of the criteria, for notebooks."""
        return criteria_table(str(self), self.verdict) if self.verdict else html_table(str(self), (), ())


class Totals(Value):
    """Sums over the results of a run. `cost_usd` is None if any price is unknown; `cost_known_usd` sums the rest.

    Usage and costs include the tasks that children delegated. The task counts don't.
    """

    tasks: int = 0
    passed: int = 0
    failed: int = 0
    unjudged: int = 0
    completed: int = 0
    gate: dict[str, int] = Field(default_factory=dict)
    """Number of tasks by the gate's reason code, even if the gate is switched off."""
    child_usage: Usage = Usage()
    judge_usage: Usage = Usage()
    child_cost_usd: float | None = None
    judge_cost_usd: float | None = None
    cost_usd: float | None = None
    cost_known_usd: float = 0
    cost_provenance: Provenance = "observed"
    verification_share: float | None = None
    """The share of the cost that was spent on judges, 0 to 1. None if the cost is unknown or zero."""
    seconds: float = 0


class RunResult(Value):
    """The result of one call: the task results in order, or the error for which the call was refused."""

    error: ErrorDetail | None = None
    results: tuple[TaskResult, ...] = ()
    totals: Totals = Totals()
    run_id: str | None = None

    @model_serializer(mode="wrap")
    def _error_or_results(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = cast("dict[str, Any]", handler(self))
        error = fields.pop("error", None)
        return fields if self.error is None else {"error": error}

    @property
    def all_pass(self) -> bool:
        """Whether every task completed and no verdict is FAIL. The `delegate` command exits with 0 if this is true."""
        return self.error is None and all(result.good for result in self.results)

    @property
    def examined(self) -> bool:
        """Whether the result says something about the work: all tasks succeeded, or the work of at least one is bad.

        The `delegate` command exits with 3 if this is false.
        """
        return self.all_pass or any(result.examined for result in self.results if not result.good)

    def __str__(self) -> str:
        """At most five lines: the counts and the cost, then the tasks that failed."""
        if self.error is not None:
            hint = f" ({self.error.hint})" if self.error.hint else ""
            return one_line(f"refused: {self.error.code}: {self.error.message}") + hint
        failures = [result for result in self.results if not result.good]
        visible = failures if len(failures) <= _FAILED_LINES else failures[: _FAILED_LINES - 1]
        lines = [self._headline(), *map(str, visible)]
        lines += [f"and {len(failures) - len(visible)} more that failed"] if len(visible) < len(failures) else []
        return "\n".join(lines)

    def _headline(self) -> str:
        words = [result.verdict.verdict if result.verdict else "without criteria" for result in self.results]
        counts = [f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "without criteria") if word in words]
        totals = self.totals
        cost = "cost unknown" if totals.cost_usd is None else usd(totals.cost_usd)
        cost += " (estimated)" if totals.cost_usd is not None and totals.cost_provenance == "estimated" else ""
        parts = [", ".join(counts) or "no results", f"{self.totals.seconds:.1f} s", cost]
        return ", ".join([*parts, *([f"run {self.run_id}"] if self.run_id else [])])

    def _repr_html_(self) -> str:
        """A table of the tasks, for notebooks."""
        rows = [
            (
                str(result.task_index + 1),
                f"{result.verdict.verdict} ({result.verdict.worth})" if result.verdict else "no criteria",
                result.status,
                "" if result.good else str(result).partition(": ")[2],
                f"{result.seconds:.1f}",
                rough_usd(result.cost_usd, estimated=result.cost_provenance == "estimated"),
                result.handle or "",
            )
            for result in self.results
        ]
        columns = ("task", "verdict", "status", "reason", "s", "cost", "handle")
        return html_table(str(self).partition("\n")[0], columns, rows)
