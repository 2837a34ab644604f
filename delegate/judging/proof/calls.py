"""Reads recorded tool calls: whether they succeeded, what they contain, and which record a name belongs to."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from delegate.judging.proof.literals import Text, fold, stands_in
from delegate.judging.reading.statements import ToolEffect
from delegate.types import Receipt

_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_REFUSALS = ("error", "failed", "failure", "rejected", "denied", "declined", "timeout")
"""Values of a result's field `status` with which APIs say no."""
_ID = re.compile(r"[^\s,;]*\d[^\s,;]*")
_SHORTEST_ID = 3
_FREE_TEXT_WORDS = 8
"""An argument with more words is text that the child wrote, such as the body of a message."""


def failed(receipt: Receipt) -> bool:
    """Whether the call did not succeed: by its status, or because its JSON result says so, as `{"exit_code": 1}`."""
    if receipt.status != "ok":
        return True
    if not receipt.output.lstrip().startswith("{"):
        return False
    try:
        result = json.loads(receipt.output)
    except (ValueError, RecursionError):
        return False
    return (
        any(result.get(key) not in (None, 0, "0") for key in _EXIT_CODES)
        or any(result.get(key) is False for key in ("ok", "success"))
        or any(bool(result.get(key)) for key in ("error", "errors", "isError"))
        or str(result.get("status")).lower() in _REFUSALS
    )


def leaves(value: Any) -> list[str]:
    """All keys, texts and numbers in a JSON value, as text."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return [text for key, part in fields.items() for text in (str(key), *leaves(part))]
    if isinstance(value, (list, tuple)):
        return [text for part in cast("Sequence[Any]", value) for text in leaves(part)]
    return [] if value is None else [str(value)]


@dataclass(frozen=True)
class Calls:
    """The recorded calls of a run, and what each tool does as far as that is known."""

    receipts: Sequence[Receipt]
    effects: Mapping[str, ToolEffect]

    @cached_property
    def succeeded(self) -> list[Receipt]:
        """The calls that succeeded, in order."""
        return [receipt for receipt in self.receipts if not failed(receipt)]

    def did_succeed(self, receipt: Receipt) -> bool:
        """Whether this call succeeded."""
        return receipt.n in self._succeeded

    @cached_property
    def _succeeded(self) -> frozenset[int]:
        return frozenset(receipt.n for receipt in self.succeeded)

    def effect(self, receipt: Receipt) -> ToolEffect | None:
        """What the call did; None if that isn't known. A call with a sandbox ran a command."""
        return "commands" if receipt.sandbox is not None else self.effects.get(receipt.tool)

    def number(self, n: str) -> Receipt:
        """The receipt with this number."""
        return next(receipt for receipt in self.receipts if str(receipt.n) == n)

    def contains(self, receipt: Receipt, names: Sequence[str], *, short_only: bool = False) -> bool:
        """Whether the call contains all names, or ids of the records to which the others belong."""
        # Names without a digit are searched much faster, and one that is missing is enough.
        ordered = sorted(names, key=lambda name: any(map(str.isdigit, name)))
        return all(self._has(receipt, name, short_only=short_only) for name in ordered)

    def missing(self, receipt: Receipt, names: Sequence[str], *, short_only: bool = False) -> list[str]:
        """The names that the call contains neither in its arguments or its result nor by an id.

        With `short_only`, arguments of many words, such as the text of a message, don't count.
        """
        return [name for name in names if not self._has(receipt, name, short_only=short_only)]

    def _has(self, receipt: Receipt, name: str, *, short_only: bool) -> bool:
        whole = self._text(receipt, short_only=short_only)
        if whole.contains(name) or self._is_in_one_record(name, receipt, whole):
            return True
        return any(whole.contains(id) for id in self.ids_of(name))

    def _text(self, receipt: Receipt, *, short_only: bool) -> Text:
        """All that the call contains: its arguments, its result's values and its output."""
        key = receipt.n, short_only
        if key not in self._texts:
            args = leaves(receipt.args)
            if short_only:
                args = [text for text in args if len(text.split()) <= _FREE_TEXT_WORDS]
            result = self._results[receipt.n]
            values = leaves(result) if result is not None else ()
            self._texts[key] = Text("\n".join((*args, *values, receipt.whole_output)))
        return self._texts[key]

    def _is_in_one_record(self, name: str, receipt: Receipt, whole: Text) -> bool:
        """Whether all words of a name stand in one record, as `first_name` and `last_name` do, in any order."""
        words = [word for word in re.split(r"[\s,]+", fold(name)) if word]
        if not 2 <= len(words) <= 5 or not all(map(whole.contains, words)):
            return False
        records = (record for value in (receipt.args, self._results[receipt.n]) for record in _records(value))
        return any(all(map(text.contains, words)) for text in map(Text, map(_own_text, records)))

    def ids_of(self, name: str) -> frozenset[str]:
        """The ids that look-ups showed in the same record as the name."""
        if name not in self._ids:
            self._ids[name] = frozenset(id for receipt in self._lookups for id in self._linked(name, receipt))
        return self._ids[name]

    @cached_property
    def _lookups(self) -> list[Receipt]:
        """The look-ups of before the child wrote or ran anything: later ones may show a file of its own."""
        makes_files = (n for n, one in enumerate(self.succeeded) if self.effect(one) in ("files", "commands", None))
        return [one for one in self.succeeded[: next(makes_files, None)] if self.effect(one) == "reads"]

    def _linked(self, name: str, receipt: Receipt) -> Iterator[str]:
        result = self._results[receipt.n]
        if not self._text(receipt, short_only=False).contains(name):
            return
        if result is None:
            for line in receipt.whole_output.splitlines():
                if stands_in(name, line):
                    yield from (id for id in _ID.findall(line) if _is_id(id) and not stands_in(id, name))
            return
        yield from (id for id in _ids_beside(name, result) if not stands_in(id, name))

    @cached_property
    def _ids(self) -> dict[str, frozenset[str]]:
        return {}

    @cached_property
    def _texts(self) -> dict[tuple[int, bool], Text]:
        return {}

    @cached_property
    def _results(self) -> dict[int, Any]:
        """The results that are JSON objects or lists, by number; None for others."""
        return {receipt.n: _parsed(receipt.whole_output) for receipt in self.receipts}


