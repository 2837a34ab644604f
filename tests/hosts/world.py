"""The models behind a conformance scenario: a parent that makes given calls, children and judges as the scenario wants.

All are served over HTTP by one `ModelServer`, whatever API a host speaks to its parent's model.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from delegate import Delegator, Tool
from delegate.types import JsonObject
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import verdicts

WORKER = "gpt-6.1-terra"
JUDGE = "gpt-6-luna"
PARENT = "parent-model"
"""What hosts that may name any model give their parent; any name but those two will do."""

PARENT_TOKENS, CHILD_TOKENS, JUDGE_TOKENS = (10, 5), (1_000, 100), (500, 50)

Answer = Reply | Fault
Script = Callable[[Call], Answer | Awaitable[Answer]]


def answers(answer: Answer) -> Script:
    """A model that always answers this."""
    return lambda call: answer


def finds(verdict: str, quote: str) -> Script:
    """A judge that finds this of the first criterion, and quotes that."""
    return answers(Reply(verdicts(c1=(verdict, quote))))


def child_that_calls(tool: str, arguments: JsonObject) -> Script:
    """A child that calls one tool, and then reports what it answered."""

    def child(call: Call) -> Reply:
        return Reply(f"I read: {call.tool_results[0]}") if call.tool_results else Reply(tool_calls=((tool, arguments),))

    return child


def delegating_with(child_tools: Callable[[Any], Sequence[Tool]]) -> Callable[..., Delegator]:
    """Makes delegators: of a framework's own tools, for children, and of settings."""

    def delegating(tools: Sequence[Any] | None = None, **given: Any) -> Delegator:
        for_children = None if tools is None else child_tools(tools)
        return Delegator(model=WORKER, judge_model=JUDGE, tools=for_children, **given)

    return delegating


@dataclass
class World:
    """One scenario's models. `server` serves them."""

    calls: Sequence[JsonObject | str]
    """The arguments of the parent's tool calls, all in its first turn."""
    child: Script = field(default_factory=lambda: answers(Reply("The answer is 42.")))
    judge: Script = field(default_factory=lambda: finds("met", "The answer is 42."))
    tool: str = "delegate_task"
    """As the parent's model calls it; hosts that put a prefix before it are found by the end of the name."""
    turns: int = 1
    """In how many turns, one after the other, the parent makes its calls."""
    working: asyncio.Event = field(default_factory=asyncio.Event)
    """Set on the test's loop when the first child's model is asked."""

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.server = ModelServer(self._answer, models=(PARENT, WORKER, JUDGE))

    @property
    def results(self) -> list[str]:
        """What the parent's model read: the text of each tool result, in its last request."""
        asked = self.of("parent")
        return asked[-1].tool_results if asked else []

    def of(self, role: str) -> list[Call]:
        """All calls of the parent's, the children's or the judges' models."""
        return [call for call in self.server.calls if call.api not in ("models", "other") and _role(call) == role]

    def _answer(self, call: Call) -> Any:
        role = _role(call)
        if role == "parent":
            return self._parent(call)
        if role == "child":
            self._loop.call_soon_threadsafe(self.working.set)
        script, tokens = (self.child, CHILD_TOKENS) if role == "child" else (self.judge, JUDGE_TOKENS)
        return _counted(script(call), tokens)

    def _parent(self, call: Call) -> Reply:
        used = PARENT_TOKENS
        named = [name for name in call.tool_names if name.endswith(self.tool)]
        if len(call.tool_results) > (self.turns - 1) * len(self.calls) or not named:
            return Reply("I have read the results.", input_tokens=used[0], output_tokens=used[1])
        calls = tuple((named[0], arguments) for arguments in self.calls)
        return Reply(tool_calls=calls, input_tokens=used[0], output_tokens=used[1])  # pyright: ignore[reportArgumentType]


def _role(call: Call) -> str:
    if call.model not in (WORKER, JUDGE):
        return "parent"
    return "judge" if call.wants_json else "child"


def _counted(answer: Answer | Awaitable[Answer], tokens: tuple[int, int]) -> Any:
    """The reply with its tokens; of a coroutine, when it has come."""
    if isinstance(answer, Fault):
        return answer
    if isinstance(answer, Reply):
        return _with(answer, tokens)
    return _later(answer, tokens)


async def _later(answer: Awaitable[Answer], tokens: tuple[int, int]) -> Answer:
    given = await answer
    return _with(given, tokens) if isinstance(given, Reply) else given


def _with(reply: Reply, tokens: tuple[int, int]) -> Reply:
    return Reply(reply.text, reply.tool_calls, input_tokens=tokens[0], output_tokens=tokens[1])
