"""Finds literals (ids, addresses, proper names, amounts, dates, times) in a text, however they are written there.

A literal stands in a text as a whole: 50 isn't in 50.25 or 50,000, 12 not in 12-99 or 12abc, and A7 not in A7#2.
Letters are compared without case, width and accents. Amounts, dates and times are compared by value, and amounts with
their sign: `1,500.00` is 1500, `3. Mai 2026` is 2026-05-03, `2 PM` is 14:00. Names of months are those of the Unicode
CLDR, in all of its languages.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence, Set
from decimal import Decimal
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from delegate._util.resources import text as text_of
from delegate.judging.proof.vocabulary import currencies, units

_ACCENTS = re.compile("[\u0300-\u036f]")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_TYPOGRAPHY = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u00b4`"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u00ab\u00bb"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
}
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters of scripts that put no space between words, or join endings to them."""
_JOINT = ".,:/-@'"
"""Between two digits or letters, these can be inside of an id, an address or a number."""
_ANCHOR = "#"
"""The same, but only behind it: `A7#2` isn't A7, and `acme/shop#318` is 318."""
_JOINING = "@_/:."
"""A name with one of these, or with a digit, is exact: it doesn't stand in a longer one."""

_AMOUNT = re.compile(
    r"(?:[a-z]{1,2}(?=[^\w\s]))?[^\w\d]{0,3}(?:[a-z]{1,3}\s?)?(\d[\d.,' ]*?)"
    r"(?:([^\W\d_]{1,3})|\s?(?:[^\w\s]|[^\W\d_]{1,3}))?"
)
_GROUPED = re.compile(r"(?=(?:\D*\d){4})\+?[a-z0-9]{1,8}(?:[ ()-]{1,2}[a-z0-9]{1,8}){2,11}")
"""An account, a phone number, or another id that is written in groups."""
_FILE_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]\w{0,7}")
_EITHER = re.compile(r"\d{1,2}\.\d{2}")
"""An amount, or a day and a month."""
_PLAIN_NUMBER = r"(\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?![.,:/-]?\d)"
_NUMBER = re.compile(rf"(?<![\w.,:/-])(?<!\d ')(?<!-[^\w\s.,:/-])(-?){_PLAIN_NUMBER}(?=\W|$|([a-z]{{1,4}})\b)")
_CURRENCY_NUMBER = re.compile(rf"(?<=[^\w\s.,:/-])(?<!-[^\w\s.,:/-]){_PLAIN_NUMBER}(?=\W|$|([a-z]{{1,4}})\b|\d)")
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})[-/.\u5e74](\d{1,2})[-/.\u6708](\d{1,2})(?!\d)")
_KOREAN_DATE = re.compile(r"(?:(\d{4})\s?\ub144\s?)?(\d{1,2})\s?\uc6d4\s?(\d{1,2})\s?\uc77c")
_CJK_DATE = re.compile(r"(?:(\d{4})\s?\u5e74\s?)?(\d{1,2})\s?\u6708\s?(\d{1,2})\s?[\u65e5\u53f7]")
_BASIC_DATE = re.compile(r"(?<![\w-])((?:19|20)\d{2})(\d{2})(\d{2})(?=t\d|\b)")
_LOCAL_DATE = re.compile(r"(?<![\d./-])(\d{1,2})([./-])(\d{1,2})(?:\2\s?(\d{4}|\d{2}))?(?![\d])(?![/-]\d)")
_WORD_DATE = re.compile(
    r"(?<!\d)(?:(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.|\u00ba|\u00aa)?\s?(?:de |of )?(?P<word>[^\W\d_]{3,}\.?)"
    r"|(?P<word2>[^\W\d_]{3,})\.?\s(?P<day2>\d{1,2})(?:st|nd|rd|th)?(?!\d))"
    r"(?:,?\s?(?:de |del |of )?(?P<year>\d{4}))?"
)
_TIME = re.compile(
    r"(?<![\d.,:])(?:t(?=\d))?(?P<hour>\d{1,2})(?:\s?[:h\u6642\u70b9\u65f6\uc2dc]\s?(?P<minute>\d{2})(?::\d{2}(?:\.\d+)?)?)?"
    r"(?P<half>\s?[ap]\.?\s?m\b|\s?h(?!\w))?(?![\d.,]?\d)"
)


class Date(NamedTuple):
    """A day. `year` is None where it isn't given."""

    year: int | None
    month: int
    day: int


