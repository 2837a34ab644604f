"""Decides from its record whether a tool call succeeded: yes, no, or its result doesn't say.

What the tool declares as success decides (`Tool.succeeded`). Where nothing is declared, the fields of the result do, by
the vocabulary of protocols in `judges/outcomes.toml`, at any depth. A "no" anywhere is a no. These are not about the
call and don't count: records of something else that come with it, such as a history; fields that only repeat what the
call was made with; and sentences, whatever they say.

A yes needs a word of a protocol that says so: a flag, a status, a count, a code. The id of what was made is one too,
but only where nothing stands beside it that could say the opposite in another language: `{"id": 7, "estado":
"rechazado"}` is unclear.

A result has an *envelope*, which is about the call: the outermost object, what wraps it, such as `data`, and the
entries of a batch. What is further in is a *record*, in which only failures and what it says of its own status count.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeGuard, cast

from delegate.judging.checks.matching import CUT, result_of
from delegate.judging.checks.schema_worker import find_error
from delegate.judging.proof.results import http_status, short_answer, values_in
from delegate.judging.proof.values import fields_in, scalars
from delegate.judging.proof.vocabulary import currencies, field_words, status_words, tokens_of, words
from delegate.types import JsonObject, Receipt

Outcome = Literal["yes", "no", "unclear"]
Said = Literal["yes", "no", "in_part", "not_yet", "doubtful", "unclear"]
"""An outcome in which a call that was refused, one that was done in part and one that is pending differ.

`doubtful` says something that isn't in the vocabulary or doesn't agree with the arguments; `unclear` says nothing."""
Success = JsonObject | Callable[[Any], bool]
"""A JSON Schema of the results that show success, or a function that tells it of a result."""

_Signal = Said | Literal["made", "unknown"]
"""What a field says: also the id of what was made, and a word or a flag of which it isn't known what it says."""

_ORDER: tuple[Said, ...] = ("no", "in_part", "not_yet", "doubtful", "unclear", "yes")
"""What decides, of several signals."""
_MAX_DEPTH = 12
_MAX_VALUES = 5_000
"""How many values of a result are looked at."""
_STATUS_TOKENS = 5
"""A longer status is a sentence."""
_TIMESTAMP = 100_000_000
"""A larger number is a time and not a count."""
_LONG = 12
"""A text of this length that the call was made with isn't read again in a result that is a text."""
_ERRORS_FROM = 400
_LARGEST_HTTP = 600
_MESSAGES = ("message", "msg")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_HOST = re.compile(r"https?://([^/:\s]+)")
_AUXILIARY = frozenset({"is", "was", "has", "been"})


def outcome(receipt: Receipt, success: Success | None = None, *, reads: bool = False) -> Outcome:
    """Whether the call succeeded. `reads`: it is a look-up, of whose result only the envelope is about the call."""
    return outcome_of(said(receipt, success, reads=reads))


def outcome_of(word: Said) -> Outcome:
    """The outcome of which more was said."""
    return "no" if word in ("no", "in_part", "not_yet") else "yes" if word == "yes" else "unclear"


def said(receipt: Receipt, success: Success | None = None, *, reads: bool = False) -> Said:
    """The same, where a call that is pending or done in part is told from one that was refused or only tried out."""
    if receipt.status != "ok":
        return "in_part" if receipt.status == "unknown" else "no"
    text = receipt.whole_output
    if success is not None:
        return _as_declared(receipt, success)
    if reads:
        return _of_look_up(text)
    call = _Call.of(receipt)
    if any(call.is_trial(key, value) for key, value in fields_in(receipt.args)):
        return "no"
    if text.lstrip()[:1] not in ("{", "["):
        for argument in sorted(set(_texts_of(receipt.args)), key=len, reverse=True):
            text = text.replace(argument, " ") if len(argument) >= _LONG else text
    values = [entry.value for entry in values_in(text)]
    signals: list[_Signal] = [signal for value in values for signal in _Result(call).signals(value)]
    if short := short_answer(text) or (None if values else _word(text, call)):
        signals.append(short)
    if http_status((text.lstrip().splitlines() or [""])[0]) == HTTPStatus.ACCEPTED:
        signals.append("doubtful")
    if (
        call.is_elsewhere()
        or any(map(call.contradicts, values))
        or (values and set(signals) <= {"unknown"} and not any(map(call.can_read, values)))
    ):
        signals.append("doubtful")
    return _together(signals)


