"""Reads what a report cites: its statements, and where each of them says that it is from.

A report is Markdown, a CSV table or JSON. It cites by links, bare URLs, footnotes, a numbered list of sources, the path
of a file that was read, or a cell of a table. Sentences end where Unicode's punctuation ends them, so nothing here
knows a language.
"""

import csv
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from delegate.judging.citations.columns import named_after
from delegate.judging.citations.compare import quote_spans
from delegate.judging.report_json import strict_json
from delegate.types import Every

MARK = "\ufffc"
"""Stands in a statement for each source that is cited there."""
LABEL = "\ufff9"
"""Stands before the label of a link until sentences are told apart."""
MAX_DEPTH = 20
_AROUND = 40
"""So many characters around the end of a sentence are looked at."""

_URL = re.compile(
    r"https?://(?:(?![;,|]https?://)[^\s<>\"“”„«»「」『』（）。、，；|`\\^{}\ufffc\u2028])+", re.IGNORECASE
)
_NOT_AT_END = ".,;:!?'*_~…："
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_HREF = re.compile(r"<a\s[^>]{0,500}?href=[\"']?([^\"'\s>]{1,4000})", re.IGNORECASE)
_ID = r"[^\[\]【】\s^,;，、]{1,40}"
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_NOTE = re.compile(
    rf"[\[【]\^?({_ID}(?:\s*[,;，、]\s*{_ID})*)[\]】]|(?:(?<=[^\W\d_]{{3}})|(?<=[.!?,;。、，”“»\"')]))([{_RAISED}]+)"
)
"""One or several numbers or names of sources. Raised digits behind one or two letters are of a unit."""
_FIRST_SOURCE = 0xF0000
_SOURCE = re.compile("[\U000f0000-\U0010ffff]")
"""Stands in a block for a source, which is told by the character. It is for private use."""
_OURS = re.compile(f"{_SOURCE.pattern}|[{MARK}{LABEL}]")
_LINK_LABEL = re.compile(f"{LABEL}[^{LABEL}]*?{_SOURCE.pattern}")
_DEFINITION = re.compile(rf"\s*(?:[\[【]\^?({_ID})[\]】]:?|([{_RAISED}]+))\s*(?=\S)")
_LEADS_ON = re.compile(r"[^.!?。]{1,60}[:：]\s*")
"""The first line of a list of sources, or what is before the sources of what stands above."""
_HEADING = re.compile(rf"[^.!?。\d[【{_RAISED}]{{1,40}}")
_FENCED = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*\Z", re.DOTALL | re.IGNORECASE)
_SOFT_BREAK = "\u2028"
_SENTENCE_END = re.compile(rf"[.!?…؟।॥]+[\"'”’»)\]]*{MARK}*(?=\s|{LABEL}|\Z)|[。！？]+[」』）”]*{MARK}*|\n")
_MARKS_FIRST = re.compile(
    rf"\s*[(（\[【][^()（）]*{MARK}\s*[)）\]】][\s.,;。]*|[\s(（【\[]*(?:{MARK}[\s)\]）】.,;。]*)+"
    rf"|\s*{LABEL}[^{LABEL}{MARK}]{{1,80}}{MARK}(?=\s*\Z|\s+(?![^\W\d_])|\s+(?P<next>\w))"
)
"""Brackets that cite, marks alone, and a link between two sentences belong to the sentence before them."""
_ONLY_MARKS = re.compile(rf"[(（\[【]\s*(?:{MARK}[\s,;]*)+[)）\]】]|{MARK}")
_SHORT_WORD_LAST = re.compile(r"(?:\A|[\s(（\[„“«\"'-])[^\s\d.(（\[„“«\"'-]{1,6}\.\Z")
_REST_OF_DATE = re.compile(r" \d{1,2}\. \d{1,2}\.?")
"""What follows the year of a date, as in 2025. 3. 12."""
_LONG = 500
_CLOSING, _GOES_ON = "\"'”’»」』", tuple("-–—―([（【")
_LAST_WORD = re.compile(r"[^\s(\[（„“\"«]*\Z")


