"""The messages of one child, kept within its model's context window.

A conversation is only appended to, so that providers find it in their caches, and take back the thinking that they have
bound to it. When the next request would be too long, a new conversation takes its place: with the same messages, in
which old tool results are shortened, and which the child can read again with a tool; or, if that isn't enough, with the
model's summary. If a provider still answers that the request is too long, the estimate was too low: the conversation is
shrunk again and resent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from delegate._util.fencing import frame, new_mark
from delegate._util.threads import run_in_thread_if
from delegate._util.tokens import tokens_of
from delegate.budget import metering, runs
from delegate.child import prompt
from delegate.child.goal_tools import ABORT, CLAIM, goal_tools
from delegate.child.job import Job
from delegate.models.tiers import is_above
from delegate.records.recorder import LARGE_CHARS, argument_chars
from delegate.sandbox.filesystem.media import PDF_TYPES
from delegate.types import Effort, JsonObject
from delegate.types.errors import ProviderError, ThinkingRefused, TierExceeded, ToolError
from delegate.types.ports import ChatReply, ChatRequest, Message, Tool, ToolCall, ToolOutput, ToolReply, ToolSpec

TOOL_REPLY_CHARS = 40_000
"""Length of one tool result in the conversation."""
ATTACHMENT_TOKENS = 2_000
"""Estimated length of an image, or of a page of a PDF."""
PDF_PAGE_BYTES = 50_000
FILL_SHARE, SUMMARY_SHARE, GOAL_SHARE = 0.9, 0.7, 0.5
"""Shares of the room for a request: a longer one is shrunk; if it is still longer than the second share after its tool
results were shortened, it is summarized; and shortening ends at the third. Each new conversation is new to the
provider's prompt cache, so it makes room for several turns."""
KEPT_CHARS = 400
"""What remains at both ends of a shortened tool result."""
READ_CHARS = 30_000
"""How much of a shortened result is shown again at once."""
MIN_OUTPUT_TOKENS = 1_024
MAX_OVERFLOWS = 4
"""How often in a row a request may be too long for the provider."""

_SUMMARIZE = """\
[This conversation no longer fits into your context window. It will be replaced by the summary that you write now, so \
write down everything that you need to go on: what you did and found, with the exact names, paths, numbers and \
quotes; which files you changed; what failed and why; what is left to do. Don't call tools.]\
"""
_RESUMED = "\n\n[The conversation so far was replaced by your own summary of it:]\n\n{}\n\n[Go on with the task.]"
_LAST_TURN = "\n\n[That was the last turn with tools. The next message must be the report.]"
_LAST_CLAIM = f"\n\n[One turn is left: call {CLAIM} or {ABORT}.]"
_INTERRUPTED = """

[You were interrupted while you worked on this: your process was lost. This is the record of what you did so far. Its \
last moments may be missing, so look at what there is before you go on.]

{}\
"""

_ENDED = """

[You worked on this before, and that ended. This is the record of what you did and said. Now the agent that gave you \
the task says more: its message follows. Go on with what there is, and report on the whole task again. The \
requirements above are the ones that count now, instead of any in this record.]

{}\
"""


