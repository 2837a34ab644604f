"""Client for OpenAI's Chat Completions and Responses APIs and for compatible servers, using the official SDK."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import openai

from delegate.errors import ProviderError
from delegate.models.providers import _assemblies as assemblies
from delegate.models.providers._chat import CARRIED, Replies, chat_content, read_chat
from delegate.models.providers._chat import chat_body as chat_body
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._posting import SdkClient, SdkTransport, prepare_http, translate
from delegate.models.providers._quota import openai_quota
from delegate.models.providers._responses import read_responses, responses_content
from delegate.models.providers._shared import read_reply
from delegate.models.providers._stream import Receiver, refuses_streams
from delegate.ports import ChatReply, ChatRequest
from delegate.types import JsonObject


def connect(endpoint: Endpoint, *, timeout_seconds: float | None) -> "OpenAI":
    """Create a client for the APIs of this endpoint."""
    transport = SdkTransport(openai, openai.AsyncOpenAI, endpoint, read_quota=openai_quota)
    if not endpoint.is_openai_itself:
        transport.client.organization = transport.client.project = None  # from the environment, meant for OpenAI itself
    return OpenAI(transport, timeout_seconds, endpoint)


def prepare() -> None:
    """Do what the first client needs. Blocks."""
    prepare_http(openai)


def provider_error(error: Exception) -> ProviderError:
    """Convert an error of the SDK to a `ProviderError`."""
    return translate(openai, error, "openai")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a model at an endpoint is asked. Starts with what most models of the endpoint accept."""

    api: Literal["chat", "responses"]
    may_switch: bool
    """Whether the other API may be used if the model needs it."""
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the token limit in Chat Completions. Many local servers only know the older one, which OpenAI's
    reasoning models reject, also behind a proxy."""
    encrypted_reasoning: bool = True
    """Whether the Responses API is asked for the reasoning. Models without reasoning reject that."""
    caching: bool = True
    """Whether fields for the prompt cache are sent to the servers that are known to have them."""
    replies: Replies = "json_schema"
    """How a Chat server is told which JSON to reply with. DeepSeek and many local servers don't take a schema."""
    carries_reasoning: bool = True
    """Whether a server gets the reasoning back that it sent with a chat message. A few refuse it."""
    streams: bool = True
    """Whether replies are streamed. OpenAI refuses that for some models to organizations that it hasn't verified."""


class OpenAI(SdkClient):
    """A `ChatClient` for OpenAI's APIs. Learns from rejections which dialect a model needs, for all later calls."""

    provider = "openai"

    def __init__(self, transport: SdkTransport, timeout_seconds: float | None, endpoint: Endpoint) -> None:
        super().__init__(transport, timeout_seconds)
        self._has_cache_fields = endpoint.serves_openai
        self._origin = f"chat {endpoint.url}"
        self._first = Dialect(
            api="responses" if endpoint.speaks_responses else "chat",
            may_switch=endpoint.api == "auto",
            limit="max_completion_tokens" if endpoint.serves_openai else "max_tokens",
        )
        self._dialects: dict[str, Dialect] = {}

    async def _complete(self, request: ChatRequest, receiver: Receiver) -> ChatReply:
        while True:
            dialect = self._dialects.get(request.model, self._first)
            try:
                return await self._ask(request, dialect, receiver)
            except ProviderError as error:
                if self._dialects.get(request.model, self._first) == dialect:  # no other call has learned it since
                    if (learned := _learn(dialect, error)) is None:
                        raise
                    self._dialects[request.model] = learned

    async def _ask(self, request: ChatRequest, dialect: Dialect, receiver: Receiver) -> ChatReply:
        extra = _cache_fields(request) if self._has_cache_fields and dialect.caching else {}
        if dialect.streams:
            extra |= {"stream": True}
        # No variable holds the body during the call: it is as large as the conversation.
        if dialect.api == "responses":
            answer = await self._transport.post(
                "/responses",
                responses_content(request, extra, encrypted_reasoning=dialect.encrypted_reasoning),
                receiver.stream(assemblies.Responses(), read_responses, provider="openai"),
            )
            return read_reply(read_responses, *answer, provider="openai")
        if dialect.streams:
            extra |= {"stream_options": {"include_usage": True}}
        origin = self._origin if dialect.carries_reasoning else None
        read = partial(read_chat, origin=self._origin)
        answer = await self._transport.post(
            "/chat/completions",
            chat_content(request, extra, limit=dialect.limit, origin=origin, replies=dialect.replies),
            receiver.stream(assemblies.Chat(), read, provider="openai"),
        )
        return read_reply(read, *answer, provider="openai")


