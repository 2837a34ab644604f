"""Puts the page for a judge together: named sources of cleaned, bounded text, in which the judge's quotes are searched.

The sources (`sources.py`) are shown whole as long as all of them fit. Where they don't, those that the criteria are
about come first, and of the others the judge sees the beginning and the end. What a judge looked at besides (`looks/`)
is added as `look:<n>`. Quotes are searched for in exactly the text that the judge saw, so neither cleaning nor cutting
can make a real quote fail or an invented one succeed.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from delegate._util.tokens import tokens_of
from delegate.judging.judge.reply import CriterionAnswer
from delegate.judging.judge.sources import (
    EARLIER_RECEIPTS,
    OUR_TEXT,
    PAGE_FILE_BYTES,
    PAGE_TOKENS,
    RECEIPTS,
    Source,
    Sources,
    SourceText,
    folded,
)
from delegate.judging.looks.look import NO_LOOKS, Look, Span, is_covered
from delegate.types import Finding

if TYPE_CHECKING:
    from delegate.judging.looks.work import Work

CHECK_CHARS = 1_200
LEAST_TOKENS = 40
"""Length of what is shown of each source, however many there are."""
MIN_QUOTE_CHARS = 12
MIN_QUOTE_WORDS = 3
"""A quote has at least this length, unless it is a whole line or most of a short source."""

_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[nrtbf])?")
EXIT_CODE = re.compile(r"exit code:?(?: -?\d+)?(?: no output)?|no output")
"""A quote of how a command ended, and nothing else."""
_JSON_PUNCTUATION = str.maketrans("", "", '"{}')


@dataclass(frozen=True)
class Evidence:
    """The sources by name, and the findings made while collecting them."""

    sources: dict[str, str]
    findings: tuple[Finding, ...]
    cut: frozenset[str] = frozenset()
    """Names of the sources that the judge saw only in part, or not at all."""
    spans: tuple[Span, ...] = ()
    """What the page shows of those of which it shows a part."""
    earlier: frozenset[str] = frozenset()
    """Names of the calls that the page doesn't show."""
    looks: Mapping[str, Look] = field(default_factory=lambda: NO_LOOKS)
    """What the judge looked at, by name."""
    work: "Work | None" = field(default=None, repr=False)
    """The finished work, where a judge looked."""

    def find(self, quote: str, preferred: str = "") -> str | None:
        """The name of a source that contains `quote`: the `preferred` one, else the first. None if no source does."""
        return next(self.find_all(quote, preferred), None)

    def find_all(self, quote: str, preferred: str = "") -> Iterator[str]:
        """The names of all sources that contain `quote`, the `preferred` one first.

        White space and typographic variants of quotes and dashes are ignored. The runtime's own notes don't count.
        """
        text = folded(quote)
        if not any(map(str.isalnum, text)):
            return
        names = dict.fromkeys((preferred, *self.sources)) if preferred in self.sources else self.sources
        for name in names:
            # As it stands, most quotes are found: folding a long text takes longer than the search.
            as_it_stands = quote in self.sources[name] and name in self._without_notes
            is_found = as_it_stands or text in self._folded[name]
            if is_found and name in self.looks and self.looks[name].header:  # the words of the judge's own command
                is_found = any(map(str.isalnum, printed(self.looks[name], quote)))
            if is_found and self._is_long_enough(text, name):
                yield name

    def counts(self, quote: str) -> bool:
        """Whether any source shows the quote, and not only what a judge's command prints without the work too."""
        return any(
            name not in self.looks or not prints_without_work(self.looks[name], quote) for name in self.find_all(quote)
        )

    def wrote(self, *texts: str) -> str | None:
        """The path of a file that the child created or changed and that contains these texts; None if there is none."""
        return next(self.work.wrote(texts), None) if self.work is not None else None

    def with_looks(self, looks: Mapping[str, Look], work: "Work") -> "Evidence":
        """The same with what a judge looked at, by name. Blocks."""
        spans = [*self.spans, *(span for look in looks.values() for span in look.found.spans)]
        seen = {name for name, length in work.lengths(looks.values()).items() if is_covered(name, length, spans)}
        texts = {name: look.text for name, look in looks.items()}
        if self.earlier <= seen:
            seen.add(EARLIER_RECEIPTS)
        return replace(self, sources={**self.sources, **texts}, cut=self.cut - seen, looks=looks, work=work)

    def origins(self, name: str, quote: str) -> list[str]:
        """The sources that the quote in the source `name` is from: itself, or what a look at the work showed."""
        look = self.looks.get(name)
        if look is None or look.kind != "work":
            return [name]
        folded_quote = folded(quote)
        sources = [piece.source for piece in look.found.pieces if folded_quote in folded(piece.text)]
        return [origin for source in sources for origin in self.origins(source, quote)]

    @cached_property
    def _folded(self) -> dict[str, str]:
        return {name: folded(text) for name, text in self.sources.items()}

    @cached_property
    def _without_notes(self) -> frozenset[str]:
        """The sources that have no text of the runtime, all of which has a … or a →."""
        sources = self.sources.items()
        return frozenset(name for name, text in sources if text.isascii() or not OUR_TEXT.search(text))

    def _is_long_enough(self, quote: str, name: str) -> bool:
        if len(quote) >= MIN_QUOTE_CHARS or len(quote.split()) >= MIN_QUOTE_WORDS:
            return True
        text = self.sources[name].strip()
        return 2 * len(quote) >= len(text) or any(folded(line) == quote for line in text.splitlines())

    def has_prewritten(self, answers: Iterable[CriterionAnswer]) -> bool:
        """Whether a source contains both the quote and the reason of a "met" as JSON fields, so that the worker wrote
        the answer.
        """
        may_contain = (text for text in self.sources.values() if '"' in text and ("reason" in text or "\\u" in text))
        written = [_normalized_json(text) for text in may_contain]
        for answer in answers if written else ():
            fields = [_normalized_json(json.dumps({key: getattr(answer, key)})) for key in ("evidence", "reason")]
            if answer.verdict == "met" and any(all(field in text for field in fields) for text in written):
                return True
        return False