@dataclass(frozen=True)
class Statement:
    """A sentence, or the cells of a row, with the sources that it cites, in order."""

    text: str
    """With a `MARK` behind what is from a source, for each source."""
    targets: tuple[str, ...] = ()
    """URLs and paths, one for each mark."""
    counts_as: frozenset[Every] = frozenset()
    """What it is one of, or a part of: where `every` one needs a source, it does."""
    unit: int = 0
    """The same for all sentences of a paragraph."""
    cells: tuple[str, ...] = ()
    """Of a row: the cells, each with its own marks."""
    columns: tuple[str, ...] = ()
    """The names of the cells' columns."""
    only_cites: bool = False
    """Whether it says nothing itself, as an entry in a list of sources."""
    pieces: tuple[str, ...] = ()
    """What may be sentences of their own, where only an abbreviation may be what ends them."""

    @property
    def apart(self) -> "list[Statement]":
        """The same as several sentences, each with its own sources."""
        targets = iter(self.targets)
        return [
            replace(self, text=piece, targets=tuple(next(targets) for _ in range(piece.count(MARK))), pieces=())
            for piece in self.pieces
        ]

    @property
    def shown(self) -> str:
        """The text without marks."""
        return " ".join(_ONLY_MARKS.sub("", self.text).split())

    def column(self, n: int) -> str:
        """The name of the column whose cell has the mark with this index; empty outside of rows."""
        return self.columns[self._cell_of[n]] if self.cells else ""

    def marks_of(self, cell: int) -> list[int]:
        """The indexes of the marks of a row that stand for one of its cells: its own, those of a cell that is named
        after it, as `staff_source` is, or else all that stand for no other cell alone.
        """
        alone = [n for n, cells in enumerate(self._stands_for) if cell in cells]
        own = [n for n in alone if self._cell_of[n] == cell]
        return own or alone or self.marks_of_row or list(range(len(self.targets)))

    @property
    def marks_of_row(self) -> list[int]:
        """The indexes of the marks that stand for the whole row: of cells that only cite, and are named after none."""
        return [n for n, cells in enumerate(self._stands_for) if not cells]

    def says(self, cell: int) -> bool:
        """Whether a cell of a row has more than what it cites."""
        text = self.cells[cell]
        for target, at in zip(self.targets, self._cell_of, strict=True):
            text = text.replace(target, "") if at == cell else text
        return says_something(text)

    def said_by(self, n: int) -> str:
        """What the mark with this index stands for: a sentence, or of a row the cells that it stands for alone, and
        those that no mark does. Of these, only the first one, which mostly says what the row is about, where other
        marks stand for the whole row.
        """
        said = self._stands_for[n] if self.cells else []
        if said:
            alone = set(chain.from_iterable(self._stands_for))
            others = range(1 if self.marks_of_row else len(self.cells))
            said = sorted({*said, *(cell for cell in others if cell not in alone and self.says(cell))})
        fields = [(self.columns[cell], " ".join(self.cells[cell].replace(MARK, " ").split())) for cell in said]
        return "; ".join(f"{name}: {value}" if name else value for name, value in fields) or self.shown

    @cached_property
    def _cell_of(self) -> list[int]:
        return [at for at, cell in enumerate(self.cells) for _ in range(cell.count(MARK))]

    @cached_property
    def _stands_for(self) -> list[list[int]]:
        """The cells that each mark of a row stands for alone."""
        says = list(filter(self.says, range(len(self.cells))))
        names = [self.columns[at] for at in says]
        named = {at: [says[n] for n in named_after(self.columns[at], names)] for at in set(self._cell_of)}
        return [[at] if at in says else named[at] for at in self._cell_of]


