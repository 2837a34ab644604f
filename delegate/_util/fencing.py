"""Sanitizes untrusted text and delimits it before a model reads it.

A child's output, file contents, command output and a judge's reasons are data, not instructions:

    clean      removes characters that a person would not see, and defuses fence look-alikes
    fence      puts the text between two lines with a nonce that the author of the text could not know
    frame      does the same for tool output that a child reads, in few tokens, and keeps the exact text
    one_line   shortens text to a quote within one line
    visible    shows the characters of a name that a reader can't see as escapes

`clean` runs first. Its result is what a model sees *and* what quotes are verified against, so a judge can't quote text
that it never saw. Cleaning is idempotent.
"""

import re
import secrets
import unicodedata
from typing import NamedTuple

FENCE_MARK = "<<<"
PIECE_CHARS = 65_536

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor movement
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC: titles, links, payloads
    r"|\x1b[ -/]*[0-~]?"  # any other
)
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
ONE_SPACE = re.compile(r" {9,}\s*| *[^\S ]\s*")
"""What a line has one space for: of spaces alone, only a run that could move text out of sight."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Legitimate text contains these too (copied web pages, right-to-left scripts, byte-order marks): removed, not flagged.
_INVISIBLE = re.compile(r"[\u00ad\u200e\u200f\u061c\ufeff]")
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_JOINERS = rf"\u200c\u200d{_SELECTORS}"
_HIDDEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"  # controls
    r"|[\u202a-\u202e\u2066-\u2069]"  # bidirectional embeddings, overrides, isolates
    r"|[\u200b\u2060-\u2065\u206a-\u206f\u180e\u034f\ufff9-\ufffb]"  # zero width
    r"|[\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a]"  # fillers that render as nothing
    r"|[\U000e0000-\U000e007f]"  # tags: an invisible copy of ASCII
    # Joiners and variation selectors shape emoji and some scripts. A single one after a visible non-ASCII character is
    # kept; elsewhere, and in runs, they can only hide something.
    rf"|(?<![^\x00-\x7f])[{_JOINERS}](?!\u20e3)"
    rf"|(?<=[{_JOINERS}])[\u200c{_SELECTORS}]"
    rf"|(?<=[\u200c\u200d\ufe00-\ufe0e\U000e0100-\U000e01ef])\u200d"
)
_SUSPECT = re.compile(
    rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    rf"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f{_SELECTORS}]"
)
_VISIBLE = re.compile(rf"[^\u20e3{_SUSPECT.pattern[1:]}")
_FENCE_LOOK_ALIKE = re.compile(r"[<\uff1c\ufe64]{3,}")
_ANGLE = re.compile(r"[<>\uff1c\uff1e\ufe64\ufe65\u226a\u226b\u22d8\u22d9]")
_EXPANDED_ANGLES = str.maketrans({"\u226a": "<<", "\u226b": ">>", "\u22d8": "<<<", "\u22d9": ">>>"})
_OPENING_ANGLES = "<\uff1c\ufe64\u226a\u22d8"
_FRAME_LOOK_ALIKE = re.compile(r"[^\w<>]*+(?:<{3,}+\s*+\d{4}|\d{4,}+\s*+>{3})")
TYPOGRAPHY = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
}
"""Typographic characters that count as the plain one in a quote."""
_PLAIN_BYTES = bytes([9, 10, *range(32, 127)])
"""Tab, newline and printable ASCII."""


class Cleaned(NamedTuple):
    """Text without characters that a person would not see. `hidden` is true if it contained hidden content."""

    text: str
    hidden: bool


def clean(text: str) -> Cleaned:
    """Remove escape sequences, controls, bidirectional and zero-width characters; defuse fence look-alikes.

    Line breaks of every kind become a newline, and lone surrogates U+FFFD, so that the text can be encoded. Colors,
    soft hyphens and byte-order marks are removed without setting `hidden`, since legitimate text contains them.
    """
    if _is_plain(text) or not _SUSPECT.search("".join(set(text))):
        return Cleaned(_defuse(text), hidden=False)
    text = _COLOR.sub("", text)
    without = _ESCAPE_SEQUENCES.sub("", text)
    visible = _INVISIBLE.sub("", _LINE_BREAK.sub("\n", without))
    stripped = _strip_hidden(visible)
    hidden = len(without) != len(text) or len(stripped) != len(visible)
    return Cleaned(_defuse(_SURROGATE.sub("\ufffd", stripped)), hidden)


def fence(name: str, text: str, nonce: str) -> str:
    """The text between two lines that name it. No line of the text can be mistaken for either of them."""
    return f"{FENCE_MARK}{name} {nonce}>>>\n{_defuse(text)}\n{FENCE_MARK}end {name} {nonce}>>>"


def new_nonce() -> str:
    """Twelve hexadecimal digits from the system's random source. Create it after the untrusted text was written."""
    return secrets.token_hex(6)