class Conversation:
    """The messages of one child so far, and the model calls that continue them."""

    __slots__ = (
        "_assignment", "_connection", "_effort", "_heard", "_job", "_mark", "_messages", "_model", "_results", "_sent",
        "_specs", "_system", "_tokens", "_window", "output_limit", "own_tools",
    )  # fmt: skip

    def __init__(self, job: Job) -> None:
        assert job.connection is not None
        self._job = job
        self._connection = job.connection
        self._model = job.connection.model
        self._mark = new_mark()
        self._results = ShortenedResults()
        self.own_tools = _own_tools(job, self._results)
        """The tools that only concern the conversation itself."""
        self._system = prompt.system_text(
            job.task,
            job.workspace,
            max_steps=job.max_steps,
            mark=self._mark,
            seconds=job.seconds,
            tools=[tool.name for tool in job.tools],
            readings=job.readings,
            can_ask=any(tool is job.ask_parent for tool in self.own_tools),
        )
        self._assignment = prompt.assignment(job.task) + prompt.given(job.folder.inputs, self._mark)
        self._assignment += prompt.notes(job.notes, self._mark)
        self._heard = [Message("user", prompt.message(text, self._mark)) for text in job.heard]
        """The messages of the parent, which are kept whole whatever becomes of the others."""
        before = (_ENDED if job.continues else _INTERRUPTED) if job.done_before else ""
        before = before.format(frame(job.done_before, self._mark))
        self._messages = [Message("user", self._assignment + before), *self._heard]
        specs = _specs_of((*job.tools, *self.own_tools))
        self._specs = specs if job.claims is None else (*specs, *goal_tools(job.claims.max_claims))
        self._effort: Effort | None = job.effort if self._model.effort else None
        self.output_limit = min(job.max_output_tokens, self._model.max_output_tokens)
        """The maximum number of output tokens of the next reply, including reasoning."""
        self._window = self._model.context_tokens
        """The longest request that the model accepts, as far as is known."""
        self._sent = self._tokens = 0
        """Estimated length of the last request and of the next one."""
        self._tokens = self._length_of(self._messages)

    def raise_output_limit(self) -> None:
        """Double the output limit, up to the model's own. If that is reached, ask for less reasoning."""
        if self.output_limit == self._model.max_output_tokens and self._model.effort:
            self._effort = self._effort if self._effort in ("none", "minimal") else "low"
        self.output_limit = min(2 * self.output_limit, self._model.max_output_tokens)

    async def ask(self, *appended: Message, tools: bool = True, may_shrink: bool = True) -> ChatReply:
        """Make the next model call, within the ledger's limits and the context window, and record it.

        The last call that the child may make offers no tools, so that it ends with a report. In goal mode it does, so
        that it can end with a claim. If the thinking of the conversation is refused, it starts anew with the same
        messages; if it is too long and `may_shrink`, with shorter ones. Raises `TierExceeded` if a model of a higher
        tier than the parent's answered.
        """
        job, overflows = self._job, 0
        if may_shrink and self._tokens > FILL_SHARE * self._room:
            await self._shrink()
        while True:
            try:
                call = await metering.complete(
                    self._connection,
                    self._request([*self._messages, *appended], tools=tools),
                    input_tokens=self._tokens,
                    ledger=job.ledger,
                    on_wait=job.waiting,
                    on_lost=job.recorder.call_lost,
                    incoming=job.incoming,
                )
                reply = await self._recorded(call)
                if reply.stop != "context" or reply.tool_calls or reply.text.strip():
                    return reply
                text = f"{self._model.id}: the conversation fills the context window"
                raise ProviderError("context_overflow", text, provider=self._model.provider)
            except BaseException as error:
                if (unfinished := job.incoming.so_far()) is not None:
                    job.recorder.reply_broke_off(unfinished.text)
                is_moved = all(message.moved for message in self._messages if message.role == "assistant")
                if isinstance(error, ThinkingRefused) and not is_moved:
                    self._start(self._messages, self._tokens)
                    continue
                overflows += 1
                is_too_long = isinstance(error, ProviderError) and error.fault == "context_overflow"
                if not (is_too_long and may_shrink) or overflows == MAX_OVERFLOWS:
                    raise
                self._window = min(self._window, self._tokens)
                if not await self._shrink():
                    raise

    def add_results(self, reply: ChatReply, outputs: Sequence[ToolOutput]) -> None:
        replies = [_tool_reply(*both, self._mark) for both in zip(reply.tool_calls, outputs, strict=True)]
        if self._job.recorder.steps == self._job.max_steps - 1:
            last = _LAST_TURN if self._job.claims is None else _LAST_CLAIM
            replies[-1] = replace(replies[-1], text=replies[-1].text + last)
        self._tokens += sum(map(self._tokens_of, replies))
        self._messages.append(Message("assistant", reply.text, reply.tool_calls, native=reply.native))
        self._messages.append(Message("tool", tool_replies=tuple(replies)))

    def add_notice(self, reply: ChatReply, notice: str) -> None:
        """Add what a useless reply said, without its tool calls, and a message that tells the model what to do."""
        messages = [Message("assistant", reply.text)] if reply.text.strip() else []
        messages = [*messages, Message("user", notice)] if notice else []
        self._messages += messages
        self._tokens = self._sent + self._model.tokens(sum(tokens_of(message.text) for message in messages))

    async def hear(self, reply: ChatReply | None = None) -> bool:
        """Add the messages that the parent sent, after a reply that doesn't stand if there are any.

        Returns whether there are.
        """
        heard = [Message("user", prompt.message(text, self._mark)) for text in await self._job.messages()]
        if not heard:
            return False
        said = [Message("assistant", reply.text, native=reply.native)] if reply and reply.text.strip() else []
        self._tokens += self._model.tokens(sum(tokens_of(message.text) for message in heard))
        self._messages += [*said, *heard]
        self._heard += heard
        return True

    @property
    def _room(self) -> int:
        """The longest request that leaves room for the reply, in tokens."""
        return max(self._window - self.output_limit, self._window // 2)

    def _request(self, messages: Sequence[Message], *, tools: bool = True) -> ChatRequest:
        is_last = self._job.recorder.steps >= self._job.max_steps - 1 and self._job.claims is None
        return ChatRequest(
            model=self._model.id,
            system=self._system,
            messages=messages,
            max_output_tokens=min(self.output_limit, max(self._window - self._tokens, MIN_OUTPUT_TOKENS)),
            tools=self._specs,
            tool_choice="auto" if tools and not is_last else "none",
            effort=self._effort,
            conversation=f"{self._job.run_id}-{self._job.task_index}",
        )

    async def _recorded(self, call: metering.MeteredReply) -> ChatReply:
        job = self._job
        reply, usage, served = call.reply, call.charge.usage, call.served
        self._sent, self._tokens = usage.input_tokens, usage.total_tokens
        model_called = job.recorder.model_called
        record = partial(model_called, reply, call.charge, substituted=call.substituted, seconds=call.seconds)
        chars = len(reply.text) + sum(argument_chars(tool_call.arguments) for tool_call in reply.tool_calls)
        await run_in_thread_if(chars > LARGE_CHARS, record)
        if job.ceiling and served and is_above(served.tier, job.ceiling):
            text = f"{reply.model_served}, of tier {served.tier}, in place of {self._model.id}"
            raise TierExceeded(f"the provider served {text}, which is above the parent's tier {job.ceiling}")
        if served:
            runs.note_served_tier(served.tier)
        return reply

    async def _shrink(self) -> bool:
        """Start a conversation with more room in place of this one. Returns whether it is shorter."""
        before = self._tokens
        messages, tokens = self._shortened()
        if tokens > SUMMARY_SHARE * self._room:
            await self._summarize(messages)
        else:
            self._start(messages, tokens)
        return self._tokens < before

    def _start(self, messages: Sequence[Message], tokens: int | None = None) -> None:
        """Start a new conversation with these messages. `tokens` is their length, if that is known."""
        self._messages = [
            replace(message, moved=True) if message.role == "assistant" else message for message in messages
        ]
        self._tokens = self._length_of(messages) if tokens is None else tokens

    def _shortened(self) -> tuple[list[Message], int]:
        """The messages with tool results shortened, oldest first, until there is enough room, and their length.

        Those of the last turn are shortened only if necessary.
        """
        messages, tokens = list(self._messages), self._tokens
        turns = [n for n, message in enumerate(messages) if message.role == "tool"]
        for n in turns[:-1]:
            if tokens <= GOAL_SHARE * self._room:
                return messages, tokens
            tokens -= self._shorten_turn(messages, n, KEPT_CHARS)
        if turns and tokens > SUMMARY_SHARE * self._room:
            last = messages[turns[-1]].tool_replies
            other_tokens = tokens - sum(map(self._tokens_of, last))
            tokens_each = max(GOAL_SHARE * self._room - other_tokens, 0) / len(last)
            # 2 characters at least are a token
            tokens -= self._shorten_turn(messages, turns[-1], max(int(tokens_each), KEPT_CHARS))
        return messages, tokens

    def _shorten_turn(self, messages: list[Message], n: int, kept_chars: int) -> int:
        """Shorten the results in one of the messages. Returns how many tokens that saves."""
        replies = messages[n].tool_replies
        shortened = tuple(self._results.shorten(reply, kept_chars) for reply in replies)
        messages[n] = replace(messages[n], tool_replies=shortened)
        return sum(map(self._tokens_of, replies)) - sum(map(self._tokens_of, shortened))

    async def _summarize(self, shortened: Sequence[Message]) -> None:
        """Start a conversation with the model's own summary of this one; without one, with what of it fits.

        The model is asked in this conversation, which it has in its cache, if there is room for that.
        """
        fitting = self._newest(shortened)
        summary = await self._summary() if self._tokens <= self._room else None
        if summary is None:
            self._start(fitting)
            summary = await self._summary()
        resumed = Message("user", self._assignment + _RESUMED.format(summary))
        self._start([resumed, *self._heard] if summary else fitting)

    async def _summary(self) -> str | None:
        """What the model writes down of the conversation; empty if it doesn't, or has no calls left.

        None if the conversation is too long for that, which the estimate may not have shown.
        """
        for tools in (True, False):  # without tools only if it calls some: to some caches, that is another prompt
            if self._job.recorder.steps >= self._job.max_steps - 1:
                break
            try:
                reply = await self.ask(Message("user", _SUMMARIZE), tools=tools, may_shrink=False)
            except ProviderError as error:
                if error.fault == "context_overflow":
                    return None
                raise
            if reply.stop == "context":
                return None
            if reply.text.strip() and not reply.tool_calls:
                return reply.text
        return ""

    def _newest(self, messages: Sequence[Message]) -> list[Message]:
        """What the parent said, and as many of the newest messages as fit. Tool results stay behind their calls."""
        newest, heard = list(messages), set(map(id, self._heard))
        n = 1
        while n < len(newest) and self._length_of(newest) > SUMMARY_SHARE * self._room:
            if id(newest[n]) in heard:
                n += 1
                continue
            del newest[n]
            while n < len(newest) and newest[n].role == "tool":
                del newest[n]
        return newest

    def _length_of(self, messages: Sequence[Message]) -> int:
        return metering.request_tokens(self._model, self._request(messages))

    def _tokens_of(self, reply: ToolReply) -> int:
        pdfs = [len(one.data) // PDF_PAGE_BYTES for one in reply.attachments if one.media_type in PDF_TYPES]
        return self._model.tokens(tokens_of(reply.text)) + ATTACHMENT_TOKENS * (len(reply.attachments) + sum(pdfs))


_MOST_SPECS = 64
_known_specs: dict[tuple[tuple[str, str, int], ...], tuple[ToolSpec, ...]] = {}
"""The definitions of tools by their names, descriptions and the identities of their schemas, which they keep alive."""


def _specs_of(tools: Sequence[Tool]) -> tuple[ToolSpec, ...]:
    """The definitions of the tools, as the first child with them had them: most children have the same."""
    key = tuple([(tool.name, tool.description, id(tool.parameters)) for tool in tools])
    if (specs := _known_specs.get(key)) is None:
        if len(_known_specs) >= _MOST_SPECS:
            _known_specs.clear()
        specs = _known_specs[key] = tuple(tool.spec for tool in tools)
    return specs


_READ = "read_earlier_result"
_READ_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "offset": {"type": "integer"}},
    "required": ["number"],
}


