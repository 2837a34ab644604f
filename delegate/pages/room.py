"""Limits the size of a page: each task has room for so much HTML, which the most telling parts get first."""

PAGE_CHARS = 2_300_000
"""How much HTML all tasks of a page may take together."""
MOST_CHARS = 600_000
"""How much one task may take."""
LEAST_CHARS = 800
_ESCAPED = {"<": 3, ">": 3, "&": 4, '"': 4, "'": 4}
"""How much longer each character gets by escaping."""


class Room:
    """The room of one task. Whether anything was left out is `is_short`."""

    def __init__(self, chars: int) -> None:
        self._left = chars
        self.is_short = False

    @classmethod
    def for_each_of(cls, tasks: int) -> "Room":
        """The room of one of so many tasks."""
        return cls(max(LEAST_CHARS, min(MOST_CHARS, PAGE_CHARS // max(1, tasks))))

    @property
    def is_full(self) -> bool:
        """Whether there is no room for any more text."""
        return self._left < LEAST_CHARS // 4

    def take(self, text: str, most: int) -> str:
        """The text, cut with a note to what there is room for and to `most` characters."""
        part = text[: max(0, min(most, self._left))]
        if len(part) >= 1_000 and (length := _escaped_length(part)) > self._left:
            part = part[: int(len(part) * self._left / length)]
        self._left -= _escaped_length(part)
        if len(part) == len(text):
            return text
        self.is_short = True
        return f"{part}\n[… {len(text) - len(part):,} more characters …]" if part else ""

    def has(self, chars: int) -> bool:
        """Take room for something of this size; whether there was enough."""
        if self._left < chars:
            self.is_short = True
            return False
        self._left -= chars
        return True


def _escaped_length(text: str) -> int:
    return len(text) + sum(more * text.count(char) for char, more in _ESCAPED.items())
