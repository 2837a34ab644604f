"""Works out the calculations that a report or a judge shows, so that their results need no source."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise, product
from typing import NamedTuple

from delegate.judging.citations.compare import DIGITS, Number, Text, read_number
from delegate.judging.citations.dates import follow_from_dates

_TOKEN = re.compile(
    rf"(?P<number>{DIGITS})(?P<percent>\s?%)?|(?P<paren>[()])|(?P<equals>[=≈])"
    r"|(?P<sign>[+×·÷/]|(?<=\s)[-–−x*:](?=\s)|(?<=\d)−(?=\d))|(?P<other>.)",
    re.DOTALL,
)
_ASIDE = re.compile(r"\([^()\d]*\)")
"""A remark in brackets, as in `74 € (with rand) + 22 €`."""
_BETWEEN = 40
"""So many characters at most are between a number and what is done with it."""
_MAX_TOKENS = 24
_MAX_READINGS = 256
_MAX_RESULTS = 200
"""So many results at most can be calculated with further; a report has fewer."""
_UNITS = frozenset(map(Fraction, (24, 52, 60, 365, *(10**n for n in range(2, 10)))))
"""What one calculates with although no source says it: hours, weeks, minutes and days, and powers of ten."""
_PRECEDENCE = {"+": 1, "-": 1, "×": 2, "÷": 2}


class _Token(NamedTuple):
    kind: str
    text: str
    number: Number | None
    start: int
    end: int


class Calculations:
    """The calculations of a report that are right, whose operands stand in one of these sources or are results too."""

    def __init__(self, texts: Iterable[str], sources: Collection[Text]) -> None:
        self._texts, self._sources = list(texts), sources
        self.results = Text("")
        """The results, as if a source had them."""
        self._work_out()

    def knowing(self, numbers: Iterable[Number]) -> "Calculations":
        """The same, with more numbers and dates that are known."""
        more, known = copy(self), list(numbers)
        values = self.results.values.union(*(number.values for number in known))
        more.results = Text("", values, self.results.days.union(*(number.exact for number in known)))
        more._work_out()
        return more

    def _work_out(self) -> None:
        right = (result for text in self._texts for _, _, result in self._right(text))
        for result in islice(right, _MAX_RESULTS):
            self.results = replace(self.results, values=self.results.values | {result})

    def without(self, text: str, *, solved: bool = False) -> str:
        """The text without the numbers of these calculations.

        With `solved`, also of those whose result is known, and all operands but one.
        """
        for start, end, _ in self._right(text, solved=solved):
            text = text[:start] + re.sub(r"\d", " ", text[start:end]) + text[end:]
        return text

    def give(self, calculation: str, number: Number, *, one_in_words: bool) -> bool:
        """Whether a calculation is right and gives this number; one operand may stand in the source in words only."""
        for days, then in follow_from_dates(calculation):
            # A date, or the day or year of one, or how many days.
            is_given = number.exact & then.exact if number.exact else number.values & then.values
            if is_given and sum(not self._is_known(day) for day in days) <= one_in_words:
                return True
        tokens = list(_tokens(calculation))
        for at, (token, after) in enumerate(pairwise(tokens)):
            if token.kind == "equals" and after.number is not None:
                value = self._value(tokens[:at], after, is_about=True, unknown=int(one_in_words))
                if value is not None:
                    is_share = any(abs(value * 100 - own) <= unit / 2 for own, unit in number.readings)
                    return is_share or Text("", frozenset({value})).has(number)
        return False

    def stand_in_a_source(self, words: str) -> bool:
        """Whether words, `plain`, stand in any source that the report cites, or in the task."""
        return any(map(str.isalnum, words)) and any(words in source.plain for source in self._sources)

    def _right(self, text: str, *, solved: bool = False) -> Iterator[tuple[int, int, Fraction]]:
        """Where calculations begin and end that are right, each with its result."""
        tokens = list(_tokens(_ASIDE.sub(lambda match: " " * len(match[0]), text)))
        for at, (before, token, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False), start=1):
            if token.kind == "equals" and after.number is not None:  # 2 + 3 = 5
                unknown = int(solved and self._is_known(after.number))
                for first in range(max(0, at - _MAX_TOKENS), at - 2):
                    value = self._value(tokens[first:at], after, is_about=token.text == "≈", unknown=unknown)
                    if value is not None:
                        yield tokens[first].start, after.end, value
                        break
            elif token.text == "(" and before.number is not None:  # 5 (2 + 3)
                for last in range(at + 4, min(at + _MAX_TOKENS, len(tokens))):
                    value = self._value(tokens[at + 1 : last], before) if tokens[last].text == ")" else None
                    if value is not None:
                        yield before.start, tokens[last].end, value
                        break

    def _value(
        self, tokens: Sequence[_Token], shown: _Token, *, is_about: bool = False, unknown: int = 0
    ) -> Fraction | None:
        """What a calculation gives, without its sign, if that is what is shown. At most so many operands may be
        `unknown`.
        """
        operations = _in_order(tokens)
        operands = [token.number for token in tokens if token.number is not None]
        if operations is None or shown.number is None or not self._are_known(operands, unknown):
            return None
        is_rounded = is_about or any(sign in "×÷" for sign in operations)
        for values in islice(product(*(number.values for number in operands)), _MAX_READINGS):
            value = _calculated(operations, values)
            size = None if value is None else abs(value)
            for result in (size, size and size * 100 if shown.text.endswith("%") else None):
                if result is not None and _is_shown_as(shown.number, result, is_rounded, is_about):
                    return result
        return None

    def _are_known(self, operands: Sequence[Number], unknown: int) -> bool:
        """Whether one can calculate with these: each stands in a source, but for units and small numbers beside others,
        from which alone any number can be made.
        """
        given = [number for number in operands if not number.is_small and _UNITS.isdisjoint(number.values)]
        strange = (number for number in given or operands if not self._is_known(number))
        return len(list(islice(strange, unknown + 1))) <= unknown

    def _is_known(self, number: Number) -> bool:
        """Whether a source has it, or 22 pence or percent for 0.22, 0.78 or 1.22."""
        factors = [value for value in number.values if 0 < value < 2 and value != 1]
        hundredths = (share * 100 for value in factors for share in (value, abs(1 - value)))
        changes = Number("", tuple((value, Fraction(0)) for value in hundredths))
        return any(source.has(number) or source.has(changes) for source in (*self._sources, self.results))


def _tokens(text: str) -> Iterator[_Token]:
    """The numbers, signs and brackets of a text; where other text between two of them is too long, `end`."""
    end, last = 0, ""
    for match in _TOKEN.finditer(text):
        if match["other"] is not None and match["other"] != ";":
            continue
        if match["other"] or match.start() - end > _BETWEEN:
            yield _Token("end", "", None, match.start(), match.start())
        end = match.end()
        if match["number"]:
            number = next(read_number(match["number"]))
            yield _Token("number", match[0], number, *match.span())
            last = "number"
        elif kind := next((kind for kind in ("paren", "equals", "sign") if match[kind]), None):
            text_of = {"*": "×", "·": "×", "x": "×", "/": "÷", ":": "÷", "–": "-", "−": "-"}.get(match[0], match[0])
            if kind != "sign" or last != "equals":  # but for the sign of a result, as in `= +5`
                yield _Token(kind, text_of, None, *match.span())
            last = kind


def _in_order(tokens: Sequence[_Token]) -> list[str] | None:
    """The calculation in postfix order, with `n` for each number in turn; None if it isn't one."""
    output: list[str] = []
    stack: list[str] = []
    wants_number = True
    for kind, text, *_ in tokens:
        if kind == "number" and wants_number:
            output.append("n")
            wants_number = False
        elif kind == "sign" and not wants_number:
            while stack and stack[-1] != "(" and _PRECEDENCE[stack[-1]] >= _PRECEDENCE[text]:
                output.append(stack.pop())
            stack.append(text)
            wants_number = True
        elif text == "(" and wants_number:
            stack.append(text)
        elif text == ")" and not wants_number and "(" in stack:
            while stack[-1] != "(":
                output.append(stack.pop())
            stack.pop()
        else:
            return None
    if wants_number or "(" in stack or output == ["n"]:
        return None
    return [*output, *reversed(stack)]


def _calculated(operations: Sequence[str], values: Sequence[Fraction]) -> Fraction | None:
    """None for a division by zero."""
    do: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "+": Fraction.__add__, "-": Fraction.__sub__, "×": Fraction.__mul__, "÷": Fraction.__truediv__,
    }  # fmt: skip
    given, stack = iter(values), list[Fraction]()
    for sign in operations:
        if sign == "n":
            stack.append(next(given))
            continue
        other = stack.pop()
        if sign == "÷" and not other:
            return None
        stack.append(do[sign](stack.pop(), other))
    return stack[0]


def _is_shown_as(number: Number, result: Fraction, is_rounded: bool, is_about: bool) -> bool:
    """Whether a number is this result; products and quotients may be rounded in the last place."""
    return any(
        abs(result - value) <= ((unit if is_about else min(unit, Fraction(1))) / 2 if is_rounded else 0)
        for value, unit in number.readings
    )
