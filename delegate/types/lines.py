"""Values as one line, and as tables for notebooks."""

from collections.abc import Sequence
from html import escape

from delegate._util.fencing import ONE_SPACE

_LINE_CHARS = 240
"""Maximum length of a line that `print` shows of a verdict or a result."""


def one_line(text: str) -> str:
    """Text of a child, a judge or a provider in one line of printable characters, cut where it gets long."""
    text = ONE_SPACE.sub(" ", text[:2_000])  # a command is shown with its own spaces
    line = "".join(char if char.isprintable() else " " for char in text).strip()
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def _html_row(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(one_line(text))}</{tag}>' for text in texts)}</tr>"


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a title. All texts are escaped."""
    table = _html_row("th", columns) + "".join(_html_row("td", row) for row in rows)
    return f"<p><b>{escape(one_line(title))}</b></p>" + (f"<table>{table}</table>" if columns else "")
