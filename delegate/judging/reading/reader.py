"""Reads the criteria of a call: by their own word, from what was read before, or with one request to a model.

A criterion that says itself that it is about the report or a file needs no more. Of deeds and absences, a model says
which calls would prove or violate them.

The request starts with the children and runs at the same time as they do. It goes to the model that would judge, is
charged as a judge's call is, and never fails a call: criteria that no model could read count as deeds of which nothing
is known.
"""

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from delegate._util.redaction import logger, redactor
from delegate.budget.ledger import Ledger
from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.judge.reply import UnparseableReply
from delegate.judging.judge.session import JudgePool, JudgeSession
from delegate.judging.reading.statements import (
    TaskReading,
    Template,
    ToolInfo,
    ToRead,
    declared_readings,
    in_words,
    known_effects,
)
from delegate.judging.submission import asked
from delegate.judging.versions import reading_version
from delegate.models.catalog import Model
from delegate.types import CriterionReading, Task, Tier
from delegate.types.errors import DelegateError
from delegate.types.events import ignore_event

if TYPE_CHECKING:
    from delegate.records.history import Records

PER_REQUEST = 40
"""Statements per request; more than a call usually has."""
_TO_READ = (None, "deed", "absence")
"""What criteria say that they are about, and have to be read all the same: which calls would prove or violate them."""
_KEPT = 2_000
"""Readings that are remembered in memory."""
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class TaskToRead:
    """A task of a call. `key` names it within the call."""

    key: str
    task: Task
    template: Template | None = None
    """What the task was made from, which is read instead, so that its other rows needn't be read."""
    has_user: bool = False
    """Whether the worker talks with a user."""
    messages: Sequence[str] = ()
    """What the parent asked for later, of a task that goes on."""


