r"""Strings as JavaScript has them: sequences of UTF-16 code units.

The evaluator keeps every string in that form: a character outside the Basic Multilingual Plane is two surrogates. So
length, index, slice, search and order are those of JavaScript, and plain `str` operations do them.
"""

import re

SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""White space and line ends of ECMA-262 §12.2 and §12.3. Python's `str.strip()` knows others."""

MAX_MESSAGE_CHARS = 700

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def units(text: str) -> str:
    """`text` with one character per UTF-16 code unit."""
    return text if text.isascii() else _ASTRAL.sub(_pair, text)


def points(text: str) -> str:
    """The opposite of `units`: one character per code point, lone surrogates kept."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def clip(text: str, length: int) -> str:
    """`text`, or its beginning and `…`."""
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str) -> str:
    """A message without line breaks, cut short, that can be written as UTF-8; a lone surrogate becomes `?`."""
    line = clip(" ".join(text[: 10 * MAX_MESSAGE_CHARS].split()), MAX_MESSAGE_CHARS)
    return points(line).encode("utf-8", "replace").decode()


def _pair(match: re.Match[str]) -> str:
    offset = ord(match.group()) - 0x10000
    return chr(0xD800 + (offset >> 10)) + chr(0xDC00 + (offset & 0x3FF))


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_LINE_ENDS = ("\n", "\r", "\r\n", "\u2028", "\u2029")
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(\r\n|0(?![0-9])|[^ux0-9]))", re.DOTALL
)


def unescape(raw: str) -> str | None:
    """What the inside of a string literal or template stands for; None when an escape in it isn't valid."""
    if "\\" not in raw:
        return units(raw)
    if "\\" in _ESCAPE.sub("", raw):
        return None
    try:
        return units(_ESCAPE.sub(_escaped, raw))
    except (ValueError, OverflowError):  # \u{...} beyond the last code point
        return None


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16))
    return "" if match[4] in _LINE_ENDS else _ESCAPES.get(match[4], match[4])
