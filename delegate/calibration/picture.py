"""Draws the measured errors as a picture in SVG: a line per judge and worker with its interval."""

from collections.abc import Sequence
from html import escape

from delegate.calibration.measure import Measured, judge_name
from delegate.calibration.statistics import Interval

_WIDTH, _LABELS, _ROW, _TOP = 900, 330, 26, 64
_PLOT = (_WIDTH - _LABELS - 40) // 2
_NAME_CHARS = 46
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222 } .small { font-size: 11px; fill: #666 }
.grid { stroke: #ddd } .interval { stroke: #446; stroke-width: 3 } .limit { stroke: #b00; stroke-dasharray: 4 3 }
circle { fill: #446 } svg { background: #fff }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .small { fill: #999 } .grid { stroke: #444 } .interval { stroke: #9ad } .limit { stroke: #f66 }
  circle { fill: #9ad } svg { background: #181818 }
}
"""


def svg(measured: Sequence[Measured], limit: float | None = None) -> str:
    """The picture: rates of false PASS and false FAIL with 95 % intervals. `limit` is `max_false_pass`."""
    rows = [judge for judge in measured if judge.false_pass or judge.false_fail]
    height = _TOP + _ROW * max(1, len(rows)) + 30
    intervals = [part for judge in rows for part in (judge.false_pass, judge.false_fail) if part]
    scale = min(1.0, max([0.1, limit or 0, *(part.upper for part in intervals)]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" aria-label="False PASS and false FAIL rates of judges">',
        f"<style>{_STYLE}</style>",
        '<text x="10" y="20">Rates of error with exact 95 % intervals, measured by rulings</text>',
    ]
    for column, title in enumerate(("false PASS", "false FAIL")):
        parts += _axis(column, title, scale, height, limit if column == 0 else None)
    for n, judge in enumerate(rows):
        y = _TOP + n * _ROW + _ROW // 2
        parts.append(f'<text x="{10 if judge.worker is None else 26}" y="{y + 4}">{_name(judge, rows)}</text>')
        parts += _bar(0, y, judge.false_pass_rate, judge.false_pass, scale)
        parts += _bar(1, y, judge.false_fail_rate, judge.false_fail, scale)
    if not rows:
        parts.append(f'<text x="10" y="{_TOP + 16}">no rulings</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _name(judge: Measured, rows: Sequence[Measured]) -> str:
    text = judge_name(judge, rows) if judge.worker is None else f"on {judge.worker or 'unknown'}"
    text += f" (n {judge.table.n})" + (", chosen" if judge.sampling == "chosen" else "")
    text = "".join(char if char.isprintable() else " " for char in text)
    return escape(text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 1] + "…")


def _x(column: int, rate: float, scale: float) -> float:
    return round(_LABELS + column * (_PLOT + 20) + rate / scale * (_PLOT - 30), 1)


def _axis(column: int, title: str, scale: float, height: int, limit: float | None) -> list[str]:
    parts = [f'<text x="{_x(column, 0, scale)}" y="40">{title}</text>']
    for step in range(5):
        rate = scale * step / 4
        x = _x(column, rate, scale)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{height - 26}"/>')
        parts.append(f'<text class="small" x="{x}" y="{height - 10}" text-anchor="middle">{rate:.1%}</text>')
    if limit is not None:
        x = _x(column, limit, scale)
        parts.append(f'<line class="limit" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{height - 26}"/>')
    return parts


def _bar(column: int, y: int, rate: float | None, interval: Interval | None, scale: float) -> list[str]:
    if rate is None or interval is None:
        return []
    low, high = (_x(column, limit, scale) for limit in interval)
    return [
        f'<line class="interval" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>',
        f'<circle cx="{_x(column, rate, scale)}" cy="{y}" r="5"/>',
    ]
