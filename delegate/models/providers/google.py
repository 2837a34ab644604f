"""Google's Gemini API on its official SDK.

The SDK is asked for the plain HTTP response and given the body as `extra_body`, both public, because its typed
parameters and replies take three times as long. It has no deadline and no retries of its own until it is told.
"""

import json
import os
import re
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import aiohttp
import certifi
from google import genai
from google.genai import errors, types

from delegate.errors import ProviderError
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._shared import (
    dig,
    native_of,
    read_reply,
    reply_object,
    status_error,
    to_json,
    transport_error,
    usable,
    within,
    without_key,
)
from delegate.ports import ChatReply, ChatRequest, Message, StopReason, ToolCall, ToolReply
from delegate.types import JsonObject, Usage

DEFAULT_VERSION = "v1beta"
"""The SDK's 2.x calls this one unless it is told, 3.x `v1`; proxies know this one."""

REFUSALS = frozenset(
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
LOCAL_ID = "local-"
"""Begins the id of a call to which the API gave none; it isn't sent back."""


def connect(endpoint: Endpoint, *, timeout_seconds: float, max_retries: int) -> "GenerateContent":
    """A client for the Gemini API. A base URL may end in an API version."""
    return GenerateContent(endpoint, timeout_seconds, max_retries)


def _sdk_client(endpoint: Endpoint, session: aiohttp.ClientSession, seconds: float, retries: int) -> Any:
    base, version = split_version(endpoint.url)
    options = types.HttpOptions(
        base_url=base,
        api_version=version,
        timeout=max(1, round(seconds * 1000)),
        retry_options=types.HttpRetryOptions(
            attempts=retries + 1,
            initial_delay=0.5,
            max_delay=8.0,
            jitter=0.5,
            http_status_codes=[408, 500, 502, 504],  # by default also 429 and 503
        ),
        client_args={"verify": _tls()},
        # The first is for aiohttp's `request`, which would follow a redirect with the key in its header, to any host.
        async_client_args={"allow_redirects": False, "ssl": _tls(), "verify": _tls()},
        aiohttp_client=session,
    )
    key = endpoint.api_key or "none"  # without one, the SDK takes the environment's
    return genai.Client(vertexai=False, api_key=key, http_options=options)


@cache
def _tls() -> ssl.SSLContext:
    """The TLS context that the SDK would make four times for each client, at 20 ms each."""
    return ssl.create_default_context(
        cafile=os.environ.get("SSL_CERT_FILE", certifi.where()), capath=os.environ.get("SSL_CERT_DIR")
    )


def split_version(url: str) -> tuple[str, str]:
    """A base URL as the SDK wants it, and the API version at its end (or the default)."""
    found = re.fullmatch(r"(.*)/(v1|v1beta|v1alpha)", url)
    return (found[1], found[2]) if found else (url, DEFAULT_VERSION)


class GenerateContent:
    """Gemini's `generateContent`."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float, max_retries: int) -> None:
        self._endpoint = endpoint
        self._seconds = timeout_seconds
        self._retries = max_retries
        self._session: aiohttp.ClientSession | None = None
        self._client: Any = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        body = reply_object(await within(self._seconds, "google", self._send(request)), "google")
        return read_reply(read_content, body, None, provider="google")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._client.aio.aclose()
            self._client.close()
            await self._session.close()

    async def _send(self, request: ChatRequest) -> str:
        config: types.GenerateContentConfigDict = {
            "http_options": {"extra_body": content_body(request)},
            "should_return_http_response": True,
            "automatic_function_calling": {"disable": True},
        }
        try:
            reply = await self._connected().aio.models.generate_content(
                model=request.model,
                contents="-",  # the SDK wants some; the body has the real ones
                config=config,
            )
        except (errors.APIError, aiohttp.ClientError, OSError, ValueError) as error:
            raise without_key(provider_error(error), self._endpoint.api_key) from None
        return reply.sdk_http_response.body or ""

    def _connected(self) -> Any:
        """The SDK's client, made on the loop that it is used on. The SDK's own session would warn when it is made."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=True)
            self._client = _sdk_client(self._endpoint, self._session, self._seconds, self._retries)
        return self._client


# ----------------------------------------------------------------------------------------------------------- errors


def provider_error(error: Exception) -> ProviderError:
    """One of the SDK's errors, or of the transport below it, as ours."""
    if isinstance(error, errors.APIError):
        return _status_error(error)
    if isinstance(error, aiohttp.ClientError | OSError):
        return transport_error("google", error)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | errors.UnknownApiResponseError):
        return ProviderError("bad_reply", f"google: the answer isn't JSON: {str(error)[:200]}", provider="google")
    # What is left are the SDK's own complaints about a request that it won't send.
    return ProviderError("bad_request", f"google: {str(error)[:300]}", provider="google")


