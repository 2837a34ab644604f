"""The values that travel between the parts of delegate. All are frozen, none has behaviour of its own.

    Task ──▶ ChildRun ──▶ Verdict ──▶ TaskResult ──▶ Report

Read top down: what is asked (`Task`, `Criterion`), what a child did (`ChildRun`, `Receipt`, `Artifact`), what was
found out about it (`Verdict`), and what the parent gets (`TaskResult`, `Report`). `schemas/*.json` hold the same
shapes for readers in other languages; a test keeps the two equal.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

JsonObject = dict[str, Any]
Tier = Literal["deep", "standard", "fast"]
TIERS: tuple[Tier, ...] = ("deep", "standard", "fast")
"""Strongest first; an earlier one may delegate to a later one, never the other way round."""
TierBound = Literal["deep", "standard", "fast", "parent", "parent-1", "parent-2"]
"""A tier, or the parent's own, or one or two below it."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
CriterionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
OUTPUT_SCHEMA_ID = "output_schema"
"""Id of the criterion that a task's `output_schema` becomes."""


class Value(BaseModel):
    """Base of all values: frozen, and strict about names, so that a typo is an error and not a silence."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,  # validators are built when first used: importing delegate stays quick
    )


# ---------------------------------------------------------------------------------------------- what is asked


class CriterionBase(Value):
    """What all criteria have in common. `id` is `c1`, `c2`, … in the order given, unless one is named."""

    id: CriterionId | None = None
    depends_on: tuple[CriterionId, ...] = ()
    """Criteria that must be met before this one is looked at; otherwise it is `skipped`, which is never met."""
    weight: float = Field(default=1, ge=0)
    """Its share in the verdict's score. The verdict itself doesn't weigh: every criterion must be met."""
    findings_only: bool = False
    """Not met is then a finding on the verdict, and no reason for a FAIL."""

    def describe(self) -> str:
        """The criterion in one line, as the child, the judge and the parent read it."""
        raise NotImplementedError


class TextCriterion(CriterionBase):
    """A statement in words that a judge decides. A plain string is one of these."""

    kind: Literal["text"] = "text"
    text: Text

    def describe(self) -> str:
        return self.text


class QuestionCriterion(CriterionBase):
    """A yes/no question that a judge decides. `high_confidence` also asks the judge to be sure."""

    kind: Literal["question"]
    question: Text
    threshold: Literal["yes", "high_confidence"] = "yes"

    def describe(self) -> str:
        return self.question if self.threshold == "yes" else f"{self.question} (with high confidence)"


class ShellCriterion(CriterionBase):
    """A command, run in the child's workspace after the child has ended, that must leave with `exit_code`."""

    kind: Literal["shell"]
    command: Text
    exit_code: int = Field(default=0, ge=0, le=255)
    timeout_seconds: float = Field(default=120, gt=0, le=3600)
    network: Literal["host", "none"] = "host"
    """`host`: the command sees the machine's network, loopback included. `none`: none, inside a sandbox."""

    def describe(self) -> str:
        return f"`{self.command}` exits with {self.exit_code}"


class JsonPredicateCriterion(CriterionBase):
    """A JavaScript-style expression over the output parsed as JSON."""

    kind: Literal["json_predicate"]
    expr: Text

    def describe(self) -> str:
        return f"output satisfies {self.expr}"


class JsonSchemaCriterion(CriterionBase):
    """A JSON Schema for the output's JSON (the last fenced JSON block, else the whole text)."""

    kind: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")

    def describe(self) -> str:
        return f"output is JSON that fits {_short_json(self.schema_)}"


