"""Makes the looks that a judge asks for, and records them. Everything is read-only, and bounded.

A judge whose page isn't enough calls tools (`judges/looking.md`): the finished work (`work.py`), a command in a copy of
the workspace (`commands.py`), and the worker's own look-up tools (`state.py`). They are offered only where they could
decide something.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from delegate._util.fencing import clean, fence
from delegate._util.redaction import logger, redactor
from delegate._util.threads import run_in_thread
from delegate.judging.checks.json_schema import validate
from delegate.judging.frozen import FrozenWork
from delegate.judging.judge.evidence import EXIT_CODE, Evidence, bounded, printed, prints_without_work
from delegate.judging.judge.sources import folded
from delegate.judging.looks import state, work
from delegate.judging.looks.commands import RUN, SealedCommands, may_run
from delegate.judging.looks.look import NO_LOOKS, Found, Look, LookKind, LookLimits
from delegate.judging.looks.work import Work
from delegate.judging.submission import Submission
from delegate.models.catalog import Model
from delegate.records.recorder import encodable
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.filesystem.media import MAX_REQUEST_BYTES, readable_types
from delegate.types import CriterionResult, JudgeLook, StatementPart
from delegate.types.errors import DelegateError, ToolError
from delegate.types.ports import Attachment, Tool, ToolCall, ToolReply, ToolSpec

LOOK_CHARS = 24_000
"""How much a judge sees of one look."""
LEAST_CHARS = 500
"""A look for which less room is left isn't made."""
MAX_RECORDED_CHARS = 4_000
"""How much of it is recorded, unless a quote that counts is from further on: then all that the judge saw."""
_NOTE_CHARS = 150
"""Room for what is said of the rest."""
_REMARKED_LINES = 100
"""How many lines of a command's output a remark is about."""
_REMARK = (
    "Without the work, the command prints these lines of {name} too (line 1 is its exit code): {lines}. A quote of "
    "them shows nothing. For what must not be there, quote lines that show what is there."
)
_TEXTS = (work.READ, work.SEARCH, work.LIST)
OWN_TOOLS = (*_TEXTS, RUN)
"""The tools that are ours, and not the worker's."""
_OWN_NAMES = frozenset(spec.name for spec in OWN_TOOLS)
_log = logger(__name__)


@dataclass
class Looking:
    """What judges may look at for one verdict. `record` gets all that they looked at."""

    submission: Submission
    commands: Commands
    frozen: FrozenWork
    limits: LookLimits
    record: list[JudgeLook]

    def __post_init__(self) -> None:
        self.left = {False: self.limits.looks, True: self.limits.looks}
        """How many looks a judge, and a second one (True), have left for all questions together."""
        self._made: dict[str, Look | None] = {}

    def offer(
        self, work: Work, parts: Sequence[StatementPart], evidence: Evidence, *, second: bool = False
    ) -> "Looks | None":
        """What a judge, or a `second` one, may look at to decide these parts; None if the page has it all, or nothing
        may be looked at.
        """
        if not (self.left[second] and self.limits.turns):
            return None
        folder = self.submission.folder
        beyond = {part.about for part in parts} - {"report"}
        tools: tuple[ToolSpec, ...] = ()
        if evidence.cut or (beyond and folder is not None and folder.exists):
            tools = _TEXTS
        if beyond and may_run(self.submission, self.commands):
            tools = OWN_TOOLS
        if beyond & {"deed", "absence"}:
            named = self.state_tools.items()
            tools += tuple(ToolSpec(name, tool.description, tool.parameters) for name, tool in named)
        return Looks(self, work, tools, second=second) if tools else None

    def next_name(self) -> str:
        """The name of the next look. Several questions may be asked at once."""
        name = f"look:{len(self._made) + 1}"
        self._made[name] = None
        return name

    def add(self, look: Look) -> None:
        """Put a look that was made on record, where its number belongs."""
        self._made[look.name] = look
        self.record.append(look.receipt)
        self.record.sort(key=lambda look: look.n)

    def keep_quoted(self, results: Iterable[CriterionResult]) -> None:
        """Have the record show what was quoted from looks."""
        for answer in (part for result in results for part in (result, *result.parts)):
            look, quote = self._made.get(answer.source or ""), " ".join((answer.evidence or "").split())
            if look is not None and quote not in " ".join(look.receipt.output.split()):
                n = next(n for n, receipt in enumerate(self.record) if receipt.n == look.receipt.n)
                self.record[n] = self.record[n].model_copy(update={"output": look.text})

    @cached_property
    def sealed(self) -> SealedCommands:
        """Commands in copies of the workspace."""
        return SealedCommands(self.submission, self.commands, self.frozen)

    @cached_property
    def state_tools(self) -> Mapping[str, Tool]:
        """The worker's own look-up tools."""
        return state.state_tools(self.submission, _OWN_NAMES)