def _status_error(error: Any) -> ProviderError:
    details: list[Any] = dig(error.details, "error", "details") or []
    headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
    # A wrong key is a 400 here; only the reason tells it from a bad request.
    wrong_key = any(dig(detail, "reason") == "API_KEY_INVALID" for detail in details)
    translated = status_error("google", error.code, error.details, headers, fault="auth" if wrong_key else None)
    if translated.retry_after is None:
        translated.retry_after = _retry_delay(details)
    return translated


def _retry_delay(details: list[Any]) -> float | None:
    """Seconds, from a `RetryInfo` such as `{"retryDelay": "17s"}`."""
    for detail in details:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(dig(detail, "retryDelay")))
        if found:
            return float(found[1])
    return None


# ---------------------------------------------------------------------------------------------------------- request


def content_body(request: ChatRequest) -> JsonObject:
    """The body of a `POST models/NAME:generateContent`."""
    generation: JsonObject = {"maxOutputTokens": request.max_output_tokens}
    if request.reply_schema is not None:
        generation |= {"responseMimeType": "application/json", "responseJsonSchema": request.reply_schema}
    if request.effort is not None:
        generation["thinkingConfig"] = {"thinkingLevel": request.effort.upper()}
    contents = (_content(message) for message in request.messages)
    body: JsonObject = {
        # The API refuses an empty turn, such as that of a model which said nothing.
        "contents": [content for content in contents if content["parts"]],
        "generationConfig": generation,
    }
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
    return body


def _content(message: Message) -> JsonObject:
    if (native := native_of(message, "generate")) is not None:
        return native
    if message.role == "tool":
        return {"role": "user", "parts": [_response_part(reply) for reply in message.tool_replies]}
    parts: list[JsonObject] = [{"text": _sendable(message.text)}] if message.text else []
    parts += [_call_part(call) for call in message.tool_calls]
    return {"role": "model" if message.role == "assistant" else "user", "parts": parts}


def _call_part(call: ToolCall) -> JsonObject:
    return {"functionCall": {**_id(call.id), "name": call.name, "args": call.arguments or {}}}


def _response_part(reply: ToolReply) -> JsonObject:
    said = {"error" if reply.is_error else "output": _sendable(reply.text)}
    return {"functionResponse": {**_id(reply.call_id), "name": reply.name, "response": said}}


def _sendable(text: str) -> str:
    """The SDK writes lone surrogates (odd file names in tool output) as escapes, which the API refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _id(id: str) -> JsonObject:
    return {} if id.startswith(LOCAL_ID) else {"id": id}


# ------------------------------------------------------------------------------------------------------------ reply


def read_content(body: JsonObject) -> ChatReply:
    """The reply of a `POST models/NAME:generateContent`."""
    blocked = dig(body, "promptFeedback", "blockReason")
    if blocked and not body.get("candidates"):
        said = dig(body, "promptFeedback", "blockReasonMessage")
        return _reply(body, "refusal", f"{blocked}: {said}" if said else str(blocked))
    candidate: JsonObject = body["candidates"][0]
    content: JsonObject = candidate.get("content") or {}
    parts: list[JsonObject] = content.get("parts") or []
    calls = tuple(_call(n, part["functionCall"]) for n, part in enumerate(parts) if "functionCall" in part)
    word = candidate.get("finishReason") or "none"
    said = candidate.get("finishMessage")
    return _reply(
        body,
        _stop(word, bool(calls)),
        f"{word}: {said}" if said else word,
        text="".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        tool_calls=calls,
        native={"protocol": "generate", "items": content} if parts else None,
    )


def _reply(body: JsonObject, stop: StopReason, detail: str, **said: Any) -> ChatReply:
    fields: JsonObject = {"text": "", **said}
    return ChatReply(
        stop=stop,
        stop_detail=detail,
        usage=_usage(body.get("usageMetadata")),
        model_served=body.get("modelVersion"),
        **fields,
    )


def _call(number: int, call: JsonObject) -> ToolCall:
    id = call.get("id") or f"{LOCAL_ID}{number}"
    given = call.get("args", {})
    if isinstance(given, dict):
        return ToolCall(id, call["name"], usable(cast("JsonObject", given)))
    return ToolCall(id, call["name"], None, to_json(given))


def _stop(word: str, has_calls: bool) -> StopReason:
    if word == "STOP":
        return "tool_calls" if has_calls else "end"
    if word in {"MAX_TOKENS", "CONTINUATION"}:
        return "length"
    return "refusal" if word in REFUSALS else "other"


def _usage(usage: JsonObject | None) -> Usage:
    """Gemini counts thoughts beside the candidates, and what its own tools brought in beside the prompt."""
    thoughts = dig(usage, "thoughtsTokenCount") or 0
    return Usage(
        model_calls=1,
        input_tokens=(dig(usage, "promptTokenCount") or 0) + (dig(usage, "toolUsePromptTokenCount") or 0),
        cached_tokens=dig(usage, "cachedContentTokenCount") or 0,
        output_tokens=(dig(usage, "candidatesTokenCount") or 0) + thoughts,
        reasoning_tokens=thoughts,
    )