# --------------------------------------------------------------------------------------------------------- dialects

_NEEDS_RESPONSES = re.compile(r"v1/responses|not a chat model|chatcompletion operation does not work", re.IGNORECASE)
_NEEDS_CHAT = re.compile(r"responses operation does not work|resource not found", re.IGNORECASE)
_REFUSES_REASONING = re.compile(rf"\b(?:{'|'.join(CARRIED)})\b")
_REFUSES_FORMAT = re.compile(r"response_format|json_schema|json_object|structured outputs?", re.IGNORECASE)
_DEMANDS_REASONING = re.compile(r"must be passed back|missing", re.IGNORECASE)

_LESSONS: tuple[tuple[Callable[[Dialect, str], bool], Callable[[Dialect], Dialect]], ...] = (
    (
        lambda dialect, text: dialect.limit == "max_tokens" and "max_completion_tokens" in text,
        lambda dialect: replace(dialect, limit="max_completion_tokens"),
    ),
    (
        lambda dialect, text: dialect.encrypted_reasoning and "ncrypted content is not supported" in text,
        lambda dialect: replace(dialect, encrypted_reasoning=False),
    ),
    (
        lambda dialect, text: dialect.caching and "prompt_cache" in text,
        lambda dialect: replace(dialect, caching=False),
    ),
    (
        lambda dialect, text: (
            dialect.api == "chat" and dialect.replies != "prompt" and bool(_REFUSES_FORMAT.search(text))
        ),
        lambda dialect: replace(dialect, replies="json_object" if dialect.replies == "json_schema" else "prompt"),
    ),
    (
        lambda dialect, text: dialect.may_switch and dialect.api == "chat" and bool(_NEEDS_RESPONSES.search(text)),
        lambda dialect: replace(dialect, api="responses", may_switch=False),
    ),
    (
        lambda dialect, text: dialect.may_switch and dialect.api == "responses" and bool(_NEEDS_CHAT.search(text)),
        lambda dialect: replace(dialect, api="chat", may_switch=False),
    ),
    (
        lambda dialect, text: (
            dialect.carries_reasoning and bool(_REFUSES_REASONING.search(text)) and not _DEMANDS_REASONING.search(text)
        ),
        lambda dialect: replace(dialect, carries_reasoning=False),
    ),
)
"""What the text of a rejection shows, and the dialect to use instead. Nothing but the texts identifies these."""


def _learn(dialect: Dialect, error: ProviderError) -> Dialect | None:
    """The dialect to try next; None if the rejection has nothing to do with it. Each changes at most twice."""
    if dialect.streams and refuses_streams(error):
        return replace(dialect, streams=False)
    if error.status not in (400, 404, 422):
        return None
    return next((change(dialect) for applies, change in _LESSONS if applies(dialect, str(error))), None)


# ------------------------------------------------------------------------------------------------------ prompt cache

_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\d.])")
FIRST_PAID_CACHE = (5, 6)
"""The first version of OpenAI's models that charges for writing to the prompt cache, and lets a request refuse that."""
LONGEST_KEY = 64


def _cache_fields(request: ChatRequest) -> JsonObject:
    """Fields that let the requests of a conversation meet the same cache, and single ones write to none."""
    if request.conversation is not None:
        return {"prompt_cache_key": request.conversation[:LONGEST_KEY]}
    version = _VERSION.match(request.model)
    if version and (int(version[1]), int(version[2] or 0)) >= FIRST_PAID_CACHE:
        return {"prompt_cache_options": {"mode": "explicit"}}  # of which there is none
    return {}
