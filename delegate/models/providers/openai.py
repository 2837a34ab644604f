"""Clients for OpenAI's Chat Completions API (and compatible servers) and Responses API, using the official SDK."""

from collections.abc import Iterator
from typing import Any

import openai

from delegate.errors import ProviderError
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._posting import SdkClient, SdkTransport, translate
from delegate.models.providers._quota import openai_quota
from delegate.models.providers._shared import dig, native_content, parse_arguments, read_reply, to_json
from delegate.ports import ChatReply, ChatRequest, Message, StopReason, ToolCall, ToolReply
from delegate.types import JsonObject, Usage

REPLY_NAME = "reply"
"""The name of a reply schema, which OpenAI requires."""


def connect(endpoint: Endpoint, *, timeout_seconds: float, max_retries: int) -> "ChatCompletions | Responses":
    """Create a client for the API of this endpoint."""
    transport = SdkTransport(
        openai,
        openai.AsyncOpenAI,
        endpoint,
        timeout_seconds=timeout_seconds,
        max_retries=max_retries,
        read_quota=openai_quota,
    )
    if not endpoint.is_openai_itself:
        transport.client.organization = transport.client.project = None  # from the environment, meant for OpenAI itself
    if endpoint.speaks_responses:
        return Responses(transport, timeout_seconds)
    return ChatCompletions(transport, timeout_seconds, modern=endpoint.is_openai_itself)


def provider_error(error: Exception) -> ProviderError:
    """Convert an error of the SDK to a `ProviderError`."""
    return translate(openai, error, "openai")


class ChatCompletions(SdkClient):
    """A `ChatClient` for Chat Completions, at OpenAI or any compatible server.

    `modern` is for servers that support `max_completion_tokens`. Many local servers only support the older
    `max_tokens`, which OpenAI's reasoning models reject, also behind a proxy. After the first such error, the client
    switches to the new name.
    """

    provider = "openai"

    def __init__(self, transport: SdkTransport, timeout_seconds: float, *, modern: bool) -> None:
        super().__init__(transport, timeout_seconds)
        self._limit = "max_completion_tokens" if modern else "max_tokens"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        try:
            answer = await self._transport.post("/chat/completions", chat_body(request, self._limit))
        except ProviderError as error:
            if self._limit != "max_tokens" or error.status != 400 or "max_completion_tokens" not in str(error):
                raise
            self._limit = "max_completion_tokens"
            answer = await self._transport.post("/chat/completions", chat_body(request, self._limit))
        return read_reply(read_chat, *answer, provider="openai")


class Responses(SdkClient):
    """A `ChatClient` for the Responses API, without storage: the conversation contains the reasoning, encrypted."""

    provider = "openai"

    def __init__(self, transport: SdkTransport, timeout_seconds: float) -> None:
        super().__init__(transport, timeout_seconds)
        self._without_reasoning: set[str] = set()

    async def _complete(self, request: ChatRequest) -> ChatReply:
        reasons = request.model not in self._without_reasoning
        try:
            answer = await self._transport.post("/responses", responses_body(request, encrypted_reasoning=reasons))
        except ProviderError as error:
            # Models without reasoning reject requests for encrypted reasoning; nothing else identifies them.
            if not reasons or error.status != 400 or "ncrypted content is not supported" not in str(error):
                raise
            self._without_reasoning.add(request.model)
            answer = await self._transport.post("/responses", responses_body(request, encrypted_reasoning=False))
        return read_reply(read_responses, *answer, provider="openai")


def _error_text(reply: ToolReply) -> str:
    """OpenAI has no field for a failed tool call, so the text is prefixed."""
    return f"ERROR: {reply.text}" if reply.is_error else reply.text


def _arguments_text(call: ToolCall) -> str:
    """The arguments as JSON text. Some servers parse it, so an invalid text is sent as an empty object."""
    if call.arguments is None:
        return "{}"
    return call.raw_arguments or to_json(call.arguments)


def _usage(
    usage: JsonObject | None, input_name: str, output_name: str, input_details: str, output_details: str
) -> Usage:
    return Usage(
        model_calls=1,
        input_tokens=dig(usage, input_name) or 0,
        cached_tokens=dig(usage, input_details, "cached_tokens") or 0,
        cache_write_tokens=dig(usage, input_details, "cache_write_tokens") or 0,
        output_tokens=dig(usage, output_name) or 0,
        reasoning_tokens=dig(usage, output_details, "reasoning_tokens") or 0,
    )


# ------------------------------------------------------------------------------------------------- Chat Completions


