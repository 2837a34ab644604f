"""Compares a statement with its source in any language: quoted passages literally, numbers and dates by value.

Nothing here knows words but the names of months, which the Unicode CLDR has in all of its languages.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from delegate.judging.proof import literals

MIN_WIDTH = 12
"""A quoted passage of fewer columns is a term or a title, and need not stand in the source."""
SMALL = 12
"""Whole numbers up to this one are often written as words, so that only a judge can find them."""
_SHIFTS = tuple(Fraction(10) ** n for n in (0, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8, -8, 9, -9, 12, -12))
"""The powers of ten between a number and the same one in thousands, lakhs, millions, 万 or 億."""
_TOLERANCE = Fraction(1, 20)
_MAX_DIGITS = 40
"""What is longer is no number that anybody compares."""
_NEAR = 24
"""So many characters at most are between the day and the year of one date."""

_FOLDED = {
    **dict.fromkeys(map(ord, "‘’‚‛′`´"), "'"),
    **dict.fromkeys(map(ord, "“”„‟«»「」『』″"), '"'),
    **dict.fromkeys(map(ord, "‹›"), "'"),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    ord("*"): None,
    **dict(zip(map(ord, "ёЁ"), "еЕ", strict=True)),  # which Russian prints without dots
}
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{0,1000}\)")
_CJK = r"[\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
_CJK_SPACE = re.compile(rf"(?<={_CJK}) | (?={_CJK})")
QUOTED = re.compile(
    # Within a quoted passage there may be another one with the same marks.
    r"„((?:[^„“”]|„[^„“”]+[“”])+)[“”]|“((?:[^“”]|“[^“”]+”)+)”|”([^“”]+)”|«((?:[^«»]|«[^«»]+»)+)»|»([^«»]+)«"
    r'|「((?:[^「」]|「[^「」]+」)+)」|『([^『』]+)』|(?<!\w)"([^"]+)"(?!\w)'
)
_QUOTED_INWARD = re.compile(r"»([^«»]+)«")
_OMISSION = re.compile(r"\s*(?:\[[^\]]{0,80}\]|\(\.\.\.\)|\.\.\.)\s*")
_AT_END = " .,;:!?。、，！？"
_BETWEEN_NUMBERS = re.compile(r"(?<=\d)，(?!\d{3}(?!\d))(?=\d)|(?<=\d{4})，(?=\d)")
"""A full-width comma that isn't one of thousands."""


def plain(text: str) -> str:
    """The text for comparisons: NFKC, plain quotes and dashes, single spaces, no links or characters without width."""
    text = _BETWEEN_NUMBERS.sub(", ", text) if "，" in text else text
    text = unicodedata.normalize("NFKC", text.translate(_FOLDED)).translate(_FOLDED)
    text = "".join(c for c in text if unicodedata.category(c) != "Cf") if not text.isascii() else text
    return _CJK_SPACE.sub("", " ".join(_LINK.sub(r"\1", text).split()))


def quote_spans(text: str) -> list[tuple[int, int]]:
    """Where the quoted passages of a text are, with their marks."""
    first = text.find("»"), text.find("«")
    points_inward = first[0] >= 0 and (first[1] < 0 or first[0] < first[1])
    spans = [match.span() for match in QUOTED.finditer(text) if not (points_inward and match[4])]
    return spans + [match.span() for match in _QUOTED_INWARD.finditer(text)] if points_inward else spans


def passages(quote: str) -> list[str]:
    """The pieces of a quoted passage that must stand in its source, in this order: all but what marks an omission."""
    pieces = (piece.strip(_AT_END) for piece in _OMISSION.split(plain(quote)))
    return [piece for piece in pieces if any(map(str.isalnum, piece))]


