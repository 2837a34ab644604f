"""The data models of delegate, all of them frozen.

    Task ──▶ ChildRun ──▶ Verdict ──▶ TaskResult ──▶ Report

In this order: the request (`Task`, `Criterion`), what a child did (`ChildRun`, `Receipt`, `Artifact`), how its work was
judged (`Verdict`), and what the parent receives (`TaskResult`, `Report`). `schemas/*.json` describe the same models for
other languages; a test keeps the two in sync.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from delegate.codes import ChildCode, Code, CouldNotRunCode, FindingCode, NobodyLookedCode, OwnCode, VerdictCode
from delegate.money import usd
from delegate.short_forms import criterion_of

JsonObject = dict[str, Any]
_AS_TEXT = GetPydanticSchema(lambda _source, handler: handler(str))
"""Validates a code as any text, because records may be of another version."""
Tier = Literal["deep", "standard", "fast"]
TIERS: tuple[Tier, ...] = ("deep", "standard", "fast")
"""All tiers, strongest first. A model may delegate to its own tier or a weaker one, never to a stronger one."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers. A model that doesn't know an effort gets the nearest one that it knows."""
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All efforts, least first."""
TaskMode = Literal["once", "goal"]
"""How a child ends. `once`: when it reports, and then its work is judged. `goal`: when its claim is verified, it gives
up, or a limit ends it; a claim that is refused goes back to the child, and work goes on."""
GoalEnd = Literal[
    "verified",  # a claim got a PASS whose every decision rests on evidence; the only end that is a PASS
    "aborted",  # the child gave up, with a report
    "budget_limited",  # a limit was reached: steps, tokens, cost, time or the number of claims
    "no_progress",  # nothing changed between claims, or the same was done again and again
]
"""How work in goal mode ended."""
Level = Literal["proven", "seen", "own_checks", "said", "trusted"]
LEVELS: tuple[Level, ...] = ("proven", "seen", "own_checks", "said", "trusted")
"""What a criterion that is met rests on, strongest first.

`proven`: code decided it, on what the child couldn't bend. `seen`: a judge saw it in a text, a file, a look or a call,
and code found the place. `own_checks`: code decided it, with tests, files or commands of the child's own. `said`: it
asks only what the report claims. `trusted`: somebody's word, a person's or a judge's, that no code could confirm.
"""
TierBound = Literal["deep", "standard", "fast", "parent", "parent-1", "parent-2"]
"""A tier, the parent's own tier, or one or two tiers below it."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
CriterionId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
OUTPUT_SCHEMA_ID = "output_schema"
"""The id of the criterion that is made from a task's `output_schema`."""


_LINE_CHARS = 240
"""Maximum length of a line that `print` shows of a verdict, a result or a report."""
_FAILED_LINES = 4


class Value(BaseModel):
    """Base class of all models: frozen, and unknown fields are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,  # validators are built on first use, which keeps `import delegate` fast
    )


# ------------------------------------------------------------------------------------------------ the request


class CriterionBase(Value):
    """Fields shared by all criteria. `id` defaults to `c1`, `c2`, … in the order given."""

    id: CriterionId | None = None
    depends_on: tuple[CriterionId, ...] = ()
    """Ids of the criteria that must be met before this one is evaluated. Otherwise it is `skipped`, which counts as
    not met."""
    weight: float = Field(default=1, ge=0)
    """Weight in the verdict's score. PASS or FAIL doesn't depend on weights: every criterion must be met."""
    findings_only: bool = False
    """If true, a criterion that isn't met adds a finding to the verdict instead of failing it."""

    def describe(self) -> str:
        """Return the criterion in one line, as shown to the child, the judge and the parent."""
        raise NotImplementedError


class AboutFile(Value):
    """Says that a criterion is about a file. `file` is its path in the workspace, or a glob such as `src/*.py`."""

    file: Text


def _path_is_file(value: object) -> object:
    """A path or a glob in place of `{"file": PATH}`."""
    if not isinstance(value, str) or value in ("report", "deed", "absence"):
        return value
    if not re.search(r"[./*]", value):
        raise PydanticCustomError("about", "should be 'report', 'deed', 'absence' or the path of a file")
    return {"file": value}


