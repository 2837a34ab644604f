"""Finds the rubric of a criterion: the one that it contains, or a shipped one by its name."""

import tomllib
from functools import cache

from pydantic import ValidationError

from delegate._util.resources import folder, text
from delegate.types import Rubric, RubricCriterion


def rubric_of(criterion: RubricCriterion) -> Rubric:
    """The criterion's rubric. Raises ValueError for an unknown name."""
    if isinstance(criterion.rubric, Rubric):
        return criterion.rubric
    return shipped(criterion.rubric)


def shipped_names() -> list[str]:
    """The names of the shipped rubrics."""
    return sorted(file.name.removesuffix(".toml") for file in folder("judges").joinpath("rubrics").iterdir())


@cache
def shipped(name: str) -> Rubric:
    """A shipped rubric. Raises ValueError for an unknown name."""
    if name not in (names := shipped_names()):
        raise ValueError(f"there is no rubric {name!r}; use one of {', '.join(names)}, or give a rubric inline")
    try:
        return Rubric.model_validate(tomllib.loads(text("judges", f"rubrics/{name}.toml")))
    except ValidationError as error:
        raise ValueError(f"the rubric {name} is invalid: {error.errors()[0]['msg']}") from None
