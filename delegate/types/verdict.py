"""How work was judged: `Verdict`, and every criterion's result."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Literal, get_args

from pydantic import Field

from delegate.types.base import AS_TEXT, Level, Text, Tier, Value
from delegate.types.codes import FindingCode, NobodyLookedCode, OwnCode, VerdictCode
from delegate.types.criteria import AboutKind
from delegate.types.lines import html_table, one_line
from delegate.types.work import Provenance, Receipt, Usage

CriterionOutcome = Literal["met", "not_met", "cannot_tell", "error", "trusted", "skipped"]
PASSING: tuple[CriterionOutcome, ...] = ("met", "trusted")
"""The outcomes that a PASS requires of every criterion that decides."""
DecidedBy = Literal["gate", "check", "judge", "trust", "nobody"]
VerdictWord = Literal["PASS", "FAIL"]
ReceiptsAvailability = Literal["recorded", "partial", "reported", "unavailable"]
UNRECORDED: Mapping[ReceiptsAvailability, str] = {
    "partial": "were recorded where delegate made them; of others there is only what the worker says",
    "reported": "are what the worker says, so only checks prove what was done",
    "unavailable": "were not recorded, so only checks prove what was done",
}
"""What the lack of a record means for a verdict, for people."""


_NOBODY_LOOKED = frozenset(get_args(NobodyLookedCode))

ReadBy = Literal[
    "parent",  # the criterion says what it is about
    "model",  # a model read it, without seeing the child's work
    "stored",  # a model read the same criterion, goal and tools before
    "nobody",  # no model could be asked, or its answer couldn't be used
]


class StatementPart(Value):
    """One independent statement of a criterion in words, and what would prove it."""

    text: str
    about: AboutKind
    files: tuple[str, ...] = ()
    """Paths or globs. For an `absence`, files that must not change; those after `!` may."""
    tools: tuple[str, ...] = ()
    """The tools that can bring a deed about, or would violate an absence. Empty if they aren't known."""
    names: tuple[str, ...] = ()
    """Ids, addresses, proper names, numbers, dates and times that the call must contain."""
    allowed: tuple[str, ...] = ()
    """For an absence: what stands in calls that are allowed all the same."""
    claim: bool = False
    """Whether it asks only that the report says that something was done or is so."""
    whole: bool = True
    """Whether only the whole of a text, a file or all calls can show it, and not one passage."""

    def __str__(self) -> str:
        """What it is about in a few words, such as ``deed, by `set_status` with 12``."""
        files = f": {', '.join(self.files)}" if self.files else ""
        word = "of" if self.about == "absence" else "by"
        by = f", {word} {', '.join(f'`{tool}`' for tool in self.tools)}" if self.tools else ""
        names = f"{'' if by else ','} with {', '.join(self.names)}" if self.names else ""
        allowed = f", but for {', '.join(self.allowed)}" if self.allowed else ""
        return f"{self.about}{files}{by}{names}{allowed}"


class CriterionReading(Value):
    """What a criterion in words is about, as it was read before its child's work was known."""

    by: ReadBy
    parts: tuple[StatementPart, ...] = Field(min_length=1)

    def __str__(self) -> str:
        """What the criterion was read as, in a few words."""
        about = "; ".join(map(str, self.parts))
        return {"nobody": "not read, so ", "parent": "the criterion is about "}.get(self.by, "read as ") + about


class PartResult(Value):
    """The outcome of one of several parts of a criterion in words."""

    text: str
    outcome: "CriterionOutcome"
    code: Annotated[VerdictCode, AS_TEXT]
    reason: str = ""
    evidence: str | None = None
    source: str | None = None


CitationState = Literal[
    "quoted",  # a quoted passage stands literally in the source, and the source supports the statement
    "supported",  # the source supports the statement, by a passage that a judge quoted
    "opened",  # the source was opened, and nobody could tell whether it supports the statement
    "not_opened",  # no recorded call opened it, or it didn't answer
    "not_found_there",  # a quote, a number or the statement doesn't stand in what came back
]
HOLDING: tuple[CitationState, ...] = ("quoted", "supported")
"""The states of citations that count."""