About = Annotated[Literal["report", "deed", "absence"] | AboutFile, BeforeValidator(_path_is_file)]
"""What a criterion in words is about, which decides what can prove it: the child's report, a file, for a `deed` the
receipt of a call that did it, or a check, and for an `absence` the complete record of what was done. A path alone means
a file."""
AboutKind = Literal["report", "file", "deed", "absence"]


class TextCriterion(CriterionBase):
    """A statement that a judge decides. A plain string is parsed as a text criterion, or as one of the short forms.

    Without `about`, a model reads what the statement is about before the child's work is known: see `CriterionReading`.
    """

    kind: Literal["text"] = "text"
    text: Text
    about: About | None = None

    def describe(self) -> str:
        if isinstance(self.about, AboutFile) and Path(self.about.file).stem.lower() not in self.text.lower():
            return f"{self.about.file}: {self.text}"
        return self.text


class QuestionCriterion(CriterionBase):
    """A yes/no question that a judge decides. With `high_confidence`, the judge must also be confident.

    `about` is as in a text criterion.
    """

    kind: Literal["question"]
    question: Text
    threshold: Literal["yes", "high_confidence"] = "yes"
    about: About | None = None

    def describe(self) -> str:
        return self.question if self.threshold == "yes" else f"{self.question} (with high confidence)"


def _is_glob(value: str) -> str:
    if value.startswith(("/", "~", "!")) or ".." in value.split("/") or "\0" in value:
        raise PydanticCustomError("glob", "a glob must be relative to the workspace, such as 'tests/**' or '*.lock'")
    return value


Glob = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_is_glob)]
Globs = Annotated[tuple[Glob, ...], Field(max_length=50)]


class ShellCriterion(CriterionBase):
    """A command that must exit with `exit_code`. It runs in the child's workspace after the child has finished.

    If the child changed files that decide the command's result, such as tests or a Makefile, the command also runs in a
    copy of the workspace in which they are what they were before.
    """

    kind: Literal["shell"]
    command: Text
    exit_code: int = Field(default=0, ge=0, le=255)
    timeout_seconds: float = Field(default=120, gt=0, le=3600)
    network: Literal["host", "none"] | None = None
    """None: as the setting `network` says. `host`: the machine's network, including loopback; from a model, the command
    is refused unless the setting is `open`. `none`: it runs in a sandbox without network access."""
    deliverables: Globs | None = None
    """The files that the child is asked to make or change for this command. None: as in the task."""
    protect: Globs = ()
    """More files that decide the result, besides tests and configuration. `*` stays within a folder, `**` doesn't; a
    glob without a slash matches at any depth, and a folder stands for everything in it."""
    may_change: Globs = ()
    """Files that the child is asked to change, even if they decide the result of this task's commands."""

    def describe(self) -> str:
        return f"`{self.command}` exits with {self.exit_code}"


class JsonPredicateCriterion(CriterionBase):
    """A JavaScript expression that must be true of the output parsed as JSON."""

    kind: Literal["json_predicate"]
    expr: Text

    def describe(self) -> str:
        return f"output satisfies {self.expr}"


class JsonSchemaCriterion(CriterionBase):
    """A JSON Schema that the output's JSON must match: the last fenced JSON block, or else the whole output."""

    kind: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")

    def describe(self) -> str:
        return f"output is JSON that fits {_short_json(self.schema_)}"


class FileCriterion(CriterionBase):
    """A file in the child's workspace that must meet all given conditions."""

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
    """A regular expression (Python syntax) that must match somewhere in the output."""

    kind: Literal["regex"]
    pattern: Text

    def describe(self) -> str:
        return f"output matches /{self.pattern}/"


class ExpectedCall(Value):
    """An expected tool call. `args` and `result` match as subsets; see `delegate.contract.matchers` for their values.

    `result` is compared with the call's output as JSON, or with its text if it isn't JSON. `after` and `before` name
    another expected call by its `id` or its tool.
    """

    tool: Text
    id: CriterionId | None = None
    args: JsonObject = Field(default_factory=dict)
    result: JsonObject | list[Any] | None = None
    after: Text | None = None
    before: Text | None = None


