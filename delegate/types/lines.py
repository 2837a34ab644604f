"""Values as one line, and as tables for notebooks."""

from collections.abc import Sequence
from html import escape

_LINE_CHARS = 240
"""Maximum length of a line that `print` shows of a verdict, a result or a report."""


def one_line(text: str) -> str:
    """Text of a child, a judge or a provider in one line of printable characters, cut where it gets long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[:2_000]).split())
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def _escaped(text: str) -> str:
    return escape(one_line(text))


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a title. All texts are escaped."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p><b>{_escaped(title)}</b></p>" + (f"<table><tr>{head}</tr>{body}</table>" if columns else "")