class Citation(Value):
    """One source that the work cites for one statement, and what was found there."""

    source: str
    """The URL or the path, as it is cited."""
    statement: str
    """The sentence, or the cells of the row, shortened. Empty if the source is only listed."""
    state: CitationState
    field: str = ""
    """Of a row: the column, or the path of the JSON field, that cites, such as `ceo.source`."""
    reason: str = ""
    evidence: str | None = None
    """A passage of the source."""
    receipt: int | None = None
    """The number of the call that opened it."""
    answered_by: str | None = None
    """The host that answered, if it is another one than was asked."""


class CriterionResult(Value):
    """The outcome of one criterion, who decided it, and on what evidence."""

    id: str
    text: str
    kind: str
    outcome: CriterionOutcome
    decided_by: DecidedBy
    code: Annotated[VerdictCode, AS_TEXT]
    """A stable reason code, such as `met`, `not_met`, `evidence_not_found`, `timeout` or `commands_not_allowed`."""
    reason: str = ""
    evidence: str | None = None
    source: str | None = None
    """Where the quoted evidence was found: `report`, `said`, `artifacts`, `artifact:<path>`, `file:<path>`,
    `receipt:<n>`, `check:<id>`, `look:<n>` or `record`."""
    reading: CriterionReading | None = None
    """For criteria in words: how it was read, which decides what can prove it."""
    parts: tuple[PartResult, ...] = ()
    """For criteria in words that were read as several statements: the outcome of each."""
    citations: tuple[Citation, ...] = ()
    """For criteria about citations: each one."""
    weight: float = 1
    findings_only: bool = False
    score: float | None = None
    """A rubric's score, 0 to 1. None for all other kinds of criteria."""
    scores: dict[str, float] = Field(default_factory=dict)
    """The score of each dimension of a rubric."""
    level: Level | None = None
    """What it rests on, if it is met or on trust, or would be if that were enough (`below_min_level`)."""
    held_before: bool = False
    """For commands: whether it succeeded before the child began, so that its success shows nothing of the work."""

    @property
    def place(self) -> str:
        """Where the evidence was found, in words."""
        kind, _, name = (self.source or "").partition(":")
        places = {
            "report": "the report",
            "said": "the conversation",
            "artifacts": "the list of files",
            "artifact": name,
            "file": name,
            "receipt": f"call {name}",
            "look": f"look {name}",
            "record": "all calls and changes",
            "check": f"check {name}",
        }
        return places.get(kind, self.source or "")

    @property
    def fails(self) -> bool:
        """Whether this result makes the verdict a FAIL. A skipped criterion doesn't: what it waited for does."""
        return not self.findings_only and self.outcome in ("not_met", "cannot_tell", "error")

    @property
    def examined(self) -> bool:
        """Whether the result says something about the work. False if it couldn't be examined."""
        return self.code not in _NOBODY_LOOKED


class Finding(Value):
    """An observation that doesn't affect the verdict."""

    severity: Literal["critical", "major", "minor", "info"]
    code: Annotated[VerdictCode | FindingCode | OwnCode, AS_TEXT]
    message: str


class Candidate(Value):
    """A model considered as a judge. `reason` says why it wasn't chosen, and is None for the chosen model."""

    model: str
    rank: int | None = None
    """1 for the chosen model, 2 for the next one to be asked, and so on. None for models that may not judge."""
    provider: str
    tier: Tier
    family: str
    estimated_cost_usd: float | None = None
    reason: str | None = None


class JudgeAnswer(Value):
    """A judge's answer on one criterion that was then put to another judge."""

    id: str
    outcome: CriterionOutcome
    code: Annotated[VerdictCode, AS_TEXT]
    reason: str = ""
    evidence: str | None = None


class JudgeLook(Receipt):
    """One look of a judge at more than its page, which the runtime made. The judge quotes it as `look:<n>`."""

    model: str = ""
    """The judge that looked."""