class ReceiptCriterion(CriterionBase):
    """Expected or forbidden tool calls, checked against the successful calls that the runtime recorded.

    `of` limits the check to these tools; by default it is limited to the tools in `calls`.
    """

    kind: Literal["receipt"]
    mode: Literal["at_least", "exactly", "none"] = "at_least"
    calls: tuple[ExpectedCall, ...] = ()
    of: tuple[Text, ...] | None = None

    def describe(self) -> str:
        calls = ", ".join(call.tool for call in self.calls) or ", ".join(self.of or ()) or "any tool"
        return {"at_least": "called", "exactly": "called exactly", "none": "never called"}[self.mode] + f" {calls}"


class ProbeCriterion(CriterionBase):
    """A call of a read-only tool after the run. Its result must match `schema`, or satisfy the expression `expr`.

    Code makes the call, not the child, which has no receipt of it. A value in `args` may be
    `{"from": {"tool": ..., "path": ...}}`, the value at a path in the result of the child's last such call.
    """

    kind: Literal["probe"]
    tool: Text
    args: JsonObject = Field(default_factory=dict)
    schema_: JsonObject | None = Field(default=None, alias="schema")
    expr: Text | None = None
    timeout_seconds: float = Field(default=30, gt=0, le=600)

    def describe(self) -> str:
        wants = f"satisfies {self.expr}" if self.expr else f"fits {_short_json(self.schema_ or {})}"
        return f"the result of {self.tool}({_short_json(self.args) if self.args else ''}) {wants}"


class RubricDimension(Value):
    """One dimension that a judge scores from `min` to `max`. `about` is as in a text criterion."""

    id: CriterionId
    description: Text
    about: About | None = None
    weight: float = Field(default=1, ge=0)
    min: float = 0
    max: float = 1

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"dimension {self.id}: min {self.min:g} must be below max {self.max:g}")
        return self


class NamedMode(Value):
    """A failure mode or a strength that a judge can report by its id."""

    id: CriterionId
    description: Text


class Rubric(Value):
    """Weighted dimensions that a judge scores. The weighted mean must reach `threshold` (0 to 1)."""

    name: Text
    description: str = ""
    dimensions: tuple[RubricDimension, ...] = Field(min_length=1)
    failure_modes: tuple[NamedMode, ...] = ()
    wins: tuple[NamedMode, ...] = ()
    threshold: float = Field(default=0.7, ge=0, le=1)


class RubricCriterion(CriterionBase):
    """A rubric, given inline or by the name of a file in `judges/rubrics/`."""

    kind: Literal["rubric"]
    rubric: Text | Rubric
    threshold: float | None = Field(default=None, ge=0, le=1)

    def describe(self) -> str:
        name = self.rubric if isinstance(self.rubric, str) else self.rubric.name
        return f"scores well on the rubric {name}"


class ManualCriterion(CriterionBase):
    """A condition that only a person can confirm. It is trusted to be met, and the verdict isn't `verified`."""

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
    | ProbeCriterion
    | RubricCriterion
    | ManualCriterion
)


CONDITIONS = (JsonPredicateCriterion, FileCriterion, RegexCriterion)
"""The kinds of criteria that are refused if nothing can fail them. Any schema fails a report that isn't JSON."""


def _parse_text(value: object) -> object:
    return criterion_of(value) if isinstance(value, str) else value


Criterion = Annotated[Annotated[AnyCriterion, Field(discriminator="kind")], BeforeValidator(_parse_text)]


