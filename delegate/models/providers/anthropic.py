"""Client for Anthropic's Messages API, also on Amazon Bedrock and Google Vertex AI, using the official SDK."""

import inspect
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, cast

import anthropic

from delegate._util.encoding import json_bytes
from delegate.models.providers import _assemblies as assemblies
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._http import prepare_client
from delegate.models.providers._learning import as_known
from delegate.models.providers._posting import PostingClient, http_library, translate
from delegate.models.providers._profile import Profile, ProfileStore
from delegate.models.providers._quota import anthropic_quota
from delegate.models.providers._shared import base64_of, dig, native_content, parsed_call, with_ids
from delegate.models.providers._stops import NO_REASON, stop_of
from delegate.models.providers._stream import Receiver
from delegate.models.providers._thoughts import without_thoughts
from delegate.types import JsonObject, Usage
from delegate.types.errors import ProviderError, ThinkingRefused
from delegate.types.ports import Attachment, ChatReply, ChatRequest, Message, Quota, ToolReply, WebSearch, WebSource

_THINKING = ("thinking", "redacted_thinking")
_WEB_SEARCH = "web_search_20250305"
"""Later versions have code run that filters the results, which not all models can do."""
_DROP_FOREIGN: JsonObject = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
_DROP_HEADERS = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
"""Ask the API to leave out thinking that doesn't belong to its conversation, rather than to refuse the request."""


def connect(endpoint: Endpoint, *, timeout_seconds: float | None, profiles: ProfileStore) -> "Messages":
    """Create a client for the Messages API."""
    return Messages(endpoint, profiles, timeout_seconds)


def _platform_client(endpoint: Endpoint) -> tuple[Any, dict[str, Any]]:
    """The SDK's client class for the endpoint's platform, and its options. Credentials are left to it."""
    if endpoint.platform is None:
        return anthropic.AsyncAnthropic, {}
    needed = {"bedrock": "boto3", "vertex": "google.auth"}[endpoint.platform]
    try:
        is_installed = find_spec(needed) is not None
    except (ModuleNotFoundError, ValueError):  # of its package, or it is blocked
        is_installed = False
    if not is_installed:
        raise ModuleNotFoundError(name=needed)
    sdk: Any = anthropic  # which loads these classes when they are asked for
    if endpoint.platform == "bedrock":
        return sdk.AsyncAnthropicBedrock, {"aws_region": endpoint.region}
    return sdk.AsyncAnthropicVertex, {"region": endpoint.region, "project_id": endpoint.project}


def prepare() -> None:
    """Do what the first client needs. Blocks."""
    prepare_client(http_library(anthropic))


def provider_error(error: Exception) -> ProviderError:
    """Convert an error of the SDK to a `ProviderError`."""
    return translate(anthropic, error, "anthropic")


class Messages(PostingClient):
    """A `ChatClient` for the Messages API."""

    provider = "anthropic"
    efforts = ("low", "medium", "high", "xhigh", "max")  # older models know fewer
    sdk_errors = (anthropic.AnthropicError,)

    def __init__(self, endpoint: Endpoint, profiles: ProfileStore, timeout_seconds: float | None) -> None:
        client_class, options = _platform_client(endpoint)
        if "open_telemetry" in inspect.signature(client_class).parameters:
            options["open_telemetry"] = False
        super().__init__(anthropic, client_class, endpoint, profiles, timeout_seconds, **options)
        self.searches_web = endpoint.platform is None
        if endpoint.platform is None:
            self.sdk_client.auth_token = None  # 0.x would also send ANTHROPIC_AUTH_TOKEN from the environment
        # Base URLs of compatible servers are written with and without the version.
        has_version = endpoint.url.endswith("/v1") and endpoint.platform is None
        self._path = "/messages" if has_version else "/v1/messages"
        self._dropping: set[str] = set()
        """The models that refused thinking, and are asked since to leave such thinking out."""

    async def _ask(self, receiver: Receiver, key: str, request: ChatRequest, profile: Profile) -> ChatReply:
        ask = partial(self._send, receiver, key, as_known(profile, request), profile)
        drops = request.model in self._dropping
        try:
            return await ask(drop=drops)
        except ThinkingRefused as refused:
            if drops or "drop_block" not in str(refused):
                raise
            try:
                reply = await ask(drop=True)
            except ProviderError as error:  # gateways may not know the field
                raise refused if error.fault == "bad_request" else error from None
        self._dropping.add(request.model)
        return reply

    async def _send(
        self, receiver: Receiver, key: str, request: ChatRequest, profile: Profile, *, drop: bool
    ) -> ChatReply:
        body = messages_body(request)
        # On a platform, the SDK would make another request of it, with events in a format of that platform.
        if self.endpoint.platform is None and profile.streams is not False:
            body["stream"] = True
        path, headers = (f"{self._path}?beta=true", _DROP_HEADERS) if drop else (self._path, None)
        if drop:
            body["thinking"] = _DROP_FOREIGN
        assembly = assemblies.Messages()
        return await self._post(receiver, key, request, path, json_bytes(body), assembly, read_message, headers)

    def _converted(self, error: Exception) -> ProviderError:
        return provider_error(error)

    def _quota(self, headers: Mapping[str, str]) -> Quota | None:
        return anthropic_quota(headers)


