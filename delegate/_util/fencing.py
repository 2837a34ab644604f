"""Text hygiene: what untrusted text goes through before a model reads it.

A child's words, file contents, command output and a judge's reasons are data. Four things are done to them:

    clean      what a person would not see is taken out, and fence look-alikes are defused
    fence      the text stands between two lines that carry a nonce, which nobody could know beforehand
    frame      the same for what tools answer to a child, in few tokens, and with the text as exact as it was
    one_line   short quotes, where a text stands within a line of ours

`clean` comes first and decides: its text is what a model sees *and* what quotes are verified against, so that a judge
cannot quote what it never saw. Cleaning is idempotent. Nothing here knows what a verdict is.
"""

import re
import secrets
import unicodedata
from typing import NamedTuple

FENCE_MARK = "<<<"

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC: titles, links, payloads
    r"|\x1b[ -/]*[0-~]?"  # any other
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Honest text has these too (copied web pages, right-to-left scripts, byte-order marks): taken out, not flagged.
_INVISIBLE = re.compile(r"[\u00ad\u200e\u200f\u061c\ufeff]")
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_SHAPERS = rf"\u200c\u200d{_SELECTORS}"
_HIDDEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"  # controls
    r"|[\u202a-\u202e\u2066-\u2069]"  # bidirectional embeddings, overrides, isolates
    r"|[\u200b\u2060-\u2065\u206a-\u206f\u180e\u034f\ufff9-\ufffb]"  # zero width
    r"|[\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a]"  # fillers that look like nothing
    r"|[\U000e0000-\U000e007f]"  # tags: a hidden copy of ASCII
    # Joiners and variation selectors shape emoji and some scripts: kept singly after a visible character beyond ASCII,
    # which is where they shape something; elsewhere, and in runs, they can only hide something.
    rf"|(?<![^\x00-\x7f])[{_SHAPERS}](?!\u20e3)"
    rf"|(?<=[{_SHAPERS}])[\u200c{_SELECTORS}]"
    rf"|(?<=[\u200c\u200d\ufe00-\ufe0e\U000e0100-\U000e01ef])\u200d"
)
_SUSPECT = re.compile(
    rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    rf"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f{_SELECTORS}]"
)
_FENCE_LOOK_ALIKE = re.compile(r"[<\uff1c\ufe64]{3,}")
_ANGLE = re.compile(r"[<>\uff1c\uff1e\ufe64\ufe65\u226a\u226b\u22d8\u22d9]")
_ANGLES_WRITTEN_OUT = str.maketrans({"\u226a": "<<", "\u226b": ">>", "\u22d8": "<<<", "\u22d9": ">>>"})
_OPENING = "<\uff1c\ufe64\u226a\u22d8"
_BEGINS_LIKE_A_MARK = re.compile(r"[^\w<>]*+(?:<{3,}+\s*+\d{4}|\d{4,}+\s*+>{3})")


_PLAIN = bytes([9, 10, *range(32, 127)])
"""Tab, newline and the visible part of ASCII."""


class Cleaned(NamedTuple):
    """Text without what a person would not see. `hidden`: something had been hidden in it."""

    text: str
    hidden: bool


def clean(text: str) -> Cleaned:
    """Take out escape sequences, controls, bidirectional and zero-width characters; defuse fence look-alikes.

    Line breaks of every kind become a newline, and half surrogate pairs U+FFFD, so that the text can be encoded.
    Colours, soft hyphens and byte-order marks go without being called hidden: honest text has them.
    """
    if _is_plain(text) or not _SUSPECT.search("".join(set(text))):
        return Cleaned(_defuse(text), hidden=False)
    text = _COLOUR.sub("", text)
    without = _ESCAPE_SEQUENCES.sub("", text)
    visible = _INVISIBLE.sub("", _LINE_BREAK.sub("\n", without))
    shown = _without_hidden(visible)
    hidden = len(without) != len(text) or len(shown) != len(visible)
    return Cleaned(_defuse(_SURROGATE.sub("\ufffd", shown)), hidden)


def fence(name: str, text: str, nonce: str) -> str:
    """The text between two lines that name it. No line of the text can pass for either of them."""
    return f"{FENCE_MARK}{name} {nonce}>>>\n{_defuse(text)}\n{FENCE_MARK}end {name} {nonce}>>>"


def new_nonce() -> str:
    """Twelve hexadecimal digits from the system's randomness. Draw it after the untrusted text was written."""
    return secrets.token_hex(6)


def new_mark() -> str:
    """Six digits from the system's randomness, for `frame`: two or three tokens, where hexadecimal digits take more."""
    return str(100_000 + secrets.randbelow(900_000))


def frame(text: str, mark: str) -> str:
    """The text between the lines `<<<mark` and `mark>>>`, neither of which any line of the text can pass for.

    Who edits a file needs its exact text. So nothing else is changed: the first line says whether lines were, and
    whether there are characters that a person would not see.
    """
    exact = "".join(_without_mark(line, mark) for line in text.splitlines(keepends=True)) if _may_mark(text) else text
    first = f"{FENCE_MARK}{mark}"
    first += " (with hidden characters)" if clean(text).hidden else ""
    first += " (in lines like this one, < is shown as \u2039 and > as \u203a)" if exact != text else ""
    return f"{first}\n{exact}\n{mark}>>>"


def one_line(text: str, limit: int) -> str:
    """The text cleaned, on one line, at most `limit` characters long; a cut shows as `…`."""
    # Twice the limit leaves room for blanks and hidden characters, and bounds the work on long texts.
    line = " ".join(clean(text[: 2 * limit + 80]).text.split())
    return line if len(line) <= limit and len(text) <= 2 * limit + 80 else line[: limit - 1].rstrip() + "…"


def quoted(text: str, limit: int) -> str:
    """`one_line` between double quotes, with no double quote inside, so that where it ends is certain."""
    return '"' + one_line(text, limit).replace('"', "'") + '"'


def _is_plain(text: str) -> bool:
    """Most texts are, and this is one cheap pass."""
    return text.isascii() and not text.encode().translate(None, _PLAIN)


def _without_hidden(text: str) -> str:
    """Until nothing changes: what one removal brings together may be another thing to remove."""
    for _ in range(8):
        text, removed = _HIDDEN.subn("", text)
        if not removed:
            return text
    return re.sub(f"[{_SHAPERS}]", "", text)


def _may_mark(text: str) -> bool:
    """False for most texts, at little cost."""
    return "<<" in text or ">>" in text if _is_plain(text) else _ANGLE.search(text) is not None


def _without_mark(line: str, mark: str) -> str:
    """The line as it is, unless a reader could take it for one that begins or ends a frame."""
    if _ANGLE.search(line) is None:
        return line
    visible = _without_hidden(_INVISIBLE.sub("", _ESCAPE_SEQUENCES.sub("", line)))
    read = unicodedata.normalize("NFKC", visible.translate(_ANGLES_WRITTEN_OUT))
    like_any = _BEGINS_LIKE_A_MARK.match(read) is not None
    like_this = mark in read and (FENCE_MARK in read or ">>>" in read)
    return _ANGLE.sub(_defused_angle, line) if like_any or like_this else line


def _defused_angle(angle: re.Match[str]) -> str:
    return "\u2039" if angle[0] in _OPENING else "\u203a"


def _defuse(text: str) -> str:
    if text.isascii() and ("<" not in text or FENCE_MARK not in text):  # one letter is looked for much faster
        return text
    return _FENCE_LOOK_ALIKE.sub(lambda run: "\u2039" * len(run.group()), text)