class Workspace(Value):
    """The folder in which a child works. A plain path means `{"mode": "shared", "path": path}`.

    `fresh`: a new, empty folder. `copy`: a new copy of the folder `path`. `worktree`: a new git worktree of the
    repository `path` at the revision `base` (default: `HEAD`), without uncommitted changes. `shared`: `path` itself.

    `folder` is the folder in it that the parent works in: relative paths in a model's criteria are meant from there,
    and programs that are children start there. With `only_folder`, a worktree has no other files.
    """

    mode: Literal["fresh", "copy", "worktree", "shared"] = "fresh"
    path: Path | None = None
    base: Annotated[str, StringConstraints(pattern=r"^[^-\x00][^\x00]{0,199}$")] | None = None
    folder: Text | None = None
    only_folder: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: object) -> object:
        return {"mode": "shared", "path": value} if isinstance(value, (str, Path)) else value

    @model_validator(mode="after")
    def _has_path(self) -> Self:
        if (self.path is None) != (self.mode == "fresh"):
            raise ValueError(f"workspace mode {self.mode!r} {'takes no' if self.path else 'needs a'} path")
        if self.base is not None and self.mode != "worktree":
            raise ValueError(f"workspace mode {self.mode!r} takes no base; only worktree does")
        if self.only_folder and (self.mode != "worktree" or self.folder is None):
            raise ValueError("only_folder needs mode worktree, and a folder")
        inside = Path(self.folder or "")
        if inside.is_absolute() or ".." in inside.parts or (self.folder and self.path is None):
            raise ValueError("folder should be a relative path inside `path`")
        return self