def width(text: str) -> int:
    """How many columns a text takes: two for a CJK character."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


# --------------------------------------------------------------------------------------------------- numbers

_TENS = dict(zip("十百千万萬億亿兆십백천만억조", (1, 2, 3, 4, 4, 8, 8, 12, 1, 2, 3, 4, 8, 12), strict=True))
"""The powers of ten that stand behind digits in China, Japan and Korea."""
_TENS_IN = f"[{''.join(_TENS)}]"
DIGITS = r"(?:\d{1,3}(?:[ ']\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,٫٬']\d+)*)"
_TOKEN = re.compile(
    rf"(?P<iso>(?<!\d)\d{{4}}([-/.])\d{{1,2}}\2\d{{1,2}}(?!\d))"
    rf"|(?P<date>(?<!\d)\d{{1,2}}([./-]) ?\d{{1,2}}\4 ?\d{{4}}(?!\d))"
    rf"|(?P<time>(?<![\d:])\d{{1,2}}:\d{{2}}(?![\d:]))"
    rf"|(?P<tens>{DIGITS}{_TENS_IN}+(?: ?{DIGITS}{_TENS_IN}+)*(?: ?{DIGITS}(?![\d년年]))?)"
    rf"|(?P<number>{DIGITS})"
)
_TENS_PART = re.compile(rf"({DIGITS})({_TENS_IN}*)")


_DAY = re.compile(r"(?<!\d)(\d{1,2})(?:[./-] ?|[月월] ?)(\d{1,2})(?!\d)")
_CJK_UNITS = dict(zip("十拾百千万萬億亿兆", (10, 10, 100, 1000, 10**4, 10**4, 10**8, 10**8, 10**12), strict=True))
_CJK_DIGITS = dict(zip("〇零一二三四五六七八九兩两壱弐参", (0, *range(10), 2, 2, 1, 2, 3), strict=True))
_CJK_NUMERAL = re.compile(f"[{''.join(_CJK_UNITS)}{''.join(_CJK_DIGITS)}]{{2,20}}")


@dataclass(frozen=True, slots=True)
class Number:
    """One number, date or time of a text."""

    text: str
    readings: tuple[tuple[Fraction, Fraction], ...] = ()
    """What it may mean, each with what its last digit counts that isn't a zero: 1.230 is 1230, in tens, in German."""
    exact: frozenset[tuple[int, ...]] = frozenset()
    """Of a date, the year, month and day, in each order in which it may be read; of a time, the minutes on a clock of
    twelve hours.
    """

    @property
    def values(self) -> frozenset[Fraction]:
        """What it may mean."""
        return frozenset(value for value, _ in self.readings)

    @property
    def is_small(self) -> bool:
        """Whether it may stand in the source as a word."""
        return bool(self.values) and all(value <= SMALL and value.denominator == 1 for value in self.values)


def numbers(text: str) -> Iterator[Number]:
    """The numbers of a text that is `plain`. Digits right behind a letter belong to a name, such as Q3 or COVID-19."""
    for match in _TOKEN.finditer(text):
        before = text[: match.start()][-2:]
        letter = before[:1] if before[1:] == "-" else before[-1:]
        if letter.isupper() or letter.islower():
            continue
        token = match[0]
        if len(token) > _MAX_DIGITS:
            continue
        if match["iso"] or match["date"]:
            yield from _date(token)
        elif match["time"]:
            hour, minute = map(int, token.split(":"))
            readings = (Fraction(hour), Fraction(1)), (Fraction(f"{hour}.{minute:02}"), Fraction(1, 100))
            yield Number(token, readings, frozenset({((hour * 60 + minute) % 720,)}))
        elif match["tens"]:
            yield _with_tens(token)
        else:
            yield from read_number(token)


def _date(token: str) -> Iterator[Number]:
    a, b, c = (int(part) for part in re.split(r"[-/.] ?", token))
    orders = [(a, b, c)] if a > 31 else [(c, b, a), (c, a, b)]
    dates = frozenset((year, month, day) for year, month, day in orders if 1 <= month <= 12 and 1 <= day <= 31)
    if dates:
        yield Number(token, tuple((Fraction(part), Fraction(1)) for part in (a, b, c)), dates)
    else:
        yield from (Number(str(part), ((Fraction(part), Fraction(1)),)) for part in (a, b, c))


def _with_tens(token: str) -> Number:
    """A number with powers of ten among its digits, such as 1億2000万."""
    value = unit = Fraction(0)
    for digits, tens in _TENS_PART.findall(token):
        part = next(read_number(digits))
        digits_value, digits_unit = max(part.readings)
        unit = digits_unit
        for ten in tens:
            unit *= 10 ** _TENS[ten]
        value += digits_value * unit / digits_unit
    return Number(token, ((value, unit),))