def printed(look: Look, quote: str) -> str:
    """What a quote has of what a command printed, with its exit code; empty if all of it is from the command itself."""
    header, output, folded_quote = folded(look.header), look.receipt.whole_output, folded(quote)
    if folded_quote in folded(output[len(look.header) :]):
        return folded_quote
    text = folded(output)
    at = text.find(folded_quote, max(0, len(header) - len(folded_quote)))
    return text[max(at, len(header)) : at + len(folded_quote)].strip() if folded_quote and at >= 0 else ""


def prints_without_work(look: Look, quote: str, *, whole: bool = False) -> bool:
    """Whether a command prints that whatever the work is, as far as it was tried; with `whole`, all that it printed."""
    text = folded(look.receipt.whole_output[len(look.header) :]) if whole else printed(look, quote)
    trials = list(map(folded, look.without_work))
    if not trials:
        return False
    if whole:
        return all(trial == text for trial in trials)
    if EXIT_CODE.fullmatch(text):
        words = text.split()
        return all(trial.split()[: len(words)] == words for trial in trials)
    return all(text in trial for trial in trials)


def _normalized_json(text: str) -> str:
    """Without what can differ between two encodings of the same JSON: escapes, white space, quotes, braces."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(text.split()).translate(_JSON_PUNCTUATION)


def gather(sources: Sources, page_tokens: int = PAGE_TOKENS) -> Evidence:
    """Put the page together: what a judge sees of a submission without a look."""
    by_name = sources.named
    contents = {name: sources.text_of(source, PAGE_FILE_BYTES) for name, source in by_name.items() if source.on_page}
    limits = _limits(by_name, contents, page_tokens)
    texts: dict[str, str] = {}
    spans: list[Span] = []
    cut = [name for name in by_name if name not in contents and not name.startswith("receipt:")]
    for name, content in contents.items():
        limit = limits[name]
        is_cut = len(content.text) > limit
        if is_cut or content.is_partial:
            cut.append(name)
            spans.append(Span(name, 0, limit // 2 if is_cut else len(content.text)))
            if is_cut and not content.is_partial:  # of a part of a file, it isn't known where the end is
                spans.append(Span(name, len(content.text) - limit // 2, len(content.text)))
        if content.is_text:
            texts[name] = bounded(content.text, limit)
    if len(sources.submission.run.receipts) > RECEIPTS:
        cut.append(EARLIER_RECEIPTS)
    hidden = [name for name, content in contents.items() if content.hidden]
    findings = tuple(_findings(sources, hidden, cut))
    earlier = frozenset(name for name, source in by_name.items() if name.startswith("receipt:") and not source.on_page)
    return Evidence(texts, findings, frozenset(cut), tuple(spans), earlier)


def _limits(sources: Mapping[str, Source], contents: Mapping[str, SourceText], page_tokens: int) -> dict[str, int]:
    """How many characters are shown of each source: all, or its share of the page.

    Short ones are shown whole, and long ones share what is left. Those that a criterion is about come first.
    """
    limits = {
        name: CHECK_CHARS if name.startswith("check:") else len(content.text) for name, content in contents.items()
    }
    if sum(limits.values()) <= page_tokens:  # a character is at most about a token
        return limits
    tokens = {name: tokens_of(content.text) for name, content in contents.items() if not name.startswith("check:")}
    shown = {name: min(length, LEAST_TOKENS) for name, length in tokens.items()}
    room = max(0, page_tokens - sum(shown.values()))
    for is_meant in (True, False):
        group = sorted((name for name in tokens if sources[name].is_meant is is_meant), key=tokens.__getitem__)
        for position, name in enumerate(group):
            more = min(tokens[name] - shown[name], room // (len(group) - position))
            shown[name] += more
            room -= more
    cut = {name: limits[name] * shown[name] // length for name, length in tokens.items() if shown[name] < length}
    return limits | cut


def bounded(text: str, limit: int) -> str:
    """The beginning and end of the text, with a note where it is cut."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out here …]\n{text[-half:]}"


def _findings(sources: Sources, hidden: list[str], cut: list[str]) -> Iterator[Finding]:
    if hidden:
        message = f"characters that a reader cannot see were removed from {', '.join(hidden[:5])}"
        yield Finding(severity="major", code="hidden_text", message=message)
    if cut := [name for name in cut if name != EARLIER_RECEIPTS]:
        message = f"the judge's page does not show all of {', '.join(cut[:5])}"
        yield Finding(severity="minor", code="truncated_for_judge", message=message)
    receipts = sources.submission.run.receipts
    if len(receipts) > RECEIPTS:
        message = f"the judge's page shows the last {RECEIPTS} of {len(receipts)} tool calls"
        yield Finding(severity="info", code="truncated_for_judge", message=message)
