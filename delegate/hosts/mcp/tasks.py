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

from delegate.delegator.background import Delegation
from delegate.hosts.mcp.approvals import ANSWER_FORM, answer_in
from delegate.policy.approvals import describe
from delegate.types import JsonObject, ParentQuestion

_POLL_MS = 2_000
_KEPT = 1_000
"""The number of tasks that are remembered; the oldest ones that have ended are dropped first."""

MakeResult = Callable[[], Awaitable[JsonObject]]
"""Makes the result of the call once it has ended."""


@dataclass(slots=True)
class ProtocolTask:
    """A task: a call that runs, or has ended."""

    client: str
    delegation: Delegation
    make_result: MakeResult
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    cancelled: bool = False
    id: str = field(default_factory=lambda: uuid4().hex)

    async def get(self) -> JsonObject:
        """Its state, with its result once it has ended."""
        requests = {
            _key(question): {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": describe(question), "requestedSchema": ANSWER_FORM},
            }
            for question in self.delegation.questions
        }
        if requests:
            return {**self.state("input_required"), "inputRequests": requests}
        if not self.delegation.done:
            return self.state("working")
        if self.cancelled:
            return self.state("cancelled")
        return {**self.state("completed"), "result": await self.make_result()}

    async def cancel(self) -> JsonObject:
        """Stop it. A task that has ended keeps its result."""
        if not self.delegation.done:
            self.cancelled = True
            self.delegation.cancel()
        return {}

    async def update(self, responses: Mapping[str, Any]) -> JsonObject:
        """Answer what its children ask."""
        for question in self.delegation.questions:
            if (response := responses.get(_key(question))) is not None:
                self.delegation.answer(question.handle, answer_in(response))
        return {}

    def state(self, status: str) -> JsonObject:
        """What the protocol says of a task with this status."""
        return {
            "taskId": self.id,
            "status": status,
            "statusMessage": self.delegation.progress.line(),
            "createdAt": self.created.isoformat(),
            "lastUpdatedAt": datetime.now(UTC).isoformat(),
            "ttlMs": None,
            "pollIntervalMs": _POLL_MS,
        }


class ProtocolTasks:
    """The tasks of one server. A client knows only its own."""

    def __init__(self) -> None:
        self._tasks = OrderedDict[str, ProtocolTask]()

    def create(self, client: str, delegation: Delegation, make_result: MakeResult) -> JsonObject:
        """Make a task of a call that runs. Returns the result that answers the call."""
        task = ProtocolTask(client, delegation, make_result)
        self._tasks[task.id] = task
        ended = [id for id, one in self._tasks.items() if one.delegation.done]
        for id in ended[: max(0, len(self._tasks) - _KEPT)]:
            del self._tasks[id]
        return {"resultType": "task", **task.state("working")}

    def of(self, client: str, task_id: str) -> ProtocolTask | None:
        """A task of this client; None if it has no such task."""
        task = self._tasks.get(task_id)
        return task if task is not None and task.client == client else None


def _key(question: ParentQuestion) -> str:
    return f"{question.handle}-question-{question.n}"
