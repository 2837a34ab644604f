"""Finds the names in a statement (ids, numbers, dates, paths, addresses, quoted words) and searches texts for them.

Also compares the other words of a statement with those of a tool call, by their stems.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from delegate.judging.effects import words_of
from delegate.judging.words import WordPattern, any_of, word_lists

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november")
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in (*_MONTHS, "december"))
_DATE = re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}}))?", re.IGNORECASE)
_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d{2}))?\s?([ap])\.?m\b\.?", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|\u201c([^\u201d]+)\u201d|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_TOKEN = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s,;]+[^\s,;.!?)]"  # addresses
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?:[\w.-]+/)+[\w.-]*\w|\b\w[\w-]*\.[a-z][a-z0-9]{0,5}\b"  # paths and file names
    r"|[#@][\w-]+"
    r"|\b(?=\w*\d)[\w-]+(?:[.:,]\d[\w]*)*"  # numbers, dates, times and ids
    r"|\b[A-Z]{3,}\b|\b[a-z]+_\w+|\b[a-z]+[A-Z]\w*"  # codes and identifiers
)
_ACTION = WordPattern(rf"(?<![\w-]){any_of('deed_verbs', 'state_words')}\b")
_TIME_MARK = re.compile(r"(?<=-\d\d)t(?=\d\d:)")
_SUFFIX = re.compile(r"(?:ations?|ments?|tions?|ings?|ions?|ers?|ed|es|s|e|y)$")

Name = tuple[str, ...]
"""One name in all forms that count, in lower case: "May 20, 2024" is also `2024-05-20`."""


def names_in(statement: str) -> list[Name]:
    """The names in a statement, each once."""
    names: list[Name] = []
    rest = statement
    for pattern, forms in ((_QUOTED, _quoted_forms), (_DATE, _date_forms), (_CLOCK, _clock_forms)):
        names += [forms(found) for found in pattern.finditer(rest)]
        rest = pattern.sub(" ", rest)
    for token in _TOKEN.findall(rest):
        if token not in word_lists()["plain_codes"]:
            names.append(_number_forms(token.lower().strip(".-")))
    return list(dict.fromkeys(name for name in names if any(name)))


def missing_names(names: Sequence[Name], text: str) -> list[str]:
    """The names that `text` contains in none of their forms."""
    folded = _TIME_MARK.sub(" ", " ".join(text.lower().split()))
    return [name[0] for name in names if not any(_stands_in(form, folded) for form in name)]


def same_matter(statement: str, text: str) -> bool:
    """Whether the text speaks of what the statement says: its action, or most of its other words.

    Words for the same thing count as the same word. Names don't count, nor verbs such as "done".
    """
    bare = _TOKEN.sub(" ", _QUOTED.sub(" ", statement)).lower()
    wanted, told = _meanings(bare), _meanings(words_of(text))
    actions = _meanings(" ".join(found[0] for found in _ACTION.finditer(bare)))
    shared = wanted & told
    if shared & actions and (shared & actions) - _meanings("created updated"):
        return True
    # Many calls create or update something: it also has to be the thing that the statement names.
    named = not (wanted - actions) or bool(shared - actions)
    return not wanted or bool(shared & actions and named) or 2 * len(shared) > len(wanted)


def repeats(statement: str, quote: str) -> bool:
    """Whether the quote only says the statement again, in nearly the same words."""
    said, asked = set(re.findall(r"\w+", quote.lower())), re.findall(r"\w+", _QUOTED.sub(" ", statement).lower())
    asked = [word for word in asked if word not in ("the", "a", "an")]
    return len(asked) >= 3 and sum(word in said for word in asked) >= 0.85 * len(asked)


def leaves(value: Any) -> list[str]:
    """All keys, texts and numbers in a JSON value, as text."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return [text for key, part in fields.items() for text in (str(key), *leaves(part))]
    if isinstance(value, (list, tuple)):
        return [text for part in cast("Sequence[Any]", value) for text in leaves(part)]
    return [] if value is None else [str(value)]


def _stands_in(form: str, text: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(form)}(?![a-z0-9])", text) is not None


def _quoted_forms(found: re.Match[str]) -> Name:
    return (" ".join(next(group for group in found.groups() if group is not None).lower().split()),)


def _date_forms(found: re.Match[str]) -> Name:
    month = 1 + next(n for n, name in enumerate((*_MONTHS, "december")) if name.startswith(found[1][:3].lower()))
    day = int(found[2])
    year = found[3]
    numeric = [f"{month:02}-{day:02}", f"{month}/{day}", f"{month:02}/{day:02}"]
    dated = [f"{year}-{form}" for form in numeric[:1]] if year else numeric
    return (" ".join(found[0].lower().split()), *dated, *([f"{found[1].lower()} {day}"] if not year else []))


def _clock_forms(found: re.Match[str]) -> Name:
    hour = int(found[1]) % 12 + (12 if found[3].lower() == "p" else 0)
    return (f"{hour:02}:{found[2] or '00'}", found[0].lower())


def _number_forms(token: str) -> Name:
    bare = token.replace(",", "")
    if not re.fullmatch(r"\d+(?:\.\d+)?", bare):
        return (token,)
    whole = [bare.rstrip("0").rstrip(".")] if "." in bare else [f"{bare}.0", f"{bare}.00"]
    return tuple(dict.fromkeys((token, bare, *whole)))


def _meanings(text: str) -> set[str]:
    """The stems of the words in a text; of synonyms, the first of their group."""
    words = (word for word in re.findall(r"[^\W\d_]{2,}", text.lower()) if word not in word_lists()["plain_words"])
    return {_synonyms().get(stem, stem) for stem in map(_stem, words)}


def _stem(word: str) -> str:
    """A word without its ending, at most nine letters long: `cancel` for "cancelled"."""
    stem = _SUFFIX.sub("", word) or word
    return (stem[:-1] if stem[-2:-1] == stem[-1:] else stem)[:9]


@cache
def _synonyms() -> Mapping[str, str]:
    groups = [[_stem(word) for word in group.split()] for group in word_lists()["synonyms"]]
    return {stem: group[0] for group in reversed(groups) for stem in group}
