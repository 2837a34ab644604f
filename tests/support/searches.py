"""What the three providers send when a model has searched the web, as their documentation and SDKs have it."""

from typing import Any

from tests.support.wire_formats import Json

MILL = "https://mill.test/figures"
OTHER = "https://other.test/"
QUOTE = "The mill made 84,600 tonnes."
ANSWER = "It made 84,600 tonnes."


def responses(*, failed: bool = False) -> Json:
    """OpenAI's reply: two calls of its tool, of which one only opened a page, and a text with a citation."""
    search: Json = {"type": "search", "query": "mill", "queries": ["mill"], "sources": [{"type": "url", "url": MILL}]}
    opened: Json = {"type": "open_page", "url": MILL}
    calls = [
        {"type": "web_search_call", "id": f"ws_{n}", "status": "failed" if failed else "completed", "action": action}
        for n, action in enumerate((search, opened))
    ]
    cited: Json = {"type": "url_citation", "start_index": 0, "end_index": 22, "url": MILL, "title": "Mill figures"}
    part: Json = {"type": "output_text", "text": ANSWER, "annotations": [cited, cited], "logprobs": []}
    said: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": [*calls, said],
        "usage": {"input_tokens": 9_000, "output_tokens": 100, "total_tokens": 9_100},
    }


def messages(*, failed: bool = False) -> Json:
    """Anthropic's reply: a search, its results or an error, and blocks of text of which one cites."""
    page: Json = {"type": "web_search_result", "url": MILL, "title": "Mill figures", "encrypted_content": "RW5j"}
    other: Json = {"type": "web_search_result", "url": OTHER, "title": "Other", "encrypted_content": "RW5j"}
    problem: Json = {"type": "web_search_tool_result_error", "error_code": "too_many_requests"}
    cited: Json = {
        "type": "web_search_result_location",
        "url": MILL,
        "title": "Mill figures",
        "encrypted_index": "RW8=",
        "cited_text": QUOTE,
    }
    found: Json = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": problem if failed else [page, other],
    }
    content: list[Json] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "mill"}},
        found,
        {"type": "text", "text": "It made "},
        {"type": "text", "text": "84,600 tonnes.", "citations": [] if failed else [cited]},
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 9_000,
            "output_tokens": 100,
            "server_tool_use": {"web_search_requests": 0 if failed else 1},
        },
    }


def generate() -> Json:
    """Google's reply: the queries, one of them empty and one sent twice, and the pages. It has no error of a search."""
    supported: Json = {"segment": {"startIndex": 0, "endIndex": 22, "text": ANSWER}, "groundingChunkIndices": [0]}
    grounding: Json = {
        "webSearchQueries": ["mill", "", "mill", "mill tonnes"],
        "searchEntryPoint": {"renderedContent": "<div></div>"},
        "groundingChunks": [{"web": {"uri": MILL, "title": "mill.test"}}],
        "groundingSupports": [supported],
    }
    candidate: Json = {
        "content": {"role": "model", "parts": [{"text": ANSWER}]},
        "finishReason": "STOP",
        "groundingMetadata": grounding,
    }
    usage: Json = {"promptTokenCount": 40, "toolUsePromptTokenCount": 60, "candidatesTokenCount": 100}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


def is_search(body: dict[str, Any]) -> bool:
    """Whether a request has the provider's tool."""
    return any(
        "googleSearch" in tool or str(tool.get("type", "")).startswith("web_search") for tool in body.get("tools", ())
    )
