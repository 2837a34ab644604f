"""The base class of all values, and the words that several of them share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, GetPydanticSchema, StringConstraints, model_validator

JsonObject = dict[str, Any]
AS_TEXT = GetPydanticSchema(lambda _source, handler: handler(str))
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
CallField = Literal["needs", "scratch", "attempts"]
"""What a call of the tool may have besides the fields that every parent's model is told of."""
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


class Value(BaseModel):
    """Base class of all models: frozen, and unknown fields are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,  # validators are built on first use, which keeps `import delegate` fast
    )


class Input(Value):
    """Base class of what people and models write. In it, `true` and `false` aren't the numbers 1 and 0."""

    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        fields = dict(cast("Mapping[str, object]", value))
        for name, given in fields.items():
            info = cls.model_fields.get(name) if isinstance(given, bool) else None
            if info is not None and {int, float} & {info.annotation, *get_args(info.annotation)}:
                fields[name] = str(given).lower()  # which the field refuses by its name
        return fields