class JudgeAttempt(Value):
    """One judge model that was asked, and either answered or failed with `fault`.

    `usage.model_calls` counts its calls: the answer, and one before it for each turn in which it looked at something.
    """

    model: str
    purpose: Literal["judging", "reading"] = "judging"
    """`reading`: the model was asked what criteria are about. One request reads those of all tasks of a call, and the
    first of them that gets a verdict bears its cost."""
    model_served: str | None = None
    fault: str | None = None
    """The `ProviderError`'s fault, such as `rate_limited`, `overloaded`, `connection` or `timeout`; `budget_exceeded`
    if the budget didn't allow to repeat a failed call. None if the model answered."""
    message: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    seconds: float = 0
    answers: tuple[JudgeAnswer, ...] = ()
    """The answers on criteria that were then put to another judge (escalation)."""


RulingWord = Literal["met", "not_met"]
Sampling = Literal["random", "chosen"]
"""How a criterion came to be ruled on: drawn at random, or picked by somebody, such as because it looked odd."""


class Ruling(Value):
    """The word of a person, or of a check that is trusted, on one criterion that was judged before.

    It holds all that is needed to measure the judge, so that it outlives the record of the task.
    """

    task: Text
    """The handle of the task; for work that isn't on record, any name that tells it from others."""
    criterion: Text
    """The criterion's id."""
    ruling: RulingWord
    judged: CriterionOutcome
    """What the judge said, or the check found."""
    ruled_by: Text
    decided_by: DecidedBy = "judge"
    judge: str = ""
    """The model that judged. Empty if no judge was asked."""
    judge_version: str = ""
    """A digest of the judging method, as on the verdict."""
    rubric_version: str = ""
    worker: str = ""
    """The model that did the work, if it is known."""
    kind: str = ""
    """The criterion's kind."""
    reason_code: str = ""
    """The criterion's reason code in the verdict."""
    sampling: Sampling = "chosen"
    because: str = ""
    at: float = Field(default=0, ge=0, le=253_000_000_000, allow_inf_nan=False)
    """Seconds since the epoch, up to the year 9987."""


class FalsePassRate(Value):
    """How often a judge says `met` where it isn't so, measured by rulings on criteria drawn at random."""

    judge: str
    worker: str | None = None
    """The model whose work was ruled on; None for all models together."""
    n: int
    """The number of criteria that were ruled not met."""
    false_passes: int
    """How many of them the judge found met."""
    upper: float
    """The upper limit of the exact 95 % interval of the rate."""
    limit: float
    """The setting `max_false_pass`. Only a judge whose `upper` is below it decides alone."""
    measured_on: date | None = None
    """The day of the latest ruling."""


def answered(attempts: Sequence[JudgeAttempt]) -> list[JudgeAttempt]:
    """The requests that a judge answered, without those that read the criteria."""
    return [attempt for attempt in attempts if attempt.fault is None and attempt.purpose == "judging"]


