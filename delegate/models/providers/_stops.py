"""Why a reply ended, in the words of the many servers that speak the APIs of OpenAI and Anthropic."""

from collections.abc import Mapping
from dataclasses import replace

from delegate.types.ports import ChatReply, ChatRequest, StopReason

NO_REASON = "none"
"""The `stop_detail` of a reply that doesn't say why it ended."""
_ENDS = frozenset(
    ("", "stop", "end_turn", "stop_sequence", "eos", "eos_token", "stop_token", "end", "completed", "done")
)
_CALLS = frozenset(("tool_calls", "tool_call", "tool_use", "function_call"))
_OTHERS: Mapping[str, StopReason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_length": "length",
    "model_context_window_exceeded": "context",
    "model_length": "context",  # Mistral
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",  # Gemini's, through gateways
}


def stop_of(reason: object, *, has_calls: bool) -> StopReason:
    """The stop of a reply with this reason, which may be missing, and in upper or lower case.

    A reply without a reason has ended, since it is complete. One that announces tool calls and has none has lost them.
    """
    word = str(reason or "").strip().lower().removeprefix("finishreason.")
    if "malformed_function_call" in word:  # Gemini's, through gateways
        return "malformed_call"
    if word in _OTHERS:
        return _OTHERS[word]
    if word in _CALLS:
        return "tool_calls" if has_calls else "malformed_call"
    if word in _ENDS:
        return "tool_calls" if has_calls else "end"
    return "other"


def cut_off_unsaid(reply: ChatReply, request: ChatRequest) -> ChatReply:
    """The reply, cut off if it is as long as was allowed and doesn't say why it ended."""
    is_cut = reply.stop_detail == NO_REASON and reply.usage.output_tokens >= request.max_output_tokens
    return replace(reply, stop="length") if is_cut else reply