def _together(signals: Sequence[_Signal]) -> Said:
    for word in _ORDER:
        if word in signals:
            return word
    return "yes" if "made" in signals and "unknown" not in signals else "unclear"


def _as_declared(receipt: Receipt, success: Success) -> Said:
    """What the declaration says. A function that raises on a result doesn't know it as a success."""
    if (result := result_of(receipt)) is CUT:
        return "unclear"
    if not callable(success):
        return "no" if find_error(result, success) else "yes"
    try:
        return "yes" if success(result) else "no"
    except (Exception, SystemExit):  # somebody else's code
        return "no"


def _of_look_up(text: str) -> Said:
    """What a look-up says, of which only the envelope is about the call."""
    names, broken = words("fields"), words("values")["broken"]
    for entry in values_in(text):
        value: object = entry.value if entry.is_whole else None
        for name, part in cast("Mapping[str, Any]", value).items() if isinstance(value, Mapping) else ():
            key = tokens_of(str(name))
            if _is_error(key):
                has_failed = isinstance(part, (bool, str, Mapping, list)) and not _is_nothing(part)
            elif len(key) == 1 and key[0] in names["success"]:
                has_failed = _truth(part) is False
            elif " ".join(key) in names["exit"]:
                has_failed = _number(part) not in (None, 0)
            else:
                said_words = set(tokens_of(part)) if key == ("status",) and isinstance(part, str) else set[str]()
                has_failed = bool(said_words) and said_words <= broken
            if has_failed:
                return "no"
    return "yes"


# ------------------------------------------------------------------------------------------------------- the call


