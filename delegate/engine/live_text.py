"""Reports a child's text while its model writes it."""

import time
from collections.abc import Callable

from delegate.types.events import LIVE_CHARS, ChildText, Notify
from delegate.types.ports import Incoming

_EVERY_SECONDS = 0.1
"""At most ten events a second for each child."""
_SHARE = 20
"""How many times as long as redacting the text takes it isn't redacted again."""
_HELD_BACK = 100
"""How many characters are kept until more have come: a secret is recognized only as a whole, even across lines."""
_BLOCK, _BLOCK_END = "-----BEGIN ", "-----END "
"""Between which a private key has many lines."""


class LiveText(Incoming):
    """What comes of the replies of one child. Its pieces are redacted, so that none has a part of a secret.

    The end of a text comes with the end of its reply. A text whose redaction changes a part that was already reported
    isn't continued; it is reported as a new one at its end.
    """

    def __init__(self, notify: Notify, redact: Callable[[str], str]) -> None:
        self._notify = notify
        self._redact = redact
        super().__init__(self._add)

    def begin(self) -> None:
        super().begin()
        self._text = ""
        self._shown = ""
        self._due = 0.0

    def end(self) -> None:
        super().end()
        self._show(self._redact(self._text), is_end=True)

    def _add(self, text: str) -> None:
        self._text += text
        start = time.monotonic()
        if start >= self._due:
            redacted = self._redact(self._text)
            length = max(len(redacted) - _HELD_BACK, 0)
            block = redacted.rfind(_BLOCK)
            if block >= 0 and _BLOCK_END not in redacted[block:]:
                length = min(length, block)
            self._show(redacted[: next((at for at in range(length, 0, -1) if redacted[at - 1].isspace()), 0)])
            now = time.monotonic()
            self._due = now + max(_EVERY_SECONDS, _SHARE * (now - start))

    def _show(self, text: str, *, is_end: bool = False) -> None:
        if not text.startswith(self._shown):
            if not is_end:
                return
            self._shown = ""
        for start in range(len(self._shown), len(text), LIVE_CHARS):
            self._notify(ChildText, text=text[start : start + LIVE_CHARS], is_first=start == 0)
        self._shown = text if len(text) > len(self._shown) else self._shown
