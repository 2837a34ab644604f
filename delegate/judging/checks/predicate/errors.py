"""The error of an expression that can't be decided, and text that is cut to fit a message."""

from delegate.errors import DelegateError

MAX_MESSAGE_CHARS = 700


class PredicateError(DelegateError):
    """The expression can't be decided: a syntax error, a construct that isn't allowed, or a limit.

    The text names the construct, and its position where it is the construct that isn't allowed. It is a fault of the
    criterion, and never a pass.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def clip(text: str, length: int) -> str:
    """`text`, or its beginning and `…`."""
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str) -> str:
    """A message without line breaks, cut short, that can be written as UTF-8; a lone surrogate becomes `?`."""
    return clip(" ".join(text.split()), MAX_MESSAGE_CHARS).encode("utf-8", "replace").decode()