@dataclass(frozen=True, slots=True)
class _Call:
    """What a result may repeat, and what its tool does."""

    verbs: tuple[str, ...]
    """The words of the tool's name."""
    args: Mapping[str, Sequence[Any]]
    """What the call was made with, by the last words of the fields."""
    values: frozenset[str]
    parts: Sequence[Any]
    """Objects and lists among the arguments."""
    arguments: JsonObject
    """All of them."""

    @classmethod
    def of(cls, receipt: Receipt) -> "_Call":
        args: dict[str, list[Any]] = {}
        for key, value in fields_in(receipt.args):
            args.setdefault(_kind(tokens_of(key)), []).append(value)
        values = frozenset(text.strip().casefold() for text in _texts_of(receipt.args))
        parts: list[Any] = [
            value for _, value in fields_in(receipt.args) if isinstance(value, (Mapping, list)) and value
        ]
        return cls(tokens_of(receipt.tool), args, values, parts, receipt.args)

    def repeats(self, key: tuple[str, ...], value: Any) -> bool:
        """Whether a field is one that the call was made with."""
        folded = _folded(value)
        return any(_folded(argument) == folded for argument in self.args.get(_kind(key), ()))

    def contradicts(self, result: Any) -> bool:
        """Whether a result has another value in a field that the call set, and nowhere the one that was set."""
        fields = list(fields_in(result))
        values = {_folded(scalar) for _, scalar in scalars(result)}
        arguments = {key: value for key, value in fields_in(self.arguments) if not isinstance(value, (Mapping, list))}
        for key, value in fields:
            argument = arguments.get(key)
            if argument is None or value is None or isinstance(value, (Mapping, list)):
                continue
            is_for_people = isinstance(argument, str) and (
                len(argument.split()) > 1 or not words("fields")["free_text"].isdisjoint(tokens_of(key)[-1:])
            )
            if not is_for_people and not _could_be(value, argument) and _folded(argument) not in values:
                return True
        return self._did_less(fields)

    def _did_less(self, fields: Sequence[tuple[str, Any]]) -> bool:
        """Whether a result names another amount, or fewer entries, as done than the call was made with."""
        numbers = {number for _, scalar in scalars(self.arguments) if (number := _decimal(scalar)) is not None}
        entries = max((len(cast("Sequence[Any]", part)) for part in self.parts if isinstance(part, list)), default=0)
        for key, value in fields:
            amount, tokens = _decimal(value), tokens_of(key)
            if amount is None or len(tokens) != 1 or not self.brings_about(tokens[0]):
                continue
            is_other = numbers and not entries and amount > 1 and amount not in numbers
            if 0 < amount < entries or is_other:
                return not any(abs(amount / number) in (100, 1000) for number in numbers if number)
        return False

    def left_out(self, key: tuple[str, ...], value: Any) -> Said | None:
        """What a list says of the entries for which it was done: that there are none, or fewer than the call had.

        Such lists are called `accepted`, or as the tool: `invited` of `invite_members`.
        """
        bare = [word for word in key if word not in _AUXILIARY]
        if not isinstance(value, list) or len(bare) != 1:
            return None
        if not (bare[0] in words("fields")["achieved"] or self.brings_about(bare[0])):
            return None
        if not value:
            return "no"
        entries = set(_texts_of(value))
        lists = [set(_texts_of(part)) for part in self.parts if isinstance(part, list)]
        return "in_part" if entries and any(entries < items for items in lists) else None

    def can_read(self, result: Any) -> bool:
        """Whether any field of a result is in the vocabulary, or was set by the call."""
        keys = [tokens_of(key) for key, _ in fields_in(result)]
        return not keys or any(_kind(key) in self.args or not field_words().isdisjoint(key) for key in keys)

    def knows(self, text: str) -> bool:
        """Whether a text says nothing new: it was among the arguments, is what the tool is for, or is a currency."""
        folded = text.strip().casefold()
        verbs = {verb.removesuffix("s") for verb in self.verbs}
        tokens = {token.removesuffix("s") for token in tokens_of(text)}
        return folded in self.values or folded in currencies()[0] or (bool(tokens) and tokens <= verbs)

    def brings_about(self, word: str) -> bool:
        """Whether a status is what the tool's name says that it does: `cancelled` of `cancel_order`."""
        return any(_same_stem(word, verb) for verb in self.verbs)

    def is_elsewhere(self) -> bool:
        """Whether it was sent to a host of a trial environment."""
        hosts = (match[1] for value in self.values if (match := _HOST.match(value)))
        return any(not words("fields")["sandbox"].isdisjoint(re.split(r"[.-]", host)) for host in hosts)

    def ends_something(self) -> bool:
        return not words("verbs")["ending"].isdisjoint(self.verbs)

    def is_trial(self, key: str, value: Any) -> bool:
        """Whether an argument or a field says that nothing is really done."""
        name, names = " ".join(tokens_of(key)), words("fields")
        if name in names["trial"]:
            return _truth(value) is True
        return name in names["mode"] and isinstance(value, str) and " ".join(tokens_of(value)) in names["trial_mode"]


def _could_be(value: Any, argument: Any) -> bool:
    """Whether two values can stand for the same: in other units, or written in another way."""
    number, other_number = _decimal(value), _decimal(argument)
    if number is not None and other_number is not None:
        return number == other_number or (other_number != 0 and number / other_number in (100, 1000, 0.01, 0.001))
    if isinstance(value, bool) or isinstance(argument, bool) or (number is None) != (other_number is None):
        return value == argument or not (isinstance(value, bool) and isinstance(argument, bool))
    first, second = ("".join(filter(str.isalnum, str(text).casefold())) for text in (value, argument))
    return first in second or second in first or any(map(str.isdigit, second))


def _decimal(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,12}(\.\d+)?\s*", value) else None


def _kind(key: tuple[str, ...]) -> str:
    """Fields that say the same: `new_status` is repeated as `state`."""
    last = key[-1] if key else ""
    return "status" if last in words("fields")["status"] else " ".join(key)


def _same_stem(word: str, verb: str) -> bool:
    """Whether a word is a form of the verb: `sent` of `send`, `cancelled` of `cancel`. With -ing, it isn't done."""
    verb = f"{verb[:-1]}i" if verb.endswith("y") and not word.startswith(verb) else verb  # `paid` of `pay`
    letters = enumerate(zip(word, verb, strict=False))
    shared = next((n for n, (letter, other) in letters if letter != other), min(len(word), len(verb)))
    is_form = len(verb) >= 3 and shared >= max(3, len(verb) - 1) and len(word) - shared <= 4
    return is_form and word != verb and not word.endswith("ing")