class Looks:
    """The looks of the judge that answers one question."""

    def __init__(self, looking: Looking, work: Work, tools: tuple[ToolSpec, ...], *, second: bool) -> None:
        self.tools = tools
        self.max_turns = looking.limits.turns
        self._looking, self._work, self._second = looking, work, second
        self._seen: Mapping[str, Look] = NO_LOOKS

    @property
    def may_run(self) -> bool:
        """Whether the judge may run commands."""
        return RUN in self.tools

    @property
    def is_used_up(self) -> bool:
        """Whether no look is left."""
        return self._looking.left[self._second] <= 0

    @property
    def any_made(self) -> bool:
        """Whether the judge looked at anything."""
        return bool(self._seen)

    def begin(self) -> None:
        """Another judge is asked. It didn't see what one before it saw that failed, and may look as much."""
        self._looking.left[self._second] += len(self._seen)
        self._seen = NO_LOOKS

    def added_to(self, evidence: Evidence) -> Evidence:
        """The evidence with what the judge looked at. Blocks."""
        return evidence.with_looks(self._seen, self._work)

    async def try_commands(self, quotes: Sequence[str]) -> None:
        """Find out what the commands that a judge quotes print without the work."""
        for name, look in self._seen.items():
            if look.kind == "command" and look.found.status == "ok":
                own_quotes = [quote for quote in quotes if printed(look, quote)]
                self._seen = {**self._seen, name: await self._tried(look, own_quotes) if own_quotes else look}

    async def _tried(self, look: Look, quotes: Sequence[str]) -> Look:
        """The look with what the command prints in an empty folder, and if that has a quote, on the files of before."""
        command, sealed = str(look.receipt.args["command"]), self._looking.sealed
        try:
            for before in (False, True):
                if (text := await sealed.without_work(command, before=before)) is not None:
                    look = replace(look, without_work=(*look.without_work, self._shown(text)))
                if not any(prints_without_work(look, quote) for quote in quotes):
                    break
        except (DelegateError, OSError) as error:
            _log.warning("a judge's command can't be tried without the work: %s", error)
            return replace(look, without_work=())
        return look

    async def make(self, calls: Sequence[ToolCall], model: Model, nonce: str, room: int) -> tuple[ToolReply, ...]:
        """Make the looks that a judge asks for, one after the other. Those beyond the limit are refused.

        All of them together may have `room` characters.
        """
        replies: list[ToolReply] = []
        for call in calls:
            if self.is_used_up or room < LEAST_CHARS:
                why = "no look is left" if self.is_used_up else "no room is left"
                replies.append(ToolReply(call.id, call.name, f"not made: {why}. Answer now.", is_error=True))
                continue
            self._looking.left[self._second] -= 1
            look = await self._made(call, self._looking.next_name(), model, min(LOOK_CHARS, room))
            self._looking.add(look)
            look, remark = await self._with_remark(look)
            self._seen = {**self._seen, look.name: look}
            room -= len(look.text)
            text, found = f"{fence(look.name, look.text, nonce)}{remark}", look.found
            replies.append(ToolReply(call.id, call.name, text, found.status != "ok", found.attachments))
        return tuple(replies)

    async def _with_remark(self, look: Look) -> tuple[Look, str]:
        """The look, and which of its lines a command prints without the work too, so that a judge quotes others.

        They are named by their numbers: what they say may be the child's.
        """
        if look.kind != "command" or look.found.status != "ok":
            return look, ""
        lines = look.text[len(look.header) :].strip().splitlines()[:_REMARKED_LINES]
        telling = {
            n: line
            for n, line in enumerate(lines, start=1)
            if any(map(str.isalnum, line)) and not EXIT_CODE.fullmatch(folded(line))
        }
        look = await self._tried(look, list(telling.values())) if telling else look
        same = ", ".join(str(n) for n, line in telling.items() if prints_without_work(look, line))
        return look, f"\n[{_REMARK.format(name=look.name, lines=same)}]" if same else ""

    async def _made(self, call: ToolCall, name: str, model: Model, room: int) -> Look:
        """One look, whatever comes of it."""
        start = time.monotonic()
        kind: LookKind = "command" if call.name == RUN.name else "work" if call.name in _OWN_NAMES else "state"
        try:
            found = await self._found(call, model, room)
        except TimeoutError:
            found = Found("it took too long", status="timeout")
        except (DelegateError, OSError) as error:
            found = Found(str(error), status="error")
        except Exception as error:  # a look-up tool is the host's own code
            _log.warning("a judge's look at %s failed", call.name, exc_info=True)
            found = Found(f"{type(error).__name__}: {error}", status="error")
        record = partial(self._recorded, call, name, kind, found, model.id, time.monotonic() - start, room)
        return await run_in_thread(record)

    async def _found(self, call: ToolCall, model: Model, room: int) -> Found:
        args = call.arguments
        spec = next((spec for spec in self.tools if spec.name == call.name), None)
        if spec is None:
            names = ", ".join(spec.name for spec in self.tools)
            raise ToolError(f"there is no tool {redactor.beginning(call.name, 100)!r}; use one of: {names}")
        if args is None:
            raise ToolError("the arguments are not a JSON object")
        if tool := self._looking.state_tools.get(call.name):
            return await state.call(tool, args, self._looking.submission, tuple(self._seen.values()))
        args = {name: value for name, value in args.items() if value is not None}  # models write null for omitted ones
        if problem := await validate(args, spec.parameters):
            raise ToolError(f"invalid arguments: {problem}")
        match call.name:
            case RUN.name:
                return await self._looking.sealed.run(args)
            case work.READ.name:
                readable = readable_types(images=model.images, pdfs=model.pdfs)
                found = await run_in_thread(partial(self._work.read, args, self._seen, readable, room))
                self._refuse_beyond(found.attachments)
                return found
            case work.SEARCH.name:
                return await run_in_thread(partial(self._work.search, args, self._seen, room))
            case _:
                return await run_in_thread(self._work.listed)

    def _refuse_beyond(self, attachments: Sequence[Attachment]) -> None:
        """Raise ToolError if a request can't hold these images and PDFs beside the earlier ones, which it repeats."""
        size = sum(len(attachment.data) for look in self._seen.values() for attachment in look.found.attachments)
        for attachment in attachments:
            if size + len(attachment.data) > MAX_REQUEST_BYTES:
                most = f"those that you have seen have {size:,} bytes, and {MAX_REQUEST_BYTES:,} can be shown in all"
                raise ToolError(
                    f"{attachment.name} has {len(attachment.data):,} bytes, for which no room is left: {most}"
                )

    def _shown(self, text: str) -> str:
        """The text without secrets, and without what a reader can't see."""
        return redactor.text(clean(redactor.text(text)).text)

    def _recorded(
        self, call: ToolCall, name: str, kind: LookKind, found: Found, judge: str, seconds: float, room: int
    ) -> Look:
        """The look with its record."""
        header = self._shown(found.header)
        whole = "\n".join(filter(None, (header, self._shown(found.text))))
        text = bounded(whole, room)
        if call.name == work.LIST.name and len(whole) > room:  # the rest can be read, as a source of its own
            stop = whole.rfind("\n", 0, room - _NOTE_CHARS) + 1
            more = len(whole) - stop
            text = f"{whole[:stop]}[\u2026 {more} more characters: `read` this look from offset {stop} on \u2026]"
        data = whole.encode("utf-8", "replace")
        receipt = JudgeLook(
            n=int(name.partition(":")[2]),
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
        if text != whole:  # then it isn't known what was shown of which source
            found = replace(found, spans=())
        return Look(receipt, kind, text, found, header, is_cut=found.is_cut or text != whole)