class Task(Value):
    """The work for one child. Only `goal` is required; omitted limits come from the settings."""

    goal: Text
    context: str | None = None
    acceptance_criteria: tuple[Criterion, ...] = ()
    output_schema: JsonObject | None = None
    tier: Tier | None = None
    model: Text | None = None
    tools: tuple[str, ...] | None = None
    """Names of the tools that the child may use. None means all available tools."""
    workspace: Workspace | None = None
    max_steps: int | None = Field(default=None, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)
    max_cost_usd: float | None = Field(default=None, gt=0)
    effort: Effort | None = None
    """Reasoning effort, for models that have one. None: as in the settings."""
    deliverables: Globs | None = None
    """The files that the child is asked to make or change. A command proves something only if it succeeds with these on
    top of the files of before. None: those that the goal and the criteria name, and source files. The globs are as in
    `protect`."""
    min_level: Level | None = None
    """The least level of a criterion that counts as met. None: as in the settings."""
    mode: TaskMode = "once"
    """`goal`: the child works until its claim is verified, it gives up, or a limit ends it."""
    max_claims: int = Field(default=3, ge=1, le=1_000)
    """In goal mode, how often the child may claim that its work is done."""
    steps: bool = False
    """Whether the child declares each step before it changes anything. What it calls outside of a step's tools is for
    the policy to decide: by default it has to be approved."""

    if TYPE_CHECKING:
        # Type checkers know only the validated types, but criteria and the workspace also have short forms.
        def __init__(
            self,
            *,
            goal: str,
            context: str | None = None,
            acceptance_criteria: Sequence[AnyCriterion | str | Mapping[str, Any]] = (),
            output_schema: JsonObject | None = None,
            tier: Tier | None = None,
            model: str | None = None,
            tools: Sequence[str] | None = None,
            workspace: Workspace | str | Path | Mapping[str, Any] | None = None,
            max_steps: int | None = None,
            timeout_seconds: float | None = None,
            max_cost_usd: float | None = None,
            effort: Effort | None = None,
            deliverables: Sequence[str] | None = None,
            min_level: Level | None = None,
            mode: TaskMode = "once",
            max_claims: int = 3,
            steps: bool = False,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _number_criteria(cls, value: object) -> object:
        """Give every criterion an id, on the raw input, because the validated models are frozen."""
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
            raise ValueError(f"criterion ids must be unique; used more than once: {', '.join(sorted(twice))}")
        return self

    @model_validator(mode="after")
    def _dependencies_can_be_met(self) -> Self:
        waiting = {str(criterion.id): set(criterion.depends_on) for criterion in self.criteria}
        for id, required in waiting.items():
            if unknown := required - waiting.keys():
                raise ValueError(f"criterion {id} depends on {min(unknown)}, which is not a criterion of this task")
        while free := {id for id, required in waiting.items() if not required}:
            waiting = {id: required - free for id, required in waiting.items() if id not in free}
        if waiting:
            raise ValueError(f"criteria must not depend on each other in a cycle: {', '.join(sorted(waiting))}")
        return self

    @model_validator(mode="after")
    def _goal_can_be_verified(self) -> Self:
        """In goal mode, something must decide when the work is done, and nobody can verify what is met on trust."""
        if self.mode != "goal":
            return self
        if not any(not criterion.findings_only for criterion in self.criteria):
            raise ValueError("mode 'goal' needs acceptance_criteria: they decide when the work is done")
        if manual := [str(one.id) for one in self.criteria if isinstance(one, ManualCriterion)]:
            raise ValueError(
                f"mode 'goal' can't verify the manual criterion {manual[0]}; write one that code or a judge decides, "
                "or use mode 'once'"
            )
        return self

    @property
    def criteria(self) -> tuple[AnyCriterion, ...]:
        """The acceptance criteria, followed by the output schema as one more criterion."""
        if self.output_schema is None:
            return self.acceptance_criteria
        shape = JsonSchemaCriterion(kind="json_schema", id=OUTPUT_SCHEMA_ID, schema=self.output_schema)
        return (*self.acceptance_criteria, shape)


class Parent(Value):
    """What a host knows about the calling parent. All fields are optional, and none can raise a limit."""

    run_id: Text | None = None
    """The host's id of the root run. Calls with the same id share one ledger, including concurrent calls."""
    model: Text | None = None
    """The parent's model. Its tier is the ceiling for the parent's children."""
    tier: Tier | None = None
    """The parent's tier, for models that aren't in the catalog. If both are given, the weaker tier applies."""
    seconds_left: float | None = Field(default=None, ge=0)
    """Wall time that the parent has left, in seconds. Its children and their judging finish within it."""
    tools: tuple[str, ...] | None = None
    """Names of the parent's tools. If children use the host's tools, they get no others."""
    workspace: Workspace | None = None
    """The workspace of its children, such as the user's project. The parent can't choose one. None: a fresh folder."""


def _with_id(criterion: object, id: str) -> object:
    criterion = _parse_text(criterion)
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


# ------------------------------------------------------------------------------------------ the child's work

RunStatus = Literal["completed", "failed", "timeout", "cancelled", "budget_exceeded", "max_steps"]
ReceiptStatus = Literal["ok", "error", "denied", "timeout"]


class Usage(Value):
    """The tokens of one or more model calls, as reported by the providers.

    `input_tokens` include `cached_tokens` (read from the provider's cache) and `cache_write_tokens` (written to it, at
    a separate price). `output_tokens` include `reasoning_tokens`.
    """

    model_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        # Sums begin with nothing, and many end with it.
        if not any(other.__dict__.values()):
            return self
        if not any(self.__dict__.values()):
            return other
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
    "observed",  # the provider's token counts, at the price of the model that it reported
    "estimated",  # tokens or price are estimated: a call got no reply, no or impossible counts were reported, or the
    # model served isn't in the catalog
    "unknown",  # a price is missing; the cost is null
]
"""How a cost was determined. A sum has the least certain provenance of its parts."""


class Receipt(Value):
    """The runtime's record of one tool call. A child cannot write receipts."""

    n: int = 0
    tool: str
    args: JsonObject = Field(default_factory=dict)
    status: ReceiptStatus
    output: str = ""
    """The tool's output, truncated to a limit. `output_bytes` and `output_sha256` describe the whole output."""
    args_sha256: str = ""
    output_sha256: str = ""
    output_bytes: int = 0
    seconds: float = 0
    sandbox: str | None = None
    """For commands: the sandbox mechanism (`bubblewrap`, `landlock`, `process`)."""
    _whole_output: str | None = None

    @property
    def whole_output(self) -> str:
        """The output before it was truncated, while the process that ran the tool still has it; else `output`.

        It isn't part of the receipt's JSON.
        """
        return self.output if self._whole_output is None else self._whole_output

    def with_whole_output(self, text: str) -> Self:
        """Return a copy of a truncated receipt that also has the whole output."""
        receipt = self.model_copy()
        receipt._whole_output = text
        return receipt


