"""Estimates how many tokens a text is."""

import math
import string

_LETTERS = f"{string.ascii_letters} ".encode()
_ASCII = bytes(range(128))
_COUNTED_CHARS = 1_000_000


def tokens_of(text: str) -> int:
    """The estimated number of tokens in a text, rounded up. `Model.tokens` converts it to a model's own tokens.

    Words take fewer tokens than punctuation and digits: a token is 4.4 letters and spaces, 1.9 other ASCII characters,
    or 3.5 bytes of anything else. Measured on four tokenizers (`scripts/measure_tokens.py`); tests check the error.
    """
    if len(text) > _COUNTED_CHARS:  # by a part of it, since this holds the interpreter
        return math.ceil(tokens_of(text[:_COUNTED_CHARS]) * (len(text) / _COUNTED_CHARS))
    data = text.encode("utf-8", "replace")
    others = data.translate(None, _LETTERS)
    foreign = 0 if text.isascii() else len(others.translate(None, _ASCII))
    return math.ceil((len(data) - len(others)) / 4.4 + (len(others) - foreign) / 1.9 + foreign / 3.5)
