"""What programs in other languages can ask for: the operations of `delegate serve` and `delegate rpc`, as JSON.

Who may read or stop a task is who made its call: a client is known by its token.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from delegate.budget.runs import KEPT_RUNS
from delegate.contract import readback
from delegate.delegator import Delegator
from delegate.delegator.background import Delegation
from delegate.hosts.serve import scoring
from delegate.hosts.serve.scoring import RubricList, ScoreRequest, ScoreResult, WireError
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest
from delegate.types import (
    JsonObject,
    Parent,
    ParentQuestion,
    Receipt,
    RunResult,
    RunStatus,
    SentMessage,
    TaskResult,
    Verdict,
)
from delegate.types.errors import CallError
from delegate.types.events import as_json
from delegate.types.faults import error_text, path_of

M = TypeVar("M", bound=BaseModel)

MAX_OPEN = 100
"""How many calls one client may have running at a time."""
WaitSeconds = Annotated[float, Field(ge=0, le=3_600.0)]
_LISTED_RUNS = 100


class Request(BaseModel):
    """What a client sends. A field that isn't known is an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class CallRequest(Request):
    """A call of delegate_task by a parent's model. Its tasks run in the background."""

    call: dict[str, Any] | str
    """The arguments, as the model wrote them: `schemas/delegate_task.json`."""
    parent: Parent = Parent()
    """What the host knows about the parent: its run, its model, the workspace of its children."""
    wait_seconds: WaitSeconds = 0
    """How long the answer may take: until all tasks have ended, or as long as this."""
    asks: bool = False
    """Whether its children may ask, since the client reads `questions` and answers them by messages."""


class JudgeRequest(Request):
    """Existing work to judge, as for `Delegator.judge`."""

    goal: str
    acceptance_criteria: list[Any]
    report: str | None = None
    workspace: str | None = None
    """A folder on the machine of the server."""
    receipts: list[Receipt | dict[str, Any]] | None = None
    recorded: bool = True
    author: Literal["model", "person"] = "person"
    status: RunStatus = "completed"
    conversation: str | list[str | dict[str, Any]] = ""
    worker_model: str | None = None


class MessageRequest(Request):
    """An instruction for a child. A task that has ended continues with it."""

    text: str
    acceptance_criteria: list[Any] | None = None
    """By what the work of a task that continues is judged, in place of its own criteria."""
    asks: bool = False
    """Whether the child of a task that continues may ask, since the client answers."""


class ApprovalReply(Request):
    """The answer to a request for an approval."""

    approved: bool
    by: str = ""
    """Who answered, for the record."""
    same_again: bool = False
    """Whether the same call needs no further approval in this task."""
    note: str = ""
    """What the child is told besides."""


class TaskState(BaseModel):
    """A task: its result, or that it still runs, or what its child asks: a message to it is the answer."""

    handle: str
    state: Literal["running", "needs_input", "done"]
    result: TaskResult | None = None
    question: ParentQuestion | None = None


class CallState(BaseModel):
    """A call: its result, or the handles of its tasks while they run, and what their children ask."""

    state: Literal["running", "needs_input", "done"]
    handles: list[str]
    result: RunResult | None = None
    text: str | None = None
    """The result as the parent's model should read it."""
    questions: list[ParentQuestion] = []


class PendingApproval(BaseModel):
    """A call of a child that waits for an approval. Nothing else than a clear yes lets it be made."""

    sha256: str
    """What an answer is bound to, and given under."""
    handle: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    text: str
    """All of it, as a person should read it."""


class Version(BaseModel):
    """What the server is."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True)

    package: str
    version: str
    wire_version: str
    """The version of the protocol for scores, which is agent-eval's."""
    api_surface: list[str]
    """The methods of that protocol."""


