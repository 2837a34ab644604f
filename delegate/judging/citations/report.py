"""Reads what a report cites: its statements, and where each of them says that it is from.

A report is Markdown, a CSV table or JSON. It cites by links, bare URLs, footnotes, a numbered list of sources, the path
of a file that was read, or a cell of a table. Sentences end where Unicode's punctuation ends them, so nothing here
knows a language.
"""

import csv
import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, cast
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from delegate.judging.citations.columns import named_after
from delegate.judging.citations.compare import quote_spans
from delegate.judging.output import strict_json
from delegate.types import Every

MARK = "\ufffc"
"""Stands in a text for each source that is cited there."""
LABEL = "\ufff9"
"""Stands before the label of a link until sentences are told apart."""
MAX_DEPTH = 20
_AROUND = 40
"""So many characters around the end of a sentence are looked at."""

_URL = re.compile(r"https?://[^\s<>\"“”„«»「」『』（）。、，；|`\\^{}\ufffc\u2028]+", re.IGNORECASE)
_NOT_AT_END = ".,;:!?'*_~…："
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_HREF = re.compile(r"<a\s[^>]{0,500}?href=[\"']?([^\"'\s>]{1,4000})", re.IGNORECASE)
_ID = r"[^\[\]【】\s^,;，、]{1,40}"
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_NOTE = re.compile(
    rf"[\[【]\^?({_ID}(?:\s*[,;，、]\s*{_ID})*)[\]】]|(?:(?<=[^\W\d_]{{3}})|(?<=[.!?,;。、，”“»\"')]))([{_RAISED}]+)"
)
"""One or several numbers or names of sources. Raised digits behind one or two letters are of a unit."""
_NOTE_OR_MARK = re.compile(rf"{_NOTE.pattern}|{MARK}")
_DEFINITION = re.compile(rf"\s*(?:[\[【]\^?({_ID})[\]】]:?|([{_RAISED}]+))\s*(?=\S)")
_LEADS_ON = re.compile(r"[^.!?。]{1,60}[:：]\s*")
"""The first line of a list of sources, or what is before the one source of what stands above."""
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
        names = [name for name, cell in zip(self.columns, self.cells, strict=True) for _ in range(cell.count(MARK))]
        return names[n] if n < len(names) else ""

    def marks_of(self, cell: int) -> list[int]:
        """The indexes of the marks of a row that stand for one of its cells: its own, those of a cell that is named
        after it, as `staff_source` is, or else all that stand for no other cell alone.
        """
        own = self._marks[cell]
        if own and says_something(self.cells[cell]):
            return list(own)
        named_after = [n for other, cells in self._named_after.items() if cell in cells for n in self._marks[other]]
        return named_after or self.marks_of_row or list(range(len(self.targets)))

    @property
    def marks_of_row(self) -> list[int]:
        """The indexes of the marks that stand for the whole row: of cells that only cite, and are named after none."""
        return [
            n
            for other, marks in enumerate(self._marks)
            if other not in self._named_after and not says_something(self.cells[other])
            for n in marks
        ]

    def said_by(self, n: int) -> str:
        """What the mark with this index stands for: a sentence, or of a row the cells that it stands for alone."""
        at = next((at for at, marks in enumerate(self._marks) if n in marks), 0) if self.cells else 0
        said = [at] if self.cells and says_something(self.cells[at]) else sorted(self._named_after.get(at, ()))
        fields = [(self.columns[cell], " ".join(self.cells[cell].replace(MARK, " ").split())) for cell in said]
        return "; ".join(f"{name}: {value}" if name else value for name, value in fields) or self.shown

    @cached_property
    def _marks(self) -> list[range]:
        ends = list(accumulate((cell.count(MARK) for cell in self.cells), initial=0))
        return [range(start, end) for start, end in pairwise(ends)]

    @cached_property
    def _named_after(self) -> dict[int, frozenset[int]]:
        says = [at for at, cell in enumerate(self.cells) if says_something(cell)]
        names = [self.columns[at] for at in says]
        named = {
            at: frozenset(says[n] for n in named_after(self.columns[at], names))
            for at, cell in enumerate(self.cells)
            if MARK in cell and at not in says
        }
        return {at: cells for at, cells in named.items() if cells}