def messages_body(request: ChatRequest) -> JsonObject:
    """The body of a `POST /v1/messages`."""
    body: JsonObject = {
        "model": request.model,
        "max_tokens": request.max_output_tokens,
        "messages": _turns(request),
    }
    if request.system:
        body["system"] = request.system if request.conversation is None else [_marked(_text(request.system))]
    if request.tools or request.web_searches:
        tools: list[JsonObject] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        if request.web_searches:
            tools.append({"type": _WEB_SEARCH, "name": "web_search", "max_uses": request.web_searches})
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    output: JsonObject = {}
    if request.reply_schema is not None:
        output["format"] = {"type": "json_schema", "schema": request.reply_schema}
    if request.effort is not None:
        output["effort"] = request.effort
    if output:
        body["output_config"] = output
    return body


def _turns(request: ChatRequest) -> list[JsonObject]:
    """The conversation, marked for prompt caching if there is a next turn, which sends all of it again.

    The marker on the last user turn writes the cache; those before it read what the previous request wrote: two, since
    a message may follow the results of tools. The API searches for earlier entries itself, but only over 20 blocks, and
    a turn may have more tool calls. It allows four markers; the first, on the system prompt, is read by a conversation
    that continues this one with other messages.
    """
    contents = ((message.role, _content(message)) for message in request.messages)
    # The API rejects an empty turn, such as a reply without content.
    turns: list[JsonObject] = [
        {"role": "assistant" if role == "assistant" else "user", "content": content}
        for role, content in contents
        if content
    ]
    if request.conversation is not None:
        for turn in [turn for turn in turns if turn["role"] == "user"][-3:]:
            content: str | list[JsonObject] = turn["content"]
            blocks = [_text(content)] if isinstance(content, str) else content
            turn["content"] = [*blocks[:-1], _marked(blocks[-1])]
    return turns


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _marked(block: JsonObject) -> JsonObject:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _content(message: Message) -> str | list[JsonObject]:
    if (native := native_content(message, "messages")) is not None:
        return [block for block in native if block["type"] not in _THINKING] if message.moved else native
    if message.role == "tool":
        return [_result(reply) for reply in message.tool_replies]
    if not message.tool_calls:
        return message.text
    text = [_text(message.text)] if message.text else []
    return text + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in message.tool_calls
    ]


def _result(reply: ToolReply) -> JsonObject:
    content: str | list[JsonObject] = reply.text
    if reply.attachments:
        text = [_text(reply.text)] if reply.text else []
        content = text + [_file(attachment) for attachment in reply.attachments]
    failed = {"is_error": True} if reply.is_error else {}
    return {"type": "tool_result", "tool_use_id": reply.call_id, "content": content, **failed}


def _file(attachment: Attachment) -> JsonObject:
    source = {"type": "base64", "media_type": attachment.media_type, "data": base64_of(attachment)}
    if attachment.media_type != "application/pdf":
        return {"type": "image", "source": source}
    title = {"title": attachment.name} if attachment.name else {}
    return {"type": "document", "source": source, **title}


def read_message(body: JsonObject) -> ChatReply:
    """The reply of a `POST /v1/messages`."""
    # Replies may contain empty text blocks, but requests may not.
    blocks = with_ids((b for b in body["content"] if b["type"] != "text" or b["text"]), kind="tool_use")
    reason = body.get("stop_reason") or NO_REASON
    text = dig(body, "stop_details", "explanation")
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return ChatReply(
        text=without_thoughts("".join(block["text"] for block in blocks if block["type"] == "text")),
        stop=stop_of(body.get("stop_reason"), has_calls=bool(calls)),
        usage=_usage(body.get("usage")),
        tool_calls=tuple(parsed_call(call["id"], call["name"], call.get("input", {})) for call in calls),
        model_served=body.get("model"),
        stop_detail=f"{reason}: {text}" if text else reason,
        native={"protocol": "messages", "items": blocks},
        web_search=_web_search(blocks, body.get("usage")),
    )


def _web_search(blocks: list[JsonObject], usage: JsonObject | None) -> WebSearch | None:
    """The searches. Their results are a list of pages, or an error, which isn't charged."""
    contents = [block["content"] for block in blocks if block["type"] == "web_search_tool_result"]
    if not contents:
        return None
    found = [cast("list[JsonObject]", content) for content in contents if isinstance(content, list)]
    pages = [page for content in found for page in content]
    cited = [
        note
        for block in blocks
        for note in block.get("citations") or ()
        if note["type"] == "web_search_result_location"
    ]
    sources = [WebSource(note["url"], note.get("title") or "", note["cited_text"]) for note in cited]
    quoted = {source.url for source in sources}
    sources += [WebSource(page["url"], page.get("title") or "") for page in pages if page["url"] not in quoted]
    reported = dig(usage, "server_tool_use", "web_search_requests") or 0
    return WebSearch(
        min(max(reported, len(found)), len(contents)),
        tuple(dict.fromkeys(sources)),
        "" if found else str(dig(contents[0], "error_code") or "unknown error"),
    )


def _usage(usage: JsonObject | None) -> Usage:
    """Anthropic doesn't include tokens read from or written to the cache in `input_tokens`."""
    cached = dig(usage, "cache_read_input_tokens") or 0
    written = dig(usage, "cache_creation_input_tokens") or 0
    return Usage(
        model_calls=1,
        input_tokens=(dig(usage, "input_tokens") or 0) + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=dig(usage, "output_tokens") or 0,
        reasoning_tokens=dig(usage, "output_tokens_details", "thinking_tokens") or 0,
    )
