"""Decides what an error of a provider means, and builds the `ProviderError` for it.

The HTTP status alone doesn't tell: an account without credit may be a 429, a request that is too long a 400, 413, 429
or 500, and gateways report upstream errors in the body of a 200. So the codes and texts in the body decide first.
"""

import math
import re
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from http.client import responses
from typing import Any, cast

import aiohttp

from delegate._util.redaction import MARK, redactor
from delegate.models.providers._endpoint import NO_ROUTE, Endpoint, names_model
from delegate.models.providers._http import SUCCESS, causes
from delegate.models.providers._quota import seconds_of
from delegate.models.providers._shared import NOT_JSON, dig, parse_object
from delegate.types.errors import ProviderError, ProviderFault, ThinkingRefused
from delegate.types.ports import StopReason

Headers = Mapping[str, str]
_NO_HEADERS: Headers = {}


class AnsweredError(ProviderError):
    """An error response that is the model's answer: `stop` is the reason with which its reply ended."""

    def __init__(self, stop: StopReason, message: str, *, provider: str, status: int) -> None:
        super().__init__("bad_request", message, provider=provider, status=status)
        self.stop: StopReason = stop


# ----------------------------------------------------------------------------------------------- what an error says

_TOO_LONG_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
        "token_limit_exceeded",
    }
)
_TOO_LONG = re.compile(
    # Anthropic, also through Amazon and Google
    r"prompt is too long|input is too long|exceeds? (?:the )?(?:model )?context (?:limit|window)"
    r"|required for long context requests"
    # OpenAI, vLLM, DeepSeek, OpenRouter, Mistral, xAI. "Request too large": more than a minute's quota, however long
    # one waits
    r"|maximum (?:context|model|prompt|allowed input) length|request too large for"
    r"|reduce (?:the length of|your message size)|with maximum length \d{6}"
    # vLLM, SGLang: what the input leaves of the context for the output is negative, or too little
    r"|max_tokens must be at least 1, got -|context length is only|longer than the (?:maximum )?(?:model|context)"
    # Google
    r"|input token count .{0,40}exceeds the maximum"
    # llama.cpp, LM Studio, Ollama
    r"|exceeds? the available context|exceed context window|greater than the context length"
    r"|context length of only|exceeded (?:max )?context length"
    # Kimi, MiniMax, Qwen, Copilot
    r"|exceeded model token limit|context window exceeds|range of input length should|token count of \d+ exceeds",
    re.IGNORECASE,
)
"""What providers write if a request is too long. That is not the same as an output limit above the model's own."""
_TOO_LONG_STATUSES = frozenset({400, 413, 422, 429, 500})

_NO_CREDIT_CODES = frozenset(
    {
        "account_deactivated",
        "api_key_invalid",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "insufficient_balance",
        "insufficient_quota",
        "invalid_api_key",
    }
)
_NO_CREDIT = re.compile(
    r"credit balance is too low|reached your specified (?:api |workspace )?usage limits|insufficient balance",
    re.IGNORECASE,
)

_PASSING_CODES: Mapping[str, ProviderFault] = {
    "engine_overloaded": "overloaded",
    "engine_overloaded_error": "overloaded",
    "modelnotreadyexception": "overloaded",
    "overloaded_error": "overloaded",
    "provider_overloaded": "overloaded",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "resource_exhausted": "rate_limited",
    "server_is_overloaded": "overloaded",
    "serviceunavailableexception": "overloaded",
    "slow_down": "rate_limited",
    "throttlingexception": "rate_limited",
    "unavailable": "overloaded",
}
"""Codes of trouble that passes, whatever the status is."""
_FINAL_STATUSES = frozenset({401, 402, 403, 404})
"""Statuses that such codes don't change."""

_ANSWERS: tuple[tuple[re.Pattern[str], StopReason], ...] = (
    # Groq refuses to return a tool call that doesn't match the tool's schema.
    (re.compile(r"\btool_use_failed\b"), "malformed_call"),
    (
        re.compile(
            r"\b(?:content_filter|content_policy_violation|data_inspection_failed|flagged_input|invalid_prompt)\b"
            r"|content exists risk|blocked by content filtering policy|violates usage guidelines",
            re.IGNORECASE,
        ),
        "refusal",
    ),
)
"""What error responses contain that are a model's answer. The filters of the other providers end a normal reply."""


_FOREIGN_THINKING = re.compile(r"bound to a different conversation", re.IGNORECASE)
"""What Anthropic writes about thinking that wasn't made behind the messages in front of it, also through gateways."""