# ----------------------------------------------------------------------------------------------------- the result


class _Result:
    """Collects what the fields of a result say of the call."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._left = _MAX_VALUES

    def signals(self, value: Any, *, envelope: bool = True, depth: int = 0) -> Iterator[_Signal]:
        """What a result says, or a value in it."""
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            yield "unclear"  # a no may be in what isn't looked at
            return
        if isinstance(value, Mapping):
            yield from self._object(cast("Mapping[str, Any]", value), envelope=envelope, depth=depth)
        elif isinstance(value, (list, tuple)):
            yield from self._entries(cast("Sequence[Any]", value), envelope=envelope, depth=depth)
        elif isinstance(value, str) and envelope:
            yield from self._text(value, depth)

    def _entries(self, entries: Sequence[Any], *, envelope: bool, depth: int) -> Iterator[_Signal]:
        """Of several entries, some of which failed, the call is done in part."""
        each = [list(self.signals(entry, envelope=envelope, depth=depth + 1)) for entry in entries]
        results = [_together(signals) for signals in each if signals]
        if "no" in results and any(result != "no" for result in results):
            yield "in_part"
        else:
            for signals in each:
                yield from signals

    def _text(self, text: str, depth: int) -> Iterator[_Signal]:
        if self._call.repeats((), text) or text.strip().casefold() in self._call.values:
            return
        for entry in values_in(text) if len(text) > 1 else ():
            if not isinstance(entry.value, str):
                yield from self.signals(entry.value, depth=depth + 1)
        if (answer := short_answer(text)) is not None:
            yield answer

    def _object(self, fields: Mapping[str, Any], *, envelope: bool, depth: int) -> Iterator[_Signal]:
        names, call, counts = words("fields"), self._call, list[int]()
        signals: list[_Signal] = []
        status = fields.get("status")
        finished = "id" in fields and isinstance(status, str) and _word(status, call) == "yes"
        for name, value in fields.items():
            self._left -= 1
            key = tokens_of(str(name))
            is_repeated = isinstance(value, (Mapping, list)) and value in call.parts and not _is_error(key)
            if not key or is_repeated or (envelope and _is_code_of_success(key, value, fields, call)):
                continue
            if _is_constant(value) and _refuses(value) and not _is_status(key) and not call.repeats(key, value):
                signals.append("no")
            if (short := call.left_out(key, value)) is not None:
                signals.append(short)
            elif (count := _count(key, value, call)) is not None:
                counts.append(count)
            elif (signal := _field(key, value, call, envelope=envelope)) is not None:
                signals.append(signal)
            elif _is_unknown(key, value, call, envelope=envelope):
                signals.append("unknown")
            signals += self._inside(key, value, envelope=envelope, depth=depth, finished=finished)
        if counts:
            signals.append("yes" if any(counts) else "no")
            has_errors = any(_is_error(tokens_of(str(name))) and not _is_nothing(part) for name, part in fields.items())
            signals = ["in_part" if any(counts) and has_errors and each == "no" else each for each in signals]
            if any((_number(part) or 0) > 0 for name, part in fields.items() if name in names["left_out"]):
                signals.append("doubtful")
        yield from signals

    def _inside(
        self, key: tuple[str, ...], value: Any, *, envelope: bool, depth: int, finished: bool
    ) -> Iterator[_Signal]:
        names, verbs = words("fields"), set(self._call.verbs)
        is_subject = any(word.removesuffix("s") in {verb.removesuffix("s") for verb in verbs} for word in key)
        is_other = not names["content"].isdisjoint(key) and not is_subject and "response" not in key
        if _is_error(key) or is_other:
            return
        is_the_call = len(key) > 1 and set(key) <= verbs  # GraphQL repeats its name: `issueCreate`
        wraps = envelope and (is_the_call or not names["envelope"].isdisjoint(key))
        if isinstance(value, str):
            if wraps:
                yield from self._text(value, depth)
        elif isinstance(value, Mapping) and finished and not wraps:  # its status may be about something else
            for signal in self.signals(value, envelope=False, depth=depth + 1):
                yield "doubtful" if signal in ("no", "in_part", "not_yet") else signal
        elif isinstance(value, (Mapping, list, tuple)):
            yield from self.signals(value, envelope=wraps, depth=depth + 1)


def _is_code_of_success(key: tuple[str, ...], value: Any, fields: Mapping[str, Any], call: _Call) -> bool:
    """Whether it is a code of the API's own beside a text that names it a success: `10000`, `Success`."""
    if key != ("code",) or (_number(value) or 0) < _LARGEST_HTTP:
        return False
    messages = (text for name, text in fields.items() if name in _MESSAGES and isinstance(text, str))
    return any(_word(text, call) == "yes" for text in messages)


