"""Finds secrets in a text, also where it is encoded as base64, base32, hexadecimal digits or escapes."""

import base64
import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from delegate._util.assignments import assigned_spans
from delegate._util.key_formats import key_spans

SHORTEST_RUN = 27
"""Digits of base64 that the shortest key takes; fewer in a row aren't decoded."""
_SHORTEST = 8
_AROUND = 200
"""How far from an escape a text is read with its escapes decoded."""
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_RUN = b"d" * SHORTEST_RUN
_KINDS = bytes(_RUN[0] if byte in _DIGITS else 32 for byte in range(256))
_WRAPPED = re.compile(r"[A-Za-z0-9+/_-]+(?:(?:\r?\n|(?:\\r)?\\n)[ \t]{0,40}[A-Za-z0-9+/_-]{4,})*")
_WRAP = re.compile(r"(?:\\r)?\\n|\s")
_TEXT_IN_BASE64 = re.compile("(?:[A-Za-f][A-Za-z0-9+/_-]{3}){6,}[A-Za-z0-9+/_-]{0,3}")
_TEXT_IN_HEX = re.compile("(?:[2-7][0-9A-Fa-f]|0[9ADad]){14,}")
_BASE32 = re.compile("[A-Z2-7]{32,}|[a-z2-7]{32,}")
_PRINTABLE = re.compile(rb"[\t\n\r\x20-\x7e]+")

_HIDDEN = "(?:00ad|180e|200[b-f]|206[0-4]|feff)"
"""Characters that aren't displayed."""
_ESCAPES = {
    "%": re.compile("%[2-7][0-9A-Fa-f]"),
    r"\x": re.compile(r"\\x[2-7][0-9A-Fa-f]"),
    r"\u00": re.compile(r"\\u00[2-7][0-9A-Fa-f]"),
    "&#": re.compile("&#[0-9xX]"),
    "&": re.compile("&(?=quot|amp|apos|shy)"),
    r"\u": re.compile(rf"\\u(?={_HIDDEN})"),
    r"\xad": re.compile(r"\\xad"),
}
"""By what they begin with, since looking for that alone is faster."""
_ESCAPE = re.compile(
    r"%(?P<percent>[2-7][0-9A-Fa-f])|\\{1,4}(?:x|u00)(?P<code>[2-7][0-9A-Fa-f])"
    rf"|\\{{1,4}}(?:u{_HIDDEN}|xad)"
    r"|&(?P<entity>#[0-9]{2,5}|#[xX][0-9A-Fa-f]{2,5}|quot|amp|apos|lt|gt|shy);"
)


def secret_spans(text: str, secrets: Sequence[str], decodings: int = 2) -> list[tuple[int, int]]:
    """Where keys and assigned secrets are, also those that are encoded, up to twice."""
    data = text.encode("ascii", "replace")
    # A character is a byte then, which `re` and `in` search several times as fast.
    plain, runs = text if text.isascii() else data.decode("ascii"), long_runs(data)
    spans = [*key_spans(plain, runs), *assigned_spans(plain)]
    if decodings:
        for part in decoded_parts(text, runs):
            found = [secret for secret in secrets if secret in part.text]
            inner = [match.span() for secret in found for match in re.finditer(re.escape(secret), part.text)]
            spans += [part.source(*span) for span in (*inner, *secret_spans(part.text, secrets, decodings - 1))]
    return spans


class Decoded(NamedTuple):
    """A part of a text, decoded."""

    text: str
    source: Callable[[int, int], tuple[int, int]]
    """Where the characters from one position to another one come from."""


def long_runs(text: bytes) -> list[tuple[int, int]]:
    """Where an ASCII text has at least `SHORTEST_RUN` digits of base64 in a row."""
    kinds, end, runs = text.translate(_KINDS), 0, list[tuple[int, int]]()
    while (start := kinds.find(_RUN, end)) >= 0:
        end = kinds.find(b" ", start)
        end = len(kinds) if end < 0 else end
        runs.append((start, end))
    return runs