class FileCriterion(CriterionBase):
    """A file in the child's workspace. Every field that is given must hold."""

    kind: Literal["file"]
    path: Text
    exists: bool = True
    min_bytes: int | None = Field(default=None, ge=0)
    contains: str | None = None
    json_schema: JsonObject | None = None

    def describe(self) -> str:
        if not self.exists:
            return f"file {self.path} does not exist"
        wants = [f"file {self.path} exists"]
        wants += [f"has at least {self.min_bytes} bytes"] if self.min_bytes is not None else []
        wants += [f"contains {self.contains!r}"] if self.contains is not None else []
        wants += [f"is JSON that fits {_short_json(self.json_schema)}"] if self.json_schema is not None else []
        return ", ".join(wants)


class RegexCriterion(CriterionBase):
    """A regular expression (Python syntax) that must be found in the output."""

    kind: Literal["regex"]
    pattern: Text

    def describe(self) -> str:
        return f"output matches /{self.pattern}/"


class ExpectedCall(Value):
    """One tool call to look for. `args` match as a subset; a value may be `{"matches": regex}`."""

    tool: Text
    args: JsonObject = Field(default_factory=dict)


class ReceiptCriterion(CriterionBase):
    """The child's successful tool calls, from the runtime's own record.

    `of` names the tools that are counted; by default those in `calls`.
    """

    kind: Literal["receipt"]
    mode: Literal["at_least", "exactly", "none"] = "at_least"
    calls: tuple[ExpectedCall, ...] = ()
    of: tuple[Text, ...] | None = None

    def describe(self) -> str:
        calls = ", ".join(call.tool for call in self.calls) or ", ".join(self.of or ()) or "any tool"
        return {"at_least": "called", "exactly": "called exactly", "none": "never called"}[self.mode] + f" {calls}"


class RubricDimension(Value):
    """One thing that a judge scores, from `min` to `max`."""

    id: CriterionId
    description: Text
    weight: float = Field(default=1, ge=0)
    min: float = 0
    max: float = 1

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"dimension {self.id}: min {self.min:g} must be below max {self.max:g}")
        return self


class NamedMode(Value):
    """A failure or a win that a judge may name."""

    id: CriterionId
    description: Text


class Rubric(Value):
    """Dimensions with weights; the weighted mean must reach `threshold` (0 to 1)."""

    name: Text
    description: str = ""
    dimensions: tuple[RubricDimension, ...] = Field(min_length=1)
    failure_modes: tuple[NamedMode, ...] = ()
    wins: tuple[NamedMode, ...] = ()
    threshold: float = Field(default=0.7, ge=0, le=1)


class RubricCriterion(CriterionBase):
    """A rubric, by the name of a file in `judges/rubrics/` or inline."""

    kind: Literal["rubric"]
    rubric: Text | Rubric
    threshold: float | None = Field(default=None, ge=0, le=1)

    def describe(self) -> str:
        name = self.rubric if isinstance(self.rubric, str) else self.rubric.name
        return f"scores well on the rubric {name}"


class ManualCriterion(CriterionBase):
    """Something only a person can confirm. It is met on trust, and the verdict then isn't `verified`."""

    kind: Literal["manual"]
    text: Text

    def describe(self) -> str:
        return self.text


AnyCriterion = (
    TextCriterion
    | QuestionCriterion
    | ShellCriterion
    | JsonPredicateCriterion
    | JsonSchemaCriterion
    | FileCriterion
    | RegexCriterion
    | ReceiptCriterion
    | RubricCriterion
    | ManualCriterion
)


def _string_is_text(value: object) -> object:
    return {"kind": "text", "text": value} if isinstance(value, str) else value


Criterion = Annotated[Annotated[AnyCriterion, Field(discriminator="kind")], BeforeValidator(_string_is_text)]


