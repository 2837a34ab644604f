"""Makes the looks that a judge asks for, and records them. Everything is read-only, and bounded.

A judge whose page isn't enough calls tools (`judges/looking.md`): the finished work (`work.py`), a command in a copy of
the workspace (`commands.py`), and the worker's own look-up tools (`state.py`). They are offered only where they could
decide something.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from delegate._util.fencing import clean, fence
from delegate._util.redaction import logger
from delegate.errors import DelegateError, ToolError
from delegate.judging.checks.json_schema import validate
from delegate.judging.frozen import FrozenWork
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.sources import Sources
from delegate.judging.looks import state, work
from delegate.judging.looks.commands import RUN, SealedCommands, may_run
from delegate.judging.looks.look import NO_LOOKS, Found, Look, LookKind, LookLimits
from delegate.judging.looks.work import Work
from delegate.models.catalog import Model
from delegate.ports import Tool, ToolCall, ToolReply, ToolSpec
from delegate.records.recorder import encodable
from delegate.sandbox.commands import Commands
from delegate.sandbox.media import readable_types
from delegate.sandbox.threads import run_in_thread
from delegate.types import JudgeLook, StatementPart

LOOK_CHARS = 24_000
"""How much a judge sees of one look."""
LEAST_CHARS = 500
"""A look for which less room is left isn't made."""
MAX_RECORDED_CHARS = 4_000
"""How much of it is recorded."""
_TEXTS = (work.READ, work.SEARCH, work.LIST)
OWN_TOOLS = (*_TEXTS, RUN)
"""The tools that are ours, and not the worker's."""
_OWN_NAMES = frozenset(spec.name for spec in OWN_TOOLS)
_log = logger(__name__)


class Looking:
    """What judges may look at of one submission. `record` gets all that they looked at."""

    __slots__ = ("_commands", "_frozen", "_sealed", "_state_tools", "_work", "limits", "record", "sources")

    def __init__(
        self, sources: Sources, commands: Commands, frozen: FrozenWork, limits: LookLimits, record: list[JudgeLook]
    ) -> None:
        self.sources, self.limits, self.record = sources, limits, record
        self._commands, self._frozen = commands, frozen
        self._work: Work | None = None
        self._sealed: SealedCommands | None = None
        self._state_tools: Mapping[str, Tool] | None = None

    def offer(self, parts: Sequence[StatementPart], evidence: Evidence) -> "Looks | None":
        """What a judge may look at to decide these parts; None if the page has it all, or nothing may be looked at."""
        if not (self.limits.looks and self.limits.turns):
            return None
        folder = self.sources.submission.folder
        beyond = {part.about for part in parts} - {"report"}
        tools: tuple[ToolSpec, ...] = ()
        if evidence.cut or (beyond and folder is not None and folder.exists):
            tools = _TEXTS
        if beyond and may_run(self.sources.submission, self._commands):
            tools = OWN_TOOLS
        if beyond & {"deed", "absence"}:
            tools += tuple(_named_spec(name, tool) for name, tool in self.state_tools.items())
        return Looks(self, tools) if tools else None

    @property
    def work(self) -> Work:
        """The finished work."""
        self._work = self._work or Work(self.sources)
        return self._work

    @property
    def sealed(self) -> SealedCommands:
        """Commands in copies of the workspace."""
        self._sealed = self._sealed or SealedCommands(self.sources.submission, self._commands, self._frozen)
        return self._sealed

    @property
    def state_tools(self) -> Mapping[str, Tool]:
        """The worker's own look-up tools."""
        if self._state_tools is None:
            self._state_tools = state.state_tools(self.sources.submission, _OWN_NAMES)
        return self._state_tools