def _cjk_value(run: str) -> Fraction:
    """What a number in Chinese characters means: 二千八 with its units, 二〇〇八 digit by digit."""
    if not any(c in _CJK_UNITS for c in run):
        return Fraction("".join(str(_CJK_DIGITS[c]) for c in run))
    total = section = digit = 0
    for c in run:
        unit = _CJK_UNITS.get(c)
        if unit is None:
            digit = 10 * digit + _CJK_DIGITS[c]
        elif unit < 10**4:
            section, digit = section + (digit or 1) * unit, 0
        else:
            total, section, digit = total + (section + digit or 1) * unit, 0, 0
    return Fraction(total + section + digit)


def read_number(token: str) -> Iterator[Number]:
    """The number that some digits write, in all that it may mean; several for a list such as 1,2,3."""
    token = "".join(c if c in "., '" else {"٫": ".", "٬": ","}.get(c) or str(unicodedata.digit(c)) for c in token)
    groups = re.split(r"[ .,']", token)
    marks = re.findall(r"[ .,']", token)
    values: set[str] = set()
    if not marks:
        values.add(token)
    elif len(set(marks)) == 1 and _are_groups(groups):
        values.add("".join(groups))
    if len(set(marks)) == 2 and marks.count(marks[-1]) == 1 and _are_groups(groups[:-1]):
        values.add(f"{''.join(groups[:-1])}.{groups[-1]}")
    elif len(marks) == 1 and marks[0] in ".,":
        values.add(".".join(groups))
    if not values:  # a list such as 1,2,3, or a version
        yield from (Number(group, ((Fraction(group), Fraction(1)),)) for group in groups)
        return
    yield Number(token, tuple((Fraction(value), _unit(value)) for value in sorted(values)))


def _are_groups(groups: list[str]) -> bool:
    """Whether these are the groups of one large number; in India, only the last one has three digits."""
    first, *others = groups
    if not others:
        return True
    return 1 <= len(first) <= 3 and len(others[-1]) == 3 and all(len(group) in (2, 3) for group in others)


def _unit(digits: str) -> Fraction:
    whole, _, decimals = digits.partition(".")
    if decimals:
        return Fraction(1, 10 ** len(decimals))
    return Fraction(10) ** (len(whole) - len(whole.rstrip("0")) if whole.strip("0") else 0)


# --------------------------------------------------------------------------------------------------- sources