def decoded_parts(text: str, runs: Sequence[tuple[int, int]]) -> Iterator[Decoded]:
    """The parts of a text that are encoded, decoded. They may overlap, and most aren't secret."""
    if "%" in text or "\\" in text or "&" in text:
        yield from _unescaped(text)
    end = 0
    for start, _ in runs:
        if start >= end:
            run = _WRAPPED.match(text, start)
            assert run  # since it starts with a digit
            end = run.end()
            yield from _in_run(*_joined(run), start)


def _joined(run: re.Match[str]) -> tuple[str, Sequence[int] | None]:
    """The digits of a run without line breaks, and where each of them is, if there were any."""
    text = run[0]
    if "\n" not in text and "\\" not in text:
        return text, None
    digits = _WRAP.sub("", text)
    breaks = list(_WRAP.finditer(text))
    edges = [0, *(at for line_break in breaks for at in line_break.span()), len(text)]
    return digits, [at for start, end in zip(edges[::2], edges[1::2], strict=True) for at in range(start, end)]


def _in_run(digits: str, places: Sequence[int] | None, offset: int) -> Iterator[Decoded]:
    def part(data: bytes, start: int, digits_per_byte: float) -> Decoded | None:
        plain = _PRINTABLE.match(data)
        if not plain or len(plain[0]) < _SHORTEST:
            return None

        def source(first: int, after: int) -> tuple[int, int]:
            begin = start + int(first * digits_per_byte)
            end = min(start + math.ceil(after * digits_per_byte), len(digits))
            return (offset + places[begin], offset + places[end - 1] + 1) if places else (offset + begin, offset + end)

        return Decoded(plain[0].decode("ascii"), source)

    quads = (match for start in range(4) if (match := _TEXT_IN_BASE64.match(digits, start)))
    parts = [
        *(part(_from_base64(found[0]), found.start(), 4 / 3) for found in quads),
        *(part(bytes.fromhex(match[0]), match.start(), 2) for match in _TEXT_IN_HEX.finditer(digits)),
        *(part(_from_base32(match[0]), match.start(), 8 / 5) for match in _BASE32.finditer(digits)),
    ]
    yield from filter(None, parts)


def _from_base64(digits: str) -> bytes:
    whole = digits[: len(digits) - (len(digits) % 4 == 1)].replace("-", "+").replace("_", "/")
    return base64.b64decode(whole + "=" * (-len(whole) % 4))


def _from_base32(digits: str) -> bytes:
    whole = digits.upper()[: len(digits) - (len(digits) % 8 in (1, 3, 6))]
    return base64.b32decode(whole + "=" * (-len(whole) % 8))


# ---------------------------------------------------------------------------------------------------------- escapes


def _unescaped(text: str) -> Iterator[Decoded]:
    """What is around the escapes of URLs, of JSON and other code, and of HTML, without these."""
    escapes = [escape for begin, escape in _ESCAPES.items() if begin[0] in text and begin in text]
    found = sorted(match.start() for escape in escapes for match in escape.finditer(text))
    for start, end in surroundings(found, _AROUND, len(text)):
        pieces: list[str] = []
        places: list[int] = []
        at = start
        for escape in _ESCAPE.finditer(text, start, end):
            character = _character(escape)
            pieces += [text[at : escape.start()], character]
            places += [*range(at, escape.start()), *[escape.start()] * len(character)]
            at = escape.end()
        if not pieces:
            continue
        places += range(at, end)
        yield Decoded("".join([*pieces, text[at:end]]), _source_in([*places, end]))


def _source_in(places: Sequence[int]) -> Callable[[int, int], tuple[int, int]]:
    return lambda first, after: (places[first], places[after])


def _character(escape: re.Match[str]) -> str:
    if entity := escape["entity"]:
        character = html.unescape(f"&{entity};")[:1] or " "
        return "" if re.fullmatch(_HIDDEN, f"{ord(character):04x}") else character
    digits = escape["percent"] or escape["code"]
    return chr(int(digits, 16)) if digits else ""


def surroundings(places: Iterable[int], distance: int, length: int) -> Iterator[tuple[int, int]]:
    """The parts of a text that are at most `distance` from one of these places, in order. Those that meet are one."""
    start = end = 0
    for place in places:
        if place - distance > end:
            if end:
                yield start, end
            start = place - distance
        end = min(place + distance, length)
    if end:
        yield start, end