class Artifact(Value):
    """A file that the child created, changed or deleted. `path` is relative to the workspace.

    For a worktree with changes, the first artifact is the diff against its base, in a file next to the workspace.
    """

    path: str
    change: Literal["created", "changed", "deleted"]
    bytes: int = 0
    sha256: str | None = None
    """Digest of the current content. None for links, deleted files, unreadable files and files above a size limit."""
    link_to: str | None = None
    """The target of a symbolic link. Links aren't followed."""


class ErrorDetail(Value):
    """An error as data. For a refused call, `field` names the field to fix and `hint` says how to fix it."""

    code: Annotated[Code | OwnCode, _AS_TEXT]
    message: str
    field: str | None = None
    hint: str | None = None


class PlanStep(Value):
    """One step of a plan reported by a runner."""

    text: str
    done: bool


class ChildRun(Value):
    """The outcome of one child's run and all that it produced, even if it failed, timed out or was canceled.

    `plan`, `pending` and `observations` are for runners that track them. The gate evaluates them.
    """

    status: RunStatus
    output: str = ""
    receipts: tuple[Receipt, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error: ErrorDetail | None = None
    model: str | None = None
    """The model that answered, as named by the provider."""
    substituted: bool = False
    """Whether the provider served a different model than the one requested."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None if a price is unknown. An unknown cost is never reported as 0."""
    cost_known_usd: float = 0
    """The sum of all known costs; equal to `cost_usd` unless that is None."""
    cost_provenance: Provenance = "unknown"
    steps: int = 0
    seconds: float = 0
    plan: tuple[PlanStep, ...] = ()
    """The child's plan and which of its steps are done."""
    pending: tuple[str, ...] = ()
    """Values that the child had not filled in yet, such as form fields."""
    observations: tuple[str, ...] = ()
    """The state of the child's environment after each step, as texts or digests that can be compared."""


# ------------------------------------------------------------------------------------------------ the verdict

CriterionOutcome = Literal["met", "not_met", "cannot_tell", "error", "trusted", "skipped"]
PASSING: tuple[CriterionOutcome, ...] = ("met", "trusted")
"""The outcomes that a PASS requires of every criterion that decides."""
DecidedBy = Literal["gate", "check", "judge", "trust", "nobody"]
VerdictWord = Literal["PASS", "FAIL"]
ReceiptsAvailability = Literal["recorded", "unavailable"]


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
        return {"nobody": "not read, so ", "parent": "as it says, "}.get(self.by, "read as ") + about


class PartResult(Value):
    """The outcome of one of several parts of a criterion in words."""

    text: str
    outcome: "CriterionOutcome"
    code: Annotated[VerdictCode, _AS_TEXT]
    reason: str = ""
    evidence: str | None = None
    source: str | None = None


class CriterionResult(Value):
    """The outcome of one criterion, who decided it, and on what evidence."""

    id: str
    text: str
    kind: str
    outcome: CriterionOutcome
    decided_by: DecidedBy
    code: Annotated[VerdictCode, _AS_TEXT]
    """A stable reason code, such as `met`, `not_met`, `evidence_not_found`, `timeout` or `commands_not_allowed`."""
    reason: str = ""
    evidence: str | None = None
    source: str | None = None
    """Where the quoted evidence was found: `output`, `said`, `artifacts`, `artifact:<path>`, `file:<path>`,
    `receipt:<n>` or `check:<id>`."""
    reading: CriterionReading | None = None
    """For criteria in words: how it was read, which decides what can prove it."""
    parts: tuple[PartResult, ...] = ()
    """For criteria in words that were read as several statements: the outcome of each."""
    weight: float = 1
    findings_only: bool = False
    score: float | None = None
    """A rubric's score, 0 to 1. None for all other kinds of criteria."""
    level: Level | None = None
    """What it rests on, if it is met or on trust, or would be if that were enough (`below_min_level`)."""
    held_before: bool = False
    """For commands: whether it succeeded before the child began, so that its success shows nothing of the work."""

    @property
    def fails(self) -> bool:
        """Whether this result makes the verdict a FAIL. A skipped criterion doesn't: what it waited for does."""
        return not self.findings_only and self.outcome in ("not_met", "cannot_tell", "error")

    @property
    def examined(self) -> bool:
        """Whether the result says something about the work. False if nobody could look at it."""
        return self.code not in _NOBODY_LOOKED


def _current_code(code: object) -> object:
    """Records written before the code was renamed have `muffled_check`."""
    return "vacuous_check" if code == "muffled_check" else code


class Finding(Value):
    """An observation that doesn't affect the verdict."""

    severity: Literal["critical", "major", "minor", "info"]
    code: Annotated[VerdictCode | FindingCode | OwnCode, _AS_TEXT, BeforeValidator(_current_code)]
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
    code: Annotated[VerdictCode, _AS_TEXT]
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
    return [one for one in attempts if one.fault is None and one.purpose == "judging"]


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
    "incomplete_record": ("trusted", "not everything was recorded"),
    "not_read": ("trusted", "criterion not read"),
}
"""The codes of what is met on less than it could be: the level that it reaches, and why."""