class Workspace(Value):
    """Where a child works. A plain path is `{"mode": "shared", "path": path}`.

    `fresh`: an empty folder of its own. `copy`: a folder of its own that starts as a copy of `path`.
    `worktree`: a git worktree of the repository `path`, at the revision `base` (default: `HEAD`); changes that aren't
    committed aren't in it. `shared`: `path` itself.
    """

    mode: Literal["fresh", "copy", "worktree", "shared"] = "fresh"
    path: Path | None = None
    base: Annotated[str, StringConstraints(pattern=r"^[^-\x00][^\x00]{0,199}$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: object) -> object:
        return {"mode": "shared", "path": value} if isinstance(value, (str, Path)) else value

    @model_validator(mode="after")
    def _has_path(self) -> Self:
        if (self.path is None) != (self.mode == "fresh"):
            raise ValueError(f"workspace mode {self.mode!r} {'takes no' if self.path else 'needs a'} path")
        if self.base is not None and self.mode != "worktree":
            raise ValueError(f"workspace mode {self.mode!r} takes no base; worktree does")
        return self


class Task(Value):
    """One piece of work for one child. Only `goal` is needed; limits left out come from the settings."""

    goal: Text
    context: str | None = None
    acceptance_criteria: tuple[Criterion, ...] = ()
    output_schema: JsonObject | None = None
    tier: Tier | None = None
    model: Text | None = None
    tools: tuple[str, ...] | None = None
    """Names of the tools the child may use; None means all that the host gives."""
    workspace: Workspace | None = None
    max_steps: int | None = Field(default=None, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)
    max_cost_usd: float | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _number_criteria(cls, value: object) -> object:
        """Give every criterion its id. Done on the raw input, so that the frozen values are made once."""
        if not isinstance(value, Mapping):
            return value
        fields = dict(cast("Mapping[str, object]", value))
        given = fields.get("acceptance_criteria")
        if isinstance(given, Sequence) and not isinstance(given, str):
            numbered = enumerate(cast("Sequence[object]", given), start=1)
            fields["acceptance_criteria"] = [_with_id(criterion, f"c{n}") for n, criterion in numbered]
        return fields

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [criterion.id for criterion in self.criteria]
        if twice := {str(id) for id in ids if ids.count(id) > 1}:
            raise ValueError(f"criterion id used twice: {', '.join(sorted(twice))}")
        return self

    @model_validator(mode="after")
    def _dependencies_can_be_met(self) -> Self:
        waits = {str(criterion.id): set(criterion.depends_on) for criterion in self.criteria}
        for id, needs in waits.items():
            if unknown := needs - waits.keys():
                raise ValueError(f"criterion {id} depends on {min(unknown)}, which is no criterion of this task")
        while free := {id for id, needs in waits.items() if not needs}:
            waits = {id: needs - free for id, needs in waits.items() if id not in free}
        if waits:
            raise ValueError(f"criteria depend on each other in a circle: {', '.join(sorted(waits))}")
        return self

    @property
    def criteria(self) -> tuple[AnyCriterion, ...]:
        """All that must hold: the acceptance criteria, and the output schema as one more."""
        if self.output_schema is None:
            return self.acceptance_criteria
        shape = JsonSchemaCriterion(kind="json_schema", id=OUTPUT_SCHEMA_ID, schema=self.output_schema)
        return (*self.acceptance_criteria, shape)


class Parent(Value):
    """What a host knows of the parent that calls. Everything is optional; nothing here can widen a limit."""

    run_id: Text | None = None
    """The host's name for the root run: calls with the same one share a ledger, however many are made at once."""
    model: Text | None = None
    """What the parent runs on; its tier is the ceiling for its children."""
    tier: Tier | None = None
    """The parent's tier, where its model isn't in the catalog; with both, the weaker counts."""
    seconds_left: float | None = Field(default=None, ge=0)
    """Wall time that the parent has left: its children end within it, and their judging."""
    tools: tuple[str, ...] | None = None
    """Names of the parent's tools, where children use the host's: beyond them its children get none."""


def _with_id(criterion: object, id: str) -> object:
    criterion = _string_is_text(criterion)
    if isinstance(criterion, CriterionBase):
        return criterion if criterion.id else criterion.model_copy(update={"id": id})
    if isinstance(criterion, Mapping):
        fields = cast("Mapping[str, object]", criterion)
        return fields if fields.get("id") else {**fields, "id": id}
    return criterion


def _short_json(schema: JsonObject) -> str:
    import json

    text = json.dumps(schema, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


# -------------------------------------------------------------------------------------------- what a child did

RunStatus = Literal["completed", "failed", "timeout", "cancelled", "budget_exceeded", "max_steps"]
ReceiptStatus = Literal["ok", "error", "denied", "timeout"]


class Usage(Value):
    """Tokens of one or more model calls, as the providers reported them.

    `cached_tokens` (read from the provider's cache) and `cache_write_tokens` (written to it, at a price of its own)
    are part of `input_tokens`; `reasoning_tokens` are part of `output_tokens`.
    """

    model_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            model_calls=self.model_calls + other.model_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


Provenance = Literal[
    "observed",  # tokens as the provider counted them, at the price of the model that it says it served
    "estimated",  # tokens or the price are a guess: it counted none, or served a model under a name we don't know
    "unknown",  # a price is missing, and the cost is null
]
"""How a cost is known; of several costs, the least sure one."""


class Receipt(Value):
    """What the runtime recorded about one tool call. The child cannot write one."""

    n: int = 0
    tool: str
    args: JsonObject = Field(default_factory=dict)
    status: ReceiptStatus
    output: str = ""
    """What the tool answered, bounded; `output_bytes` and `output_sha256` are those of the whole."""
    args_sha256: str = ""
    output_sha256: str = ""
    output_bytes: int = 0
    seconds: float = 0
    sandbox: str | None = None
    """For commands: the mechanism that confined it (`bubblewrap`, `process`)."""


class Artifact(Value):
    """A file that the child created, changed or deleted in its workspace, and `path` its place from there.

    For a worktree with changes, the first artifact is the diff against its base, in a file beside the workspace.
    """

    path: str
    change: Literal["created", "changed", "deleted"]
    bytes: int = 0
    sha256: str | None = None
    """Of its content now. None for links and deleted files, for what can't be read, and past a bound."""
    link_to: str | None = None
    """Where it points, if it is a symbolic link; links aren't followed."""


class ErrorDetail(Value):
    """A failure as data. For a refused call: `field` names the place and `hint` the mend."""

    code: str
    message: str
    field: str | None = None
    hint: str | None = None


class PlanStep(Value):
    """One step of a plan that a runner reports."""

    text: str
    done: bool


class ChildRun(Value):
    """How one child ended, and all that it left: also after a failure, a timeout or a cancel.

    `plan`, `pending` and `observations` are for runners that know such things; the gate reads them.
    """

    status: RunStatus
    output: str = ""
    receipts: tuple[Receipt, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error: ErrorDetail | None = None
    model: str | None = None
    """The model that really answered, as the provider named it."""
    substituted: bool = False
    """The provider served another model than the one that was asked for."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None when a price is unknown; never 0 for that reason."""
    cost_known_usd: float = 0
    """The sum of what is known; equal to `cost_usd` where that is."""
    cost_provenance: Provenance = "unknown"
    steps: int = 0
    seconds: float = 0
    plan: tuple[PlanStep, ...] = ()
    """The child's plan, with what was done of it."""
    pending: tuple[str, ...] = ()
    """Values that the child still had to fill in, such as the fields of a form."""
    observations: tuple[str, ...] = ()
    """What the child's surroundings looked like, step by step, as texts or digests that can be compared."""


# ------------------------------------------------------------------------------------ what was found out about it

CriterionOutcome = Literal["met", "not_met", "cannot_tell", "error", "trusted", "skipped"]
DecidedBy = Literal["gate", "check", "judge", "trust", "nobody"]
VerdictWord = Literal["PASS", "FAIL"]
ReceiptsAvailability = Literal["recorded", "unavailable"]


class CriterionResult(Value):
    """How one criterion came out, who decided it, and on what evidence."""

    id: str
    text: str
    kind: str
    outcome: CriterionOutcome
    decided_by: DecidedBy
    code: str
    """A stable reason, such as `met`, `not_met`, `evidence_not_found`, `timeout`, `commands_not_allowed`."""
    reason: str = ""
    evidence: str | None = None
    source: str | None = None
    """Where code found the evidence: `output`, `artifact:<path>`, `receipt:<n>` or `check:<id>`."""
    weight: float = 1
    findings_only: bool = False
    score: float | None = None
    """0 to 1, from a rubric; None for criteria that are met or not."""


def _current_code(code: object) -> object:
    """Records written before the code was renamed have `muffled_check`."""
    return "vacuous_check" if code == "muffled_check" else code


class Finding(Value):
    """Something worth knowing that decides nothing by itself."""

    severity: Literal["critical", "major", "minor", "info"]
    code: Annotated[str, BeforeValidator(_current_code)]
    message: str


class Candidate(Value):
    """One model that could have judged, and why it does or doesn't. `reason` is None for the chosen one."""

    model: str
    rank: int | None = None
    """1 for the chosen one, 2 for the next that would be asked; None for those that may not judge."""
    provider: str
    tier: Tier
    family: str
    estimated_cost_usd: float | None = None
    reason: str | None = None


class JudgeAnswer(Value):
    """What one judge made of one criterion, where it didn't have the last word."""

    id: str
    outcome: CriterionOutcome
    code: str
    reason: str = ""
    evidence: str | None = None


class JudgeAttempt(Value):
    """One question put to one model: it answered, or `fault` says why not."""

    model: str
    model_served: str | None = None
    fault: str | None = None
    """A `ProviderError`'s fault, such as `rate_limited`, `overloaded`, `connection` or `timeout`; None: it answered."""
    message: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    seconds: float = 0
    answers: tuple[JudgeAnswer, ...] = ()
    """What it answered on the criteria on which another judge was asked after it (escalation)."""


class JudgeRecord(Value):
    """Which model judged, why that one, and what it cost. `model` is None when none answered.

    Usage and cost are those of all `attempts` together.
    """

    model: str | None = None
    model_served: str | None = None
    substituted: bool = False
    """The provider served another model than the one that was asked for."""
    provider: str | None = None
    tier: Tier | None = None
    family: str | None = None
    same_model_as_worker: bool = False
    same_family_as_worker: bool = False
    candidates: tuple[Candidate, ...] = ()
    attempts: tuple[JudgeAttempt, ...] = ()
    """Every model that was asked, in order."""
    escalated: bool = False
    """A second judge, of another family, was asked what the first couldn't tell or prove."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    cost_known_usd: float = 0
    cost_provenance: Provenance = "observed"
    seconds: float = 0


class Verdict(Value):
    """PASS or FAIL, and what it rests on. PASS only when every criterion is met."""

    verdict: VerdictWord
    verified: bool
    """Every criterion was decided by a check, or by a judge whose quoted evidence code found."""
    decided_by: DecidedBy
    code: str
    reasoning: str
    criteria: tuple[CriterionResult, ...]
    findings: tuple[Finding, ...] = ()
    judge: JudgeRecord | None = None
    score: float | None = None
    """The weighted share of what was decided and met, 0 to 1. It says how near; it never makes a PASS."""
    coverage: float = 0
    """The weighted share of the criteria that were decided: a score without coverage says nothing."""
    gate: str | None = None
    """The gate's reason code; also when the gate is switched off and only looked."""
    rubric_version: str = ""
    """Changes with what is asked: goal and criteria."""
    judge_version: str = ""
    """Changes with how it is judged: card, reply schema, parser, model."""
    sandbox: str | None = None
    """For shell checks: the mechanism that confined them."""
    receipts: ReceiptsAvailability = "recorded"
    """`unavailable`: nobody recorded tool calls, so that none is on record proves nothing; only checks show deeds."""


# ---------------------------------------------------------------------------------------- what the parent gets


class ReceiptCounts(Value):
    """The child's tool calls in numbers; `tools` counts the successful ones by name."""

    recorded: bool = True
    """False: the runner records no tool calls, and the numbers say nothing."""
    total: int = 0
    ok: int = 0
    error: int = 0
    denied: int = 0
    timeout: int = 0
    tools: dict[str, int] = Field(default_factory=dict)


class TaskResult(Value):
    """The one terminal result of one task. The verdict comes first, so that nothing can cut it off."""

    verdict: Verdict | None
    """None when the task had no criteria. Silence is not approval."""
    task_index: int
    status: RunStatus
    summary: str
    """What the child reported, cut visibly at the end when long: see `report` for all of it. It is a self-report."""
    structured_output: Any = None
    artifacts: tuple[Artifact, ...] = ()
    receipts: ReceiptCounts = ReceiptCounts()
    error: ErrorDetail | None = None
    model: str | None = None
    """The model that really ran, as the provider named it."""
    requested_model: str | None = None
    """The model that was asked for: the catalog's id."""
    substituted: bool = False
    """The provider served another model than the one that was asked for."""
    tier: Tier | None = None
    usage: Usage = Usage()
    """The child's model calls; the judge's are on `verdict.judge`, those of its own children in `delegated`."""
    cost_usd: float | None = None
    """Child, judge and all that the child delegated; None when a price is unknown, never 0 for that reason."""
    cost_known_usd: float = 0
    """The sum of what is known."""
    cost_provenance: Provenance = "unknown"
    verification_share: float | None = None
    """What part of the cost went to judges, 0 to 1; None where the cost is unknown or nothing was spent."""
    delegated: "Totals | None" = None
    """What the child's own children came to; None when it had none."""
    seconds: float = 0
    workspace: str | None = None
    handle: str | None = None
    """Reads the whole record back: `delegate show HANDLE`, `Delegator.read(handle)`."""
    _read_report: Callable[[], str] | None = None

    @property
    def report(self) -> str:
        """The child's whole report. Where `summary` is cut, this reads the record each time it is called.

        A result that was made from JSON doesn't know its record, and gives its `summary`.

        Raises:
            DelegateError: the record is gone or can't be read.
        """
        return self.summary if self._read_report is None else self._read_report()

    def with_report(self, read: Callable[[], str]) -> Self:
        """The same result, whose `report` is what `read` gives."""
        result = self.model_copy()
        result._read_report = read
        return result


class Totals(Value):
    """Sums over a report. `cost_usd` is None as soon as one price is unknown; `cost_known_usd` sums the rest.

    Usage and costs include what children delegated in their turn; the counts of tasks don't.
    """

    tasks: int = 0
    passed: int = 0
    failed: int = 0
    unjudged: int = 0
    completed: int = 0
    gate: dict[str, int] = Field(default_factory=dict)
    """How often the gate gave each reason, whether or not it was switched on to act on it."""
    child_usage: Usage = Usage()
    judge_usage: Usage = Usage()
    child_cost_usd: float | None = None
    judge_cost_usd: float | None = None
    cost_usd: float | None = None
    cost_known_usd: float = 0
    cost_provenance: Provenance = "observed"
    verification_share: float | None = None
    """What part of the cost went to judges, 0 to 1; None where the cost is unknown or nothing was spent."""
    seconds: float = 0


class Report(Value):
    """What one call gives back: results in task order, or the one error that stopped it before it began."""

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
        """True when every task completed and no verdict is FAIL; what exit code 0 of the command means."""
        return self.error is None and all(
            result.status == "completed" and (result.verdict is None or result.verdict.verdict == "PASS")
            for result in self.results
        )
