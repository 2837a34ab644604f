"""What is asked for: `Task`, where it is done, and who asks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from delegate.types.base import OUTPUT_SCHEMA_ID, Effort, Input, JsonObject, Level, TaskMode, Text, Tier
from delegate.types.criteria import (
    AnyCriterion,
    Criterion,
    CriterionBase,
    Globs,
    JsonSchemaCriterion,
    ManualCriterion,
    parse_text,
)
from delegate.types.errors import CallError

Author = Literal["model", "person"]
"""Who wrote a task: the setting `commands` applies to commands that a model wrote."""


if TYPE_CHECKING:
    _Named = Input
else:

    class _RaisesCallError(type(Input)):
        """What is wrong with the arguments is a CallError of one line. `model_validate` raises what pydantic raises."""

        def __call__(cls, *values, **fields):
            known = tuple(cls.model_fields)
            if values:
                message = f"{cls.__name__} takes only named arguments, not {values[0]!r:.40}; write {cls.__name__}"
                raise CallError("bad_task", f"{message}({known[0]}=…)", field=known[0])
            try:
                return super().__call__(**fields)
            except CallError as error:  # of a short form
                message = f"{error.message}; {error.hint}" if error.hint else error.message
                raise CallError(error.code, message, field=error.field, hint=error.hint) from None
            except ValidationError as error:
                from delegate.types.faults import error_text  # only where something is wrong

                field = next((str(part) for part in error.errors(include_url=False)[0]["loc"]), None)
                raise CallError("bad_task", f"{cls.__name__}: {error_text(error, known)}", field=field) from None

    class _Named(Input, metaclass=_RaisesCallError):
        pass


class Workspace(_Named):
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


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _one_as_list(value: object) -> object:
    return (value,) if isinstance(value, (str, int)) else value


MAX_ATTEMPTS = 3
TaskId = Annotated[str, BeforeValidator(_number_as_text), StringConstraints(pattern=r"^\w[\w-]{0,39}$")]
"""Letters and digits of any language, `_` and `-`: a folder can have the name. A number is the same as its text."""


class Task(_Named):
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
    role: Text | None = None
    """One of the setting `roles`, which narrows what the child may do."""
    instructions: Text | None = None
    """How the child works, which its system prompt says after delegate's own rules. A role's instructions precede."""
    id: TaskId | None = None
    """What other tasks of the call or batch name this one by. None: its position, from 1."""
    needs: Annotated[tuple[TaskId, ...], BeforeValidator(_one_as_list)] = ()
    """The tasks of the call or batch that must have a PASS before this one starts. In a call, its child finds their
    reports and files in the folder `inputs` of its workspace."""
    attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    """How many children do the task side by side, each in a workspace of its own. The result is that of the one with
    the best verdict; `max_cost_usd` is for all of them."""

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
            role: str | None = None,
            instructions: str | None = None,
            id: str | int | None = None,
            needs: Sequence[str | int] | str = (),
            attempts: int = 1,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _number_criteria(cls, value: object) -> object:
        """Give every criterion an id, on the raw input, because the validated models are frozen."""
        if not isinstance(value, Mapping):
            return value
        fields = dict(cast("Mapping[str, object]", value))
        criteria = fields.get("acceptance_criteria")
        if isinstance(criteria, Sequence) and not isinstance(criteria, str):
            numbered = enumerate(cast("Sequence[object]", criteria), start=1)
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
        """In goal mode, something must decide when the work is done, and what is met on trust can't be verified."""
        if self.mode != "goal":
            return self
        if not any(not criterion.findings_only for criterion in self.criteria):
            raise ValueError("mode 'goal' needs acceptance_criteria: they decide when the work is done")
        if manual := [str(criterion.id) for criterion in self.criteria if isinstance(criterion, ManualCriterion)]:
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


def not_tasks(value: object) -> CallError:
    """The error for something else where a program has to pass tasks."""
    kind, goal = type(value).__name__, value if isinstance(value, str) else "…"
    said = f"{value!r:.60} is {kind}, not a Task; write Task(goal={goal!r:.60})"
    if isinstance(value, (list, tuple, Mapping)):
        said = f"a {kind}, not a Task; write {'Task(**fields)' if isinstance(value, Mapping) else '*tasks'}"
    return CallError("bad_task", f"tasks: {said}", field="tasks")


class Parent(_Named):
    """What a host knows about the calling parent. All fields are optional, and none can raise a limit."""

    run_id: Text | None = None
    """The host's id of the root run. Calls with the same id share one ledger, including concurrent calls."""
    window_seconds: float | None = Field(default=None, gt=0)
    """Lets the limits of a run without an end count only what its calls used in the last this many seconds."""
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
    criterion = parse_text(criterion)
    if isinstance(criterion, CriterionBase):
        return criterion if criterion.id else criterion.model_copy(update={"id": id})
    if isinstance(criterion, Mapping):
        fields = cast("Mapping[str, object]", criterion)
        return fields if fields.get("id") else {**fields, "id": id}
    return criterion