class Looks:
    """The looks of the judge that answers one question."""

    __slots__ = ("_left", "_looking", "_seen", "max_turns", "tools")

    def __init__(self, looking: Looking, tools: tuple[ToolSpec, ...]) -> None:
        self.tools = tools
        self.max_turns = looking.limits.turns
        self._looking = looking
        self._left = looking.limits.looks
        self._seen: Mapping[str, Look] = NO_LOOKS

    @property
    def may_run(self) -> bool:
        """Whether the judge may run commands."""
        return RUN in self.tools

    @property
    def is_used_up(self) -> bool:
        """Whether no look is left."""
        return self._left <= 0

    @property
    def any_made(self) -> bool:
        """Whether the judge looked at anything."""
        return bool(self._seen)

    def begin(self) -> None:
        """Another judge is asked: what an earlier one saw, it didn't see."""
        self._seen = NO_LOOKS

    def added_to(self, evidence: Evidence) -> Evidence:
        """The evidence with what the judge looked at."""
        if not self._seen:
            return evidence
        work = self._looking.work
        return evidence.with_looks(tuple(self._seen.values()), work.lengths(self._seen), work.wrote)

    async def make(self, calls: Sequence[ToolCall], model: Model, nonce: str, room: int) -> tuple[ToolReply, ...]:
        """Make the looks that a judge asks for, one after the other. Those beyond the limit are refused.

        All of them together may have `room` characters.
        """
        replies: list[ToolReply] = []
        for call in calls:
            if self._left <= 0 or room < LEAST_CHARS:
                why = "no look is left" if self._left <= 0 else "no room is left"
                replies.append(ToolReply(call.id, call.name, f"not made: {why}. Answer now.", is_error=True))
                continue
            self._left -= 1
            look = await self._made(call, model, min(LOOK_CHARS, room))
            self._looking.record.append(look.receipt)
            self._seen = {**self._seen, look.name: look}
            room -= len(look.text)
            text, found = fence(look.name, look.text, nonce), look.found
            replies.append(ToolReply(call.id, call.name, text, found.status != "ok", found.attachments))
        return tuple(replies)

    async def _made(self, call: ToolCall, model: Model, most_chars: int) -> Look:
        """One look, whatever comes of it."""
        started, kind = time.monotonic(), self._kind_of(call.name)
        try:
            found = await self._found(call, model)
        except TimeoutError:
            found = Found("it took too long", status="timeout")
        except (DelegateError, OSError) as error:
            found = Found(str(error), status="error")
        except Exception as error:  # a look-up tool is the host's own code
            _log.warning("a judge's look at %s failed", call.name, exc_info=True)
            found = Found(f"{type(error).__name__}: {error}", status="error")
        record = partial(self._recorded, call, kind, found, model.id, time.monotonic() - started, most_chars)
        return await run_in_thread(record)

    async def _found(self, call: ToolCall, model: Model) -> Found:
        args = call.arguments
        spec = next((spec for spec in self.tools if spec.name == call.name), None)
        if spec is None:
            names = ", ".join(spec.name for spec in self.tools)
            raise ToolError(f"there is no tool {call.name[:100]!r}; use one of: {names}")
        if args is None:
            raise ToolError("the arguments are not a JSON object")
        if tool := self._looking.state_tools.get(call.name):
            return await state.call(tool, args, self._looking.sources.submission, tuple(self._seen.values()))
        args = {name: value for name, value in args.items() if value is not None}  # models write null for omitted ones
        if problem := await validate(args, spec.parameters):
            raise ToolError(f"invalid arguments: {problem}")
        return await self._look_at_work(call.name, args, model)

    async def _look_at_work(self, name: str, args: Mapping[str, Any], model: Model) -> Found:
        if name == RUN.name:
            return await self._looking.sealed.run(args)
        own, earlier = self._looking.work, self._seen
        match name:
            case work.READ.name:
                readable = readable_types(images=model.images, pdfs=model.pdfs)
                return await run_in_thread(partial(own.read, args, earlier, readable))
            case work.SEARCH.name:
                return await run_in_thread(partial(own.search, args, earlier))
            case _:
                return await run_in_thread(own.listed)

    def _kind_of(self, name: str) -> LookKind:
        return "command" if name == RUN.name else "work" if name in _OWN_NAMES else "state"

    def _recorded(
        self, call: ToolCall, kind: LookKind, found: Found, judge: str, seconds: float, most_chars: int
    ) -> Look:
        """The look with its record, numbered. Without secrets, and without what a reader can't see."""
        redactor = self._looking.sources.submission.redactor
        whole = redactor.text(clean(redactor.text(found.text)).text)
        text = whole if len(whole) <= most_chars else _shortened(whole, most_chars)
        data = whole.encode("utf-8", "replace")
        receipt = JudgeLook(
            n=len(self._looking.record) + 1,
            model=judge,
            tool=encodable(call.name),
            args=redactor.value(encodable(call.arguments or {})),
            status=found.status,
            output=whole[:MAX_RECORDED_CHARS],
            output_sha256=hashlib.sha256(data).hexdigest(),
            output_bytes=len(data),
            seconds=round(seconds, 6),
            sandbox=found.sandbox,
        ).with_whole_output(whole)
        return Look(receipt, kind, text, found)


def _shortened(text: str, chars: int) -> str:
    """The beginning and the end. The rest can be read, as a source of its own."""
    half = chars // 2
    return f"{text[:half]}\n[\u2026 {len(text) - 2 * half} characters left out here \u2026]\n{text[-half:]}"


def _named_spec(name: str, tool: Tool) -> ToolSpec:
    return ToolSpec(name, tool.description, tool.parameters)
