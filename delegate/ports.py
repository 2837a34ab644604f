"""The seams: what delegate needs from a model provider, a tool, and whoever runs a child.

Implementations live above (`providers/`, `child/`, a host's own code); nothing here imports one. Messages are plain
slotted dataclasses rather than pydantic models because a conversation makes thousands of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from delegate.types import JsonObject, Usage

# ------------------------------------------------------------------------------------------------ chat with a model


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asks for. `arguments` is None where the model's text wasn't a JSON object."""

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""
    """The model's own text, for the error message it gets back."""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a tool answered, on its way back to the model."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `user` has text; `assistant` has text and tool calls; `tool` has the replies to those calls.

    `native` is the provider's own form of an assistant turn (reasoning items, thought signatures), handed back
    untouched to the same provider on the next request.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_replies: tuple[ToolReply, ...] = ()
    native: Any = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One model call. `reply_schema` asks the provider for JSON of that shape, strictly."""

    model: str
    system: str
    messages: Sequence[Message]
    max_output_tokens: int
    tools: tuple[ToolSpec, ...] = ()
    reply_schema: JsonObject | None = None
    effort: Literal["low", "medium", "high"] | None = None
    """Reasoning effort; None leaves it to the provider. Only for models whose catalog entry says `effort`."""


StopReason = Literal[
    "end",  # the model finished its turn
    "tool_calls",  # it waits for tool replies
    "length",  # cut off by a token limit
    "refusal",  # the model or the provider's filter declined
    "other",  # anything else the provider names; never taken for a clean end
]


@dataclass(frozen=True, slots=True)
class Quota:
    """What a provider's rate-limit headers say is left now; None where they don't say.

    A quota fills up steadily, so `limit`, what is left, and the time until it is full again give its rate.
    """

    requests_limit: int | None = None
    requests_left: int | None = None
    requests_full_in: float | None = None
    """Seconds until the quota of requests is full again."""
    tokens_limit: int | None = None
    tokens_left: int | None = None
    tokens_full_in: float | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What one model call gave back."""

    text: str
    stop: StopReason
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    model_served: str | None = None
    """The model's name in the reply; a proxy may serve another than the one asked for."""
    stop_detail: str = ""
    """The provider's own word for the stop, and the refusal's text where there is one."""
    native: Any = None
    quota: Quota | None = None
    """What the rate-limit headers said, where there were any."""


class ChatClient(Protocol):
    """A model provider. Raises `ProviderError` and nothing else; cancellation travels through."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        ...

    async def aclose(self) -> None:
        """Give connections back. The client isn't used afterwards."""
        ...


# ------------------------------------------------------------------------------------------------------------ tools


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's answer, with what the receipt should record beside the text."""

    text: str
    status: Literal["ok", "error", "denied", "timeout"] = "ok"
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a child may call. `call` gets the parsed arguments and answers in text.

    `call` raises `ToolError` for what the child's model should read; any other exception is recorded as an error
    of the tool. Calls of tools with `parallel` run side by side within one turn; others run alone, in order.
    """

    name: str
    description: str
    parameters: JsonObject
    call: Callable[[Mapping[str, Any]], Awaitable[str | ToolOutput]]
    parallel: bool = True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)


# --------------------------------------------------------------------------------------------------------- progress

EventKind = Literal[
    "child_started", "model_called", "tool_called", "child_ended", "check_ended", "judge_asked", "judged"
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that just happened to one task, for whoever shows progress. `data` is plain JSON."""

    kind: EventKind
    task_index: int
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Notify(Protocol):
    """Reports an event of one task; the executor binds it to the task."""

    def __call__(self, kind: EventKind, text: str = "", **data: Any) -> None: ...


EventSink = Callable[[Event], None]
"""Called on the event loop; it must be quick, and what it raises is logged and ignored."""
