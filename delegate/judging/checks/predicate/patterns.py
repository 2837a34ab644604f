"""Regular expression literals, run under a time limit. `dialect` translates them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import regex

from delegate.judging.checks.predicate.budget import REGEX_SECONDS, Budget
from delegate.judging.checks.predicate.dialect import Translator, has_odd_case
from delegate.judging.checks.predicate.problems import PredicateError
from delegate.judging.checks.predicate.text import points, units

MAX_PATTERN_CHARS = 1_000
_STEPS_PER_MATCH = 5


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled regex literal. `loses_captures`: what a group captured last isn't the same in both dialects."""

    source: str
    flags: str
    compiled: "regex.Pattern[str]"
    loses_captures: bool

    @property
    def is_global(self) -> bool:
        """Whether it has the flag `g`."""
        return "g" in self.flags

    def search(self, text: str, budget: Budget) -> "regex.Match[str] | None":
        """The first match in `text`. With the flag `u`, positions count code points."""
        return self._search_from(self._subject(text, budget), 0, len(text), budget)

    def find_all(self, text: str, budget: Budget) -> "Iterator[regex.Match[str]]":
        """All matches from left to right; after an empty one the search goes on one character further."""
        subject, start = self._subject(text, budget), 0
        while start <= len(subject):
            budget.spend(_STEPS_PER_MATCH)
            match = self._search_from(subject, start, len(text), budget)
            if match is None:
                return
            yield match
            start = match.end() if match.end() > match.start() else match.end() + 1

    def _search_from(self, subject: str, start: int, units: int, budget: Budget) -> "regex.Match[str] | None":
        """The first match from `start` on; `units` is the length of the text in UTF-16."""
        started = time.monotonic()
        try:
            seconds = max(budget.regex_seconds, 0.001)
            match = self.compiled.search(subject, start, timeout=seconds, concurrent=True)
        except TimeoutError:
            raise PredicateError(f"regular expressions take longer than {REGEX_SECONDS:g} s") from None
        finally:
            budget.regex_seconds -= time.monotonic() - started
        if match is not None and match.end() == match.start() and len(subject) < units:
            raise PredicateError(f"/{self.source}/{self.flags} matches nothing, perhaps inside a character")
        return match

    def _subject(self, text: str, budget: Budget) -> str:
        if "i" in self.flags and not text.isascii():
            budget.spend(len(text))
            if odd := next(filter(has_odd_case, text), None):
                raise PredicateError(f"/{self.source}/{self.flags}: {odd!r} has no case that can be ignored")
        return points(text) if "u" in self.flags else text


def compile_pattern(source: str, flags: str) -> Pattern:
    """The pattern of `/source/flags`. Raises PredicateError saying what in it isn't supported."""
    if unknown := [flag for flag in flags if flag not in "gimsu" or flags.count(flag) > 1]:
        raise PredicateError(f"the regular expression flag `{unknown[0]}` is not supported")
    if len(source) > MAX_PATTERN_CHARS:
        raise PredicateError(f"a regular expression is longer than {MAX_PATTERN_CHARS:,} characters")
    translator = Translator(source=source if "u" in flags else units(source), flags=flags)
    try:
        compiled = regex.compile(translator.translate(), regex.IGNORECASE if "i" in flags else 0)
    except (regex.error, RecursionError, OverflowError) as problem:
        raise PredicateError(f"/{source}/ can't be used: {problem}") from None
    return Pattern(source, flags, compiled, translator.loses_captures)