def says_something(text: str) -> bool:
    """Whether a text has more than marks and punctuation."""
    return any(map(str.isalnum, text))


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph, list item or row. Its text, or its cells, have a character for each source."""

    text: str
    number: str = ""
    """Of an item in a numbered list."""
    is_heading: bool = False
    cells: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    only_links: bool = False

    @property
    def sources(self) -> str:
        """The characters of the sources that it cites, in order."""
        return "".join(_SOURCE.findall("".join(self.cells) or self.text))


class _Sources:
    """The URLs and paths that a report cites. `files` are the paths that count as sources wherever they stand."""

    def __init__(self, files: Collection[str]) -> None:
        self._targets: list[str] = []
        names = "|".join(re.escape(path) for path in sorted(files, key=len, reverse=True))
        # With or without the number of a line.
        self._paths = re.compile(rf"(?<![\w/.-])({names or '(?!)'})(?::\d+(?:-\d+)?)?(?![\w/-]|\.\w)")

    def character(self, target: str) -> str:
        """What stands for a source in the text of a block."""
        self._targets.append(target)
        return chr(_FIRST_SOURCE + len(self._targets) - 1)

    def targets(self, characters: str) -> tuple[str, ...]:
        """The URLs and paths that these characters stand for."""
        return tuple(self._targets[ord(character) - _FIRST_SOURCE] for character in characters)

    def found_in(self, text: str) -> str:
        """The text with a character for each URL, and behind each path in it."""
        pieces: list[str] = []
        at, text = 0, _OURS.sub("", text)
        for match in (*_URL.finditer(text), None):
            between = text[at : match.start()] if match else text[at:]
            pieces.append(self._paths.sub(lambda path: f"{path[0]}{self.character(path[1])}", between))
            if match:
                url = _trimmed(match[0])
                pieces.append(self.character(url))
                at = match.start() + len(url)
        return "".join(pieces)


def statements(text: str, *, is_csv: bool, files: Collection[str], every: Every | None) -> list[Statement]:
    """What a report says, in order. `files` are the paths that count as sources wherever they stand. Blocks.

    With `every` paragraph, a source is that of all sentences since the one before it.
    """
    sources = _Sources(files)
    blocks = _csv_rows(text, sources) if is_csv else _json_rows(text, sources)
    if blocks is None:
        blocks = _with_sources_below(_resolved(list(_markdown(text, sources))))
    found: list[Statement] = []
    for unit, block in enumerate(blocks):
        found += _statements_of(block, sources.targets(block.sources), unit, every)
    return found


def _statements_of(block: _Block, targets: tuple[str, ...], unit: int, every: Every | None) -> Iterator[Statement]:
    if block.cells:
        counts: frozenset[Every] = frozenset({"row", "claim"})
        cells = tuple(_SOURCE.sub(MARK, cell) for cell in block.cells)
        yield Statement(block.text, targets, counts, unit, cells, block.columns)
        return
    text = _SOURCE.sub(MARK, block.text.replace(_SOFT_BREAK, " "))
    if block.only_links or not says_something(text):
        if targets:
            yield Statement(text.replace(LABEL, ""), targets, unit=unit, only_cites=True)
        return
    left = iter(targets)
    for pieces in _with_their_sources(_sentences(text)) if every == "paragraph" else _sentences(text):
        sentence = " ".join(pieces)
        # What leads to something else needs no source, unless that is one: `It has 17 quays. Source: URL`.
        leads_on = sentence.rstrip()[-1:] in (":", "：", "?", "？", "")
        is_claim = not block.is_heading and (MARK in sentence or not leads_on)
        counts = frozenset({"claim", "paragraph"}) if is_claim else frozenset()
        cited = tuple(next(left) for _ in range(sentence.count(MARK)))
        yield Statement(sentence, cited, counts, unit, pieces=tuple(pieces) if len(pieces) > 1 else ())


# ---------------------------------------------------------------------------------------------------- sentences


def _sentences(text: str) -> list[list[str]]:
    """The sentences, each with the marks that follow it, and in pieces where it may be several sentences."""
    quotes = sorted(quote_spans(text))
    pieces: list[str] = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        quote = bisect_left(quotes, (end.start(), 0)) - 1  # quoted passages don't overlap
        if not (quote >= 0 and end.end() < quotes[quote][1]) and _ends(text, end):
            pieces.append(text[start : end.end()])
            start = end.end()
    pieces.append(text[start:])
    sentences: list[list[str]] = []
    for piece in pieces:
        leading = _MARKS_FIRST.match(piece)
        if leading and leading["next"] and leading["next"].islower():
            leading = None
        last = " ".join(sentences[-1]) if sentences else ""
        if leading and sentences and MARK not in last:
            sentences[-1][-1] += leading[0]
            last += leading[0]
            piece = piece[leading.end() :]
        says = says_something(piece)
        # `Prof.`, `eng.`, `डॉ.`, or a quoted sentence: with what follows it may be one claim.
        begins = piece.lstrip()[:1]
        is_said = last[-1:] in _CLOSING and begins.isalpha() and begins.lower() == begins.upper()  # no capitals there
        may_go_on = len(last) < _LONG and MARK not in last and (is_said or _SHORT_WORD_LAST.search(last[-8:]))
        if sentences and not says:
            sentences[-1][-1] += piece
        elif sentences and may_go_on:
            sentences[-1].append(piece.strip())
        elif says or MARK in piece:
            sentences.append([piece.strip()])
    return [[piece.replace(LABEL, "") for piece in sentence] for sentence in sentences]


def _ends(text: str, end: re.Match[str]) -> bool:
    """Whether a sentence ends here, and not only a quoted one, an abbreviation, an ordinal or an initial."""
    after = text[end.end() : end.end() + _AROUND].lstrip()[:1]
    if end[0][-1] in _CLOSING and (after in _GOES_ON or after.islower()):  # who said it, or a translation
        return False
    if not end[0].startswith("."):
        return True
    if text[end.start() - 1 : end.start()] == MARK:
        return True
    word = _LAST_WORD.search(text, max(0, end.start() - _AROUND), end.start())
    word = word[0] if word else ""
    if after.islower() or "." in word or len(word) == 1 or (word.isdecimal() and len(word) <= 2):
        return False
    if word.isdecimal() and _REST_OF_DATE.match(text, end.end()):
        return False
    start = end.start() - len(word)
    before = text[max(0, start - _AROUND) : start].rstrip()
    begins = not before or before[-1] in ".!?…,(（"
    if word.isalpha() and len(word) <= 5 and begins:
        return False  # one short word is no sentence, and no clause at the end of one
    is_short = len(word) <= 3
    return not (is_short and word.istitle()) and not (is_short and after.isdecimal())


def _with_their_sources(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    joined: list[str] = []
    for sentence in map(" ".join, sentences):
        if joined and MARK not in joined[-1]:
            joined[-1] += f" {sentence}"
        else:
            joined.append(sentence)
    if len(joined) > 1 and MARK not in joined[-1]:
        last = joined.pop()
        joined[-1] += f" {last}"
    return [[sentence] for sentence in joined]


# ----------------------------------------------------------------------------------------------------- Markdown


def _markdown(text: str, sources: _Sources) -> Iterator[_Block]:
    tokens = MarkdownIt("commonmark", {"maxNesting": MAX_DEPTH}).enable("table").parse(text)
    numbers: list[str] = []
    rows: list[list[str]] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        match token.type:
            case "list_item_open":
                numbers.append(token.info)
            case "list_item_close":
                numbers.pop()
            case "tr_open":
                rows.append([])
            case "table_close":
                yield from _rows([_OURS.sub("", name) for name in rows[0]], rows[1:])
                rows = []
            case "fence":
                fenced = _json_rows(token.content, sources) or []
                yield from fenced if any(row.sources for row in fenced) else ()  # others are examples
            case "inline" if before is not None and before.type in ("th_open", "td_open"):
                rows[-1].append(_inline(token, sources))
            case "inline" if before is not None:
                yield _paragraph(token, sources, numbers[-1] if numbers else "", before.type == "heading_open")
            case _:
                pass


def _paragraph(token: Token, sources: _Sources, number: str, is_heading: bool) -> _Block:
    text, kinds = _inline(token, sources), [child.type for child in _children(token)]
    is_title = [*kinds[:1], *kinds[-1:]] == ["strong_open", "strong_close"] and kinds.count("strong_open") == 1
    is_short = _SENTENCE_END.search(_SOURCE.sub(MARK, text)) is None
    only_links = _SOURCE.search(text) is not None and not says_something(_LINK_LABEL.sub("", text))
    return _Block(text, number, is_heading or (is_title and is_short), only_links=only_links and is_short)


def _children(token: Token) -> list[Token]:
    return [child for child in token.children or [] if child.type != "text" or child.content]


def _inline(token: Token, sources: _Sources) -> str:
    """The text of a block. Before the label of each link, there is a `LABEL`."""
    parts: list[str] = []
    link: tuple[int, str] | None = None
    for child in _children(token):
        match child.type:
            case "link_open":
                link = len(parts), _target(str(child.attrs.get("href", "")))
                parts.append(LABEL if link[1] else "")
            case "link_close" if link is not None:
                start, target = link
                if _URL.match("".join(parts[start:]).replace(LABEL, "").strip()):
                    del parts[start:]  # a label that only repeats its URL says nothing
                parts.append(sources.character(target) if target else "")
                link = None
            case "softbreak":
                parts.append(_SOFT_BREAK)
            case "hardbreak":
                parts.append("\n")
            case "html_inline":
                href = _HREF.match(child.content)
                target = _target(href[1]) if href else ""
                parts.append(f"{sources.character(target) if target else ''} ")
            case "image":
                pass
            case _:
                parts.append(_OURS.sub("", child.content) if link is not None else sources.found_in(child.content))
    return "".join(parts)


def _target(href: str) -> str:
    """The URL or the path that a link leads to; empty for anything else."""
    if re.match("https?://", href, re.IGNORECASE):
        return href
    if not href or _SCHEME.match(href) or href.startswith(("#", "//", "?")):
        return ""
    return unquote(href.partition("#")[0].partition("?")[0])


def _trimmed(url: str) -> str:
    """A bare URL without the punctuation and brackets of the sentence around it."""
    foreign = (n for n, char in enumerate(url) if not char.isascii() and unicodedata.category(char)[0] in "PSZC")
    url = url[: next(foreign, None)]
    while url:
        shorter = url.rstrip(_NOT_AT_END)
        for opening, closing in ("()", "[]"):
            if shorter.endswith(closing) and shorter.count(closing) > shorter.count(opening):
                shorter = shorter[:-1]
        if shorter == url:
            break
        url = shorter
    return url


def _resolved(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks with footnotes and numbers in brackets replaced by what they stand for."""
    definitions: dict[str, str] = {}
    rest: list[_Block] = []
    for block in blocks:
        rest += [] if (defined := _defined(block)) else [block]
        definitions.update(defined)
    used = {id for block in rest for note in _NOTE.finditer(block.text) for id in _ids(note)}
    for block in list(rest):
        if block.number in used and block.sources and not block.cells and block.number not in definitions:
            definitions[block.number] = block.sources
            rest.remove(block)

    def resolved(note: re.Match[str]) -> str:
        return "".join(definitions.get(id, "") for id in _ids(note)) or note[0]

    for n, block in enumerate(rest):
        text = _NOTE.sub(resolved, block.text)
        # The text of a row repeats its cells behind the names of their columns.
        text = _SOURCE.sub("", text) if block.cells else text
        rest[n] = replace(block, text=text, cells=tuple(_NOTE.sub(resolved, cell) for cell in block.cells))
    return rest + [_Block(found, only_links=True) for id, found in definitions.items() if id not in used]


