"""Parses the rate-limit headers of providers. Headers that can't be parsed are ignored."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from delegate.types.ports import Quota

Headers = Mapping[str, str]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[smhd]))+", re.ASCII)
_PART = re.compile(r"([\d.]+)(ms|[smhd])")


def openai_quota(headers: Headers) -> Quota | None:
    """Parse `x-ratelimit-…`. The time until a quota is full is a duration such as `6m0s`."""
    return _quota(headers, "x-ratelimit-{0}-{1}", seconds_of)


def anthropic_quota(headers: Headers) -> Quota | None:
    """Parse `anthropic-ratelimit-…`. The time when a quota will be full is in RFC 3339 format."""
    return _quota(headers, "anthropic-ratelimit-{1}-{0}", _until)


def _quota(headers: Headers, name: str, seconds: Callable[[str], float | None]) -> Quota | None:
    """`name` is the format of the headers' names: `{0}` is limit, remaining or reset, `{1}` is requests or tokens."""
    # Most servers have none of them, and looking one up takes longer than listing all names.
    if not any("ratelimit" in header.lower() for header in headers):
        return None
    parts: list[Any] = []
    is_known = False
    for limited in ("requests", "tokens"):
        limit, left, reset = (headers.get(name.format(word, limited)) for word in ("limit", "remaining", "reset"))
        is_known = is_known or limit is not None
        parts += (None, None, None) if limit is None else (_count(limit), _count(left or ""), seconds(reset or ""))
    return Quota(*parts) if is_known else None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def seconds_of(text: str) -> float | None:
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
