"""The wire format of OpenAI's Responses API, without storage: the conversation contains the reasoning, encrypted."""

from collections.abc import Iterator

from delegate.models.providers._chat import REPLY_NAME, arguments_text, error_text, read_usage
from delegate.models.providers._shared import (
    body_with,
    data_url,
    dig,
    encode_all,
    file_name,
    native_content,
    parse_arguments,
    with_ids,
)
from delegate.models.providers._thoughts import without_thoughts
from delegate.types import JsonObject
from delegate.types.errors import ProviderError
from delegate.types.ports import (
    Attachment,
    ChatReply,
    ChatRequest,
    Message,
    StopReason,
    ToolCall,
    ToolReply,
    ToolSpec,
    WebSearch,
    WebSource,
)


def responses_content(request: ChatRequest, extra: JsonObject, *, encrypted_reasoning: bool) -> bytes:
    """The body of a `POST /responses`, with these extra fields."""
    body: JsonObject = {
        "model": request.model,
        "max_output_tokens": request.max_output_tokens,
        "store": False,
        **extra,
    }
    if encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if request.system:
        body["instructions"] = request.system
    if request.tools and request.tool_choice == "none":
        body["tool_choice"] = "none"
    if request.reply_schema is not None:
        form = {"type": "json_schema", "name": REPLY_NAME, "strict": True, "schema": request.reply_schema}
        body["text"] = {"format": form}
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort}
    if request.web_searches:
        body["max_tool_calls"] = request.web_searches
    hosted = (_WEB_SEARCH,) if request.web_searches else ()
    tools = {"tools": encode_all(request.tools, "responses", _tool, *hosted)} if request.tools or hosted else {}
    return body_with(body, **tools, input=encode_all(request.messages, "responses", _items))


_WEB_SEARCH: JsonObject = {"type": "web_search"}


def _tool(tool: ToolSpec) -> Iterator[JsonObject]:
    yield {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,  # this API defaults to true, but few tool schemas meet the requirements
    }


def _items(message: Message) -> Iterator[JsonObject]:
    if (native := native_content(message, "responses")) is not None:
        yield from native
        return
    for reply in message.tool_replies:
        yield {"type": "function_call_output", "call_id": reply.call_id, "output": _output(reply)}
    if message.text or message.role == "user":
        yield {"role": message.role, "content": message.text}
    for call in message.tool_calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments_text(call)}


def _output(reply: ToolReply) -> str | list[JsonObject]:
    if not reply.attachments:
        return error_text(reply)
    return [{"type": "input_text", "text": error_text(reply)}, *map(_file, reply.attachments)]


def _file(attachment: Attachment) -> JsonObject:
    if attachment.media_type == "application/pdf":
        return {"type": "input_file", "filename": file_name(attachment), "file_data": data_url(attachment)}
    return {"type": "input_image", "image_url": data_url(attachment)}


def read_responses(body: JsonObject) -> ChatReply:
    """The reply of a `POST /responses`. Raises `ProviderError` if its status is `failed`."""
    if body.get("status") == "failed":  # without an error, which would have been raised before
        raise ProviderError("server_error", "openai: the response failed: no reason given", provider="openai")
    items = with_ids(body["output"], "call_id", kind="function_call")
    calls: list[ToolCall] = []
    for item in items:
        if item["type"] == "function_call":
            item["arguments"] = item.get("arguments") or ""
            calls.append(ToolCall(item["call_id"], item["name"], parse_arguments(item["arguments"]), item["arguments"]))
    # Commentary only counts next to tool calls.
    messages = [item for item in items if item["type"] == "message" and (calls or item.get("phase") != "commentary")]
    parts: list[JsonObject] = [part for message in messages for part in message["content"]]
    refusal = "".join(part["refusal"] for part in parts if part["type"] == "refusal")
    reason = dig(body, "incomplete_details", "reason") or body.get("status") or "none"
    return ChatReply(
        text=without_thoughts("".join(part["text"] for part in parts if part["type"] == "output_text")),
        stop=_stop(reason, bool(calls), bool(refusal)),
        usage=read_usage(body.get("usage"), "input_tokens", "output_tokens"),
        tool_calls=tuple(calls),
        model_served=body.get("model"),
        stop_detail=f"{reason}: {refusal}" if refusal else reason,
        native={"protocol": "responses", "items": items},
        web_search=_web_search(items, parts),
    )


def _web_search(items: list[JsonObject], parts: list[JsonObject]) -> WebSearch | None:
    """The searches. Opening a page that was found, and looking into it, are no searches of their own."""
    calls = [item for item in items if item["type"] == "web_search_call"]
    if not calls:
        return None
    cited = [note for part in parts for note in part.get("annotations") or () if note["type"] == "url_citation"]
    has_failed = all(call.get("status") == "failed" for call in calls)
    return WebSearch(
        sum((dig(call, "action", "type") or "search") == "search" for call in calls),
        tuple(dict.fromkeys(WebSource(note["url"], note.get("title") or "") for note in cited)),
        "web_search_call failed" if has_failed else "",
    )


def _stop(reason: str, has_calls: bool, refused: bool) -> StopReason:
    if refused or reason == "content_filter":
        return "refusal"
    if reason == "max_output_tokens":
        return "length"
    if reason != "completed":
        return "other"
    return "tool_calls" if has_calls else "end"
