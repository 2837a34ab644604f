"""Recognizes images and PDFs by their first bytes, and reads what a model's provider would refuse them for.

A provider answers an unreadable or too large image with an error for the whole request, which repeats in every turn
because the conversation keeps the image. So it is refused here, as the error of one tool call.
"""

import re
import struct
from collections.abc import Callable, Collection
from functools import cache
from typing import Literal, get_args

from delegate.sandbox.filesystem.files import Excerpt
from delegate.types.errors import ToolError
from delegate.types.ports import Attachment

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"]
PDF_TYPES: frozenset[str] = frozenset({"application/pdf"})
IMAGE_TYPES: frozenset[str] = frozenset(get_args(MediaType)) - PDF_TYPES
"""The types of files that models may be able to read as they are."""

MAX_IMAGE_BYTES = 3_750_000
"""Anthropic accepts 5 MB per image, counted in base64, which is a third longer."""
MAX_IMAGE_PIXELS = 8_000
"""Width and height that Anthropic accepts."""
MAX_PDF_BYTES = 10_000_000
"""Two of them, in base64, fit into a request of 32 MB, Anthropic's limit; others allow more."""
MAX_REQUEST_BYTES = 2 * MAX_PDF_BYTES
"""So much of all images and PDFs fits into a request."""

_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the JPEG segments that hold the size."""
_ENCRYPTED = re.compile(rb"/Encrypt\s{1,9}\d{1,10}\s{1,9}\d{1,5}\s{1,9}R")


@cache
def readable_types(*, images: bool, pdfs: bool) -> frozenset[str]:
    """The types of files that a model can read as they are."""
    return frozenset[str]().union(IMAGE_TYPES if images else (), PDF_TYPES if pdfs else ())


def media_type(data: bytes) -> MediaType | None:
    """The type of a file with these first bytes, whatever its name says. None for all other types."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if data.startswith(b"%PDF-") else None


def noun(kind: MediaType) -> str:
    """What a file of this type is called in a sentence, such as `a PNG image`."""
    return "a PDF" if kind == "application/pdf" else f"a {kind.removeprefix('image/').upper()} image"


def max_bytes(kind: MediaType) -> int:
    """The size up to which every provider accepts a file of this type."""
    return MAX_PDF_BYTES if kind == "application/pdf" else MAX_IMAGE_BYTES


def describe(kind: MediaType, data: bytes, path: str) -> str:
    """One line about the file: an image's width and height, a PDF's size.

    Raises `ToolError` for a damaged or too large image and for an encrypted PDF, which providers refuse.
    """
    if kind == "application/pdf":
        if _ENCRYPTED.search(data):
            raise ToolError(f"{path} is an encrypted PDF, which models can't read")
        return f"PDF {path}, {len(data):,} bytes"
    try:
        width, height = _SIZES[kind](data)
    except (IndexError, struct.error):
        width = height = 0
    if not width or not height:
        raise ToolError(f"{path} is {noun(kind)} that is damaged: its size can't be read")
    if max(width, height) > MAX_IMAGE_PIXELS:
        limit = f"at most {MAX_IMAGE_PIXELS:,} pixels per side can be read"
        raise ToolError(f"{path} has {width:,}x{height:,} pixels; {limit}. Make a smaller copy.")
    return f"image {path}, {width}x{height} pixels, {len(data):,} bytes"


def attachment(
    path: str, excerpt: Excerpt, kind: MediaType, readable: Collection[str], otherwise: str = ""
) -> tuple[Attachment, str]:
    """An image or a PDF for a model that reads files of the types `readable`, and a line about it.

    `found` is at most `max_bytes` of it. Raises `ToolError` if the model, or every provider, can't read it; `otherwise`
    says what can be done then.
    """
    if kind not in readable:
        raise ToolError(f"{path} is {noun(kind)} ({excerpt.size:,} bytes), which this model can't read{otherwise}")
    if excerpt.cut:
        raise ToolError(f"{path} is {noun(kind)} with {excerpt.size:,} bytes; at most {max_bytes(kind):,} can be read")
    return Attachment(kind, excerpt.data, path), describe(kind, excerpt.data, path)


def _jpeg(data: bytes) -> tuple[int, int]:
    """The size is in one of the segments at the start, each of which begins with a marker and its length."""
    position = 2
    while True:
        while data[position] == 0xFF and data[position + 1] == 0xFF:  # padding
            position += 1
        marker, length = struct.unpack_from(">xBH", data, position)
        if data[position] != 0xFF or length < 2:
            return 0, 0
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        position += 2 + length


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = data[24:27], data[27:30]
            if len(height) < 3:
                return 0, 0
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case _:
            return 0, 0


_SIZES: dict[MediaType, Callable[[bytes], tuple[int, int]]] = {
    "image/png": lambda data: struct.unpack_from(">II", data, 16),
    "image/jpeg": _jpeg,
    "image/gif": lambda data: struct.unpack_from("<HH", data, 6),
    "image/webp": _webp,
}