@dataclass
class Reader:
    """Reads criteria, with what all calls of one delegator share."""

    pool: JudgePool
    store: "Records | None" = None
    _remembered: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])
    _pending: dict[tuple[int, str], asyncio.Event] = field(default_factory=dict[tuple[int, str], asyncio.Event])
    """What is being read, by thread and key."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def stored(self, keys: Sequence[str]) -> dict[str, str]:
        """What was read before, in this process or by others."""
        readings = self.remembered(keys)
        missing = [key for key in keys if key not in readings]
        if missing and self.store is not None:
            more = await self.store.readings(missing)
            self._remember(more)
            readings |= more
        return readings

    def remembered(self, keys: Sequence[str]) -> dict[str, str]:
        """What this process read before."""
        with self._lock:
            return {key: self._remembered[key] for key in keys if key in self._remembered}

    def keep(self, readings: Mapping[str, str]) -> None:
        """Keep what was read."""
        self._remember(readings)
        if self.store is not None:
            self.store.keep_readings(readings)

    def _remember(self, readings: Mapping[str, str]) -> None:
        with self._lock:
            self._remembered.update(readings)
            while len(self._remembered) > _KEPT:
                self._remembered.popitem(last=False)

    async def others(self, keys: Sequence[str]) -> None:
        """Wait until no other call on this thread is reading one of these keys."""
        thread = threading.get_ident()
        while events := [self._pending[thread, key] for key in keys if (thread, key) in self._pending]:
            await events[0].wait()

    @contextmanager
    def reading(self, keys: Sequence[str]) -> Generator[None]:
        """A context in which others wait for these keys instead of reading them too."""
        thread = threading.get_ident()
        events = {(thread, key): asyncio.Event() for key in keys if (thread, key) not in self._pending}
        self._pending.update(events)
        try:
            yield
        finally:
            for key, event in events.items():
                del self._pending[key]
                event.set()


class CallReading:
    """The reading of the criteria of one call's tasks. `start` it with the children, and `close` it at the end."""

    def __init__(
        self,
        reader: Reader,
        tasks: Sequence[TaskToRead],
        tools: Sequence[ToolInfo],
        *,
        worker: Model | None,
        ceiling: Tier,
        ledger: Ledger,
    ) -> None:
        self._reader = reader
        self._declared = {task.key: declared_readings(task.task) for task in tasks}
        self._readings: dict[str, dict[str, CriterionReading]] = {task.key: {} for task in tasks}
        self._effects = known_effects(tools)
        self._open = {task.key: open for task in tasks if (open := self._to_read(task, tools)) is not None}
        # Most of this is for what is unread. Of hundreds of calls at once, those that read nothing hold nothing.
        self._tools = tools if self._open else ()
        self._effects_key = _key("effects", [(tool.name, tool.description) for tool in tools]) if self._open else ""
        self._templates = {task.key: task.template for task in tasks if task.template is not None}
        self._session = JudgeSession(reader.pool, worker, ceiling, ledger, ignore_event) if self._open else None
        self._work: asyncio.Task[None] | None = None
        self._taken = False
        self._unsettled = set(self._open)

    def start(self) -> None:
        """Start to read, if there is anything that isn't known."""
        if self._session is not None:
            self._use(self._reader.remembered([*_keys(self._open.values()), self._effects_key]))
            if any(entry.statements for entry in self._left()):
                self._work = asyncio.get_running_loop().create_task(self._run(self._session))

    def known(self, key: str) -> TaskReading:
        """What is known of a task now."""
        return TaskReading({**self._declared[key], **self._readings[key]}, self._effects)

    async def of(self, key: str) -> TaskReading:
        """How a task's statements were read, once that is known."""
        if self._work is not None and key in self._open and self._open[key].without(self._readings[key]).statements:
            await asyncio.wait([self._work])
        return self.known(key)

    async def settle(self, key: str, recorder: JudgeRecorder, *, is_last: bool = True) -> None:
        """Charge what was spent on reading to this verdict, unless another one of the call has it.

        When no task needs the readings any more, a request that is still under way is stopped. With `is_last` false,
        the task gets more verdicts.
        """
        if is_last:
            self._unsettled.discard(key)
        if self._work is None or self._session is None:
            return
        if not self._unsettled and not self._work.done():
            await self.close()
        if self._work.done() and not self._taken:
            self._taken = True
            recorder.read_by(self._session.recorder)

    async def close(self) -> None:
        """Stop reading, and wait until it has stopped."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])

    # ------------------------------------------------------------------------------------------------------ reading

    async def _run(self, session: JudgeSession) -> None:
        try:
            self._use(await self._reader.stored([*_keys(self._open.values()), self._effects_key]))
            keys = _keys(self._left())
            await self._reader.others(keys)
            self._use(self._reader.remembered([*keys, self._effects_key]))
            for request in _requests(self._left()):
                with self._reader.reading(_keys(request)):
                    await self._ask(session, request)
        except DelegateError as error:
            _log.info("criteria were not read: %s", error)
        except Exception:
            _log.exception("criteria were not read")

    async def _ask(self, session: JudgeSession, request: Sequence["_Open"]) -> None:
        from delegate.judging.reading.question import build_question, read_reply  # loaded only where a model is asked

        tasks = [entry.to_read for entry in request]
        reply = await session.ask(build_question(tasks, self._tools))
        if reply.reply is None:
            _log.info("criteria were not read: %s", reply.reason)
            return
        try:
            readings = read_reply(reply.reply.text, tasks, self._tools)
        except UnparseableReply as error:
            _log.info("criteria were not read: %s", error)
            return
        new = {self._effects_key: json.dumps(readings[0].effects)}
        for entry, reading in zip(request, readings, strict=True):
            for id, statement_reading in reading.statements.items():
                self._take(entry, id, statement_reading)
                new[entry.key_of[id]] = statement_reading.model_dump_json(exclude_defaults=True)
        self._effects |= readings[0].effects
        self._reader.keep(new)

    def _use(self, stored: Mapping[str, str]) -> None:
        """Use what was read before."""
        if (effects := stored.get(self._effects_key)) is not None:
            self._effects |= json.loads(effects)
        for entry in self._open.values():
            for id, key in entry.key_of.items():
                if key in stored:
                    with suppress(ValidationError):  # written by another version
                        reading = CriterionReading.model_validate_json(stored[key])
                        self._take(entry, id, reading.model_copy(update={"by": "stored"}))

    def _take(self, entry: "_Open", id: str, reading: CriterionReading) -> None:
        template, declared = self._templates.get(entry.key), self._declared[entry.key].get(id)
        reading = template.filled(reading) if template and id in template.statements else reading
        self._readings[entry.key][id] = _as_declared(declared, reading) if declared else reading

    def _to_read(self, task: TaskToRead, tools: Sequence[ToolInfo]) -> "_Open | None":
        open = {id: words for id, (words, about) in in_words(task.task).items() if about in _TO_READ}
        if not open:
            return None
        text, template = redactor.text, task.template
        texts = {id: template.statements.get(id, words) if template else words for id, words in open.items()}
        goal = template.goal if template else asked(task.task.goal, task.messages)
        to_read = ToRead(text(goal), {id: text(words) for id, words in texts.items()}, has_user=task.has_user)
        info = [(tool.name, tool.description, tool.effect) for tool in tools]
        seen = to_read.goal, to_read.has_user, info
        keys = {id: _key("statement", words, *seen) for id, words in to_read.statements.items()}
        return _Open(task.key, to_read, keys)

    def _left(self) -> list["_Open"]:
        """What is still unknown, by task; tasks of which all is known are left out."""
        entries = [entry.without(self._readings[entry.key]) for entry in self._open.values()]
        return [entry for entry in entries if entry.statements]


@dataclass(frozen=True, slots=True)
class PendingReading:
    """The reading of one task's criteria, which may still be under way."""

    call: CallReading
    key: str
    is_last: bool = True
    """Whether the task gets no other verdict."""

    async def get(self) -> TaskReading:
        """The reading, once it is known."""
        return await self.call.of(self.key)

    async def settle(self, recorder: JudgeRecorder) -> None:
        """Charge what was spent on it to a verdict: see `CallReading.settle`."""
        await self.call.settle(self.key, recorder, is_last=self.is_last)