_STATUS_FAULTS: Mapping[int, ProviderFault] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "server_error",  # the server's own timeout, such as Amazon's for a model
    409: "server_error",  # a conflict with another request
    413: "context_overflow",
    424: "server_error",  # Amazon: the model failed
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}


def fault_of(
    status: int, headers: Headers = _NO_HEADERS, codes: frozenset[str] = frozenset(), text: str = ""
) -> ProviderFault:
    """The fault of an error response, by its status unless its codes and its text say more."""
    if status in _TOO_LONG_STATUSES and (codes & _TOO_LONG_CODES or _TOO_LONG.search(text)):
        return "context_overflow"
    is_over_limit = any(code.endswith("spend_limit_reached") for code in codes)
    if codes & _NO_CREDIT_CODES or is_over_limit or _NO_CREDIT.search(text):
        return "auth"
    if status == 402 and "retry-after" in headers:  # OpenRouter: other requests have reserved the credit
        return "rate_limited"
    passing: list[ProviderFault] = [_PASSING_CODES[code] for code in sorted(codes) if code in _PASSING_CODES]
    if passing and status not in _FINAL_STATUSES:
        return passing[0]
    others: ProviderFault = "server_error" if status >= 500 else "bad_request" if status >= 400 else "bad_reply"
    return _STATUS_FAULTS.get(status, others)


def _error_of(body: object) -> object:
    """The error in a body, which may be a list, the error itself, or text."""
    if isinstance(body, list):
        items = cast("list[object]", body)
        return _error_of(items[0]) if items else None
    return dig(body, "error") or body


def _codes(error: object, headers: Headers) -> frozenset[str]:
    """All codes that the error has, in lower case."""
    details = dig(error, "details")
    codes = [
        *(dig(error, name) for name in ("type", "code", "status")),
        dig(error, "metadata", "error_type"),
        dig(details, "error_code"),
        "flagged_input" if dig(error, "metadata", "flagged_input") else None,
        *(dig(detail, "reason") for detail in _list(details)),
        headers.get("x-amzn-errortype", "").partition(":")[0],
    ]
    return frozenset(code.lower() for code in codes if isinstance(code, str) and code)


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(error: object) -> str:
    """The text of an error, with the one of the upstream provider if a gateway quotes it. Pages have none."""
    message = next((text for name in ("message", "detail", "error") if isinstance(text := dig(error, name), str)), "")
    if isinstance(error, str):
        message = error
    raw = dig(error, "metadata", "raw")
    upstream = _text(_error_of(parse_object(raw))) or raw if isinstance(raw, str) else ""
    texts = (text for text in (message, upstream) if text and not text.lstrip().startswith("<"))
    return " ".join(": ".join(texts).split())


# ---------------------------------------------------------------------------------------------------------- errors


def status_error(provider: str, status: int, body: object, headers: Headers) -> ProviderError:
    """The error for a response with `status`. `body` is the parsed body or its text."""
    error = _error_of(body)
    codes, text = _codes(error, headers), _text(error)
    if 300 <= status < 400:
        place = redactor.beginning(headers.get("location", "?"), 200)
        said = f"redirected to {place}; not followed, so that the key stays at its endpoint"
    else:
        said = redactor.beginning(text, 300) or responses.get(status, "no reason given")
    message = f"{provider}: HTTP {status}: {said}"
    if status in (400, 403, 422):
        for pattern, stop in _ANSWERS:
            if pattern.search(" ".join((*codes, text))):
                return AnsweredError(stop, message, provider=provider, status=status)
    if status == 400 and _FOREIGN_THINKING.search(text):
        return ThinkingRefused("bad_request", message, provider=provider, status=status)
    return ProviderError(
        fault_of(status, headers, codes, text),
        message,
        provider=provider,
        status=status,
        retry_after=_told_wait(error, text) if (seconds := _retry_after(headers)) is None else seconds,
        final=status not in (429, 503, 529) and headers.get("x-should-retry") == "false",
    )


def body_error(provider: str, error: object, headers: Headers, *, had_begun: bool) -> ProviderError:
    """The error for a response with status 200 whose body is an error. Its code may be a status.

    `had_begun` is whether a part of the model's answer came before it.
    """
    codes, code = _codes(error, headers), dig(error, "code") or dig(error, "status_code")
    status = int(code) if str(code).isdecimal() and 400 <= int(code) < 600 else None
    if status is None:
        is_final = any(code.startswith("invalid_") for code in codes)
        status = 400 if is_final or codes & _TOO_LONG_CODES else 500
        status = 404 if NO_ROUTE.search(_text(error)) else status  # LM Studio
    built = status_error(provider, status, cast("Any", {"error": error}), headers)
    if had_begun:
        built.outcome = "broken_off"
    return built