@lru_cache(512)
def fold(text: str) -> str:
    """A short text for comparisons: without case, width and accents, with plain quotes and dashes and single spaces."""
    return _fold(text)


def _fold(text: str) -> str:
    if text.isascii():
        return " ".join(text.lower().split())
    text = _INVISIBLE.sub("", text.translate(_TYPOGRAPHY))
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return " ".join(unicodedata.normalize("NFC", plain).casefold().split())


class Text:
    """A text in which literals are searched. What it has of dates, times and amounts is found once."""

    def __init__(self, text: str) -> None:
        self._text = text

    def contains(self, literal: str) -> bool:
        """Whether it contains the literal, as a whole, in any of its forms."""
        folded = fold(literal).strip(" .")
        if not folded or _occurs(folded, self.folded):
            return True
        if not any(map(str.isdigit, folded)):
            return False
        if _GROUPED.fullmatch(folded) and _occurs(re.sub(r"[ ()-]", "", folded), self.folded):
            return True
        value = _value(folded)
        if not (value.dates or value.times or value.amounts):
            return False
        has_date = any(same_day(date, own) for date in value.dates for own in self._dates)
        has_amount = any(amount in self._amounts for amount in value.amounts)
        if value.amounts and value.dates:  # `1.20` can be either
            return has_amount or has_date
        if value.amounts:
            return has_amount and not self._is_in_another_currency(folded)
        has_time = any(time in self._times for time in value.times)
        return (has_date or not value.dates) and (has_time or not value.times)

    def _is_in_another_currency(self, amount: str) -> bool:
        """Whether the amount has a currency, and the text only others, as lines (values of fields) of their own."""
        codes, signs = currencies()
        words = re.split(r"[\d\s.,]+", amount)
        amount_codes = {signs.get(word, word) for word in words} & codes
        text_codes = codes.intersection(self.folded_lines)
        return bool(amount_codes and text_codes) and amount_codes.isdisjoint(text_codes)

    @cached_property
    def folded(self) -> str:
        """The text as it is searched."""
        return _fold(self._text)

    @cached_property
    def folded_lines(self) -> frozenset[str]:
        """Its lines, as they are compared."""
        return frozenset(map(_fold, self._text.split("\n")))

    @cached_property
    def _dates(self) -> frozenset[Date]:
        return _dates_in(self.folded)

    @cached_property
    def _times(self) -> frozenset[int]:
        return _times_in(self.folded)

    @cached_property
    def _amounts(self) -> frozenset[Decimal]:
        return frozenset(value for line in self.folded_lines for value in _amounts_in(line))


def stands_in(literal: str, text: str) -> bool:
    """Whether the text contains the literal, as a whole, in any of its forms."""
    return Text(text).contains(literal)


def is_amount(literal: str) -> bool:
    """Whether a literal is an amount, a day or a time, which is compared by value."""
    value = _value(fold(literal))
    return bool(value.amounts or value.dates or value.times)


def is_unspaced(text: str) -> bool:
    """Whether a text has letters of scripts that put no space between words."""
    return _UNSPACED.search(text) is not None


def missing(literals: Sequence[str], text: str) -> list[str]:
    """The literals that don't stand in the text."""
    searched = Text(text)
    return [literal for literal in literals if not searched.contains(literal)]


_QUOTED = re.compile("\"([^\"]+)\"|`([^`]+)`|(?<!\\w)'([^']+)'(?!\\w)|\u300c([^\u300d]+)\u300d")
_TOKEN = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s,;\"'<>()]+"  # addresses
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w-])(?=[\w.:/-]*\d)\w+(?:[.:,/-]\w+)*"  # numbers, dates, times, ids
    r"|[^\W\d_]+_\w+"
)


def clear_dates(text: str) -> list[list[Date]]:
    """The days that a text names in a clear way: with the name of a month and a year, or year first, or as in CJK. Each
    with all that it may be: `listopad` is October or November.
    """
    folded = _fold(text)
    found = [
        [Date(int(year) if year else None, int(month), int(day))]
        for pattern in (_ISO_DATE, _KOREAN_DATE, _CJK_DATE)
        for year, month, day in pattern.findall(folded)
    ]
    return [*found, *(days for days in _word_dates(folded) if days[0].year is not None)]


def dates_in(text: str) -> frozenset[Date]:
    """The days that a text names, each in every order in which it can be meant."""
    return _dates_in(_fold(text))