def says_something(text: str) -> bool:
    """Whether a text has more than marks and punctuation."""
    return any(map(str.isalnum, text))


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph, list item or row before footnotes are resolved."""

    text: str
    targets: tuple[str, ...]
    number: str = ""
    """Of an item in a numbered list."""
    is_heading: bool = False
    cells: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    only_links: bool = False


def statements(text: str, *, is_csv: bool, files: Collection[str], every: Every | None) -> list[Statement]:
    """What a report says, in order. `files` are the paths that count as sources wherever they stand. Blocks.

    With `every` paragraph, a source is that of all sentences since the one before it.
    """
    names = "|".join(re.escape(path) for path in sorted(files, key=len, reverse=True))
    # With or without the number of a line.
    paths = re.compile(rf"(?<![\w/.-])({names})(?::\d+(?:-\d+)?)?(?![\w/-]|\.\w)") if names else None
    blocks = _csv_rows(text, paths) if is_csv else _json_rows(text, paths)
    if blocks is None:
        blocks = _with_sources_below(_resolved(list(_markdown(text, paths))))
    found: list[Statement] = []
    for unit, block in enumerate(blocks):
        found += _statements_of(block, unit, every)
    return found


def _statements_of(block: _Block, unit: int, every: Every | None) -> Iterator[Statement]:
    if block.cells:
        counts: frozenset[Every] = frozenset({"row", "claim"})
        yield Statement(block.text, block.targets, counts, unit, block.cells, block.columns)
        return
    text = block.text.replace(_SOFT_BREAK, " ")
    if block.only_links or not says_something(text):
        if block.targets:
            yield Statement(text.replace(LABEL, ""), block.targets, unit=unit, only_cites=True)
        return
    targets = iter(block.targets)
    for pieces in _with_their_sources(_sentences(text)) if every == "paragraph" else _sentences(text):
        sentence = " ".join(pieces)
        # What leads to something else needs no source, unless that is one: `It has 17 quays. Source: URL`.
        leads_on = sentence.rstrip()[-1:] in (":", "：", "?", "？", "")
        is_claim = not block.is_heading and (MARK in sentence or not leads_on)
        counts = frozenset({"claim", "paragraph"}) if is_claim else frozenset()
        cited = tuple(next(targets) for _ in range(sentence.count(MARK)))
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
        # `Prof.`, `eng.`, `डॉ.`: with what follows it may be one claim.
        may_go_on = len(last) < _LONG and MARK not in last and _SHORT_WORD_LAST.search(last[-8:]) is not None
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
    if end[0][-1] in _CLOSING and after in _GOES_ON:  # who said it, or what it is in another language
        return False
    if not end[0].startswith("."):
        return True
    if text[end.start() - 1 : end.start()] == MARK:
        return True
    word = _LAST_WORD.search(text, max(0, end.start() - _AROUND), end.start())
    word = word[0] if word else ""
    if after.islower() or "." in word or len(word) == 1 or (word.isdecimal() and len(word) <= 2):
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


def _markdown(text: str, paths: re.Pattern[str] | None) -> Iterator[_Block]:
    tokens = MarkdownIt("commonmark", {"maxNesting": MAX_DEPTH}).enable("table").parse(text)
    numbers: list[str] = []
    header: list[str] = []
    rows: list[list[_Block]] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        match token.type:
            case "list_item_open":
                numbers.append(token.info)
            case "list_item_close":
                numbers.pop()
            case "tr_open":
                rows.append([])
            case "table_close":
                header, rows = [_unmarked(cell.text) for cell in rows[0]], rows[1:]
                yield from _rows(header, rows)
                rows = []
            case "inline" if before is not None:
                block = _inline(token, paths)
                if before.type in ("th_open", "td_open"):
                    rows[-1].append(block)
                else:
                    is_heading = block.is_heading or before.type == "heading_open"
                    yield replace(block, number=numbers[-1] if numbers else "", is_heading=is_heading)
            case _:
                pass


def _inline(token: Token, paths: re.Pattern[str] | None) -> _Block:
    children = [child for child in token.children or [] if child.type != "text" or child.content]
    flat = _Flat(paths)
    for child in children:
        flat.add(child)
    text, kinds = "".join(flat.parts), [child.type for child in children]
    says_sentences = _SENTENCE_END.search(text) is not None
    is_title = [*kinds[:1], *kinds[-1:]] == ["strong_open", "strong_close"] and kinds.count("strong_open") == 1
    only_links = bool(flat.targets) and flat.label_chars == sum(map(str.isalnum, text))
    return _Block(
        text,
        tuple(flat.targets),
        is_heading=is_title and not says_sentences,
        only_links=only_links and not says_sentences,
    )


class _Flat:
    def __init__(self, paths: re.Pattern[str] | None) -> None:
        self.parts: list[str] = []
        self.targets: list[str] = []
        self.label_chars = 0
        """How many letters and digits the labels of links have."""
        self._paths = paths
        self._link: tuple[int, str] | None = None
        """Where the label of the open link begins, and where it leads."""

    def add(self, child: Token) -> None:
        """Add one of the block's pieces, in their order."""
        match child.type:
            case "link_open":
                self._link = len(self.parts), _target(str(child.attrs.get("href", "")))
                self.parts.append(LABEL)
            case "link_close" if self._link is not None:
                self._close(*self._link)
                self._link = None
            case "softbreak":
                self.parts.append(_SOFT_BREAK)
            case "hardbreak":
                self.parts.append("\n")
            case "html_inline":
                if href := _HREF.match(child.content):
                    self._close(len(self.parts), _target(href[1]))
                self.parts.append(" ")
            case "image":
                pass
            case _ if self._link is not None:
                self.parts.append(_unmarked(child.content))
            case _:
                self.parts.append(_bare(child.content, self.targets, self._paths))

    def _close(self, start: int, target: str) -> None:
        """End a link. A label that only repeats its URL says nothing."""
        label = "".join(self.parts[start:]).replace(LABEL, "")
        if _URL.match(label.strip()):
            del self.parts[start:]
        else:
            self.label_chars += sum(map(str.isalnum, label))
        if target:
            self.targets.append(target)
            self.parts.append(MARK)