def transport_error(provider: str, error: BaseException, *, slow: bool = False) -> ProviderError:
    """The error for a call without a complete response: not connected, disconnected, or timed out.

    `slow` is whether the SDK reported a timeout. It only counts if the error has no cause, because the aiohttp backends
    also report broken connections as timeouts.
    """
    chain = list(causes(error))
    fault: ProviderFault = "connection"
    if any(isinstance(cause, aiohttp.ClientResponseError) for cause in chain):
        fault = "bad_reply"
    elif any(isinstance(cause, TimeoutError) for cause in chain) or (slow and len(chain) == 1):
        fault = "timeout"
    # aiohttp puts "400, message:" before a problem with the body, whatever the status of the response was.
    text = str(getattr(chain[-1], "message", "") or chain[-1])
    text = " ".join(text.split())[:200] or type(chain[-1]).__name__
    not_connected = aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
    is_sent = not any(isinstance(cause, not_connected) for cause in chain)
    has_begun = any(isinstance(cause, aiohttp.ClientPayloadError) for cause in chain)
    return ProviderError(
        fault,
        f"{provider}: {text}",
        provider=provider,
        status=SUCCESS if has_begun else None,
        outcome=None if is_sent else "not_sent",
    )


def without_key(error: ProviderError, key: str) -> ProviderError:
    """The same error with the key removed from its text. Some servers quote the key that they reject."""
    if len(key) >= 8 and key in str(error):
        error.args = (str(error).replace(key, MARK),)
    return error


# ----------------------------------------------------------------------------------------------- what a person can do


def advise(error: ProviderError, endpoint: Endpoint) -> None:
    """Let the text of an error also say what to correct, if that is the key, the address or the model's name."""
    if endpoint.platform is None and (advice := _advice(error, endpoint)):
        error.args = (f"{error}; {advice}",)


def _advice(error: ProviderError, endpoint: Endpoint) -> str:
    address = endpoint.url_from or "the address"
    if error.fault == "auth" and not endpoint.key_from:
        where = "OPENAI_API_KEY" if endpoint.url_from == "OPENAI_BASE_URL" else f"key_env, beside {endpoint.url_from}"
        return f"no key was sent to {endpoint.host}: set {where}" if endpoint.url_from else ""
    if error.fault == "auth":
        is_refused = error.status in (400, 401, 403)
        sent = f"the key that was sent to {endpoint.host} is that of {endpoint.key_from}: set a valid one"
        return sent if is_refused else f"the account is that of the key in {endpoint.key_from}"
    if error.outcome == "not_sent":
        fix = f"start the server, or correct {address}" if endpoint.base_url else "check the network"
        return f"can't connect to {endpoint.shown_url}: {fix}"
    if error.fault == "context_overflow":
        return "shorten the task: put long texts into files of its workspace"
    is_absent = error.status in (404, 405) or NO_ROUTE.search(str(error))
    if is_absent and names_model(str(error)):
        return f"{endpoint.shown_url} doesn't serve this model: name one that it lists"
    if not is_absent and (endpoint.base_url is None or NOT_JSON not in str(error)):
        return ""
    if lacking := endpoint.missing_path:
        return f"the address lacks {lacking}: set {address} to {endpoint.shown_url}{lacking}"
    return f"{endpoint.shown_url} doesn't answer as a model API: correct {address}"


# ------------------------------------------------------------------------------------------------------------ waits


def _retry_after(headers: Headers) -> float | None:
    """The seconds that the server asks to wait, in any of the usual headers."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return max(mktime_tz(date) - time.time(), 0.0) if date else None
    except (ValueError, OverflowError):
        return None


_WAIT = re.compile(r"(?:try again|retry) (?:in|after) ([\d.]+(?:[a-z][\d.a-z]*)?)", re.IGNORECASE)


def _told_wait(error: object, text: str) -> float | None:
    """The wait in Google's `RetryInfo`, such as `{"retryDelay": "17s"}`, or in a text, which proxies keep."""
    for detail in _list(dig(error, "details")):
        if isinstance(delay := dig(detail, "retryDelay"), str):
            return seconds_of(delay)
    match = _WAIT.search(text)
    return seconds_of(match[1].rstrip(".")) if match else None
