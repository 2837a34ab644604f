"""The words and formats with which APIs say whether a call succeeded, as data: `judges/outcomes.toml`.

They are those of protocols, which stay the same whatever language the texts beside them are in.
"""

import re
import tomllib
from functools import cache, lru_cache
from typing import Any, Literal

from delegate._util.resources import text as text_of

_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[a-z]*|[^\W\d_a-zA-Z]+")


@lru_cache(8_192)
def tokens_of(name: str) -> tuple[str, ...]:
    """The words of a field, a status or a tool: `deliveryStatus` and `delivery-status` are the same."""
    return tuple(word.casefold() for word in _TOKEN.findall(name[:200]))


@cache
def words(part: Literal["fields", "values", "verbs"]) -> dict[str, frozenset[str]]:
    """The lists of one part, by name."""
    return {name: frozenset(entries) for name, entries in _data()[part].items()}


@cache
def field_words() -> frozenset[str]:
    """All words of fields."""
    return frozenset(word for phrases in words("fields").values() for phrase in phrases for word in phrase.split())


@cache
def status_words() -> frozenset[str]:
    """All words of statuses."""
    excluded = ("nothing", "false", "true", "negation", "broken")
    return frozenset(word for name, entries in words("values").items() if name not in excluded for word in entries)


@cache
def formats(name: str) -> tuple[re.Pattern[str], ...]:
    """The regular expressions of one kind of lines."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _data()["formats"][name])


@cache
def currencies() -> tuple[frozenset[str], dict[str, str]]:
    """The codes of currencies, and those for which a sign stands."""
    data = _data()["currencies"]
    return frozenset(data["codes"]), data["signs"]


@cache
def units() -> frozenset[str]:
    """What can stand right behind a number."""
    return frozenset(_data()["currencies"]["units"])


@cache
def _data() -> dict[str, dict[str, Any]]:
    return tomllib.loads(text_of("judges", "outcomes.toml"))
