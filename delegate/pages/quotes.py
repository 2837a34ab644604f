"""Finds a judge's quote in its source, so that a reader sees it where it stands."""

import re
from bisect import bisect_right

from delegate._util.fencing import TYPOGRAPHY, clean
from delegate.pages.values import Excerpt

CONTEXT_CHARS = 700
"""How much of the source is shown on each side of a quote."""
_MAX_QUOTE_CHARS = 4_000


def find_quote(quote: str, text: str, *, context: int = CONTEXT_CHARS) -> Excerpt | None:
    """The quote with the text around it; None if the text doesn't contain it.

    White space and typographic variants of quotes and dashes don't matter, and neither do characters that a reader
    can't see. A very long quote is shown by its beginning.
    """
    words, source = " ".join(clean(quote[:_MAX_QUOTE_CHARS]).text.split()), clean(text).text
    span = _find(words, source) if words else None
    if span is None:
        return None
    start, end = span
    first, last = max(0, start - context), min(len(source), end + context)
    return Excerpt(source[first:start], source[start:end], source[end:last], first > 0, last < len(source))


def _find(quote: str, text: str) -> tuple[int, int] | None:
    """Where the words stand in the text. Takes time proportional to its length, whatever both contain."""
    if (start := text.find(quote)) >= 0:
        return start, start + len(quote)
    words = [(match.start(), match[0]) for match in re.finditer(r"\S+", text)]
    at = " ".join(word for _, word in words).translate(TYPOGRAPHY).find(quote.translate(TYPOGRAPHY))
    if at < 0:
        return None
    joined_starts, position = list[int](), 0
    for _, word in words:
        joined_starts.append(position)
        position += len(word) + 1

    def in_text(offset: int) -> int:
        n = bisect_right(joined_starts, offset) - 1
        return words[n][0] + offset - joined_starts[n]

    return in_text(at), in_text(at + len(quote) - 1) + 1