def without_dates(text: str, days: Set[Date] | None = None) -> str:
    """The folded text without the days that it names, or without these."""

    def rest(match: re.Match[str]) -> str:
        return match[0] if days is not None and days.isdisjoint(_dates_in(match[0])) else " "

    text = _fold(text)
    for match, _ in reversed(list(_with_months(text))):
        text = f"{text[: match.start()]}{rest(match)}{text[match.end() :]}"
    for pattern in (_ISO_DATE, _KOREAN_DATE, _CJK_DATE, _LOCAL_DATE):
        text = pattern.sub(rest, text)
    return text


def literals_in(statement: str) -> list[str]:
    """The literals that can be told without understanding the statement: what is quoted or contains a digit, addresses,
    names with an underscore. For statements that no model read.
    """
    text = statement.translate(_TYPOGRAPHY)
    quotes = ["".join(match.groups("")) for match in _QUOTED.finditer(text)]
    text = _QUOTED.sub(" ", text)
    dates = [match[0] for pattern in (_CJK_DATE, _KOREAN_DATE) for match in pattern.finditer(text)]
    for date in dates:
        text = text.replace(date, " ")
    # Where words stand without spaces between them, a literal ends where they begin.
    return list(dict.fromkeys([*quotes, *dates, *_TOKEN.findall(_UNSPACED.sub(" ", text))]))


# ------------------------------------------------------------------------------------------------- as a whole


def _occurs(literal: str, folded: str) -> bool:
    start = folded.find(literal)
    while start >= 0:
        end = start + len(literal)
        before, after = folded[max(0, start - 2) : start][::-1], folded[end : end + 2]
        if not _goes_on(literal, before, literal[0], is_before=True) and not _goes_on(literal, after, literal[-1]):
            return True
        start = folded.find(literal, start + 1)
    return False


def _goes_on(literal: str, outside: str, edge: str, *, is_before: bool = False) -> bool:
    """Whether a word, an id or a number goes on outside of its edge. `outside` begins next to the edge."""
    if not outside or not _is_word(edge) or _UNSPACED.match(edge) or _UNSPACED.match(outside[0]):
        return False
    if is_before and _AMOUNT.fullmatch(literal):
        sign = outside[1:] if unicodedata.category(outside[0]) == "Sc" else outside
        if sign[:1] == "-" and not sign[1:].isalnum():
            return True  # -50 isn't 50, and -$50 isn't
    if _is_word(outside[0]):
        is_time_mark = outside[0] == "t" and outside[1:].isdigit()  # the T of `2026-05-03T10:30`
        return not (edge.isdigit() and is_time_mark and not literal.isdigit())
    is_path = "/" in literal and "://" not in literal
    if outside[0] == "/" and is_before and (is_path or _FILE_NAME.fullmatch(literal)):
        return False  # a path may be given from further up
    precise = edge.isdigit() or any(char.isdigit() or char in _JOINING for char in literal)
    if outside[0] == "-":
        precise = True  # `checkout-admin` isn't `checkout`
    joints = _JOINT if is_before else _JOINT + _ANCHOR
    return precise and len(outside) > 1 and outside[0] in joints and outside[1].isalnum()


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


# ---------------------------------------------------------------------------------------------------- by value


class _Value(NamedTuple):
    dates: frozenset[Date] = frozenset()
    times: frozenset[int] = frozenset()
    """Minutes since midnight."""
    amounts: frozenset[Decimal] = frozenset()


@lru_cache(1024)
def _value(literal: str) -> _Value:
    """What a literal stands for, if it is nothing but a date, a time, both or an amount."""
    if dates := _dates_in(literal):
        if _EITHER.fullmatch(literal):
            return _Value(dates, amounts=frozenset(_readings(literal)))
        for pattern in (_ISO_DATE, _KOREAN_DATE, _CJK_DATE, _BASIC_DATE, _WORD_DATE, _LOCAL_DATE):
            literal = pattern.sub(" ", literal)
        return _Value(dates, _times_in(literal))
    match = _TIME.fullmatch(literal)
    times = _times(match) if match is not None else frozenset[int]()
    return _Value(times=times) if times else _Value(amounts=frozenset(_amounts_of(literal)))


def _amounts_of(literal: str) -> Iterator[Decimal]:
    """The values that a literal can have which is an amount, with its sign and currency."""
    match = _AMOUNT.fullmatch(literal)
    if match is None or (match[2] and not _is_unit(match[2])):
        return
    before = literal[: match.start(1)]
    if "-" in before and any(map(str.isalpha, before)):
        return  # `A-7` is no amount
    readings = _readings(match[1].strip())
    yield from (-reading for reading in readings) if "-" in before else readings