_COULD_NOT_RUN = frozenset(get_args(CouldNotRunCode)) - {"context_overflow"}


class Verdict(Value):
    """PASS or FAIL, and the reasons for it. PASS requires every criterion to be met."""

    verdict: VerdictWord
    level: Level | None = None
    """The weakest level of its criteria. None if a criterion isn't met at any level."""
    verified: bool
    """Of a PASS: whether its level is `proven` or `seen`. Of a FAIL: whether what was decided rests on evidence."""
    decided_by: DecidedBy
    code: Annotated[VerdictCode, _AS_TEXT]
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
    """`unavailable` if tool calls weren't recorded. The lack of receipts then proves nothing, and only checks show what
    the child did."""

    @property
    def examined(self) -> bool:
        """Whether the verdict says something about the work. False for a FAIL only because nobody could look at it.

        Nobody could look if no judge could be reached or gave a usable answer, the budget was used up, or a check
        couldn't run here, such as a command without a sandbox. If a single criterion was looked at and doesn't hold,
        or the gate refused the work, this is True. docs/verdicts.md lists the codes.
        """
        if failing := [one for one in self.criteria if one.fails]:
            return any(one.examined for one in failing)
        return self.verdict == "PASS" or self.code not in _NOBODY_LOOKED

    @property
    def worth(self) -> str:
        """Its level in words, such as `proven`; below `seen` with the criteria to which it is due: `own checks: c2`."""
        if self.level is None:  # recorded before there were levels
            return "verified" if self.verified else "unverified"
        words = self.level.replace("_", " ")
        weakest = [one.id for one in self.criteria if one.level == self.level and not one.findings_only]
        return f"{words}: {', '.join(weakest)}" if weakest and not self.verified else words

    def __str__(self) -> str:
        """The verdict in one line, with what a PASS rests on or the reason of a FAIL."""
        return f"PASS ({self.worth})" if self.verdict == "PASS" else f"FAIL: {_one_line(self.reasoning or self.code)}"

    def _repr_html_(self) -> str:
        """A table of the criteria, for notebooks."""
        return _criteria_table(str(self), self)


# ------------------------------------------------------------------------------------------- the parent's report


class ReceiptCounts(Value):
    """Counts of the child's tool calls. `tools` counts the successful calls by tool name."""

    recorded: bool = True
    """False if the runner doesn't record tool calls. All counts are then 0 and mean nothing."""
    total: int = 0
    ok: int = 0
    error: int = 0
    denied: int = 0
    timeout: int = 0
    tools: dict[str, int] = Field(default_factory=dict)


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
    code: Annotated[VerdictCode | ChildCode, _AS_TEXT]
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


