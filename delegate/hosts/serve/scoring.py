"""Scores texts on rubrics with the messages of agent-eval's wire protocol: `judge`, `listRubrics` and `version`.

Who uses agent-eval's clients can ask delegate instead. A score is that of a `rubric` criterion: a judge has to quote
the text for each dimension, and what it can't quote is an error, and never a low score.
"""

import json
import time
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from delegate.delegator import Delegator
from delegate.judging.rubrics import shipped, shipped_names
from delegate.judging.versions import rubric_version
from delegate.types import NamedMode, Rubric, RubricDimension, Task
from delegate.types.errors import CallError, DelegateError
from delegate.types.faults import error_text

WIRE_VERSION = "1.0.0"
METHODS = ("judge", "listRubrics", "version")
_GOAL = "Write a text that scores well on the rubric."


class WireError(DelegateError):
    """An error that the protocol has a code for, and an HTTP status."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(message)
        self.code, self.status = code, status

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": str(self)}}


class _Wire(BaseModel):
    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True
    )


class WireRubric(_Wire):
    """A rubric of one's own."""

    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    system_prompt: str = Field(min_length=1)
    """What the judge should know to score: it reads this beside the description."""
    dimensions: list[RubricDimension] = Field(min_length=1)
    failure_modes: list[NamedMode] = []
    wins: list[NamedMode] = []


class ScoreRequest(_Wire):
    """A text to score on a rubric: one that is shipped, by its name, or one of one's own."""

    content: str = Field(min_length=1)
    rubric_name: str | None = None
    rubric: WireRubric | None = None
    context: dict[str, Any] | None = None
    """What else the judge should know."""
    model: str | None = None
    """Must be left out: the server's settings say which model judges."""

    @model_validator(mode="after")
    def _checks(self) -> Self:
        if (self.rubric_name is None) == (self.rubric is None):
            raise ValueError("give exactly one of rubricName and rubric")
        if self.model is not None:
            raise ValueError("leave model out: the server's settings say which model judges")
        return self


class ScoreResult(_Wire):
    """The scores of a text."""

    composite: float
    """The weighted mean of the dimensions, 0 to 1."""
    dimensions: dict[str, float]
    failure_modes: list[str]
    wins: list[str]
    rationale: str
    rubric_version: str
    """Changes with the rubric: scores of different versions can't be compared."""
    model: str
    duration_ms: int


class RubricInfo(_Wire):
    """A rubric that is shipped."""

    name: str
    description: str
    dimensions: list[dict[str, Any]]
    failure_modes: list[str]
    rubric_version: str


class RubricList(_Wire):
    """The rubrics that are shipped."""

    rubrics: list[RubricInfo]

    @classmethod
    def shipped(cls) -> Self:
        """The rubrics that `judge` knows by their names."""
        infos = [
            RubricInfo(
                name=rubric.name,
                description=rubric.description,
                dimensions=[one.model_dump(include={"id", "description", "weight"}) for one in rubric.dimensions],
                failure_modes=[mode.id for mode in rubric.failure_modes],
                rubric_version=_version(rubric),
            )
            for rubric in map(shipped, shipped_names())
        ]
        return cls(rubrics=infos)


async def score(delegator: Delegator, request: ScoreRequest) -> ScoreResult:
    """Score a text. Raises WireError for an unknown rubric, and if no judge could score it."""
    began, rubric = time.monotonic(), _rubric(request)
    about = f"{_GOAL}\nContext: {json.dumps(request.context, ensure_ascii=False)}" if request.context else _GOAL
    try:
        verdict = await delegator.judge(
            goal=about,
            acceptance_criteria=[{"kind": "rubric", "rubric": rubric.model_dump()}],
            report=request.content,
        )
    except CallError as error:
        raise WireError("validation_error", str(error), 400) from None
    (result,) = verdict.criteria
    if result.score is None:
        raise WireError("judge_error", f"{result.code}: {result.reason or verdict.reasoning}", 503)
    found = {str(finding.code) for finding in verdict.findings}
    return ScoreResult(
        composite=result.score,
        dimensions=result.scores,
        failure_modes=[mode.id for mode in rubric.failure_modes if mode.id in found],
        wins=[mode.id for mode in rubric.wins if mode.id in found],
        rationale=f"{result.reason}; it quotes {result.evidence!r}",
        rubric_version=_version(rubric),
        model=(verdict.judge.model if verdict.judge else None) or "unknown",
        duration_ms=round(1_000 * (time.monotonic() - began)),
    )


def _rubric(request: ScoreRequest) -> Rubric:
    """The rubric, whose dimensions are all about the text. Raises WireError."""
    try:
        if (own := request.rubric) is None:
            return _about(shipped(str(request.rubric_name)), "report")
        fields = own.model_dump(exclude={"system_prompt"})
        description = f"{own.description}\n{own.system_prompt}"
        return _about(Rubric.model_validate({**fields, "description": description}), "report")
    except ValidationError as error:
        raise WireError("validation_error", error_text(error), 400) from None
    except ValueError as error:
        raise WireError("rubric_not_found", str(error), 404) from None


def _about(rubric: Rubric, what: Literal["report"] | None) -> Rubric:
    dimensions = tuple(one.model_copy(update={"about": what}) for one in rubric.dimensions)
    return rubric.model_copy(update={"dimensions": dimensions})


def _version(rubric: Rubric) -> str:
    criterion = {"kind": "rubric", "rubric": _about(rubric, None)}
    task = Task.model_validate({"goal": _GOAL, "acceptance_criteria": [criterion]})
    return f"{rubric.name}@{rubric_version(task)}"