def chat_body(request: ChatRequest, limit: str) -> JsonObject:
    """The body of a `POST /chat/completions`. `limit` is the name of the token limit."""
    messages: list[JsonObject] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        if message.role == "tool":
            messages += [
                {"role": "tool", "tool_call_id": reply.call_id, "content": _error_text(reply)}
                for reply in message.tool_replies
            ]
        elif message.tool_calls:
            messages.append(_chat_turn(message))
        else:
            messages.append({"role": message.role, "content": message.text})
    body: JsonObject = {"model": request.model, "messages": messages, limit: request.max_output_tokens}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    if request.reply_schema is not None:
        schema = {"name": REPLY_NAME, "strict": True, "schema": request.reply_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    return body


def _chat_turn(message: Message) -> JsonObject:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments_text(call)}}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def read_chat(body: JsonObject) -> ChatReply:
    """The reply of a `POST /chat/completions`."""
    choice = body["choices"][0]
    message = choice["message"]
    calls = tuple(_chat_call(call) for call in message.get("tool_calls") or ())
    reason = choice.get("finish_reason") or "none"
    refusal = message.get("refusal")
    return ChatReply(
        text=message.get("content") or "",
        stop=_chat_stop(reason, bool(calls), bool(refusal)),
        usage=_usage(
            body.get("usage"),
            "prompt_tokens",
            "completion_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
        ),
        tool_calls=calls,
        model_served=body.get("model"),
        stop_detail=f"{reason}: {refusal}" if refusal else reason,
    )


def _chat_call(call: JsonObject) -> ToolCall:
    value = call["function"].get("arguments") or ""
    text = value if isinstance(value, str) else to_json(value)  # some servers send the object itself
    return ToolCall(call["id"], call["function"]["name"], parse_arguments(text), text)


def _chat_stop(reason: str, has_calls: bool, refused: bool) -> StopReason:
    if refused or reason == "content_filter":
        return "refusal"
    if reason == "length":
        return "length"
    if reason not in {"stop", "tool_calls", "function_call"}:
        return "other"
    if has_calls:
        return "tool_calls"
    return "end" if reason == "stop" else "other"


# -------------------------------------------------------------------------------------------------------- Responses


def responses_body(request: ChatRequest, *, encrypted_reasoning: bool = True) -> JsonObject:
    """The body of a `POST /responses`."""
    items: list[JsonObject] = []
    for message in request.messages:
        items += _items(message)
    body: JsonObject = {
        "model": request.model,
        "input": items,
        "max_output_tokens": request.max_output_tokens,
        "store": False,
    }
    if encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,  # this API defaults to true, but few tool schemas meet the requirements
            }
            for tool in request.tools
        ]
    if request.reply_schema is not None:
        form = {"type": "json_schema", "name": REPLY_NAME, "strict": True, "schema": request.reply_schema}
        body["text"] = {"format": form}
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort}
    return body


def _items(message: Message) -> Iterator[JsonObject]:
    if (native := native_content(message, "responses")) is not None:
        yield from native
        return
    for reply in message.tool_replies:
        yield {"type": "function_call_output", "call_id": reply.call_id, "output": _error_text(reply)}
    if message.text or message.role == "user":
        yield {"role": message.role, "content": message.text}
    for call in message.tool_calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _arguments_text(call)}


def read_responses(body: JsonObject) -> ChatReply:
    """The reply of a `POST /responses`. Raises `ProviderError` if its status is `failed`."""
    if body.get("status") == "failed":
        raise _failure(body.get("error"))
    items: list[JsonObject] = body["output"]
    calls = tuple(
        ToolCall(item["call_id"], item["name"], parse_arguments(item["arguments"]), item["arguments"])
        for item in items
        if item["type"] == "function_call"
    )
    parts = [part for item in items if item["type"] == "message" for part in _message_parts(item, bool(calls))]
    refusal = "".join(part["refusal"] for part in parts if part["type"] == "refusal")
    reason = dig(body, "incomplete_details", "reason") or body.get("status") or "none"
    return ChatReply(
        text="".join(part["text"] for part in parts if part["type"] == "output_text"),
        stop=_responses_stop(reason, bool(calls), bool(refusal)),
        usage=_usage(
            body.get("usage"), "input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details"
        ),
        tool_calls=calls,
        model_served=body.get("model"),
        stop_detail=f"{reason}: {refusal}" if refusal else reason,
        native={"protocol": "responses", "items": items},
    )


def _message_parts(item: JsonObject, has_calls: bool) -> list[JsonObject]:
    """The content of a message. Commentary is only included if the reply also has tool calls."""
    return item["content"] if has_calls or item.get("phase") != "commentary" else []


def _responses_stop(reason: str, has_calls: bool, refused: bool) -> StopReason:
    if refused or reason == "content_filter":
        return "refusal"
    if reason == "max_output_tokens":
        return "length"
    if reason != "completed":
        return "other"
    return "tool_calls" if has_calls else "end"


def _failure(error: Any) -> ProviderError:
    fault = "rate_limited" if dig(error, "code") == "rate_limit_exceeded" else "server_error"
    text = f"openai: the response failed: {dig(error, 'message') or 'no reason given'}"
    return ProviderError(fault, text[:300], provider="openai")