class JudgeRecord(Value):
    """Which model judged, why it was chosen, and what the judging cost. `model` is None if no model answered.

    Usage and cost are the sums over all `attempts`.
    """

    model: str | None = None
    model_served: str | None = None
    substituted: bool = False
    """Whether the provider served a different model than the one requested."""
    provider: str | None = None
    tier: Tier | None = None
    family: str | None = None
    same_model_as_worker: bool = False
    same_family_as_worker: bool = False
    candidates: tuple[Candidate, ...] = ()
    attempts: tuple[JudgeAttempt, ...] = ()
    """All requests to judges, in order."""
    looks: tuple[JudgeLook, ...] = ()
    """What the judges looked at besides their pages."""
    escalated: bool = False
    """Whether a second judge, of another family, was asked about criteria that the first couldn't decide or prove, or
    may not decide alone."""
    false_pass: FalsePassRate | None = None
    """With the setting `max_false_pass`: the measured error rate that the verdict relies on. None if there is none."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    cost_known_usd: float = 0
    cost_provenance: Provenance = "observed"
    seconds: float = 0


LOWERED: Mapping[VerdictCode, tuple[Level, str]] = {
    "unclear_result": ("seen", "its result doesn't say whether it succeeded"),
    "own_tests_only": ("own_checks", "own tests only"),
    "check_tampered": ("own_checks", "only with what the child changed"),
    "no_clean_room": ("own_checks", "no clean room"),
    "nothing_ran": ("own_checks", "nothing ran"),
    "says_failed": ("own_checks", "its output says that it failed"),
    "own_commands": ("own_checks", "the child's own commands"),
    "own_files": ("own_checks", "the child's own files"),
    "trusted": ("trusted", "on trust"),
    "unknown_effect": ("trusted", "by a tool of unknown effect"),
    "file_unseen": ("trusted", "the file was not seen"),
    "seen_by_model": ("trusted", "seen by a model"),
    "unlinked": ("trusted", "not shown which one"),
    "unconfirmed": ("trusted", "the judge couldn't tell"),
    "unknown_tool": ("trusted", "no such tool is known"),
    "incomplete_record": ("trusted", "not everything was recorded"),
    "not_read": ("trusted", "criterion not read"),
}
"""The codes of what is met on less than it could be: the level that it reaches, and why."""


class Verdict(Value):
    """PASS or FAIL, and the reasons for it. PASS requires every criterion to be met."""

    verdict: VerdictWord
    level: Level | None = None
    """The weakest level of its criteria. None if a criterion isn't met at any level."""
    verified: bool
    """Of a PASS: whether its level is `proven` or `seen`. Of a FAIL: whether what was decided rests on evidence."""
    decided_by: DecidedBy
    code: Annotated[VerdictCode, AS_TEXT]
    reasoning: str
    criteria: tuple[CriterionResult, ...]
    findings: tuple[Finding, ...] = ()
    judge: JudgeRecord | None = None
    score: float | None = None
    """The weighted share of the decided criteria that were met, 0 to 1. It shows how close the work came, and never
    makes a PASS."""
    coverage: float = 0
    """The weighted share of the criteria that were decided, 0 to 1. A score means little if coverage is low."""
    gate: str | None = None
    """The gate's reason code, even if the gate is switched off and doesn't affect the verdict."""
    rubric_version: str = ""
    """A digest of the goal and the criteria."""
    judge_version: str = ""
    """A digest of the judging method: prompt, reply schema, parser and model."""
    reading_version: str = ""
    """A digest of the method by which criteria in words are read: prompt and reply schema."""
    sandbox: str | None = None
    """For shell checks: the sandbox mechanism."""
    receipts: ReceiptsAvailability = "recorded"
    """`unavailable` if tool calls weren't recorded, and `reported` if they are what the worker says. Neither they nor
    their lack prove anything then, and only checks show what was done. `partial` if the worker has tools of its own
    besides those that are recorded: what is on record was done, and other things may have been."""

    @property
    def examined(self) -> bool:
        """Whether the verdict says something about the work. False for a FAIL only because it couldn't be examined.

        That is so if no judge could be reached or gave a usable answer, the budget was used up, or a check couldn't
        run here, such as a command without a sandbox. If a single criterion was looked at and doesn't hold, or the gate
        refused the work, this is True. docs/verdicts.md lists the codes.
        """
        if failing := [result for result in self.criteria if result.fails]:
            return any(result.examined for result in failing)
        return self.verdict == "PASS" or self.code not in _NOBODY_LOOKED

    @property
    def worth(self) -> str:
        """Its level in words, such as `proven`; below `seen` with the criteria to which it is due: `own checks: c2`."""
        if self.level is None:  # recorded before there were levels
            return "verified" if self.verified else "unverified"
        words = self.level.replace("_", " ")
        weakest = [
            criterion.id for criterion in self.criteria if criterion.level == self.level and not criterion.findings_only
        ]
        return f"{words}: {', '.join(weakest)}" if weakest and not self.verified else words

    def __str__(self) -> str:
        """The verdict in one line, with what a PASS rests on or the reason of a FAIL."""
        return f"PASS ({self.worth})" if self.verdict == "PASS" else f"FAIL: {one_line(self.reasoning or self.code)}"

    def _repr_html_(self) -> str:
        """A table of the criteria, for notebooks."""
        return criteria_table(str(self), self)


def criteria_table(title: str, verdict: Verdict) -> str:
    rows = [(one.id, one.outcome, one.decided_by, one.text, one.reason or one.code) for one in verdict.criteria]
    return html_table(title, ("criterion", "outcome", "decided by", "text", "reason"), rows)
