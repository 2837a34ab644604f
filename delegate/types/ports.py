"""Interfaces for model providers and tools.

Implementations are in `models/providers/`, in `child/` and in the hosts' own code. Messages are slotted dataclasses
instead of pydantic models because a conversation creates thousands of them.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from pydantic_core import to_json

from delegate.types import Effort, JsonObject, Usage
from delegate.types.errors import ConfigError

# ------------------------------------------------------------------------------------------------------ model calls


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call requested by a model. `arguments` is None if the model's text wasn't a JSON object."""

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""
    """The arguments as the model wrote them, for the error message that it receives."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a PDF that a tool returned, for models that can read it."""

    media_type: str
    """`image/png`, `image/jpeg`, `image/gif`, `image/webp` or `application/pdf`."""
    data: bytes = field(repr=False)
    name: str = ""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A tool's output, as returned to the model."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `user` messages have text, `assistant` messages have text and tool calls, and `tool` messages have the replies to
    those calls. `native` is an assistant message in the provider's own format (with reasoning items or thought
    signatures), which is sent back unchanged to the same provider with the next request. `moved` says that it was made
    in an earlier conversation, which this one continues with other messages: a provider that binds thinking to the
    conversation in which it was made doesn't get it back.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_replies: tuple[ToolReply, ...] = ()
    native: Any = None
    moved: bool = False
    encoded: dict[str, bytes] = field(default_factory=dict[str, bytes], init=False, repr=False, compare=False)
    """The JSON of a short message, by the name of an API. Each call of a conversation sends all messages and tools
    again, so clients encode them once."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool's definition, as sent to a model."""

    name: str
    description: str
    parameters: JsonObject
    encoded: dict[str, bytes] = field(default_factory=dict[str, bytes], init=False, repr=False, compare=False)
    """The JSON of a short definition, as of a `Message`."""

    def __hash__(self) -> int:
        """Only the text: the parameters can't be hashed. What is estimated of a definition is cached."""
        return hash((self.name, self.description))


class Incoming:
    """What has come of a reply while its client receives it. A client that streams keeps it up to date.

    Args:
        on_text: Called with each piece of the reply's text, on the event loop. It returns soon and doesn't raise.
    """

    def __init__(self, on_text: "Callable[[str], None] | None" = None) -> None:
        self.on_text = on_text
        self.begin()

    def begin(self) -> None:
        """The request is sent, maybe once more: what has come of an earlier reply doesn't count."""
        self.begun_at: float | None = None
        """`time.monotonic()` when the first piece of text or of a tool call came. None before."""
        self.so_far: Callable[[], ChatReply | None] = _nothing
        """Returns the reply so far, with the usage that the provider has reported so far. None if there is nothing."""

    def end(self) -> None:
        """The reply has come as a whole, so that what received it is let go."""
        self.so_far = _nothing


def _nothing() -> "ChatReply | None":
    return None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The request of one model call. With `reply_schema`, the provider must reply with JSON that matches it."""

    model: str
    system: str
    messages: Sequence[Message]
    max_output_tokens: int
    tools: tuple[ToolSpec, ...] = ()
    reply_schema: JsonObject | None = None
    effort: Effort | None = None
    """Reasoning effort; None uses the provider's default. Only for models with `effort` in their catalog entry."""
    tool_choice: Literal["auto", "none"] = "auto"
    """With `none`, the model must answer without a tool call. The tools are still sent, so that cached prompts stay
    valid and the provider accepts the tool calls in the conversation."""
    conversation: str | None = None
    """A key shared by the requests of one conversation, most of which repeat the system prompt, the tools and the
    messages of the one before, unchanged, so that providers can cache them. None: a single request, for which nothing
    should be written to a paid cache."""
    incoming: Incoming | None = field(default=None, repr=False, compare=False)
    """What the caller wants to know of the reply before it has come as a whole. A client may ignore it."""
    web_searches: int = 0
    """How often the provider itself may search the web for the reply. 0: not at all. Only for clients that have
    `searches_web`; Google's API knows no such maximum, so there it is only what is reserved."""


StopReason = Literal[
    "end",  # the model finished its turn
    "tool_calls",  # the model waits for tool replies
    "length",  # the reply was truncated by `max_output_tokens`
    "context",  # the conversation and the reply together exceeded the model's context window
    "malformed_call",  # the model's tool call couldn't be parsed by the provider
    "refusal",  # the model or the provider's filter declined
    "other",  # any other reason named by the provider; never treated as a normal end
]


@dataclass(frozen=True, slots=True)
class Quota:
    """The current quota from a provider's rate-limit headers. Values that the headers lack are None.

    A quota refills steadily, so its rate follows from the limit, what is left and the time until it is full again.
    """

    requests_limit: int | None = None
    requests_left: int | None = None
    requests_full_in: float | None = None
    """Seconds until the request quota is full again."""
    tokens_limit: int | None = None
    tokens_left: int | None = None
    tokens_full_in: float | None = None


@dataclass(frozen=True, slots=True)
class WebSource:
    """A page that a provider's web search found. `quote` is text of the page itself, if the provider returns any."""

    url: str
    title: str = ""
    quote: str = ""