def _own_tools(job: Job, results: "ShortenedResults") -> tuple[Tool, ...]:
    """The tools by which the child asks its parent and, if it has other tools, reads shortened results again. None of
    the others may have their names.

    The latter is declared from the start, since a tool that is added later changes how the prompt begins. So its
    definition is as short as can be: the note in a shortened result tells the rest.
    """
    about = "Show a shortened result whole, by the number in its note."
    read = Tool(_READ, about, _READ_PARAMETERS, results.read, read_only=True)
    own = [tool for tool in (read if job.tools else None, job.ask_parent) if tool is not None]
    return tuple(tool for tool in own if all(tool.name != other.name for other in job.tools))


class ShortenedResults:
    """The tool results that were shortened in the conversation, as they were."""

    def __init__(self) -> None:
        self.whole: list[ToolReply] = []
        self._numbers: dict[str, int] = {}
        """The number of each shortened text, so that a text that is shortened again keeps its number."""

    def shorten(self, reply: ToolReply, kept_chars: int) -> ToolReply:
        """The result without its middle and its attachments, and with a note that says how to read it again."""
        if len(reply.text) <= 2 * kept_chars + 200 and not reply.attachments:
            return reply
        number = self._numbers.pop(reply.text, None)
        if number is None:
            self.whole.append(reply)
            number = len(self.whole)
        start, end = reply.text[:kept_chars], reply.text[-kept_chars:]
        note = f"[… shortened to save room; {_READ}(number={number}) shows the whole result …]"
        text = f"{start}\n{note}\n{end}"
        self._numbers[text] = number
        return replace(reply, text=text, attachments=())

    async def read(self, args: Mapping[str, Any]) -> ToolOutput:
        number, offset = args.get("number"), args.get("offset") or 0
        if not self.whole:
            raise ToolError("no result of this conversation was shortened")
        if not isinstance(number, int) or not 1 <= number <= len(self.whole):
            raise ToolError(f"number must be from 1 to {len(self.whole)}, as in the note of a shortened result")
        if not isinstance(offset, int) or offset < 0:
            raise ToolError("offset must be 0 or more")
        reply = self.whole[number - 1]
        text = reply.text[offset : offset + READ_CHARS]
        more = len(reply.text) - offset - len(text)
        note = f"\n[{more:,} more characters; continue with offset={offset + len(text)}]" if more > 0 else ""
        return ToolOutput(text + note, attachments=() if offset else reply.attachments)


def _tool_reply(call: ToolCall, output: ToolOutput, mark: str) -> ToolReply:
    """What the child reads: the output framed and shortened. The receipt has the original."""
    text = frame(output.text[:TOOL_REPLY_CHARS], mark)
    if (more := len(output.text) - TOOL_REPLY_CHARS) > 0:
        text += f"\n[… {more} more characters left out]"
    return ToolReply(call.id, call.name, text, output.status != "ok", output.attachments)