def _defined(block: _Block) -> Mapping[str, str]:
    """The footnotes that a paragraph defines, one in a line, with their sources; none if it says anything else."""
    lines = [] if block.cells else block.text.split(_SOFT_BREAK)
    if len(lines) > 1 and (_LEADS_ON.fullmatch(lines[0]) or _HEADING.fullmatch(lines[0])):
        lines = lines[1:]
    found: dict[str, str] = {}
    id = ""
    for line in lines:
        if match := _DEFINITION.match(line):
            id = match[1] or match[2]
            found[id] = ""
        elif not id:
            return {}
        found[id] += "".join(_SOURCE.findall(line))
    return found if all(found.values()) else {}


def _ids(note: re.Match[str]) -> list[str]:
    return [note[2]] if note[2] else re.split(r"\s*[,;，、]\s*", note[1])


def _with_sources_below(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks, each joined with one below it that only names its sources."""
    joined: list[_Block] = []
    for n, block in enumerate(blocks):
        above = joined[-1] if joined else None
        is_alone = _only_cites(block) and not any(map(_only_cites, blocks[n + 1 : n + 2]))
        if is_alone and above is not None and not (above.sources or above.is_heading or above.cells):
            # One statement, so that nothing of it is left out of what is compared.
            joined[-1] = replace(above, text=f"{above.text.rstrip(' .。')} – {block.text}")
        else:
            joined.append(block)
    return joined


def _only_cites(block: _Block) -> bool:
    before, *after = _SOURCE.split(_LINK_LABEL.sub(lambda link: link[0][-1], block.text), maxsplit=1)
    leads_on = not says_something("".join(after)) and _LEADS_ON.fullmatch(before) is not None
    is_mere = block.only_links or leads_on or not says_something(block.text)
    return is_mere and bool(block.sources) and not block.cells


# -------------------------------------------------------------------------------------------------------- tables


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[_Block]:
    """The rows of a table, without the cells that only count them."""
    count = [str(n) for n in range(1, len(rows) + 1)] if len(rows) > 1 else []
    counted = [n for n in range(len(header)) if [row[n].strip(" .") for row in rows if n < len(row)] == count]
    names = [name for n, name in enumerate(header) if n not in counted]
    for row in rows:
        cells = [cell for n, cell in enumerate(row) if n not in counted]
        if any(cell.strip() for cell in cells):
            yield _row(list(zip(names, cells, strict=False)))


def _row(fields: Sequence[tuple[str, str]]) -> _Block:
    """One row. Its text says each cell behind the name of its column."""
    said = [(name, _OURS.sub("", cell).strip()) for name, cell in fields]
    text = "; ".join(f"{name}: {value}" if name else value for name, value in said if value)
    cells = [cell.replace(LABEL, "") for _, cell in fields]
    citing = [n for n, (_, cell) in enumerate(fields) if _SOURCE.search(cell)]
    if len(citing) == 1 and not any(map(str.isdigit, _LINK_LABEL.sub("", fields[citing[0]][1]))):
        cells[citing[0]] = "".join(_SOURCE.findall(cells[citing[0]]))  # what is only about the sources of the row
    return _Block(text, cells=tuple(cells) or ("",), columns=tuple(name for name, _ in fields) or ("",))


def _csv_rows(text: str, sources: _Sources) -> list[_Block]:
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    delimiter = max(",;\t|", key=(lines[0] if lines else "").count)
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
    except (ValueError, csv.Error):
        return []

    def cell(text: str) -> str:
        has_link = "](" in text  # in Markdown
        parsed = MarkdownIt("commonmark").parseInline(text)[0] if has_link else None
        return _inline(parsed, sources) if parsed else sources.found_in(text)

    return list(_rows(header, [[cell(text) for text in row] for row in rows]))


def _json_rows(text: str, sources: _Sources) -> list[_Block] | None:
    """The objects of a JSON report; None for other texts."""
    fenced = _FENCED.match(text)
    text = (fenced[1] if fenced else text).strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        value = strict_json(text)
    except ValueError:
        return None
    return [_row([(name, sources.found_in(said)) for name, said in _leaves(row)]) for row in _objects(value)]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The rows: the objects in a list, or else an object itself."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _objects(item)
    elif isinstance(value, dict):
        row = cast("dict[str, Any]", value)
        lists = [cast("list[Any]", part) for part in row.values() if isinstance(part, list)]
        lists = [part for part in lists if any(isinstance(item, dict) for item in part)]
        for part in lists:
            yield from _objects(part)
        if not lists:
            yield row


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in cast("dict[str, Any]", value).items():
            yield from _leaves(part, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _leaves(part, name)
    elif value is not None:
        yield name, value if isinstance(value, str) else json.dumps(value)