@dataclass(frozen=True, slots=True)
class WebSearch:
    """What came of the web searches that a provider made for a reply."""

    count: int
    """The number of searches that it charges for."""
    sources: tuple[WebSource, ...] = ()
    """The pages that the reply cites come first."""
    error: str = ""
    """Why the searches failed, in the provider's words, if none succeeded."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The reply of one model call."""

    text: str
    stop: StopReason
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    model_served: str | None = None
    """The model named in the reply. A proxy may serve a different model than the one requested."""
    stop_detail: str = ""
    """The provider's own stop reason, and the text of a refusal."""
    native: Any = None
    quota: Quota | None = None
    """The quota from the rate-limit headers, if there were any."""
    output_limit: int | None = None
    """The `max_output_tokens` of the call, if a budget bought fewer than were asked for."""
    web_search: WebSearch | None = None
    """None if the provider made no search."""


class ChatClient(Protocol):
    """A client for a model provider. Its methods raise only `ProviderError`, and propagate `CancelledError`.

    A client whose calls have OpenTelemetry spans of their own has an attribute `traces_itself` that is true; otherwise
    its tokens would be counted twice. One whose provider searches the web for a reply, if a request allows it, has an
    attribute `searches_web` that is true.
    """

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        ...

    async def aclose(self) -> None:
        """Close all connections. The client can't be used afterwards."""
        ...


# ------------------------------------------------------------------------------------------------------------ tools

Effect = Literal[
    "files",  # changes files in the workspace
    "commands",  # runs programs
    "network",  # sends requests to other machines
    "delegation",  # starts other agents
    "external",  # changes anything else, such as a database or somebody's mailbox
]
"""What a call of a tool may change."""
_EFFECTS = frozenset(get_args(Effect))


SEARCH_WEB = "search_web"
"""The name of the tool that searches the web, of a provider or of an MCP server."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's output, with additional values for its receipt."""

    text: str
    status: Literal["ok", "error", "denied", "timeout"] = "ok"
    sandbox: str | None = None
    attachments: tuple[Attachment, ...] = ()
    """Images and PDFs, for models that can read them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a child may call. `call` takes the parsed arguments and returns the output.

    The message of a `ToolError` raised by `call` is returned to the child's model; any other exception is recorded as
    an error of the tool. With `parallel`, the tool may run concurrently with others of the same turn; otherwise it runs
    alone, in order. `read_only` promises that a call changes nothing: only such tools can be called by `probe`
    criteria, and their calls don't show that anything was done.

    For the policy, `effects` is what a call may change (None: not declared; empty: nothing), `irreversible` says that
    it can't be undone, and `cost_usd` is what it costs at most besides model calls.

    The last fields say what a call proves, where a criterion asks for a deed. With `acts`, a call brings about what its
    description says, such as a refund; False: it only writes notes or drafts of the child's own, which prove nothing
    outside; None: `read_only` and `effects` tell. `succeeded` is a JSON Schema that the results of successful calls
    match, or a function that tells them: it gets the result as parsed JSON, or as text where it isn't JSON. Without it,
    the fields of the result tell ("status": "declined"). `identifies` names the arguments that say what a call is
    about, as dotted paths; what the child writes into others in words then names nothing. None: arguments with texts
    for people, such as `body` and `note`, don't count.
    """

    name: str
    description: str
    parameters: JsonObject
    call: Callable[[Mapping[str, Any]], Awaitable[str | ToolOutput]]
    parallel: bool = True
    read_only: bool = False
    effects: frozenset[Effect] | None = None
    irreversible: bool = False
    cost_usd: float = 0
    acts: bool | None = None
    succeeded: JsonObject | Callable[[Any], bool] | None = None
    identifies: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("parallel", "read_only", "irreversible", "acts"):
            if getattr(self, name) not in (True, False, None):
                raise ConfigError(f"the tool {self.name}: {name} is {getattr(self, name)!r}; use True or False")
        if self.effects and not _EFFECTS.issuperset(self.effects):
            raise ConfigError(f"the tool {self.name}: effects takes a list of {', '.join(sorted(_EFFECTS))}")

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it. Its names of tools have no dots, so `server.tool` is `server__tool` there."""
        return ToolSpec(self.name.replace(".", "__"), self.description, self.parameters)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        parallel: bool = True,
        read_only: bool = False,
        effects: Collection[Effect] | None = None,
        irreversible: bool = False,
        cost_usd: float = 0,
        acts: bool | None = None,
        succeeded: JsonObject | Callable[[Any], bool] | None = None,
        identifies: Collection[str] | None = None,
    ) -> "Tool":
        """Make a tool of a function with type hints; its docstring describes it and its parameters to the model.

        It may be async; a sync function runs in a thread, where it goes on after the child's deadline. Text and
        `ToolOutput` are returned as they are, everything else as JSON.

        Raises:
            ConfigError: A model couldn't call it. The message names the function, the parameter and how to fix it.
        """
        from delegate.types.signatures import read_function  # loaded only where functions are tools

        read = read_function(function, name=name)

        async def call(arguments: Mapping[str, Any]) -> str | ToolOutput:
            answer = await read.call(arguments)
            return answer if isinstance(answer, (str, ToolOutput)) else to_json(answer, fallback=str).decode()

        names = read.parameters["properties"]
        if any(path.partition(".")[0] not in names for path in identifies or ()):
            raise ConfigError(f"the tool {read.name}: identifies takes a list of {', '.join(names)}")
        declared = None if effects is None else frozenset(effects)
        return cls(
            read.name,
            read.description,
            read.parameters,
            call,
            parallel,
            read_only,
            effects=declared,
            irreversible=irreversible,
            cost_usd=cost_usd,
            acts=acts,
            succeeded=succeeded,
            identifies=None if identifies is None else tuple(identifies),
        )