def _count(key: tuple[str, ...], value: Any, call: _Call) -> int | None:
    """How much a field says was affected; None if it doesn't say."""
    names, bare = words("fields"), set(key) - _AUXILIARY
    is_counted = not bare.isdisjoint(names["count"]) and bare <= names["count"] | names["count_beside"]
    is_the_deed = len(bare) == 1 and call.brings_about(next(iter(bare)))
    if not (is_counted or is_the_deed or " ".join(key) in names["count_alone"]):
        return None
    if isinstance(value, (list, tuple)):
        return len(cast("Sequence[Any]", value))
    number = _number(value)
    return None if number is None or number >= _TIMESTAMP or call.repeats(key, value) else number


def _field(key: tuple[str, ...], value: Any, call: _Call, *, envelope: bool) -> _Signal | None:
    """What one field says of the call; None if it says nothing."""
    names, bare = words("fields"), tuple(word for word in key if word not in _AUXILIARY)
    if call.is_trial(" ".join(key), value):
        return "no"
    if len(bare) == 1 and bare[0] in names["success"]:
        return _success(value, call)
    if _is_error(key):
        return _error(key, value, call, envelope=envelope)
    if " ".join(key) in names["exit"]:
        return None if (code := _number(value)) is None else "no" if code else "yes"
    if (signal := _code(key, value, envelope=envelope)) is not None:
        return signal
    if _is_status(key) and isinstance(value, (str, bool)):
        return None if call.repeats(key, value) else _status(key, value, call, envelope=envelope)
    waits = not names["needs"].isdisjoint(key) and not names["needed"].isdisjoint(key)
    if waits and not _is_nothing(value):  # something has to happen first: `requires_approval`, `next_action`
        return "not_yet"
    if (truth := _truth(value)) is not None and _number(value) is None:
        if truth and envelope and set(key) <= names["sandbox"]:
            return "doubtful"
        return None if call.repeats(key, value) else _flag(bare, truth, call, envelope=envelope)
    return _other(key, value, call, envelope=envelope)


def _other(key: tuple[str, ...], value: Any, call: _Call, *, envelope: bool) -> _Signal | None:
    """What a field says whose value is no word of a protocol: a severity, a progress, a message, a time, an id."""
    if key[-1] in ("severity", "level") and isinstance(value, str):
        return "no" if set(tokens_of(value)) & words("values")["broken"] else None
    if key == ("progress",) and (percent := _number(value)) is not None:
        return "not_yet" if percent < 100 else "yes"
    if envelope and len(key) == 1 and key[0] in _MESSAGES and isinstance(value, str):
        # A message counts whose first sentence is a status and nothing else: `Queued. Thank you.`
        first = re.split(r"[.!:;,\n]", value, maxsplit=1)[0]
        return _word(first, call) if set(tokens_of(first)) <= status_words() else None
    if key[-1] == "at" and len(key) > 1 and call.brings_about(key[-2]):
        return "yes" if value else "not_yet"
    return _made(key, value, call)


def _error(key: tuple[str, ...], value: Any, call: _Call, *, envelope: bool) -> Said | None:
    if not _is_nothing(value):
        return None if call.repeats(key, value) else "no"
    is_code = key[-1] in ("errcode", "errno", "code") and _number(value) == 0
    return "yes" if is_code and envelope else None


def _success(value: Any, call: _Call) -> Said | None:
    if (truth := _truth(value)) is not None:
        return "yes" if truth else "no"
    if (number := _number(value)) is not None:
        return "yes" if number > 0 else "no"
    return _word(value, call) if isinstance(value, str) else None