def _target(href: str) -> str:
    """The URL or the path that a link leads to; empty for anything else."""
    if re.match("https?://", href, re.IGNORECASE):
        return href
    if not href or _SCHEME.match(href) or href.startswith(("#", "//", "?")):
        return ""
    return unquote(href.partition("#")[0].partition("?")[0])


def _bare(text: str, targets: list[str], paths: re.Pattern[str] | None) -> str:
    """The text with marks for the URLs and paths in it, which are added to `targets`."""

    def path(match: re.Match[str]) -> str:
        targets.append(match[1])
        return f"{match[0]}{MARK}"

    pieces: list[str] = []
    at = 0
    text = _unmarked(text)
    for match in _URL.finditer(text):
        between = text[at : match.start()]
        pieces.append(paths.sub(path, between) if paths else between)
        url = _trimmed(match[0])
        targets.append(url)
        pieces.append(MARK)
        at = match.start() + len(url)
    pieces.append(paths.sub(path, text[at:]) if paths else text[at:])
    return "".join(pieces)


def _unmarked(text: str) -> str:
    return text.replace(MARK, "").replace(LABEL, "")


def _trimmed(url: str) -> str:
    """A bare URL without the punctuation and brackets of the sentence around it."""
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
    definitions: dict[str, tuple[str, ...]] = {}
    rest: list[_Block] = []
    for block in blocks:
        rest += [] if (defined := _defined(block)) else [block]
        definitions.update(defined)
    used = {id for block in rest for note in _NOTE.finditer(block.text) for id in _ids(note)}
    for block in list(rest):
        if block.number in used and block.targets and not block.cells and block.number not in definitions:
            definitions[block.number] = block.targets
            rest.remove(block)
    listed = [_Block("", targets, only_links=True) for id, targets in definitions.items() if id not in used]
    return [_with_notes(block, definitions) for block in rest] + listed


def _defined(block: _Block) -> Mapping[str, tuple[str, ...]]:
    """The footnotes that a paragraph defines, one in a line; none if it says anything else."""
    lines = block.text.split(_SOFT_BREAK)
    if len(lines) > 1 and _LEADS_ON.fullmatch(lines[0]):
        lines = lines[1:]
    targets = iter(block.targets)
    found: dict[str, tuple[str, ...]] = {}
    id = ""
    for line in lines:
        own = tuple(next(targets) for _ in range(line.count(MARK)))
        if match := _DEFINITION.match(line):
            id = match[1] or match[2]
            found[id] = own
        elif id:
            found[id] += own
        else:
            return {}
    return found if all(found.values()) else {}


