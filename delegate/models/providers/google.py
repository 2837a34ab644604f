"""Client for Google's Gemini API, also on Vertex AI, using the official SDK.

The body is passed as `extra_body` and the reply is read from the plain HTTP response, both public features of the SDK,
because its typed parameters and replies take three times as long.
"""

import json
import os
import re
import ssl
from collections.abc import Mapping
from functools import cache, partial
from typing import Any
from weakref import ref

import aiohttp
import certifi
import yarl
from google import genai
from google.genai import errors, types
from multidict import CIMultiDict

from delegate._util.redaction import redactor
from delegate.models.providers import _assemblies as assemblies
from delegate.models.providers._client import SdkClient
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._faults import status_error, transport_error
from delegate.models.providers._http import receiving, session
from delegate.models.providers._learning import as_known
from delegate.models.providers._profile import Profile, ProfileStore
from delegate.models.providers._shared import (
    LOCAL_ID,
    base64_of,
    call_seconds,
    dig,
    native_content,
    parsed_call,
    untraced,
    with_ids,
)
from delegate.models.providers._stream import Receiver, Stream, refuses_streams
from delegate.types import JsonObject, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import (
    ChatReply,
    ChatRequest,
    Message,
    StopReason,
    ToolReply,
    WebSearch,
    WebSource,
)

DEFAULT_VERSION = "v1beta"
"""The default of SDK version 2; version 3 defaults to `v1`. Proxies support this one."""

REFUSAL_REASONS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "ESCALATION",
        "MODEL_ARMOR",
        "PUP_LIMITED_DISABLED",
    }
)
MALFORMED_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
"""The model can correct these. A missing thought signature is an error of the request instead."""
_STOPS: Mapping[str, StopReason] = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "length"}


def connect(endpoint: Endpoint, *, timeout_seconds: float | None, profiles: ProfileStore) -> "GenerateContent":
    """Create a client for the Gemini API. The base URL may end in an API version."""
    return GenerateContent(endpoint, profiles, timeout_seconds)


def prepare() -> None:
    """Do what the first client needs. Blocks."""
    _tls()


@cache
def _tls() -> ssl.SSLContext:
    """The TLS context. The SDK would create it four times for each client, at 20 ms each."""
    return ssl.create_default_context(
        cafile=os.environ.get("SSL_CERT_FILE", certifi.where()), capath=os.environ.get("SSL_CERT_DIR")
    )


def split_version(url: str) -> tuple[str, str]:
    """Split a URL into the base URL that the SDK expects and the API version (or its default)."""
    match = re.fullmatch(r"(.*)/(v1|v1beta|v1alpha)", url)
    return (match[1], match[2]) if match else (url, DEFAULT_VERSION)


