"""Reads an HTML page as text for a model: headings, lists, tables, code and links in Markdown, everything else plain.

Pages are hostile: the time and the length of the result are proportional to the page's length, whatever it contains.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote, urljoin

MAX_LINKS = 2_000
"""Links after these are only text: an absolute URL can be far longer than the relative one in the page."""
MAX_LINK_CHARS = 1_000
"""A longer URL is left out. It holds data rather than an address."""
MAX_LABEL_CHARS = 300
MAX_TAG_CHARS = 50_000
PIECE_CHARS = 65_536
MAX_INDENT = 6
"""Depth of the innermost lists that are told apart."""

_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe"})
_BLOCKS = frozenset({
    "p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "title", "section", "article", "header", "footer",
    "pre", "table", "ul", "ol", "dl", "dt", "dd", "blockquote", "hr", "option", "form", "nav", "main", "aside",
})  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_UNSAFE_IN_LINK = re.compile(r"[\x00-\x20()<>\x7f]")

# In the parts, white space that is meant stands apart from the page's own, which is collapsed to single spaces.
_INDENT, _SPACE, _LINE = "\t", "\x01", "\x02"
_MARKER = re.compile(r"\t*(?:#{1,6}|-|\d+\.) ")
_EMPTY = re.compile(r"\t*(?:#{1,6}|-|\d+\.)?")


def readable(html: str, url: str = "") -> str:
    """The visible text of an HTML page, one line per block. Links are absolute if the page's `url` is given."""
    page = _Page(url)
    # Never closed: `close` parses an unfinished tag again and again, in quadratic time.
    for piece in _pieces(html):
        page.feed(piece)
    page.close_link()
    lines = (" ".join(filter(None, line.split(" "))) for line in "".join(page.parts).split("\n"))
    text = "\n".join(line for line in lines if not _EMPTY.fullmatch(line))
    return text.replace(_INDENT, "  ").replace(_SPACE, " ").replace(_LINE, "")


def _pieces(html: str) -> Iterator[str]:
    """The page in pieces, with every `<` as text that isn't followed by a `>` before the next one, or not soon enough.

    The parser searches for the end of a tag in one go, through the rest of the page, and holds all threads meanwhile.
    """
    for start in range(0, len(html), PIECE_CHARS):
        before, *tags = html[start : start + PIECE_CHARS].split("<")
        if tags:  # the last one goes on in the next piece
            at = min(start + PIECE_CHARS, len(html)) - len(tags[-1])
            last = html[at : at + MAX_TAG_CHARS]
            ends = [*map(_has_end, tags[:-1]), _has_end(last.partition("<")[0])]
            before += "".join(f"{'<' if end else '&lt;'}{tag}" for tag, end in zip(tags, ends, strict=True))
        yield before


def _has_end(tag: str) -> bool:
    return tag.startswith("!--") or tag.find(">", 0, MAX_TAG_CHARS) != -1


class _Page(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._base = url
        self._has_base = False
        self._skipping = 0
        self._pre = 0
        self._lists: list[int | None] = []
        """The open lists: the number of the last item, or None for a list without numbers."""
        self._link: tuple[int, str] | None = None
        """Where the text of the open link begins in `parts`, and its URL."""
        self._links_left = MAX_LINKS
        self._after_marker = False
        """Whether nothing follows the last marker of a heading or an item yet."""
        self._first_cell = True
        self._raised = False
        """Whether raised text begins here: a note's number behind digits is none of theirs."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipping += tag in _SKIPPED
        if self._skipping:
            return
        match tag:
            case "a":
                self.close_link()
                self._open_link(dict(attrs).get("href") or "")
            case "base" if not self._has_base and (href := dict(attrs).get("href")):
                self._base, self._has_base = _absolute(self._base, href) or self._base, True
            case "img" if self._link is not None:
                self.handle_data(dict(attrs).get("alt") or "")
            case "sup":
                self._raised = True
            case "td" | "th":
                self.parts.append("" if self._first_cell else " | ")
                self._first_cell = False
            case _ if tag in _BLOCKS:
                self._open_block(tag)
            case _:
                pass

    def _open_block(self, tag: str) -> None:
        if tag in _HEADINGS or tag == "li":
            marker = _HEADINGS.get(tag) or f"{_INDENT * min(len(self._lists) - 1, MAX_INDENT)}-"
            if tag == "li" and self._lists and (last := self._lists[-1]) is not None:
                self._lists[-1] = last + 1
                marker = f"{marker[:-1]}{last + 1}."
            self.parts.append(f"\n{marker} ")
            self._after_marker = True
        elif tag == "pre":
            self._pre += 1
            self.parts.append("\n```\n")
        else:
            if tag in ("ul", "ol"):
                self._lists.append(0 if tag == "ol" else None)
            self._first_cell = True
            self._break()

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= tag in _SKIPPED
            return
        if tag == "a":
            self.close_link()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self.parts.append("\n```\n")
        elif tag in _BLOCKS:
            if tag in ("ul", "ol") and self._lists:
                self._lists.pop()
            if tag == "li" or tag in _HEADINGS:
                self._after_marker = False
            self._break()

    def _break(self) -> None:
        """Begin a new line, unless this one has only its marker, as in `<li><p>`."""
        if not self._after_marker:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._skipping or not data:
            return
        data = data.replace(_SPACE, "").replace(_LINE, "")
        if self._raised and data[:1].isdigit() and self.parts and self.parts[-1][-1:].isdigit():
            data = f"^{data}"
        self._raised = False
        if self._pre:
            data = data.replace("\r", "").replace("\t", _SPACE * 4).replace(" ", _SPACE)
            self.parts.append(data.replace("\n", f"\n{_LINE}"))
        else:
            self.parts.append(re.sub(r"\s+", " ", data))
        self._after_marker = self._after_marker and data.isspace()

    def _open_link(self, href: str) -> None:
        href = href.strip()
        if self._pre or not self._links_left or not href or href.startswith("#") or len(href) > MAX_LINK_CHARS:
            return
        if url := _absolute(self._base, href):
            self._links_left -= 1
            self._link = len(self.parts), url

    def close_link(self) -> None:
        if self._link is None:
            return
        (start, url), self._link = self._link, None
        text = "".join(self.parts[start:])
        label = text.strip(" \n")
        if not label:
            return
        before, after = text.partition(label)[0], text.rpartition(label)[2]
        if "\n" in label or len(label) > MAX_LABEL_CHARS:  # a link around whole blocks
            link = f"{label} ({url})"
        else:
            marker = match[0] if (match := _MARKER.match(label)) else ""
            link = f"{marker}[{label[len(marker) :].strip()}]({url})"
        self.parts[start:] = [before, link, after]


def _absolute(base: str, href: str) -> str | None:
    """The absolute URL of a link to another page, or None if it is something else or too long."""
    try:
        url = urljoin(base, href)
    except ValueError:
        return None
    if not url.startswith(("http://", "https://", "mailto:")) or len(url) > MAX_LINK_CHARS:
        return None
    return _UNSAFE_IN_LINK.sub(lambda match: quote(match[0]), url)