def parse(model: type[M], data: object) -> M:
    """Parse what a client sent. Raises CallError, which names the first wrong field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        path = path_of(first)
        code = "unknown_field" if first["type"] == "extra_forbidden" else "wrong_type"
        message = f"{'' if path else 'the body '}{error_text(error, list(model.model_fields))}"
        raise CallError(code, message, field=path or None, hint="see the OpenAPI document") from None


class TooMany(CallError):
    """A client has as many calls running as it may."""

    def __init__(self, most: int) -> None:
        hint = "wait until one of them has ended, or stop one"
        super().__init__("too_many_calls", f"{most} calls are running already", hint=hint)


@dataclass(slots=True)
class _Client:
    """What one client has made."""

    runs: dict[str, str] = field(default_factory=dict[str, str])
    """By their ids, with the ids that the client gave them, or else their own."""
    open: set[Delegation] = field(default_factory=set[Delegation])
    starting: int = 0
    asked: dict[str, tuple[ApprovalRequest, "asyncio.Future[ApprovalAnswer]"]] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def opened(self, delegation: Delegation) -> None:
        self.open.add(delegation)
        delegation.add_done_callback(lambda: self.open.discard(delegation))

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        future: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        self.asked[request.sha256] = request, future
        try:
            return await future
        finally:
            if self.asked.get(request.sha256, (None, None))[1] is future:
                del self.asked[request.sha256]


class Service:
    """The operations. `client` is the name of the client that asks for one.

    All that take the handle of a task raise CallError for one that isn't this client's.
    """

    def __init__(self, delegator: Delegator, *, max_open: int = MAX_OPEN, shared_records: bool = True) -> None:
        """`shared_records` lets every client read and stop all tasks, also those of earlier processes."""
        self._delegator = delegator
        self._max_open = max_open
        self._shared = shared_records
        self._clients = defaultdict[str, _Client](_Client)

    async def version(self, client: str) -> Version:
        """What the server is."""
        return Version(
            package="delegate-task",
            version=version("delegate-task"),
            wire_version=scoring.WIRE_VERSION,
            api_surface=list(scoring.METHODS),
        )

    async def call(self, client: str, body: CallRequest) -> CallState:
        """Call delegate_task. Its tasks run in the background.

        Raises TooMany, and CallError for a call that can't be executed.
        """
        known, parent = self._clients[client], body.parent
        if not self._shared and parent.run_id is not None:  # the same id of another client is another run
            parent = parent.model_copy(update={"run_id": json.dumps([client, parent.run_id])})
        if len(known.open) + known.starting >= self._max_open:
            raise TooMany(self._max_open)
        known.starting += 1
        try:
            delegation = await self._delegator.background.start_call(
                body.call, parent=parent, on_approval=known.ask, asks=body.asks
            )
        finally:
            known.starting -= 1
        known.opened(delegation)
        for handle in delegation.handles:
            run = readback.run_of(handle)
            known.runs[run] = body.parent.run_id or run
        while len(known.runs) > KEPT_RUNS:
            del known.runs[next(iter(known.runs))]
        if await delegation.wait(body.wait_seconds, or_question=True):
            returned = await delegation
            if returned.error is not None:
                raise returned.error.as_raised()
            text = self._delegator.render(returned)
            return CallState(state="done", handles=list(delegation.handles), result=returned, text=text)
        state = "needs_input" if delegation.questions else "running"
        return CallState(state=state, handles=list(delegation.handles), questions=list(delegation.questions))

    async def read(self, client: str, handle: str, wait_seconds: WaitSeconds = 0) -> TaskState:
        """Read a task, after waiting for it.

        Or for a question of its child.
        """
        self._check(client, handle)
        background = self._delegator.background
        if result := await background.result(handle, wait_seconds=wait_seconds, or_question=True):
            return TaskState(handle=handle, state="done", result=result)
        delegation = background.delegation(handle)
        questions = delegation.questions if delegation else ()
        question = next((one for one in questions if one.handle == handle), None)
        return TaskState(handle=handle, state="needs_input" if question else "running", question=question)

    async def stop(self, client: str, handle: str) -> TaskState:
        """Stop a task, and wait until it has ended."""
        self._check(client, handle)
        await self._delegator.background.stop(handle)
        return await self.read(client, handle)

    async def message(self, client: str, handle: str, body: MessageRequest) -> SentMessage:
        """Send a message to a child. A task that has ended continues.

        It does so in the background, under the message's handle. Raises TooMany, and CallError if it can't be sent.
        """
        running, known, background = self.delegation(client, handle), self._clients[client], self._delegator.background
        if (running is None or running.done) and len(known.open) + known.starting >= self._max_open:
            raise TooMany(self._max_open)
        sent = await background.message(handle, **dict(body), author="model", on_approval=known.ask)
        if sent.handle != handle and (delegation := background.delegation(sent.handle)) is not None:
            known.opened(delegation)
        return sent

    async def messages(self, client: str, handle: str) -> list[SentMessage]:
        """What became of the messages to a child."""
        self._check(client, handle)
        if await self._delegator.records.read(handle) is None:
            raise readback.unknown_handle()
        return await self._delegator.background.messages(handle)

    async def events(self, client: str, handle: str) -> AsyncGenerator[JsonObject]:
        """Follow the events of a task's call.

        They are those of the whole call, from its beginning, until it has ended. Raises CallError for a handle of an
        earlier process of the server.
        """
        delegation = self.delegation(client, handle)
        if delegation is None:
            raise CallError("unknown_handle", "its events aren't kept any more", field="handle", hint="read the task")
        return (as_json(event) async for event in delegation.events())

    def delegation(self, client: str, handle: str) -> Delegation | None:
        """The call of a task, if this process remembers it."""
        self._check(client, handle)
        return self._delegator.background.delegation(handle)

    def context_of(self, client: str, handle: str) -> str:
        """What the client calls the run of a task, as far as this process knows it, or else the run's own id."""
        run = readback.run_of(handle)
        return self._clients[client].runs.get(run, run)

    async def handles(self, client: str) -> list[str]:
        """The latest tasks that this client may read, newest first: those of at most 100 runs."""
        records, own = self._delegator.records, list(reversed(self._clients[client].runs))
        runs = [run.run_id for run in await records.runs(_LISTED_RUNS)] if self._shared else own[:_LISTED_RUNS]
        return [task.handle for run in runs for task in reversed(await records.tasks(run)) if task.depth == 0]

    async def judge(self, client: str, body: Any) -> Verdict | ScoreResult:
        """Judge existing work, or score a text on a rubric.

        A text to score has `content`. Raises CallError and WireError.
        """
        if isinstance(body, dict) and "content" in body:
            try:
                request = ScoreRequest.model_validate(body)
            except ValidationError as error:
                raise WireError("validation_error", error_text(error), 400) from None
            return await scoring.score(self._delegator, request)
        return await self._delegator.judge(**dict(parse(JudgeRequest, cast("object", body))))

    async def rubrics(self, client: str) -> RubricList:
        """List the rubrics that are shipped."""
        return RubricList.shipped()

    async def approvals(self, client: str) -> list[PendingApproval]:
        """List the calls of children that wait for an approval."""
        return [
            PendingApproval(
                sha256=request.sha256,
                handle=request.handle,
                tool=request.tool,
                arguments=dict(request.arguments),
                reason=request.reason,
                text=request.describe(),
            )
            for request, _ in self._clients[client].asked.values()
        ]

    async def approve(self, client: str, sha256: str, body: ApprovalReply) -> None:
        """Answer a request for an approval.

        Raises CallError if nothing waits under this digest.
        """
        asked = self._clients[client].asked
        if sha256 not in asked:
            raise CallError("unknown_approval", "no call waits for it", field="sha256", hint="list the approvals")
        _, future = asked.pop(sha256)
        if not future.done():
            future.set_result(ApprovalAnswer(**dict(body), sha256=sha256))

    def _check(self, client: str, handle: str) -> None:
        if not self._shared and readback.run_of(handle) not in self._clients[client].runs:
            raise readback.unknown_handle()