class TaskResult(Value):
    """The final result of one task. The verdict is the first field, so that truncation can't remove it."""

    verdict: Verdict | None
    """None if the task had no criteria. No verdict doesn't mean PASS."""
    task_index: int
    status: RunStatus
    summary: str
    """The child's own report, truncated with a notice if it is long. See `report` for the whole text."""
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
    handle: str | None = None
    """The key of the task's record, for `delegate show HANDLE` and `Delegator.read(handle)`."""
    _read_report: Callable[[], str] | None = None

    @property
    def report(self) -> str:
        """The child's whole report. If `summary` is truncated, every access reads the report from the task's record.

        A result parsed from JSON has no access to its record and returns its `summary`.

        Raises:
            DelegateError: The record was removed or can't be read.
        """
        return self.summary if self._read_report is None else self._read_report()

    @property
    def good(self) -> bool:
        """Whether the child completed and the verdict isn't FAIL."""
        return self.status == "completed" and (self.verdict is None or self.verdict.verdict == "PASS")

    @property
    def examined(self) -> bool:
        """Whether the result says something about the work. False if the child couldn't run (no access to the provider,
        no workspace, canceled, no budget), or if nobody could look at its work.
        """
        if self.status in ("cancelled", "budget_exceeded"):
            return False
        if self.status == "failed" and self.error is not None:
            return self.error.code not in _COULD_NOT_RUN
        return self.status != "completed" or self.verdict is None or self.verdict.examined

    def with_report(self, read: Callable[[], str]) -> Self:
        """Return a copy of the result whose `report` is read by `read`."""
        result = self.model_copy()
        result._read_report = read
        return result

    def __str__(self) -> str:
        """The result in one line: the task's number, and its verdict or how it ended."""
        text = str(self.verdict) if self.verdict is not None else "no verdict (no criteria)"
        if self.status != "completed":
            text = f"{self.status}: {_one_line(self.error.message)}" if self.error else self.status
            text = f"FAIL, {text}" if self.verdict is not None else text
        return f"task {self.task_index + 1}: {text}"

    def _repr_html_(self) -> str:
        """A table of the criteria, for notebooks."""
        return _criteria_table(str(self), self.verdict) if self.verdict else _html(str(self), (), ())


class Totals(Value):
    """Sums over the results of a report. `cost_usd` is None if any price is unknown; `cost_known_usd` sums the rest.

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


class Report(Value):
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
        """Whether the report says something about the work: all tasks succeeded, or the work of at least one is bad.

        The `delegate` command exits with 3 if this is false.
        """
        return self.all_pass or any(result.examined for result in self.results if not result.good)

    def __str__(self) -> str:
        """At most five lines: the counts and the cost, then the tasks that failed."""
        if self.error is not None:
            hint = f" ({self.error.hint})" if self.error.hint else ""
            return _one_line(f"refused: {self.error.code}: {self.error.message}{hint}")
        failed = [result for result in self.results if not result.good]
        shown = failed if len(failed) <= _FAILED_LINES else failed[: _FAILED_LINES - 1]
        lines = [self._headline(), *map(str, shown)]
        lines += [f"and {len(failed) - len(shown)} more that failed"] if len(shown) < len(failed) else []
        return "\n".join(lines)

    def _headline(self) -> str:
        words = [result.verdict.verdict if result.verdict else "without criteria" for result in self.results]
        counts = [f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "without criteria") if word in words]
        cost = "cost unknown" if self.totals.cost_usd is None else usd(self.totals.cost_usd)
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
                usd(result.cost_usd),
            )
            for result in self.results
        ]
        return _html(str(self).partition("\n")[0], ("task", "verdict", "status", "reason", "s", "cost"), rows)


def _criteria_table(title: str, verdict: Verdict) -> str:
    rows = [(one.id, one.outcome, one.decided_by, one.text, one.reason or one.code) for one in verdict.criteria]
    return _html(title, ("criterion", "outcome", "decided by", "text", "reason"), rows)


def _one_line(text: str) -> str:
    """Text of a child, a judge or a provider in one line of printable characters, cut where it gets long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[:2_000]).split())
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def _escaped(text: str) -> str:
    from html import escape

    return escape(_one_line(text))


def _html(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a title. All texts are escaped."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p><b>{_escaped(title)}</b></p>" + (f"<table><tr>{head}</tr>{body}</table>" if columns else "")