class GenerateContent(SdkClient):
    """A `ChatClient` for Gemini's `generateContent`."""

    provider = "google"
    efforts = ("minimal", "low", "medium", "high")  # some models know fewer
    sdk_errors = (errors.APIError, ValueError)
    searches_web = True

    def __init__(self, endpoint: Endpoint, profiles: ProfileStore, timeout_seconds: float | None) -> None:
        super().__init__(endpoint, profiles, timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._client: Any = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._client.aio.aclose()
            self._client.close()
            await self._session.close()

    async def _ask(self, receiver: Receiver, key: str, request: ChatRequest, profile: Profile) -> ChatReply:
        exchange, streams = partial(self._exchange, receiver, key, as_known(profile, request)), profile.streams
        try:
            return await exchange(streams=streams is not False)
        except ProviderError as error:
            # A server, such as a gateway, may lack the path for replies that are streamed.
            if streams is False or not (refuses_streams(error) or _NO_PATH.search(str(error))):
                raise
        reply = await exchange(streams=False)
        self._profiles.learn(request.model, streams=False)
        return reply

    async def _exchange(self, receiver: Receiver, key: str, request: ChatRequest, *, streams: bool) -> ChatReply:
        stream = Stream(assemblies.GenerateContent(), read_content, receiver, self.provider)
        receiving.set(ref(stream) if streams else None)
        seconds = call_seconds(self._limit, request.max_output_tokens)
        headers = {} if self.endpoint.platform else {"x-goog-api-key": key}  # that of the SDK's client never changes
        config: types.GenerateContentConfigDict = {
            # The timeout is also sent to the server, which would otherwise have one of its own.
            "http_options": {
                "extra_body": content_body(request),
                "timeout": max(1, round(seconds * 1000)),
                "headers": headers,
            },
            "should_return_http_response": True,
            "automatic_function_calling": {"disable": True},
        }

        async def send() -> types.HttpResponse:
            models = self._ensure_client().aio.models
            with untraced(models.generate_content):
                # The contents are required by the SDK; the real ones are in the body.
                reply = await models.generate_content(model=request.model, contents="-", config=config)
            return reply.sdk_http_response

        answer = await self._sent(send)
        content, received = (answer.body or "").encode(), CIMultiDict[str](answer.headers or {})
        return self._reply(request, stream, read_content, content, received)

    def _converted(self, error: Exception) -> ProviderError:
        return provider_error(error)

    def _ensure_client(self) -> Any:
        """The SDK's client, created on the running loop. With a session of its own, the SDK would emit a warning."""
        if self._session is not None:
            return self._client
        endpoint = self.endpoint
        self._session = session(_tls(), request_class=_Request, trust_env=True)
        options = types.HttpOptions(
            # One attempt: the rate limiter retries. Without this, SDKs also try again after a broken connection.
            retry_options=types.HttpRetryOptions(attempts=1),
            client_args={"verify": _tls()},
            # By default, aiohttp's `request` would follow a redirect to any host, with the key in a header.
            async_client_args={"allow_redirects": False, "ssl": _tls(), "verify": _tls()},
            aiohttp_client=self._session,
        )
        if endpoint.platform is None or endpoint.base_url is not None:
            options.base_url, options.api_version = split_version(endpoint.url)
        if endpoint.platform == "vertex":
            self._client = genai.Client(
                vertexai=True, project=endpoint.project, location=endpoint.region, http_options=options
            )
        else:
            self._client = genai.Client(vertexai=False, api_key=self.key.text, http_options=options)
        return self._client


class _Request(aiohttp.ClientRequest):
    """A request whose reply is streamed if something receives it. The SDK's own streams parse each event twice."""

    def __init__(self, method: str, url: yarl.URL, **options: Any) -> None:
        path, _, verb = url.raw_path.rpartition(":")
        if receiving.get() is not None and verb == "generateContent":
            url = url.with_path(f"{path}:streamGenerateContent", encoded=True).with_query({**url.query, "alt": "sse"})
        super().__init__(method, url, **options)


# ----------------------------------------------------------------------------------------------------------- errors


_NO_PATH = re.compile(r"HTTP (?:404|405|501): (?:not found|method not allowed|not implemented)\b", re.IGNORECASE)


def provider_error(error: Exception) -> ProviderError:
    """Convert an error of the SDK or its transport to a `ProviderError`."""
    if isinstance(error, errors.APIError):
        failed: Any = error
        headers: Mapping[str, str] = getattr(failed.response, "headers", None) or {}
        return status_error("google", failed.code, failed.details, headers)
    if isinstance(error, aiohttp.ClientError | OSError):
        return transport_error("google", error)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | errors.UnknownApiResponseError):
        return ProviderError(
            "bad_reply", f"google: the reply isn't JSON: {redactor.beginning(str(error), 200)}", provider="google"
        )
    # The remaining errors are about a request that the SDK refuses to send.
    return ProviderError("bad_request", f"google: {redactor.beginning(str(error), 300)}", provider="google")


# ---------------------------------------------------------------------------------------------------------- request


def content_body(request: ChatRequest) -> JsonObject:
    """The body of a `POST models/NAME:generateContent`."""
    generation: JsonObject = {"maxOutputTokens": request.max_output_tokens}
    has_tools, has_schema = bool(request.tools), request.reply_schema is not None
    if has_tools and has_schema and _is_before_3(request.model):  # they refuse both together
        has_tools = request.tool_choice == "auto"
        has_schema = not has_tools
    if has_schema:
        generation |= {"responseMimeType": "application/json", "responseJsonSchema": request.reply_schema}
    if request.effort is not None:
        generation["thinkingConfig"] = {"thinkingLevel": request.effort.upper()}
    contents = (_content(message, request.model) for message in request.messages)
    body: JsonObject = {
        # The API rejects an empty turn, such as a reply without content.
        "contents": [content for content in contents if content["parts"]],
        "generationConfig": generation,
    }
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if has_tools:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
        if request.tool_choice == "none":
            body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    if request.web_searches:
        body["tools"] = [*body.get("tools", ()), {"googleSearch": {}}]
    return body


def _is_before_3(model: str) -> bool:
    return model.startswith(("gemini-1", "gemini-2"))