def _code(key: tuple[str, ...], value: Any, *, envelope: bool) -> Said | None:
    """What a number of a protocol says: an HTTP status, or the code of an API, of which 0 is success."""
    if key[-1] not in words("fields")["code"] or isinstance(value, bool):
        return None
    number, is_result, is_code = _number(value), key == ("result", "code"), envelope and key == ("code",)
    if number is None:
        return "no" if isinstance(value, str) and (is_result or is_code) and _refuses(value) else None
    is_named = len(key) > 1 and not {"status", "http", "response"}.isdisjoint(key)
    if number >= _ERRORS_FROM and (envelope or (is_named and number < _LARGEST_HTTP)):
        return "no"
    if number == 0 and (is_result or is_code):
        return "yes"
    if is_result and not 200 <= number < 300:
        return "no"
    return "yes" if number in (200, 201, 204) and (envelope or is_named) else None


def _is_constant(value: Any) -> TypeGuard[str]:
    """Whether a text is a name of a code, as `INSTRUMENT_DECLINED`."""
    return isinstance(value, str) and _CONSTANT.fullmatch(value) is not None


def _refuses(code: str) -> bool:
    """Whether a code in words says no, as `card_declined`."""
    return not words("values")["no"].isdisjoint(tokens_of(code))


def _is_status(key: tuple[str, ...]) -> bool:
    return key[-1] in words("fields")["status"]


def _status(key: tuple[str, ...], value: Any, call: _Call, *, envelope: bool) -> Said | None:
    """What the status of the call or of a record says. One of a part of a record may be about something else."""
    names = words("fields")
    is_own = set(key[:-1]) <= names["status_beside"] or not set(key[:-1]).isdisjoint(call.verbs)
    if isinstance(value, bool):
        return ("yes" if value else "no") if envelope and is_own and key[-1] != "state" else None
    if not isinstance(value, str) or _number(value) is not None:
        return None
    word = _word(value, call)
    if word is None:
        tokens = tokens_of(value)
        is_unknown = is_own and key[-1] == "status" and 0 < len(tokens) <= _STATUS_TOKENS
        return "doubtful" if is_unknown and not set(tokens) <= words("values")["neutral"] else None
    if is_own or word == "yes":
        return word
    return "no" if word == "no" and envelope else "doubtful"


def _flag(bare: tuple[str, ...], truth: bool, call: _Call, *, envelope: bool) -> Said | None:
    """What a field that is true or false says: `sent` of `send_mail`, `queued`."""
    names, values = words("fields"), words("values")
    word = bare[0] if len(bare) == 1 else ""
    if call.brings_about(word) or (word in values["ended"] and call.ends_something()):
        return "yes" if truth else "no"
    if envelope and word in names["achieved"]:
        return ("yes" if word in names["count"] else None) if truth else "no"
    if len(bare) == 2 and envelope and not truth and bare[-1] in names["achieved"]:
        return "unclear"  # it may be about something else: `email_verified`
    bad = values["no"] | values["pending"] | (values["ended"] if envelope else frozenset[str]())
    return _word(" ".join(bare), call) if truth and bare and set(bare) <= bad else None


def _made(key: tuple[str, ...], value: Any, call: _Call) -> _Signal | None:
    """Whether a field is the id of something new: none that the call was made with, and none of the transport."""
    names = words("fields")
    if key[-1] not in names["id"]:
        return None
    not_made = names["not_made"] - {verb.removesuffix("s") for verb in call.verbs}
    if not not_made.isdisjoint(key) or isinstance(value, (bool, Mapping, list)):
        return None
    if value in (None, ""):
        return "doubtful" if key == ("id",) else None
    return None if str(value).strip().casefold() in call.values else "made"


