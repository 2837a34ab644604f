"""The events of a run, in one typed stream: what `on_event` receives, and what the record of a task keeps.

Every event is a frozen dataclass with a `kind`, which is also in its JSON form: `schemas/event.json`. The events of a
run as a whole have no `task_index` and no `handle`. Consumers can't change an event: nested values are read-only.

A delivered event has at most `LIVE_CHARS` characters of any text; the record has the whole text.
"""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, dataclass_transform

from delegate.types import (
    CriterionOutcome,
    DecidedBy,
    JsonObject,
    Level,
    Provenance,
    ReceiptStatus,
    RunStatus,
    VerdictWord,
)

LIVE_CHARS = 200
"""How much of a text a delivered event has."""

WaitReason = Literal[
    "rate_limit",  # a provider's rate limit
    "retry",  # the pause before a call that failed is repeated
    "permit",  # other children of the run, of which only some may run at the same time
    "budget",  # what the run's other model calls have reserved of its budget
    "approval",  # a person's answer
    "needs",  # other tasks of the call that have to end before
    "question",  # the parent's answer to a question of the child
]
OnWait = Callable[[WaitReason], AbstractContextManager[object]]
"""Returns a context manager that is entered for as long as a call waits."""

ApprovalOutcome = Literal[
    "approved",
    "refused",
    "no_answer",  # nobody answered in time
    "failed",  # the function that asks people raised an error, or its answer is none
    "other_call",  # what was approved is another call than the one that was asked about
    "cancelled",  # the child was stopped while it waited
]
QuestionOutcome = Literal[
    "answered",
    "no_answer",  # there was no answer in time, or `on_question` has none
    "failed",  # nobody could be asked, since the question can't be stored
    "cancelled",  # the child was stopped while it waited
]


_T = TypeVar("_T")


class _Frozen:
    """The methods of all events. Generating them for each class would take 10 ms of every import of delegate."""

    def __init__(self, **values: Any) -> None:
        shape = _SHAPES[type(self)]
        given = shape | values
        if len(given) > len(shape):
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(values.keys() - shape.keys()))}")
        if missing := [name for name, value in given.items() if value is MISSING]:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({values})"


