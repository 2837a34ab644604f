"""What work must meet: one class per kind of criterion."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from delegate.types.base import CriterionId, Input, JsonObject, Text, Value
from delegate.types.short_forms import criterion_of


class CriterionBase(Input):
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
        # "absence: changes in data.csv" alone would ask for changes.
        return f"absence: {self.text}" if self.about == "absence" else self.text


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
    """A JavaScript expression that must be true of the report parsed as JSON."""

    kind: Literal["json_predicate"]
    expr: Text

    def describe(self) -> str:
        return f"report satisfies {self.expr}"


class JsonSchemaCriterion(CriterionBase):
    """A JSON Schema that the report's JSON must match: the last fenced JSON block, or else the whole report."""

    kind: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")

    def describe(self) -> str:
        return f"report is JSON that fits {_short_json(self.schema_)}"


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
    """A regular expression (Python syntax) that must match somewhere in the report."""

    kind: Literal["regex"]
    pattern: Text

    def describe(self) -> str:
        return f"report matches /{self.pattern}/"


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


class RubricDimension(Input):
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


class Rubric(Input):
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


Every = Literal["claim", "paragraph", "row"]
"""A sentence, a paragraph or list item, or a row of a table."""
Host = Annotated[str, StringConstraints(pattern=r"^[^\s/:@?#]{1,253}(:\d{1,5})?$", to_lower=True)]


class CitationsCriterion(CriterionBase):
    """Sources that the report must cite, by URL or by the path of a file, each opened by the child.

    Code checks that each source was opened and answered, and that quoted passages and numbers stand in what came back.
    A judge then says whether the source supports the statement.
    """

    kind: Literal["citations"]
    min: int = Field(default=1, ge=1, le=500)
    """How many citations must hold."""
    every: Every | None = None
    """Each of these needs a source that holds: each sentence, each paragraph or list item, or each row of a table."""
    hosts: Annotated[tuple[Host, ...], Field(max_length=50)] = ()
    """Only sources of these hosts and their subdomains count. Empty: of any host, and files."""
    file: Text | None = None
    """The file that cites, by its path in the workspace: Markdown, or a table that ends in `.csv` or `.tsv`. None: the
    report."""

    def describe(self) -> str:
        each = {
            None: "",
            "claim": " Each sentence that claims something cites one; what is only said to be missing needs none.",
            "paragraph": " Each paragraph or list item that claims something cites one.",
            "row": " Each row of a table, or object of JSON, cites at least one.",
        }[self.every]
        hosts = f" of {' and '.join(self.hosts)}" if self.hosts else ""
        times = "once" if self.min == 1 else f"{self.min} times"
        return (
            f"{self.file or 'the report'} cites sources{hosts} at least {times}, by link, numbered note or path.{each} "
            "Each source was opened before. Quoted passages stand in their source literally. Numbers and dates stand "
            "there in digits or words, are the task's own, or follow from what stands there; it is best to show how "
            "(2 + 3 = 5)"
        )


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
    | CitationsCriterion
    | ManualCriterion
)


CONDITIONS = (JsonPredicateCriterion, FileCriterion, RegexCriterion)
"""The kinds of criteria that are refused if nothing can fail them. Any schema fails a report that isn't JSON."""


def parse_text(value: object) -> object:
    """A criterion's fields, where a string or an object with only a text stands for them; else the value as it is."""
    if isinstance(value, str):
        return criterion_of(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {**fields, "kind": "text"} if "text" in fields and fields.get("kind") is None else fields
    return value


Criterion = Annotated[Annotated[AnyCriterion, Field(discriminator="kind")], BeforeValidator(parse_text)]


def _short_json(schema: JsonObject) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"
