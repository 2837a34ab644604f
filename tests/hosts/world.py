"""The models of a conformance scenario: a parent that makes the given calls, and children and judges with a script.

One `ModelServer` serves all of them over HTTP, whatever API a host uses for its parent's model.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import delegate
from delegate import Delegator, Tool
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import verdicts

WORKER = "gpt-6.1-terra"
JUDGE = "gpt-6-luna"
PARENT = "parent-model"
"""The parent's model. Its name may be any but those two."""

PARENT_TOKENS, CHILD_TOKENS, JUDGE_TOKENS = (10, 5), (1_000, 100), (500, 50)

Answer = Reply | Fault
Script = Callable[[Call], Answer | Awaitable[Answer]]
OwnTool = Literal["delegate", "read", "think", "message"]
"""The tools that every host offers."""
NAMES: dict[OwnTool, str] = {
    "delegate": "delegate_task",
    "read": "read_delegation",
    "think": "think",
    "message": "message_delegation",
}
NativeTool = Literal["multiply", "send_money", "erase"]
"""The parent's own tools: `World.functions`, as objects of the framework. `erase` asks a person first."""


def save(text: str) -> str:
    """Save a note where the child works.

    Args:
        text: The note.
    """
    (delegate.workspace() / "note.txt").write_text(text)
    return "saved"


SAVED: JsonObject = {"kind": "file", "path": "note.txt", "contains": "tide"}
SAVING: JsonObject = {"goal": "Note it.", "acceptance_criteria": [SAVED]}
"""A task whose child has to call `save` with the text `tide`."""


def answers(answer: Answer) -> Script:
    """A model that always gives the same answer."""
    return lambda call: answer


def finds(verdict: str, quote: str) -> Script:
    """A judge that gives this verdict on the first criterion, with this quote."""
    return answers(Reply(verdicts(c1=(verdict, quote))))


def child_that_calls(tool: str, arguments: JsonObject) -> Script:
    """A child that calls one tool and then reports the tool's answer."""

    def child(call: Call) -> Reply:
        return Reply(f"I read: {call.tool_results[0]}") if call.tool_results else Reply(tool_calls=((tool, arguments),))

    return child


def calling(*calls: tuple[str, JsonObject]) -> Scripted:
    """A child that makes these calls in its first turn and then reports."""

    def answer(request: ChatRequest) -> ChatReply | str:
        return "I looked it up." if len(request.messages) > 1 or not calls else Scripted.calls(*calls)

    return Scripted(answer)


def turns(*made: tuple[str, JsonObject]) -> Callable[[Call], Reply]:
    """A parent that makes these calls, one per turn, and then ends."""

    def answer(call: Call) -> Reply:
        done = len(call.tool_results)
        return Reply(tool_calls=(made[done],)) if done < len(made) else Reply("All done.")

    return answer


def delegating_with(child_tools: Callable[[Any], Sequence[Tool]]) -> Callable[..., Delegator]:
    """A function that creates delegators from a framework's tools for children, and settings."""

    def delegating(tools: Sequence[Any] | None = None, **settings: Any) -> Delegator:
        converted = None if tools is None else child_tools(tools)
        return Delegator(model=WORKER, judge_model=JUDGE, tools=converted, **settings)

    return delegating


@dataclass
class World:
    """The models and the parent of one scenario. `server` serves the models."""

    calls: Sequence[JsonObject | str]
    """The arguments of the parent's tool calls in each of its turns."""
    child: Script = field(default_factory=lambda: answers(Reply("The answer is 42.")))
    judge: Script = field(default_factory=lambda: finds("met", "The answer is 42."))
    parent: str = PARENT
    """The name of the parent's model."""
    own: OwnTool = "delegate"
    """Which of delegate's tools the parent has."""
    native: Sequence[NativeTool] = ()
    """The framework's tools that the parent has, besides delegate's."""
    reply: str = ""
    """What the host's user, or else the program around it, answers to what a child asks."""
    turns: int = 1
    """The number of turns in which the parent makes its calls."""
    tool: str = ""
    """The tool that the parent calls, by its name or the end of it; by default that of `own`."""
    called: list[str] = field(default_factory=list[str])
    """The functions of native tools that were called."""
    working: asyncio.Event = field(default_factory=asyncio.Event)
    """Set on the test's loop when the first child's model is called."""

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.server = ModelServer(self._answer, models=(self.parent, WORKER, JUDGE))

    @property
    def results(self) -> list[str]:
        """The tool results that the parent's model was sent last."""
        calls = self.of("parent")
        return calls[-1].tool_results if calls else []

    @property
    def tools_of_children(self) -> set[str]:
        """The names of the tools in the requests to the children's models, without the conversation's own."""
        return {name for call in self.of("child") for name in call.tool_names} - {"read_earlier_result"}

    @property
    def functions(self) -> dict[NativeTool, Callable[..., str]]:
        """The functions of the native tools. Each call is recorded in `called`."""
        called = self.called

        def multiply(a: int, b: int) -> str:
            """Multiply two numbers.

            Args:
                a: one number
                b: the other number
            """
            called.append("multiply")
            return f"that is {a * b}"

        def send_money(to: str) -> str:
            """Send all the money.

            Args:
                to: the recipient
            """
            called.append("send_money")
            return f"sent to {to}"

        def erase(path: str) -> str:
            """Erase a file.

            Args:
                path: the file
            """
            called.append("erase")
            return f"erased {path}"

        return {"multiply": multiply, "send_money": send_money, "erase": erase}

    def of(self, role: str) -> list[Call]:
        """All calls to the models of the parent, the children or the judges."""
        return [call for call in self.server.calls if call.api not in ("models", "other") and _role(call) == role]

    def _answer(self, call: Call) -> Any:
        role = _role(call)
        if role == "parent":
            return self._parent(call)
        if role == "child":
            self._loop.call_soon_threadsafe(self.working.set)
        script, tokens = (self.child, CHILD_TOKENS) if role == "child" else (self.judge, JUDGE_TOKENS)
        return _with_usage(script(call), tokens)

    def _parent(self, call: Call) -> Reply:
        used, tool = PARENT_TOKENS, self.tool or NAMES[self.own]
        names = [name for name in call.tool_names if name.endswith(tool)]
        if len(call.tool_results) > (self.turns - 1) * len(self.calls) or not names:
            return Reply("I have read the results.", input_tokens=used[0], output_tokens=used[1])
        calls = tuple((names[0], arguments) for arguments in self.calls)
        return Reply(tool_calls=calls, input_tokens=used[0], output_tokens=used[1])  # pyright: ignore[reportArgumentType]


def _role(call: Call) -> str:
    if call.model not in (WORKER, JUDGE):
        return "parent"
    return "judge" if call.wants_json else "child"


def _with_usage(answer: Answer | Awaitable[Answer], tokens: tuple[int, int]) -> Any:
    """The answer with these tokens; a coroutine if the answer has to be awaited."""
    if isinstance(answer, Fault):
        return answer
    if isinstance(answer, Reply):
        return replace(answer, input_tokens=tokens[0], output_tokens=tokens[1])
    return _awaited_with_usage(answer, tokens)


async def _awaited_with_usage(answer: Awaitable[Answer], tokens: tuple[int, int]) -> Answer:
    return _with_usage(await answer, tokens)
