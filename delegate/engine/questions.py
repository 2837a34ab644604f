"""Lets a child ask its parent: by a callback, by a message to its handle, or by whichever of them answers first.

The answer reaches the child as a message, so that it is the parent's word and in no receipt: it proves nothing.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from delegate._util.cancellation import retrieve_exception
from delegate._util.fencing import clean, one_line
from delegate._util.redaction import logger, redactor
from delegate.child.goal_tools import object_schema, text_schema
from delegate.child.job import ASK, Heard, Waiting
from delegate.engine.task_events import TaskEvents
from delegate.records.history import Records
from delegate.types import JsonObject, ParentQuestion
from delegate.types.errors import DelegateError, ToolError
from delegate.types.events import QuestionAnswered, QuestionAsked, QuestionOutcome
from delegate.types.ports import Tool

if TYPE_CHECKING:
    from delegate.policy.approvals import OnQuestion

MAX_QUESTIONS = 3
MAX_CHARS = 2_000
MAX_OPTIONS = 8
MAX_OPTION_CHARS = 200

_DESCRIPTION = (
    f"Ask the agent that gave you the task, and wait for its answer; at most {MAX_QUESTIONS} times. Only what you "
    "can't find out yourself and where a wrong guess would spoil the work."
)
_PARAMETERS = object_schema(
    optional=("options",),
    question=text_schema("One question that can be answered without seeing your work."),
    options={"type": "array", "items": {"type": "string"}, "description": "Answers to choose from."},
)
_ANSWERED = "answered: the answer is in the next message of the agent that gave you the task"
_NO_ANSWER = "no answer: decide yourself and say so in your report, with what you decided"
_NUMBER = re.compile(r"[\s(#]*(\d{1,2})[\s).]*")

_log = logger(__name__)


@dataclass(slots=True)
class Questions:
    """The questions of one child."""

    goal: str
    events: TaskEvents
    records: Records
    on_question: "OnQuestion"
    seconds: Callable[[], float]
    """How long it may wait for an answer now."""
    waiting: Waiting
    """Its time isn't the child's own."""
    while_waiting: Callable[[], AbstractAsyncContextManager[object]]
    """Lets other children of the run go on."""
    asked: list[tuple[str, Sequence[str]]]
    """The texts and options so far, also those that were asked before the task was resumed."""

    @property
    def tool(self) -> Tool:
        """The tool by which the child asks. It is called alone, and has no receipts."""
        return Tool(ASK, _DESCRIPTION, _PARAMETERS, self._ask, parallel=False, read_only=True)

    def heard(self, n: int, answer: str) -> Heard:
        """The answer to the `n`-th question, with an option in place of its number."""
        text, options = self.asked[n - 1] if n <= len(self.asked) else ("", ())
        number = _NUMBER.fullmatch(answer)
        if number and answer.strip() not in options and 0 < int(number[1]) <= len(options):
            answer = f"Option {int(number[1])}: {options[int(number[1]) - 1]}"
        return Heard(answer, text)

    async def _ask(self, arguments: Mapping[str, Any]) -> str:
        text, options = _question(arguments)
        if len(self.asked) >= MAX_QUESTIONS:
            raise ToolError(f"not asked: you have asked {MAX_QUESTIONS} questions, which is the most; {_NO_ANSWER}")
        self.asked.append((text, options))
        n, seconds, started = len(self.asked), self.seconds(), time.monotonic()
        asked: JsonObject = {"n": n, "text": text, "options": options}
        question = ParentQuestion(
            handle=self.events.handle,
            task_index=self.events.index,
            goal=redactor.text(self.goal),
            answer_before=time.time() + seconds,
            **asked,
        )
        self.events.notify(QuestionAsked, **asked, answer_seconds=round(seconds, 3))
        outcome: QuestionOutcome = "cancelled"
        answer: str | None = None
        try:
            if not await self.records.ask(question.handle, n):
                outcome = "failed"
            else:
                with self.waiting("question"):
                    async with self.while_waiting():
                        await self._answered(question, seconds)
                answer = await self.records.take_answer(question.handle, n)
                outcome = "no_answer" if answer is None else "answered"
        finally:
            passed = round(time.monotonic() - started, 6)
            self.events.notify(QuestionAnswered, n=n, outcome=outcome, text=answer or "", seconds=passed)
        return _NO_ANSWER if answer is None else _ANSWERED

    async def _answered(self, question: ParentQuestion, seconds: float) -> None:
        """Wait until there is an answer, or there will be none. What the callback says is sent like any message."""
        asked = asyncio.ensure_future(self._send_reply(question))
        answered = asyncio.ensure_future(self.records.wait_for_answer(question.handle, question.n))
        try:
            await asyncio.wait((asked, answered), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (asked, answered):  # the callback is a host's, so it may go on after its cancel
                task.cancel()
                task.add_done_callback(retrieve_exception)

    async def _send_reply(self, question: ParentQuestion) -> None:
        try:
            reply: Any = await self.on_question(question)
            is_late = (task := asyncio.current_task()) is not None and task.cancelling()
            if isinstance(reply, str) and reply.strip() and not is_late:
                await self.records.send_message(question.handle, reply)
            elif not isinstance(reply, str | None):
                _log.warning("a question was answered by a %s, which is no answer", type(reply).__name__)
        except DelegateError as error:
            _log.warning("the answer to a question was not sent: %s", error)
        except (Exception, SystemExit):
            _log.exception("nobody could be asked a question")


def _question(arguments: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    text = arguments.get("question")
    text = clean(redactor.text(text)).text.strip() if isinstance(text, str) else ""
    if not text:
        raise ToolError("not asked: `question` is missing; send it as a text")
    if len(text) > MAX_CHARS:
        raise ToolError(f"not asked: `question` has {len(text):,} characters; at most {MAX_CHARS:,} are allowed")
    given: object = arguments.get("options") or []
    options = cast("list[object]", given) if isinstance(given, list) else [None]
    texts = tuple(one_line(redactor.text(one), MAX_OPTION_CHARS + 1) if isinstance(one, str) else "" for one in options)
    if len(texts) > MAX_OPTIONS or not all(0 < len(one) <= MAX_OPTION_CHARS for one in texts):
        most = f"at most {MAX_OPTIONS} texts of at most {MAX_OPTION_CHARS} characters"
        raise ToolError(f"not asked: `options` has to be a list of {most}, none of them empty")
    return text, texts