_SHAPES: dict[type, dict[str, Any]] = {}
"""The fields of each class in their order, with their defaults."""


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(field,))
def _event(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass with the methods of `_Frozen`."""
    made = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    _SHAPES[made] = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(cast("Any", made))
    }
    return made


@_event
class _RunEvent(_Frozen):
    run_id: str = ""
    """The id of the run, which is also the beginning of its tasks' handles."""
    task_index: None = None
    """Always null: the event is not about one task."""
    handle: None = None
    """Always null: the event is not about one task."""
    at: float = 0.0
    """When it happened, in seconds since the epoch."""


@_event
class _TaskEvent(_Frozen):
    run_id: str = ""
    """The id of the run that the task belongs to."""
    task_index: int = 0
    """The task's position in its call or batch, from 0."""
    handle: str = ""
    """The task's handle, under which its record is stored."""
    at: float = 0.0
    """When it happened, in seconds since the epoch."""


@_event
class RunStarted(_RunEvent):
    """The tasks of a call or of a batch are validated and recorded, and begin to run."""

    kind: Literal["run.started"] = "run.started"
    tasks: int
    """The number of tasks."""


@_event
class TaskQueued(_TaskEvent):
    """A task is recorded and waits for its turn."""

    kind: Literal["task.queued"] = "task.queued"
    goal: str = ""


@_event
class ChildStarted(_TaskEvent):
    """The child that does the task starts. Once more, on another model, if the first one failed at its beginning."""

    kind: Literal["child.started"] = "child.started"
    model: str | None = None
    """The selected model. Null for runners that bring their own."""
    instead_of: str | None = None
    """The model that failed before the child had done anything, and whose place this one takes."""
    reason: str | None = None
    """Why it failed."""


@_event
class ToolRequest(_Frozen):
    """A tool call that a model's reply asks for."""

    tool: str
    args: Mapping[str, Any] | None = None
    """Null if the model's text wasn't a JSON object."""


@_event
class ChildText(_TaskEvent):
    """The child's model writes. Only for a `Delegator` with `stream_text`; the whole text is in `ChildUsage`."""

    kind: Literal["child.text"] = "child.text"
    text: str
    """The next piece of the text."""
    is_first: bool
    """Whether it begins a text. It then replaces one before it that `ChildUsage` hasn't confirmed: that broke off."""


@_event
class ChildUsage(_TaskEvent):
    """A model call of the child has ended. Runners that report their usage in sums cause one event for each sum."""

    kind: Literal["child.usage"] = "child.usage"
    model: str | None = None
    """The model that answered, by the name that the provider returned."""
    model_calls: int = 1
    input_tokens: int = 0
    """Includes `cached_tokens` and `cache_write_tokens`."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Includes `reasoning_tokens`."""
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """Null if it is unknown."""
    seconds: float | None = None
    """How long the call took, without waits before it. Null if it is unknown."""
    text: str = ""
    """The text of the reply."""
    calls: tuple[ToolRequest, ...] = ()
    """The tool calls that the reply asks for."""


@_event
class ChildWaiting(_TaskEvent):
    """The child waits (`seconds` is null), or such a wait has ended (`seconds` is its length)."""

    kind: Literal["child.waiting"] = "child.waiting"
    reason: WaitReason
    seconds: float | None = None


@_event
class ChildToolStarted(_TaskEvent):
    """A tool call of the child starts."""

    kind: Literal["child.tool.started"] = "child.tool.started"
    tool: str
    text: str
    """The command that the tool runs, or else the tool's name."""


@_event
class ChildTool(_TaskEvent):
    """A tool call of the child has ended. The fields are those of its receipt."""

    kind: Literal["child.tool"] = "child.tool"
    n: int = 0
    """The number of the call among those of the child, from 1, in the order in which they started."""
    tool: str
    args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    status: ReceiptStatus = "ok"
    output: str = ""
    args_sha256: str = ""
    output_sha256: str = ""
    output_bytes: int = 0
    seconds: float = 0.0
    sandbox: str | None = None
    """For commands: the sandbox mechanism."""


@_event
class ApprovalAsked(_TaskEvent):
    """A person is asked whether the child may make a call. The child waits."""

    kind: Literal["approval.asked"] = "approval.asked"
    n: int
    """1 for the task's first request."""
    tool: str
    text: str
    """The command, as a person is shown it, or else the tool's name."""
    arguments: Mapping[str, Any]
    args_sha256: str
    """As in the receipt of the call."""
    sha256: str
    """The digest of tool, arguments and workspace, to which an approval is bound."""
    workspace: str
    code: str
    """Why the policy asks."""
    reason: str
    expected: str = ""
    """What is to come of the call, in the words of the child."""


@_event
class ApprovalAnswered(_TaskEvent):
    """The request has its answer."""

    kind: Literal["approval.answered"] = "approval.answered"
    n: int
    """That of the request."""
    tool: str
    sha256: str
    args_sha256: str
    approved: bool
    outcome: ApprovalOutcome
    by: str = ""
    """Who answered, if that is known."""
    same_again: bool = False
    """Whether the answer also holds for the same call made again in this task."""
    note: str = ""
    """What the child is told besides."""
    seconds: float = 0.0
    """How long the child waited."""


@_event
class QuestionAsked(_TaskEvent):
    """The child asks its parent a question, and waits. A message to it is the answer."""

    kind: Literal["question.asked"] = "question.asked"
    n: int
    """1 for the task's first question."""
    text: str
    options: tuple[str, ...]
    """Answers to choose from: the number of one, from 1, is an answer."""
    answer_seconds: float
    """How long the child waits for it."""


@_event
class QuestionAnswered(_TaskEvent):
    """The child goes on, with an answer or without one. It reads the answer as a message, before its next turn."""

    kind: Literal["question.answered"] = "question.answered"
    n: int
    """That of the question."""
    outcome: QuestionOutcome
    text: str = ""
    """The answer, as it was given."""
    seconds: float = 0.0
    """How long the child waited."""


@_event
class MessageDelivered(_TaskEvent):
    """The child reads a message of its parent, between two turns. It is an instruction, and proves nothing."""

    kind: Literal["message.delivered"] = "message.delivered"
    id: str
    """That of the message, as its sender knows it."""
    text: str
    question: str = ""
    """The question of the child that it answers, if it answers one. The text of an option is in place of its number."""


@_event
class StepDeclared(_TaskEvent):
    """In a task with steps, the child declares what it does next, and with which tools."""

    kind: Literal["step.declared"] = "step.declared"
    n: int
    """1 for the first step."""
    goal: str
    tools: tuple[str, ...]
    expected: str
    """What is to come of it."""


@_event
class StepVerified(_TaskEvent):
    """The child ends a step. What it says of it is its own word; what was called is the runtime's."""

    kind: Literal["step.verified"] = "step.verified"
    n: int
    outcome: str
    held: bool
    """Whether what was expected holds, by the child's own word."""
    called: tuple[str, ...]
    """The calls in the step's scope, such as `write_file (ok) ×2`."""
    outside: tuple[str, ...]
    """The calls outside of its scope that may change something."""
    unused: tuple[str, ...]
    """The tools that were declared and not called."""


@_event
class ChildDone(_TaskEvent):
    """The child has ended. Checks and judges come next."""

    kind: Literal["child.done"] = "child.done"
    status: RunStatus
    error: str | None = None
    """The code of the error that ended it."""
    steps: int = 0
    """The number of its model calls, if delegate made them."""
    artifacts: int = 0
    """The number of files that it created, changed or deleted."""
    cost_usd: float | None = None
    seconds: float | None = None


@_event
class ClaimMade(_TaskEvent):
    """In goal mode, the child claims that its work is done. Checks and judges come next."""

    kind: Literal["claim.made"] = "claim.made"
    n: int
    """1 for the first claim."""
    step: int
    """The number of model calls that the child had made."""
    rationale: str
    """The child's report."""


@_event
class ClaimJudged(_TaskEvent):
    """A claim was verified or refused. The fields are those of `Claim`."""

    kind: Literal["claim.judged"] = "claim.judged"
    n: int
    step: int
    rationale: str
    verdict: VerdictWord
    code: str
    decided_by: DecidedBy
    reasoning: str
    refused: tuple[Mapping[str, Any], ...]
    """The criteria for which it was refused, each as in a verdict."""
    seconds: float
    usage: Mapping[str, Any]
    """The tokens of its judges."""
    cost_usd: float | None
    """The cost of its judges. Null if a part of it is unknown."""
    cost_known_usd: float
    cost_provenance: Provenance


@_event
class CheckStarted(_TaskEvent):
    """Code begins to decide a criterion."""

    kind: Literal["check.started"] = "check.started"
    id: str
    """The criterion's id."""
    criterion: str = ""
    """The criterion's kind, such as `shell`."""


@_event
class CheckDone(_TaskEvent):
    """Code has decided a criterion."""

    kind: Literal["check.done"] = "check.done"
    id: str
    """The criterion's id."""
    criterion: str = ""
    """The criterion's kind."""
    text: str = ""
    """The criterion in words."""
    outcome: CriterionOutcome


@_event
class JudgeAsked(_TaskEvent):
    """A model is asked to decide criteria."""

    kind: Literal["judge.asked"] = "judge.asked"
    model: str


@_event
class JudgeWaiting(_TaskEvent):
    """A question waits before it is sent to a judge (`seconds` is null), or such a wait has ended."""

    kind: Literal["judge.waiting"] = "judge.waiting"
    model: str
    reason: WaitReason
    seconds: float | None = None


@_event
class JudgeDone(_TaskEvent):
    """A model that was asked has replied, or failed."""

    kind: Literal["judge.done"] = "judge.done"
    model: str
    fault: str | None = None
    """Why there is no reply. Null if there is one, whatever it says."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    seconds: float | None = None
    """How long it took, with the waits before it was asked."""


@_event
class VerdictGiven(_TaskEvent):
    """The verdict on the child's work."""

    kind: Literal["verdict"] = "verdict"
    verdict: VerdictWord | None = None
    """Null if the task has no criteria."""
    code: str | None = None
    decided_by: DecidedBy | None = None
    level: Level | None = None
    """The weakest level of its criteria."""
    verified: bool = False


@_event
class TaskDone(_TaskEvent):
    """The result of a task is recorded."""

    kind: Literal["task.done"] = "task.done"
    status: RunStatus | None = None
    """How the child ended. Null if the task was stopped before it had a result."""
    verdict: VerdictWord | None = None
    cost_usd: float | None = None
    """The cost of the child and its judges. Null if a part of it is unknown."""


@_event
class RunDone(_RunEvent):
    """All tasks of a call or of a batch have ended."""

    kind: Literal["run.done"] = "run.done"
    tasks: int
    """The number of tasks that have ended."""
    passed: int
    failed: int
    """The number of tasks with the verdict FAIL. Tasks without a verdict are in neither number."""
    cost_usd: float | None
    """Null if a part of it is unknown."""
    seconds: float


TaskEvent = (
    TaskQueued
    | ChildStarted
    | ChildText
    | ChildUsage
    | ChildWaiting
    | ChildToolStarted
    | ChildTool
    | ApprovalAsked
    | ApprovalAnswered
    | QuestionAsked
    | QuestionAnswered
    | MessageDelivered
    | StepDeclared
    | StepVerified
    | ChildDone
    | ClaimMade
    | ClaimJudged
    | CheckStarted
    | CheckDone
    | JudgeAsked
    | JudgeWaiting
    | JudgeDone
    | VerdictGiven
    | TaskDone
)
Event = RunStarted | TaskEvent | RunDone
_P = ParamSpec("_P")
EventSink = Callable[[Event], object]
"""Receives events, one after the other. It may be an `async` function; what else it returns is ignored."""


class Notify(Protocol):
    """Reports an event of the task to which it is bound, if anyone needs it: `notify(ChildStarted, model="…")`.

    The fields that all events have are filled in.
    """

    def __call__(self, make: Callable[_P, TaskEvent], /, *args: _P.args, **fields: _P.kwargs) -> None: ...


def ignore_event(make: Callable[_P, TaskEvent], /, *args: _P.args, **fields: _P.kwargs) -> None:
    """A `Notify` for what isn't part of a task's course, such as reading criteria or a verdict on existing work."""


@contextmanager
def reported_wait(report: Callable[[float | None], None]) -> Generator[None]:
    """Report the beginning of a wait, with None, and its end, with the seconds that it took."""
    report(None)
    started = time.monotonic()
    try:
        yield
    finally:
        report(round(time.monotonic() - started, 6))


def kind_of(make: Callable[..., Event]) -> str:
    """The kind of the events that a class makes."""
    return cast("type[Event]", make).kind


def from_json(make: Callable[_P, TaskEvent], values: JsonObject, **header: Any) -> TaskEvent:
    """The event to deliver, with these JSON values. Texts are cut, and what is nested is read-only."""
    cut = {name: read_only(value) for name, value in values.items()}
    if calls := cut.get("calls"):
        cut["calls"] = tuple(ToolRequest(**call) for call in calls)
    return cast("Callable[..., TaskEvent]", make)(**cut, **header)


def read_only(value: Any, chars: int | None = LIVE_CHARS) -> Any:
    """A copy of a JSON value that can't be changed, with the beginning of each text; None for the whole text."""
    if isinstance(value, str):
        return value[:chars]
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return MappingProxyType({name: read_only(part, chars) for name, part in parts.items()})
    if isinstance(value, (list, tuple)):
        return tuple(read_only(part, chars) for part in cast("list[Any]", value))
    return value


def as_json(event: Event) -> JsonObject:
    """An event as JSON values, in the form of `schemas/event.json`."""
    return _plain(event)


def _plain(value: Any) -> Any:
    if isinstance(value, _Frozen):
        return {name: _plain(part) for name, part in value.__dict__.items()}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in cast("tuple[Any, ...]", value)]
    return value