def _is_unknown(key: tuple[str, ...], value: Any, call: _Call, *, envelope: bool) -> bool:
    """Whether a field may say that it wasn't done, in words that aren't in the vocabulary.

    That is a word or a sentence that the call wasn't made with, a flag that is false, or a code.
    """
    if _is_error(key) or call.repeats(key, value):
        return False
    if isinstance(value, list):
        texts = [text for text in cast("list[Any]", value) if isinstance(text, str)]
        is_content = key[-1] in words("fields")["content"]
        return not is_content and any(_is_unknown(key, text, call, envelope=envelope) for text in texts)
    if isinstance(value, bool):
        return envelope and not value and not _is_false_anyway(key)
    number, is_code = _number(value), key in (("code",), ("result", "code"), ("response", "code"))
    if number is not None:
        return (is_code or _is_status(key)) and number != 0 and not 200 <= number < 300
    if not isinstance(value, str) or not value or call.knows(value):
        return False
    # A word, several, or a name of a code, and no id, time, address or the like.
    bare = [word.strip(".,;:!?()'\"").replace("_", "").replace("-", "") for word in value.split()]
    is_wording = _is_constant(value) or (any(map(str.isalpha, value)) and all(map(str.isalpha, bare)))
    if not (is_code or is_wording):
        return False
    tokens, values = set(tokens_of(value)), words("values")
    good = values["yes"] | values["steps"] | values["neutral"] | values["true"] | values["nothing"]
    is_kind = key[-1] in words("fields")["kind"]
    return not (tokens.isdisjoint(values["no"] | values["pending"]) if is_kind else tokens <= good)


def _is_false_anyway(key: tuple[str, ...]) -> bool:
    """Whether a flag is about something that isn't wanted, so that false is no bad news: `declined`, `test`."""
    names, values = words("fields"), words("values")
    unwanted = values["no"] | values["pending"] | values["ended"] | names["error"] | names["needs"]
    ending_verbs = words("verbs")["ending"]
    return (
        " ".join(key) in names["trial"]
        or not (unwanted | names["sandbox"]).isdisjoint(key)
        or any(word in ending_verbs or any(_same_stem(word, verb) for verb in ending_verbs) for word in key)
    )


# -------------------------------------------------------------------------------------------------- words and numbers


def _word(text: str, call: _Call) -> Said | None:
    """What a status in words says; None if it isn't in the vocabulary, or is a sentence."""
    tokens, values = tokens_of(text), words("values")
    if not 0 < len(tokens) <= _STATUS_TOKENS:
        return None
    if not values["negation"].isdisjoint(tokens):
        is_known = set(tokens) - values["negation"] <= status_words() | set(call.verbs)
        return "no" if is_known or len(tokens) == 2 else None
    rest = [word for word in tokens if not call.brings_about(word) or word == "draft"]
    if not rest:
        return "yes"
    if len(tokens) > 2 and not set(rest) <= status_words():
        return None
    signals: list[_Signal] = [signal for token in rest if (signal := _token(token, call)) is not None]
    return _together(signals) if signals else None


def _token(token: str, call: _Call) -> Said | None:
    kinds: dict[str, Said | None] = {
        "no": "no",
        "steps": "unclear",
        "pending": "not_yet",
        "ended": "yes" if call.ends_something() else "no",
        "unclear": "doubtful",
        "yes": "yes",
        "neutral": None,
    }
    for kind, signal in kinds.items():
        if token in words("values")[kind]:
            return signal
    return "doubtful" if len(token) > 4 and token.endswith("ing") else None


def _is_error(key: tuple[str, ...]) -> bool:
    """Whether a field is for what went wrong."""
    names = words("fields")
    if not names["error_setting"].isdisjoint(key) or names["error"].isdisjoint(key):
        return False
    ends_so = key[-1] in ("error", "errors", "exception", "exceptions")
    return ends_so or set(key) <= names["error"] | names["error_beside"]


def _is_nothing(value: Any) -> bool:
    """Whether a value says that there is nothing: null, 0, "none", an empty list, or an object of only such values."""
    if isinstance(value, Mapping):
        return all(map(_is_nothing, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_nothing, cast("Sequence[Any]", value)))
    if isinstance(value, str):
        tokens = tokens_of(value)
        is_unset = len(tokens) > 1 and tokens[-1] == "unspecified"  # the first value of an enum in Protocol Buffers
        return is_unset or " ".join(tokens) in words("values")["nothing"] or not value.strip("0 ")
    return not value


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().casefold()
        return True if word in words("values")["true"] else False if word in words("values")["false"] else None
    return None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value) if value == value and abs(value) < 1e15 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,12}\s*", value) else None


def _folded(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else (type(value) is bool, value)


def _texts_of(value: Any) -> list[str]:
    return [str(scalar) for _, scalar in scalars(value)]
