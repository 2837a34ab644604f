"""Parses the rate-limit headers of providers. Headers that can't be parsed are ignored."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from delegate.ports import Quota

Headers = Mapping[str, str]
ReadQuota = Callable[[Headers], Quota | None]
_Names = tuple[str, str, str]
_Level = tuple[int | None, int | None, float | None]

_OPENAI: tuple[_Names, _Names] = (
    ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)
_ANTHROPIC: tuple[_Names, _Names] = (
    (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
    ("anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[smhd]))+", re.ASCII)
_PART = re.compile(r"([\d.]+)(ms|[smhd])")


def openai_quota(headers: Headers) -> Quota | None:
    """Parse `x-ratelimit-…`. The time until a quota is full is a duration such as `6m0s`."""
    return _quota(headers, _OPENAI, _duration)


def anthropic_quota(headers: Headers) -> Quota | None:
    """Parse `anthropic-ratelimit-…`. The time when a quota will be full is in RFC 3339 format."""
    return _quota(headers, _ANTHROPIC, _until)


def _quota(headers: Headers, names: tuple[_Names, _Names], seconds: Callable[[str], float | None]) -> Quota | None:
    requests, tokens = (_level(headers, one, seconds) for one in names)
    return Quota(*requests, *tokens) if requests is not _MISSING or tokens is not _MISSING else None


_MISSING: _Level = (None, None, None)


def _level(headers: Headers, names: _Names, seconds: Callable[[str], float | None]) -> _Level:
    limit, left, reset = names
    if (text := headers.get(limit)) is None:
        return _MISSING
    return _count(text), _count(headers.get(left, "")), seconds(headers.get(reset, ""))


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _duration(text: str) -> float | None:
    """The seconds in `6m0s`, `1.5s`, `120ms`, or a plain number of seconds."""
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str) -> float | None:
    """The seconds until an RFC 3339 time; 0 if it has passed."""
    try:
        return max((datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):  # TypeError: it has no time zone
        return None