def new_mark() -> str:
    """Six random decimal digits for `frame`: two or three tokens, where hexadecimal digits take more."""
    return str(100_000 + secrets.randbelow(900_000))


def frame(text: str, mark: str) -> str:
    """The text between the lines `<<<mark` and `mark>>>`. No line of the text can be mistaken for either of them.

    A child that edits a file needs its exact text, so only look-alike lines are changed. The first line says whether
    any were, and whether the text contains hidden characters.
    """
    exact, is_plain = text, _is_plain(text)
    if (is_plain and ("<<" in text or ">>" in text)) or (not is_plain and _ANGLE.search(text)):  # rarely
        exact = "".join(_escape_mark(line, mark) for line in text.splitlines(keepends=True))
    first = f"{FENCE_MARK}{mark}"
    first += " (with hidden characters)" if not is_plain and clean(text).hidden else ""
    first += " (in lines like this one, < is shown as \u2039 and > as \u203a)" if exact != text else ""
    return f"{first}\n{exact}\n{mark}>>>"


def one_line(text: str, limit: int) -> str:
    """The text cleaned, on one line, at most `limit` characters long; a cut shows as `…`."""
    # Twice the limit leaves room for whitespace and hidden characters, and bounds the work on long texts.
    line = ONE_SPACE.sub(" ", clean(text[: 2 * limit + 80]).text).strip()
    return line if len(line) <= limit and len(text) <= 2 * limit + 80 else line[: limit - 1].rstrip() + "…"


def visible(name: str) -> str:
    """A file name with escapes for what a reader can't see, such as a line break within it.

    A name that is shown as it is could add a line to a list of files, or look like another name.
    """
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def quoted(text: str, limit: int) -> str:
    """`one_line` between double quotes, with no double quote inside, so that its end is unambiguous."""
    return '"' + one_line(text, limit).replace('"', "'") + '"'


def _is_plain(text: str) -> bool:
    """Whether there is nothing to clean: true for most texts, and found in one cheap pass."""
    return text.isascii() and not text.encode().translate(None, _PLAIN_BYTES)


def _strip_hidden(text: str) -> str:
    """Piece by piece, since one search through all of a long text would hold the interpreter and every thread.

    Each piece begins with a visible character: what is removed depends on one character before it.
    """
    pieces, start = list[str](), 0
    while match := _VISIBLE.search(text, start + PIECE_CHARS):
        pieces.append(_strip_piece(text[start : match.start()]))
        start = match.start()
    return "".join([*pieces, _strip_piece(text[start:])])


def _strip_piece(text: str) -> str:
    """Repeated until nothing changes, since one removal may form another hidden sequence."""
    for _ in range(8):
        text, count = _HIDDEN.subn("", text)
        if not count:
            return text
    return re.sub(f"[{_JOINERS}]", "", text)


def _escape_mark(line: str, mark: str) -> str:
    """The line, unchanged unless a reader could mistake it for the first or last line of a frame."""
    if _ANGLE.search(line) is None:
        return line
    visible = _strip_hidden(_INVISIBLE.sub("", _ESCAPE_SEQUENCES.sub("", line)))
    text = unicodedata.normalize("NFKC", visible.translate(_EXPANDED_ANGLES))
    resembles_a_mark = _FRAME_LOOK_ALIKE.match(text) is not None
    contains_this_mark = mark in text and (FENCE_MARK in text or ">>>" in text)
    if not (resembles_a_mark or contains_this_mark):
        return line
    return _ANGLE.sub(lambda angle: "\u2039" if angle[0] in _OPENING_ANGLES else "\u203a", line)


def _defuse(text: str) -> str:
    if text.isascii() and ("<" not in text or FENCE_MARK not in text):  # one character is found much faster
        return text
    return _FENCE_LOOK_ALIKE.sub(lambda run: "\u2039" * len(run.group()), text)
