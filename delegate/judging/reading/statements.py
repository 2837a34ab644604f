"""The statements in words of a task: its text criteria, questions and the dimensions of its rubrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Protocol

from delegate.judging.rubrics import rubric_of
from delegate.types import (
    About,
    AboutFile,
    AboutKind,
    AnyCriterion,
    CriterionReading,
    QuestionCriterion,
    RubricCriterion,
    StatementPart,
    Task,
    TextCriterion,
)
from delegate.types.ports import Effect

ToolEffect = Literal["reads", "files", "commands", "acts"]
"""What a call of a tool does: look something up, write the caller's own files, run a command or code that the caller
writes, or anything else."""


class DescribedTool(Protocol):
    """A tool as far as a reader needs it, such as `ports.Tool`."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def effects(self) -> frozenset[Effect] | None: ...
    @property
    def acts(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What a reader is told of a tool. `effect` is None if it isn't declared."""

    name: str
    description: str = ""
    effect: ToolEffect | None = None

    @classmethod
    def of(cls, tool: DescribedTool) -> "ToolInfo":
        """What the tool says of itself."""
        return cls(tool.name, tool.description, declared_effect(tool))


def declared_effect(tool: DescribedTool) -> ToolEffect | None:
    """What a call of the tool does, as it says itself; None if it doesn't."""
    if tool.read_only or (tool.effects == frozenset() and not tool.acts):
        return "reads"
    if tool.effects is not None and tool.effects & {"commands", "delegation"}:
        return "commands"  # other agents do what their caller tells them, as commands do
    if tool.acts is not None:
        return "acts" if tool.acts else "files"
    if tool.effects is None:
        return None
    return "files" if tool.effects == frozenset({"files"}) else "acts"


@dataclass(frozen=True, slots=True)
class Template:
    """What the tasks of a batch were made from: goal and statements with placeholders, and how they are filled."""

    goal: str
    statements: Mapping[str, str]
    """By the ids of the criteria."""
    fill: Callable[[str], str]

    def filled(self, reading: CriterionReading) -> CriterionReading:
        """The reading of the template as that of one of its tasks."""
        parts = [
            part.model_copy(
                update={
                    "text": self.fill(part.text),
                    "files": tuple(map(self.fill, part.files)),
                    "names": tuple(map(self.fill, part.names)),
                    "allowed": tuple(map(self.fill, part.allowed)),
                }
            )
            for part in reading.parts
        ]
        return reading.model_copy(update={"parts": tuple(parts)})


@dataclass(frozen=True, slots=True)
class TaskReading:
    """How the statements of one task were read, by their ids, and what its tools do."""

    statements: Mapping[str, CriterionReading] = field(default_factory=dict[str, CriterionReading])
    effects: Mapping[str, ToolEffect] = field(default_factory=dict[str, ToolEffect])

    def of(self, id: str, statement: str) -> CriterionReading:
        """The reading of one statement; if no model read it, that of a deed by unknown tools."""
        return self.statements.get(id) or unread(statement)


def in_words(task: Task) -> dict[str, tuple[str, About | None]]:
    """All statements of a task with what they say they are about, by the ids of their criteria.

    The dimension `d` of the rubric `c3` has the id `c3.d`.
    """
    statements: dict[str, tuple[str, About | None]] = {}
    for criterion in task.criteria:
        id = criterion.id or ""
        if isinstance(criterion, (TextCriterion, QuestionCriterion)):
            statements[id] = (statement_of(criterion), criterion.about)
        elif isinstance(criterion, RubricCriterion):
            statements |= {
                f"{id}.{dimension.id}": (dimension.description, dimension.about)
                for dimension in rubric_of(criterion).dimensions
            }
    return statements


def statement_of(criterion: AnyCriterion) -> str:
    """The criterion's own words: of a question, without its threshold."""
    return criterion.question if isinstance(criterion, QuestionCriterion) else criterion.describe()


def declared(statement: str, about: About) -> CriterionReading:
    """The reading of a statement that says itself what it is about."""
    if isinstance(about, AboutFile):
        return _declared(statement, "file", (about.file,))
    return _declared(statement, about, ())


@lru_cache(maxsize=256)  # many tasks of a batch have the same criteria
def _declared(statement: str, about: AboutKind, files: tuple[str, ...]) -> CriterionReading:
    return CriterionReading(by="parent", parts=(StatementPart(text=statement, about=about, files=files),))


def unread(statement: str) -> CriterionReading:
    """The reading of a statement that no model read. As a deed, it can't be shown by the child's word."""
    return CriterionReading(by="nobody", parts=(StatementPart(text=statement, about="deed"),))


def declared_readings(task: Task) -> dict[str, CriterionReading]:
    """The readings of the statements that say themselves what they are about."""
    return {id: declared(text, about) for id, (text, about) in in_words(task).items() if about is not None}


def known_effects(tools: Sequence[ToolInfo]) -> dict[str, ToolEffect]:
    """What the tools do, as far as they say it themselves."""
    return {tool.name: tool.effect for tool in tools if tool.effect is not None}


@dataclass(frozen=True, slots=True)
class ToRead:
    """The statements of one task that have to be read, by their ids."""

    goal: str
    statements: Mapping[str, str]
    has_user: bool = False
    """Whether the worker talks with a user."""