def _content(message: Message, model: str) -> JsonObject:
    if (native := native_content(message, "generate")) is not None:
        return native
    if message.role == "tool":
        return {"role": "user", "parts": _response_parts(message.tool_replies, model)}
    parts: list[JsonObject] = [{"text": _sendable(message.text)}] if message.text else []
    parts += [
        {"functionCall": {**_id(call.id), "name": call.name, "args": call.arguments or {}}}
        for call in message.tool_calls
    ]
    return {"role": "model" if message.role == "assistant" else "user", "parts": parts}


def _response_parts(replies: tuple[ToolReply, ...], model: str) -> list[JsonObject]:
    """The responses of the tools, with the files in them. For models before Gemini 3, files are separate parts."""
    parts: list[JsonObject] = []
    separate: list[JsonObject] = []
    for reply in replies:
        result = {"error" if reply.is_error else "output": _sendable(reply.text)}
        response: JsonObject = {**_id(reply.call_id), "name": reply.name, "response": result}
        files: list[JsonObject] = [
            {"inlineData": {"mimeType": file.media_type, "data": base64_of(file)}} for file in reply.attachments
        ]
        if _is_before_3(model):
            separate += files
        elif files:
            response["parts"] = files
        parts.append({"functionResponse": response})
    return parts + separate


def _sendable(text: str) -> str:
    """Replace lone surrogates (from file names in tool output), which the SDK escapes and the API then rejects."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _id(id: str) -> JsonObject:
    return {} if id.startswith(LOCAL_ID) else {"id": id}


# ------------------------------------------------------------------------------------------------------------ reply


def read_content(body: JsonObject) -> ChatReply:
    """The reply of a `POST models/NAME:generateContent`."""
    blocked = dig(body, "promptFeedback", "blockReason")
    if blocked and not body.get("candidates"):
        message = dig(body, "promptFeedback", "blockReasonMessage")
        return _reply(body, "refusal", f"{blocked}: {message}" if message else str(blocked))
    candidate: JsonObject = body["candidates"][0]
    content: JsonObject = candidate.get("content") or {}
    parts: list[JsonObject] = content.get("parts") or []
    reason = candidate.get("finishReason") or "none"
    message = candidate.get("finishMessage")
    detail = f"{reason}: {message}" if message else reason
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    if reason in MALFORMED_REASONS:  # a call among the parts can't be answered
        return _reply(body, "malformed_call", detail, text=text)
    items = with_ids(part["functionCall"] for part in parts if "functionCall" in part)
    calls = tuple(parsed_call(call["id"], call["name"], call.get("args", {})) for call in items)
    stop: StopReason = "refusal" if reason in REFUSAL_REASONS else _STOPS.get(reason, "other")
    return _reply(
        body,
        "tool_calls" if calls and stop == "end" else stop,
        detail,
        text=text,
        tool_calls=calls,
        native={"protocol": "generate", "items": content} if parts else None,
        web_search=_web_search(candidate.get("groundingMetadata")),
    )


def _web_search(grounding: JsonObject | None) -> WebSearch | None:
    """The searches. Google charges for each query once, and not for empty ones.

    What it says of the places that a page supports is text of the reply, not of the page.
    """
    queries: list[str] = dig(grounding, "webSearchQueries") or []
    chunks: list[JsonObject] = dig(grounding, "groundingChunks") or []
    pages = [chunk["web"] for chunk in chunks if "web" in chunk]
    if not queries and not pages:
        return None
    sources = (WebSource(page["uri"], page.get("title") or "") for page in pages)
    return WebSearch(max(1, len(set(filter(None, queries)))), tuple(dict.fromkeys(sources)))


def _reply(body: JsonObject, stop: StopReason, detail: str, **others: Any) -> ChatReply:
    fields: JsonObject = {"text": "", **others}
    return ChatReply(
        stop=stop,
        stop_detail=detail,
        usage=_usage(body.get("usageMetadata")),
        model_served=body.get("modelVersion"),
        **fields,
    )


def _usage(usage: JsonObject | None) -> Usage:
    """Gemini counts thoughts separately from candidates, and input from its own tools separately from the prompt."""
    thoughts = dig(usage, "thoughtsTokenCount") or 0
    return Usage(
        model_calls=1,
        input_tokens=(dig(usage, "promptTokenCount") or 0) + (dig(usage, "toolUsePromptTokenCount") or 0),
        cached_tokens=dig(usage, "cachedContentTokenCount") or 0,
        output_tokens=(dig(usage, "candidatesTokenCount") or 0) + thoughts,
        reasoning_tokens=thoughts,
    )
