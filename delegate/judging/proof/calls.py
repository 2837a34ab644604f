"""Reads recorded tool calls: whether they succeeded, what they contain, and which record a name belongs to."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from delegate.judging.proof import outcomes, telling
from delegate.judging.proof.literals import Text, fold, stands_in
from delegate.judging.proof.outcomes import Said
from delegate.judging.proof.values import leaves, parsed, records_in, with_texts
from delegate.judging.reading.statements import ToolEffect, ToolInfo, known_effects
from delegate.judging.submission import Submission
from delegate.types import Receipt
from delegate.types.ports import Tool

_ID = re.compile(r"[^\s,;]*\d[^\s,;]*")
_SHORTEST_ID = 3
_MAX_IDS = 12
"""Of how many ids beside a name further ones are looked for. A name with more of them is that of a list."""
_VALUE = re.compile(
    r"-?\d{1,3}(?:[,']?\d{3})*[.,]\d{1,2}|\d{4}-\d\d-\d\d(?:T\S*)?|\d{1,2}:\d\d(?::\d\d)?|\d+(?:[.,]\d+)?%"
)
"""An amount, a day or a time, which several records can share, and not an id."""
_PROPER_NAME = re.compile(
    r"[A-Z\u00c0-\u00de\u0400-\u042f][^\W\d_]*(?:[ '.-]+[^\W\d_]+)+|[\u3040-\u9fff\uac00-\ud7af]{2,8}"
)
"""What can be a name: several words, of which the first begins with a capital, or a short word without such letters."""


def failed(receipt: Receipt) -> bool:
    """Whether a look-up did not succeed: by its status, or because its result says so, as `{"error": "not found"}`."""
    return outcomes.outcome(receipt, reads=True) == "no"


def recorded(submission: Submission, read: Mapping[str, ToolEffect] | None = None) -> "Calls":
    """The recorded calls of a submission, with what their tools say they do, or else were `read` to do."""
    tools = {tool.name: tool for tool in (*submission.probe_tools, *(submission.tools or ()))}
    declared = known_effects([ToolInfo.of(tool) for tool in tools.values()])
    return Calls(submission.run.receipts, {**(read or {}), **declared}, tools)


class Calls:
    """The recorded calls of a run, and what each tool does as far as that is known.

    `tools` are the tools that are known, by name, with what they declare.
    """

    def __init__(
        self, receipts: Sequence[Receipt], effects: Mapping[str, ToolEffect], tools: Mapping[str, Tool] | None = None
    ) -> None:
        self.receipts, self.effects, self.tools = receipts, effects, tools or {}
        self._acts: dict[int, ToolEffect] = {}
        self._said: dict[int, Said] = {}
        self._told: dict[int, tuple[Any, Any, str]] = {}
        self._texts: dict[tuple[int, bool], tuple[Text, Text]] = {}
        self._ids: dict[str, frozenset[str]] = {}
        self._further: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    @cached_property
    def succeeded(self) -> list[Receipt]:
        """The calls that succeeded, or of which nothing says that they didn't, in order."""
        return [receipt for receipt in self.receipts if self.did_succeed(receipt)]

    @cached_property
    def not_refused(self) -> list[Receipt]:
        """The calls that may have done something: those that succeeded, and those that are pending or done in part."""
        return [receipt for receipt in self.receipts if self.said(receipt) != "no"]

    def did_succeed(self, receipt: Receipt) -> bool:
        """Whether this call succeeded, or nothing says that it didn't."""
        return outcomes.outcome_of(self.said(receipt)) != "no"

    def is_done_or_pending(self, receipt: Receipt) -> bool:
        """Whether the call succeeded, or was accepted, and what it brings about was still to come."""
        return self.did_succeed(receipt) or self.said(receipt) == "not_yet"

    def said(self, receipt: Receipt) -> Said:
        """What its result says of the call's success."""
        if receipt.n not in self._said:
            tool = self.tools.get(receipt.tool)
            only_envelope = self.effect(receipt) in ("reads", "commands")  # what a command prints may be anything
            success = tool.succeeded if tool is not None else None
            self._said[receipt.n] = outcomes.said(receipt, success, reads=only_envelope)
        return self._said[receipt.n]

    def result(self, receipt: Receipt) -> Any:
        """The call's result, if it is a JSON object or list; else None."""
        return self._results[receipt.n]

    def effect(self, receipt: Receipt) -> ToolEffect | None:
        """What the call did; None if that isn't known. A call with a sandbox ran a command."""
        effect = "commands" if receipt.sandbox is not None else self.effects.get(receipt.tool)
        if effect != "acts":
            return effect
        if receipt.n not in self._acts:
            own: ToolEffect = "reads" if telling.only_looks(receipt.args) else "acts"
            runs = telling.runs_commands(receipt.args, self._identifies(receipt))
            self._acts[receipt.n] = "commands" if runs else own
        return self._acts[receipt.n]

    def _identifies(self, receipt: Receipt) -> Sequence[str] | None:
        """The arguments by which the tool says that its calls are identified; None if the tool isn't known."""
        tool = self.tools.get(receipt.tool)
        return tool.identifies if tool is not None else None

    def number(self, n: str) -> Receipt:
        """The receipt with this number."""
        return next(receipt for receipt in self.receipts if str(receipt.n) == n)

    def contains(self, receipt: Receipt, names: Sequence[str], *, proves: bool = False) -> bool:
        """Whether the call contains all names, or ids of the records to which the others belong.

        With `proves`, what the child worded itself doesn't count, such as the text of a message.
        """
        # Names without a digit are searched much faster, and one that is missing is enough.
        names = sorted(names, key=lambda name: any(map(str.isdigit, name)))
        return all(self._has(receipt, name, proves=proves) for name in names)

    def missing(self, receipt: Receipt, names: Sequence[str], *, proves: bool = False) -> list[str]:
        """The names that the call contains neither in its arguments or its result nor by an id."""
        return [name for name in names if not self._has(receipt, name, proves=proves)]

    def _has(self, receipt: Receipt, name: str, *, proves: bool) -> bool:
        args, whole = self._text(receipt, proves=proves)
        if whole.contains(name) or self._is_in_one_record(name, receipt, proves=proves):
            return True
        if proves and telling.is_title(receipt.args, name):
            return True
        # Only in what it was called with: a result names the owner of a record, to whom others belong too.
        return any(args.contains(id) for id in self.ids_of(name)) or any(map(args.contains, self._linked_ids(name)))

    def is_identified(self, receipt: Receipt, names: Sequence[str]) -> bool:
        """Whether a name stands in the arguments with which the tool says that its calls are identified. Where it says
        nothing, whether all names are those of what the call was for, and aren't only mentioned in an argument.
        """
        identifies = self._identifies(receipt)
        if not identifies:
            return all(self._is_meant(name, receipt, names) for name in names)
        values = leaves(telling.at(receipt.args, identifies))
        text = Text("\n".join(values))
        return not values or any(
            text.contains(name) or any(text.contains(id) for id in self._linked_ids(name, sure=True)) for name in names
        )

    def _is_meant(self, name: str, receipt: Receipt, names: Sequence[str]) -> bool:
        """Whether a name is linked to the call by an id, stands in the tool's own output, or is an argument's value.

        It isn't where another argument has a value like it that nothing links to the name: `order: B2, label: A7`.
        """
        arguments, _ = self._text(receipt, proves=True)
        if any(arguments.contains(id) for id in self._linked_ids(name)):
            # Of several ids that a name may have, another one may be meant.
            return any(arguments.contains(id) for id in self._linked_ids(name, sure=True))
        args, result, output = self._telling(receipt)
        repeated = {fold(text) for _, text in telling.values(args)}
        own = [leaf for leaf in leaves(result) if fold(leaf) not in repeated]
        if Text("\n".join((*own, output))).contains(name):
            return True
        values = {*names, *(id for other_name in names for id in self.ids_of(other_name))}
        return telling.is_named(args, name, receipt.tool, values)

    def allows(self, receipt: Receipt, name: str) -> bool:
        """Whether the call was made with this name, or with an id of the record to which it belongs."""
        args, _ = self._text(receipt)
        return args.contains(name) or any(args.contains(id) for id in self.ids_of(name))

    def _text(self, receipt: Receipt, *, proves: bool = False) -> tuple[Text, Text]:
        """The call's arguments, and all that it contains: these, its result's values and its output."""
        key = receipt.n, proves
        if key not in self._texts:
            args, result, output = self._telling(receipt) if proves else self._all(receipt)
            in_args, amounts = leaves(args), telling.amounts_in_hundredths([args, result], self.tools.get(receipt.tool))
            whole = "\n".join((*in_args, *leaves(result), *amounts, output))
            self._texts[key] = Text("\n".join(in_args)), Text(whole)
        return self._texts[key]

    def _all(self, receipt: Receipt) -> tuple[Any, Any, str]:
        return receipt.args, self._results[receipt.n], receipt.whole_output

    def _telling(self, receipt: Receipt) -> tuple[Any, Any, str]:
        """The arguments, the result and the output without what the child worded. A look-up finds what others wrote."""
        effect = self.effect(receipt)
        if effect == "reads":
            return self._all(receipt)
        if receipt.n not in self._told:
            is_worded = telling.worded(self._identifies(receipt), runs=effect == "commands")
            words, result = telling.own_words(receipt.args, is_worded), self._results[receipt.n]
            output = "" if result is not None else telling.without_words(receipt.whole_output, words)
            result = with_texts(result, lambda _, text: telling.without_words(text, words))
            self._told[receipt.n] = telling.telling(receipt.args, is_worded), result, output
        return self._told[receipt.n]

    def _is_in_one_record(self, name: str, receipt: Receipt, *, proves: bool) -> bool:
        """Whether all words of a name stand in one record, as `first_name` and `last_name` do, in any order."""
        arguments, whole = self._text(receipt, proves=proves)
        owner, slash, repository = name.partition("/")
        if slash and "/" not in repository:  # in fields of their own
            return {fold(owner), fold(repository)} <= arguments.folded_lines
        words = [word for word in re.split(r"[\s,]+", fold(name)) if word]
        if not 2 <= len(words) <= 5 or not all(map(whole.contains, words)):
            return False
        args, result, _ = self._telling(receipt) if proves else self._all(receipt)
        return any(all(map(Text(_own_text(record)).contains, words)) for record in records_in([args, result]))

    def ids_of(self, name: str) -> frozenset[str]:
        """The ids that look-ups showed in the same record as the name."""
        if name not in self._ids:
            ids: set[str] = set()
            for receipt in self._lookups_with(name):
                result = self._results[receipt.n]
                if result is None:
                    lines = (line for line in receipt.whole_output.splitlines() if stands_in(name, line))
                    ids.update(id for line in lines for id in _ID.findall(line) if _is_id(id))
                else:
                    ids.update(_ids_beside(name, result))
            self._ids[name] = frozenset(id for id in ids if not stands_in(id, name))
        return self._ids[name]

    def _linked_ids(self, name: str, *, sure: bool = False) -> frozenset[str]:
        """The ids that look-ups link to a name, also by one more id: a customer's name, her number, her subscription.

        With `sure`, the second look-up showed only one record, so that none of her others can be meant.
        """
        if name not in self._further:
            self._further[name] = self._find_further(name)
        return self.ids_of(name) | self._further[name][sure]

    def _find_further(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        all_ids, only = set[str](), set[str]()
        firsts = self.ids_of(name) if len(self.ids_of(name)) <= _MAX_IDS else ()
        for first in firsts:
            for receipt in self._lookups_with(first) if self._is_of_one(first, name) else ():
                records = _records_of(first, receipt, self._results[receipt.n])
                texts = [[text for value in record.values() for text in _scalars(value)] for record in records]
                if any(_PROPER_NAME.fullmatch(text) and not stands_in(name, text) for own in texts for text in own):
                    continue  # it is about somebody or something else
                # The id of a record itself comes before those of what it belongs to.
                own_ids = ([id for id in own if _is_id(id) and fold(id) != fold(first)] for own in texts)
                ids = {own[0] for own in own_ids if own}
                all_ids |= ids
                only |= ids if len(records) == 1 else set()
        return frozenset(all_ids), frozenset(only)

    def _is_of_one(self, id: str, name: str) -> bool:
        """Whether the look-ups that show the name show the id in no record of another one."""
        records = records_in([self._results[receipt.n] for receipt in self._lookups_with(name)])
        with_id = [text for text in map(Text, map(_own_text, records)) if text.contains(id)]
        return bool(with_id) and all(text.contains(name) for text in with_id)

    def _lookups_with(self, name: str) -> list[Receipt]:
        return [receipt for receipt in self.lookups if self._text(receipt)[1].contains(name)]

    @cached_property
    def lookups(self) -> list[Receipt]:
        """The look-ups of before the child wrote or ran anything: later ones may show a file of its own."""
        makes_files = (
            n for n, receipt in enumerate(self.succeeded) if self.effect(receipt) in ("files", "commands", None)
        )
        return [receipt for receipt in self.succeeded[: next(makes_files, None)] if self.effect(receipt) == "reads"]

    @cached_property
    def _results(self) -> dict[int, Any]:
        """The results that are JSON objects or lists, by number; None for others."""
        return {receipt.n: parsed(receipt.whole_output) for receipt in self.receipts}


def _own_text(record: Mapping[str, Any]) -> str:
    """The values of a record that aren't objects themselves."""
    return "\n".join(text for value in record.values() for text in _scalars(value))


def _scalars(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [str(item) for item in cast("Sequence[Any]", value) if isinstance(item, (str, int, float))]
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
        yield from _own_ids(record, besides=name)
        for part in record.values():
            if isinstance(part, Mapping):
                yield from _own_ids(cast("Mapping[str, Any]", part))
    for key, part in record.items():
        ids = list(_ids_beside(name, part))
        yield from ids
        is_only = isinstance(part, Mapping) or len(cast("Sequence[Any]", part)) == 1 if ids else False
        if is_only:
            yield from (key, *_own_ids(record)) if _is_id(key) else _own_ids(record)


def _records_of(id: str, receipt: Receipt, result: Any) -> list[Mapping[str, Any]]:
    """The records in a result that contain the id; or all of them, where just that was asked for."""
    records = [record for record in records_in(result) if any(map(_scalars, record.values()))]
    matches = [record for record in records if stands_in(id, _own_text(record))]
    return matches or (records if any(fold(leaf) == fold(id) for leaf in leaves(receipt.args)) else [])


def _own_ids(record: Mapping[str, Any], besides: str = "") -> Iterator[str]:
    """The ids in a record, except those in a list `besides` a name: of a list of orders, one isn't another."""
    for value in record.values():
        texts = _scalars(value)
        is_list_of_it = isinstance(value, (list, tuple)) and besides and any(stands_in(besides, text) for text in texts)
        if not is_list_of_it:
            yield from filter(_is_id, texts)


def _is_id(text: str) -> bool:
    """Whether a text is one word with a digit, and no short number, amount, time or part of a sentence."""
    return len(text) >= _SHORTEST_ID and _ID.fullmatch(text) is not None and _VALUE.fullmatch(text) is None
