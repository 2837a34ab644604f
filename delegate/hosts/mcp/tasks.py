"""Tasks of the protocol: calls in the background, as clients know them that declare the extension.

Such a client polls by itself, so that its model waits for the result as for that of any other call. See
https://github.com/modelcontextprotocol/ext-tasks, version 2026-07-28.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from delegate.engine.delegation import Delegation
from delegate.hosts.mcp.approvals import ANSWER_FORM, answer_in
from delegate.policy.questions import describe
from delegate.types import JsonObject, ParentQuestion

_POLL_MS = 2_000
_KEPT = 1_000
"""The number of tasks that are remembered; the oldest ones that have ended are dropped first."""

MakeResult = Callable[[], Awaitable[JsonObject]]
"""Makes the result of the call once it has ended."""


@dataclass(slots=True)
class _Task:
    client: str
    delegation: Delegation
    make_result: MakeResult
    created: datetime
    cancelled: bool = False
    id: str = field(default_factory=lambda: uuid4().hex)


class ProtocolTasks:
    """The tasks of one server. A client knows only its own."""

    def __init__(self) -> None:
        self._tasks = OrderedDict[str, _Task]()

    def create(self, client: str, delegation: Delegation, make_result: MakeResult) -> JsonObject:
        """Make a task of a call that runs. Returns the result that answers the call."""
        task = _Task(client, delegation, make_result, _now())
        self._tasks[task.id] = task
        ended = [id for id, one in self._tasks.items() if one.delegation.done]
        for id in ended[: max(0, len(self._tasks) - _KEPT)]:
            del self._tasks[id]
        return {"resultType": "task", **_state(task, "working")}

    async def get(self, client: str, task_id: str) -> JsonObject | None:
        """The state of a task, with its result once it has ended. None if the client has no such task."""
        task = self._of(client, task_id)
        if task is None:
            return None
        requests = {
            _key(question): {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": describe(question), "requestedSchema": ANSWER_FORM},
            }
            for question in task.delegation.questions
        }
        if requests:
            return {**_state(task, "input_required"), "inputRequests": requests}
        if not task.delegation.done:
            return _state(task, "working")
        if task.cancelled:
            return _state(task, "cancelled")
        return {**_state(task, "completed"), "result": await task.make_result()}

    async def cancel(self, client: str, task_id: str) -> JsonObject | None:
        """Stop a task. None if the client has no such task. A task that has ended keeps its result."""
        task = self._of(client, task_id)
        if task is not None and not task.delegation.done:
            task.cancelled = True
            task.delegation.cancel()
        return None if task is None else {}

    async def update(self, client: str, task_id: str, responses: Mapping[str, Any]) -> JsonObject | None:
        """Answer what the children of a task ask. None if the client has no such task."""
        task = self._of(client, task_id)
        for question in task.delegation.questions if task is not None else ():
            if (response := responses.get(_key(question))) is not None:
                task.delegation.answer(question.handle, answer_in(response))
        return None if task is None else {}

    def _of(self, client: str, task_id: str) -> _Task | None:
        task = self._tasks.get(task_id)
        return task if task is not None and task.client == client else None


def _key(question: ParentQuestion) -> str:
    return f"{question.handle}-question-{question.n}"


def _state(task: _Task, status: str) -> JsonObject:
    return {
        "taskId": task.id,
        "status": status,
        "statusMessage": task.delegation.progress.line(),
        "createdAt": task.created.isoformat(),
        "lastUpdatedAt": _now().isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _now() -> datetime:
    return datetime.now(UTC)