def _times_in(text: str) -> frozenset[int]:
    return frozenset(minutes for match in _TIME.finditer(text) for minutes in _times(match))


def _times(match: re.Match[str]) -> frozenset[int]:
    """The minutes since midnight of a time, which has minutes, or at least says which half of the day it is in."""
    if not match["minute"] and not match["half"]:
        return frozenset()
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").strip()
    if half not in ("", "h"):
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    return frozenset({hour * 60 + minute} if hour < 25 and minute < 60 else ())


def _amounts_in(text: str) -> frozenset[Decimal]:
    numbers = {*_NUMBER.findall(text), *(("", *groups) for groups in _CURRENCY_NUMBER.findall(text))}
    return frozenset(
        -value if sign else value
        for sign, number, unit in numbers
        if not unit or _is_unit(unit)
        for value in _readings(number, in_text=True)
    )


def _is_unit(letters: str) -> bool:
    """Whether letters right behind a number are a unit or a currency: `30min`, and not `12abc`."""
    return not letters.isascii() or letters in units() or letters in currencies()[0]


def _readings(number: str, *, in_text: bool = False) -> Iterator[Decimal]:
    """The values that a number can have: a point or comma can separate thousands or fractions.

    A comma before three digits separates thousands where a program wrote it, and before three zeros anyway.
    """
    bare = re.sub(r"[' ]", "", number).rstrip(".,")
    if not re.fullmatch(r"\d[\d.,]*", bare):
        return
    marks = [char for char in bare if char in ".,"]
    first, *groups = re.split(r"[.,]", bare)
    if not marks:
        yield Decimal(first).normalize()
        return
    last = groups[-1]
    is_thousands = marks == [","] and len(last) == 3 and not bare.startswith("0") and (in_text or last == "000")
    if (len(set(marks)) == 2 or len(marks) == 1) and not is_thousands:  # the last mark can begin the fraction
        yield Decimal(f"{re.sub(r'[.,]', '', bare[: -len(last) - 1])}.{last}").normalize()
    if len(set(marks)) == 1 and all(len(group) == 3 for group in groups):
        yield Decimal(re.sub(r"[.,]", "", bare)).normalize()


def same_day(first: Date, second: Date) -> bool:
    """Whether these can be the same day, also where a year isn't given."""
    years = first.year is None or second.year is None or first.year == second.year
    return years and (first.month, first.day) == (second.month, second.day)


def _dates_in(text: str) -> frozenset[Date]:
    """All days that a text names, each in every order in which it can be meant."""
    dates = list(chain.from_iterable(_word_dates(text)))
    for pattern in (_ISO_DATE, _BASIC_DATE, _KOREAN_DATE, _CJK_DATE):
        for year, month, day in pattern.findall(text):
            dates.append(Date(int(year) if year else None, int(month), int(day)))
    for first, mark, second, year in _LOCAL_DATE.findall(text):
        if year or mark == "/" or (mark != "-" and len(second) == 2):
            full = None if not year else int(year) if len(year) == 4 else 2000 + int(year)
            dates += [Date(full, int(second), int(first)), Date(full, int(first), int(second))]
    return frozenset(date for date in dates if 1 <= date.month <= 12 and 1 <= date.day <= 31)


def _word_dates(text: str) -> Iterator[list[Date]]:
    """The days that are written with the name of a month, each with all that it may be."""
    for match, months in _with_months(text):
        day = int(match["day"] or match["day2"])
        yield [Date(int(match["year"]) if match["year"] else None, month, day) for month in months]


def _with_months(text: str) -> Iterator[tuple[re.Match[str], list[int]]]:
    """The days that are written with the name of a month. `opened 18 May` has one, behind a word that is none."""
    start = 0
    while match := _WORD_DATE.search(text, start):
        months = _months().get((match["word"] or match["word2"]).rstrip("."))
        if months:
            yield match, months
        start = match.end() if months else max(match.start("word"), match.start("day2"))


@cache
def _months() -> dict[str, list[int]]:
    """The months that a folded word can name, in any language of the CLDR."""
    months: dict[str, list[int]] = {}
    for number, names in json.loads(text_of("judges", "months.json")).items():
        for name in names.split():
            months.setdefault(name, []).append(int(number))
    return months