def _ids(note: re.Match[str]) -> list[str]:
    return [note[2]] if note[2] else re.split(r"\s*[,;，、]\s*", note[1])


def _with_sources_below(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks, each joined with one below it that only names its source."""
    joined: list[_Block] = []
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        above = joined[-1] if joined else None
        is_alone = not (after is not None and _only_cites(after))
        can_cite = above is not None and not (above.targets or above.is_heading or above.cells)
        if above is not None and can_cite and is_alone and _only_cites(block):
            # One statement, so that nothing of it is left out of what is compared.
            text = f"{above.text.rstrip(' .。')} – {block.text}"
            joined[-1] = replace(above, text=text, targets=block.targets)
        else:
            joined.append(block)
    return joined


def _only_cites(block: _Block) -> bool:
    before, _, after = block.text.partition(MARK)
    leads_on = not after and LABEL not in before and _LEADS_ON.fullmatch(before) is not None
    says_nothing = not says_something(block.text)
    return bool(block.targets) and not block.cells and (block.only_links or says_nothing or leads_on)


def _with_notes(block: _Block, definitions: Mapping[str, tuple[str, ...]]) -> _Block:
    targets = iter(block.targets)

    def resolve(text: str, into: list[str]) -> str:
        def one(match: re.Match[str]) -> str:
            if match[0] == MARK:
                into.append(next(targets))
                return MARK
            defined = [target for id in _ids(match) for target in definitions.get(id, ())]
            into.extend(defined)
            return MARK * len(defined) if defined else match[0]

        return _NOTE_OR_MARK.sub(one, text)

    found: list[str] = []
    if block.cells:
        cells = tuple(resolve(cell, found) for cell in block.cells)
        # The row's text repeats its cells behind the names of their columns.
        text = _NOTE.sub(lambda note: "" if definitions.keys() & _ids(note) else note[0], block.text)
        return replace(block, text=text, cells=cells, targets=tuple(found))
    return replace(block, text=resolve(block.text, found), targets=tuple(found))


# -------------------------------------------------------------------------------------------------------- tables


def _rows(header: Sequence[str], rows: Sequence[Sequence[_Block]]) -> Iterator[_Block]:
    """The rows of a table, without the cells that only count them."""
    count = [str(n) for n in range(1, len(rows) + 1)] if len(rows) > 1 else []
    counted = [n for n in range(len(header)) if [row[n].text.strip(" .") for row in rows if n < len(row)] == count]
    for row in rows:
        cells = [cell for n, cell in enumerate(row) if n not in counted]
        names = [name for n, name in enumerate(header) if n not in counted]
        if any(cell.text.strip() for cell in cells):
            yield _row(list(zip(names, cells, strict=False)))


def _row(fields: Sequence[tuple[str, _Block]]) -> _Block:
    """One row. Its text says each cell behind the name of its column."""
    said = [(name, _unmarked(cell.text).strip()) for name, cell in fields]
    text = "; ".join(f"{name}: {value}" if name else value for name, value in said if value)
    targets = tuple(target for _, cell in fields for target in cell.targets)
    cells = tuple(cell.text.replace(LABEL, "") for _, cell in fields)
    return _Block(text, targets, cells=cells or ("",), columns=tuple(name for name, _ in fields) or ("",))


def _cell(text: str, paths: re.Pattern[str] | None) -> _Block:
    targets: list[str] = []
    return _Block(_bare(text, targets, paths), tuple(targets))


def _csv_rows(text: str, paths: re.Pattern[str] | None) -> list[_Block]:
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    delimiter = max(",;\t|", key=(lines[0] if lines else "").count)
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
    except (ValueError, csv.Error):
        return []

    def cell(text: str) -> _Block:
        has_link = "](" in text  # in Markdown
        return _inline(MarkdownIt("commonmark").parseInline(text)[0], paths) if has_link else _cell(text, paths)

    return list(_rows(header, [[cell(text) for text in row] for row in rows]))


def _json_rows(text: str, paths: re.Pattern[str] | None) -> list[_Block] | None:
    """The objects of a JSON report; None for other texts."""
    fenced = _FENCED.match(text)
    text = (fenced[1] if fenced else text).strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        value = strict_json(text)
    except ValueError:
        return None
    return [_row([(name, _cell(said, paths)) for name, said in _leaves(row)]) for row in _objects(value)]


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
