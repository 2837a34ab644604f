"""Works out dates that follow from others, and how long it is between two."""

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from delegate.judging.citations.compare import Number, numbers, read_number

_DAY = r"\d{4}-\d{2}-\d{2}"
_STEP = re.compile(r" ([+-]) (\d{1,5}) (day|week|month|year)s?")
_CALCULATION = re.compile(
    rf"(?P<first>{_DAY})(?P<steps>(?:{_STEP.pattern})+) = (?P<then>{_DAY})"
    rf"|(?P<end>{_DAY}) - (?P<start>{_DAY}) = (?P<count>\d{{1,5}}) (?P<unit>day|week|month|year)s?"
)


def follow_from_dates(calculation: str) -> list[tuple[Sequence[Number], Number]]:
    """What a calculation with dates gives, each behind the dates from which it follows; nothing if it is wrong.

    It is like `2019-11-09 + 22 months + 3 days = 2021-09-12` or `2021-09-12 - 2019-11-09 = 673 days`. The first and the
    last day of a month are left out of the dates, since one counts from these without any source.
    """
    match = _CALCULATION.fullmatch(calculation.strip())
    try:
        found = list(_from_steps(match) if match["steps"] else _between(match)) if match else []
    except (ValueError, OverflowError):  # no such day
        return []
    return [([_number(day) for day in days if not _ends_month(day)], then) for days, then in found]


def _from_steps(match: re.Match[str]) -> Iterator[tuple[Sequence[str], Number]]:
    day, steps = date.fromisoformat(match["first"]), _STEP.findall(match["steps"])
    for sign, count, unit in steps:
        day = _moved(day, int(sign + count), unit)
    if day.isoformat() == match["then"]:
        first, then = match["first"], match["then"]
        yield [first], _number(then)
        yield from (([first, then], next(read_number(count))) for _, count, _ in steps)


def _between(match: re.Match[str]) -> Iterator[tuple[Sequence[str], Number]]:
    start, end, count = date.fromisoformat(match["start"]), date.fromisoformat(match["end"]), int(match["count"])
    if _moved(start, count, match["unit"]) <= end < _moved(start, count + 1, match["unit"]):
        yield [match["start"], match["end"]], next(read_number(match["count"]))


def _ends_month(day: str) -> bool:
    """Whether it is the first or the last day of its month."""
    moment = date.fromisoformat(day)
    return moment.day in (1, monthrange(moment.year, moment.month)[1])


def _number(day: str) -> Number:
    return next(numbers(day))


def _moved(day: date, count: int, unit: str) -> date:
    """The day so many days, weeks, months or years later, or the last one of its month."""
    if unit in ("day", "week"):
        return day + timedelta(count if unit == "day" else 7 * count)
    year, month = divmod(12 * day.year + day.month - 1 + (count if unit == "month" else 12 * count), 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