def _parsed(output: str) -> Any:
    if not output.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return None


def _records(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, Mapping):
        yield (fields := cast("Mapping[str, Any]", value))
        for part in fields.values():
            yield from _records(part)
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from _records(part)


def _own_text(record: Mapping[str, Any]) -> str:
    """The values of a record that aren't objects themselves."""
    return "\n".join(text for value in record.values() if not isinstance(value, Mapping) for text in _scalars(value))


def _scalars(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [str(one) for one in cast("Sequence[Any]", value) if isinstance(one, (str, int, float))]
    return [] if value is None or isinstance(value, Mapping) else [str(value)]


def _ids_beside(name: str, value: Any) -> Iterator[str]:
    """The ids in the records around a name: its own, and those that contain only this one, up to a list of several."""
    if isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from _ids_beside(name, part)
        return
    if not isinstance(value, Mapping):
        return
    record = cast("Mapping[str, Any]", value)
    if stands_in(name, _own_text(record)):
        yield from _own_ids(record)
        for part in record.values():
            if isinstance(part, Mapping):
                yield from _own_ids(cast("Mapping[str, Any]", part))
    for key, part in record.items():
        found = list(_ids_beside(name, part))
        yield from found
        is_only = isinstance(part, Mapping) or len(cast("Sequence[Any]", part)) == 1 if found else False
        if is_only:
            yield from (key, *_own_ids(record)) if _is_id(key) else _own_ids(record)


def _own_ids(record: Mapping[str, Any]) -> Iterator[str]:
    yield from (text for value in record.values() for text in _scalars(value) if _is_id(text))


def _is_id(text: str) -> bool:
    """Whether a text is one word with a digit, and neither a short number nor a part of a sentence."""
    return len(text) >= _SHORTEST_ID and _ID.fullmatch(text) is not None
