"""The events of one task, which are recorded, and delivered to the consumers of its call."""

import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ParamSpec

from delegate._util.redaction import logger, redactor
from delegate.engine.scope import CallScope
from delegate.types import JsonObject, TaskResult
from delegate.types.events import (
    CheckStarted,
    ChildText,
    ChildToolStarted,
    ChildWaiting,
    TaskDone,
    TaskEvent,
    TaskQueued,
    WaitReason,
    from_json,
    kind_of,
    reported_wait,
)

_log = logger(__name__)
_NOT_RECORDED = (TaskQueued, ChildText, ChildToolStarted, CheckStarted, TaskDone)
"""The task's record has its beginning and end, and whole texts. What has started needs no record once it has ended."""
_P = ParamSpec("_P")


class TaskEvents:
    def __init__(self, call: CallScope, index: int, handle: str) -> None:
        self.index, self.handle = index, handle
        self._call = call
        self._has_ended = False

    def notify(self, make: Callable[_P, TaskEvent], /, *args: _P.args, **fields: _P.kwargs) -> None:
        """Record an event of this task, and deliver it. It isn't built if it is neither recorded nor delivered."""
        self._send(make, fields)

    def journal(self, make: Callable[..., TaskEvent], text: str) -> None:
        """Record an event whose fields are the JSON `text`, which has no secrets, and deliver it."""
        self._send(make, text)

    def _send(self, make: Callable[..., TaskEvent], values: JsonObject | str) -> None:
        if self._has_ended and make is not TaskDone:  # of a child that was left behind
            return
        at, is_recorded, has_consumers = time.time(), make not in _NOT_RECORDED, bool(self._call.consumers_of(make))
        if not isinstance(values, str) and (is_recorded or has_consumers):
            values = dict(zip(values, redactor.value([*values.values()]), strict=True))
        if is_recorded:
            self._call.services.records.event(self.handle, kind_of(make), values, at=at)
        if not has_consumers:
            return
        run_id = self._call.context.run.id
        try:
            fields = json.loads(values) if isinstance(values, str) else values
            event = from_json(make, fields, run_id=run_id, task_index=self.index, handle=self.handle, at=at)
        except RecursionError:  # a model's arguments can be nested very deeply
            _log.warning("an event of task %d is nested too deeply to be delivered", self.index + 1)
            return
        self._call.deliver(event)

    def close(self) -> None:
        """The task has its result: a child that was left behind reports nothing more."""
        self._has_ended = True

    def done(self, result: TaskResult | None) -> None:
        """Report the end of the task; without a result, it was cut short."""
        self.notify(
            TaskDone,
            status=result.status if result else None,
            verdict=result.verdict.verdict if result and result.verdict else None,
            cost_usd=result.cost_usd if result else None,
        )

    @contextmanager
    def reporting_wait(self, reason: WaitReason | None = None) -> Generator[None]:
        """Report the beginning and the end of a wait, if it has a reason."""
        if reason is None:
            yield
            return
        with reported_wait(lambda seconds: self.notify(ChildWaiting, reason=reason, seconds=seconds)):
            yield