@dataclass(frozen=True, slots=True)
class _Open:
    """The statements of one task that have to be read."""

    key: str
    to_read: ToRead
    key_of: Mapping[str, str]
    """The key of each statement's reading, by the statement's id."""

    @property
    def statements(self) -> Mapping[str, str]:
        return self.to_read.statements

    def without(self, known: Mapping[str, Any]) -> "_Open":
        statements = {id: words for id, words in self.statements.items() if id not in known}
        return _Open(self.key, replace(self.to_read, statements=statements), {id: self.key_of[id] for id in statements})


def _as_declared(declared: CriterionReading, reading: CriterionReading) -> CriterionReading:
    """What a criterion says itself that it is about stands: only what would prove that is taken from the reading, and
    nothing that a worker's word could show.
    """
    (own,), kinds = declared.parts, {part.about for part in reading.parts}
    if own.about in kinds and kinds <= {"deed", "absence"}:
        return reading
    deeds = [part for part in reading.parts if part.about == "deed"]
    if own.about != "deed" or not deeds:
        return declared
    tools = dict.fromkeys(tool for part in deeds for tool in part.tools)
    names = dict.fromkeys(name for part in deeds for name in part.names)
    return reading.model_copy(update={"parts": (own.model_copy(update={"tools": (*tools,), "names": (*names,)}),)})


def _requests(tasks: Sequence[_Open]) -> list[list[_Open]]:
    """The tasks in as few requests as possible; a task isn't split."""
    requests: list[list[_Open]] = []
    for entry in tasks:
        size = sum(len(entry.statements) for entry in requests[-1]) if requests else PER_REQUEST
        if size + len(entry.statements) > PER_REQUEST:
            requests.append([])
        requests[-1].append(entry)
    return requests


def _keys(tasks: Iterable[_Open]) -> list[str]:
    return [key for entry in tasks for key in entry.key_of.values()]


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps([reading_version(), *parts]).encode()).hexdigest()