@dataclass(frozen=True)
class Text:
    """The text of a source, prepared for comparisons."""

    text: str
    values: frozenset[Fraction] = frozenset()
    """Numbers that are known without a text."""
    days: frozenset[tuple[int, ...]] = frozenset()
    """Dates that are, each with year, month and day."""

    @cached_property
    def plain(self) -> str:
        return plain(self.text)

    @cached_property
    def _numbers(self) -> list[Number]:
        return list(numbers(self.plain))

    @cached_property
    def _values(self) -> frozenset[Fraction]:
        values = {value for number in self._numbers for value in number.values} | self.values
        values |= set(map(_cjk_value, _CJK_NUMERAL.findall(self.plain)))
        # Where a row of numbers could be one with spaces, each of its groups is a number too.
        values |= {Fraction(group) for group in re.findall(r"\d+", self.plain) if len(group) <= _MAX_DIGITS}
        return frozenset(values)

    @cached_property
    def _sorted(self) -> list[Fraction]:
        return sorted(self._values)

    @cached_property
    def _days(self) -> frozenset[tuple[int, int]]:
        return frozenset((int(one), int(other)) for one, other in _DAY.findall(self.plain))

    @cached_property
    def _exact(self) -> frozenset[tuple[int, ...]]:
        return self.days.union(*(number.exact for number in self._numbers))

    def place_of(self, quote: str) -> int | None:
        """Where a quoted passage begins in `plain`; None if it isn't there."""
        start = end = -1
        for piece in passages(quote):
            at = self.plain.find(piece, max(end, 0))
            if at < 0 and start < 0:  # the first letter is fitted to the sentence that quotes
                at = self.plain.find(piece[0].swapcase() + piece[1:])
            if at < 0:
                return None
            start, end = (at if start < 0 else start), at + len(piece)
        return start if start >= 0 else None

    def has(self, number: Number) -> bool:
        """Whether a number stands here, or one of which it is a rounded form."""
        if not self._exact.isdisjoint(number.exact):
            return True
        dates = [exact for exact in number.exact if len(exact) > 1]
        if dates:
            return any(self._has_in_words(*date) for date in dates)
        return not self._values.isdisjoint(number.values) or any(
            self._has_near(value, unit) for value, unit in number.readings
        )

    def _has_in_words(self, year: int, month: int, day: int) -> bool:
        """Whether the day and the year stand together, with a word or number for the month, or the day and the month,
        and the year elsewhere, as in the head of a table.
        """
        if Fraction(year) in self._values and {(day, month), (month, day)} & self._days:
            return True
        one, other = rf"(?<!\d){year}(?!\d)", rf"(?<!\d)0?{day}(?!\d)"
        between = rf".{{0,{_NEAR}}}?"
        return re.search(f"{one}{between}{other}|{other}{between}{one}", self.plain) is not None

    def _has_near(self, value: Fraction, unit: Fraction) -> bool:
        """Whether a number here is this one when it is rounded, in whatever power of ten it is written."""
        tolerance = min(unit / 2, value * _TOLERANCE)
        for shift in _SHIFTS:
            low = (value - tolerance) * shift
            at = bisect_left(self._sorted, low)
            if value and at < len(self._sorted) and self._sorted[at] <= (value + tolerance) * shift:
                return True
        return False

    @cached_property
    def _all_dates(self) -> frozenset[literals.Date]:
        return literals.dates_in(self.text)

    def has_date(self, date: literals.Date) -> bool:
        """Whether this day stands here."""
        return any(literals.same_day(date, own) for own in self._all_dates)

    def has_other_date(self, date: literals.Date) -> bool:
        """Whether another day stands here where this one should, where the dates here can be read."""
        if self.has_date(date):
            return False
        has_other_month = any((own.year, own.day) == (date.year, date.day) for own in self._all_dates if own.year)
        return has_other_month or (bool(self._all_dates) and date.day not in self._beside_dates)

    @cached_property
    def _beside_dates(self) -> frozenset[int]:
        """The days that may be of a date in another form, as in 3-4 May."""
        return frozenset(map(int, re.findall(r"(?<!\d)\d{1,2}(?!\d)", literals.without_dates(self.text))))

    @cached_property
    def grouped(self) -> frozenset[str]:
        """The long numbers of ids, without the spaces and dashes in them."""
        return frozenset(_joined(match[0]) for match in _ID.finditer(self.plain))


_ID = re.compile(r"(?<![\w.,-])\d+(?:[ -]\d+)*(?![\w.,]?\d)")
_SHORTEST_ID = 6


def _joined(digits: str) -> str:
    return re.sub("[ -]", "", digits)


def missing(statement: str, sources: Iterable[Text], also: Iterable[Text] = ()) -> list[str]:
    """The numbers, dates and times of a statement that none of these sources has, except small numbers and those that
    are known from what is given `also`.
    """
    texts, given = list(sources), list(also)
    known = [*texts, *given]
    days = {literals.Date(*day) for text in given for day in text.days if len(day) == 3}
    if not days.isdisjoint(literals.dates_in(statement)):
        statement = literals.without_dates(statement, days)

    def without_known(match: re.Match[str]) -> str:
        digits = _joined(match[0])
        is_known = len(digits) >= _SHORTEST_ID and any(digits in text.grouped for text in texts)
        return " " if is_known else match[0]

    found = numbers(_ID.sub(without_known, plain(statement)))
    lost = [number.text for number in found if not number.is_small and not any(text.has(number) for text in known)]
    dates = {
        days[0]
        for days in literals.clear_dates(statement)
        if all(text.has_other_date(day) for text in texts for day in days)
        and not any(text.has_date(day) for text in given for day in days)
    }
    named = ("-".join(str(part) for part in date if part is not None) for date in sorted(dates, key=str))
    return list(dict.fromkeys([*lost, *named]))
