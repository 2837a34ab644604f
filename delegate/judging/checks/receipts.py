"""Decides criteria about what the child did, from the runtime's own record of its tool calls.

Only calls that were accepted count: those whose result says no don't (`proof/outcomes.py`), unless the criterion itself
says which result it expects. A call that is pending was made, and shows no more than that. Each expected call needs a
recorded call of its own; `exactly` also allows no other calls, since an unrequested write is as wrong as a missing one.

Without `from`, `after` and `before`, the assignment of recorded calls to expected ones is a bipartite matching. With
them, the calls that others refer to are tried one by one, which is bounded; given those, the rest is a matching again.
"""

import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from delegate.contract.matchers import Reference, order, place, references_of
from delegate.judging.checks.matching import (
    Fit,
    Patterns,
    TooMany,
    assign,
    compare,
    compare_fields,
    compare_with_result,
    result_of,
)
from delegate.judging.proof.calls import Calls
from delegate.types import ExpectedCall, Receipt, ReceiptCriterion
from delegate.types.codes import VerdictCode

MAX_TRIALS = 20_000
"""How many recorded calls are tried in the places of expected ones that others refer to."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class ReceiptDecision:
    """Whether the receipts satisfy a criterion, and why."""

    outcome: Literal["met", "not_met", "error"]
    code: VerdictCode
    reason: str
    receipts: tuple[Receipt, ...] = ()
    """The recorded calls that match the expected ones, if it is met."""


def check(criterion: ReceiptCriterion, receipts: Sequence[Receipt], calls: Calls | None = None) -> ReceiptDecision:
    """Decide whether the receipts satisfy the criterion. `calls` tells which of them succeeded, by what is declared."""
    calls = Calls(receipts, {}) if calls is None else calls
    tools = set(criterion.of or (call.tool for call in criterion.calls))
    done = [receipt for receipt in receipts if receipt.status == "ok"]
    may_have_acted = set(map(id, calls.not_refused))
    made = [receipt for receipt in receipts if receipt.status in ("ok", "unknown")]
    acts = [receipt for receipt in made if id(receipt) in may_have_acted and (not tools or receipt.tool in tools)]
    try:
        if criterion.mode == "none":
            return _none_of(criterion, made, acts, may_have_acted)
        accepted = {id(receipt) for receipt in receipts if calls.is_done_or_pending(receipt)}
        search = _Search(criterion.calls, done, Patterns(), accepted)
        assignment = search.assignment(Fit.YES)
        if assignment is not None:
            matches = [done[n] for n in sorted(assignment.values())]
            extra = [receipt for receipt in acts if id(receipt) not in set(map(id, matches))]
            if criterion.mode == "exactly" and extra:
                return _not_met(f"not expected: {_shown(extra)}")
            return ReceiptDecision("met", "met", "the record of tool calls shows it", tuple(matches))
        if criterion.mode == "exactly" and len(acts) > len(criterion.calls):
            return _not_met(f"{search.missing()}; {_seen(acts)}")
        if search.assignment(Fit.UNKNOWN) is not None:
            return _cut(search.undecided())
        return _not_met(f"{search.missing()}; {_seen(acts)}")
    except TooMany:
        reason = "too many recorded calls or values could be the expected ones; expect fewer, or more exact ones"
        return ReceiptDecision("error", code="too_many_combinations", reason=reason)
    except ValueError as error:
        return ReceiptDecision("error", code="invalid_criterion", reason=str(error))
    except RecursionError:
        return ReceiptDecision("error", code="result_cut", reason="a recorded value is nested too deep to be compared")


def _none_of(
    criterion: ReceiptCriterion, done: Sequence[Receipt], acts: Sequence[Receipt], may_have_acted: Set[int]
) -> ReceiptDecision:
    """With expected calls, none of them may have been made; otherwise, no call of a counted tool."""
    hits = [] if criterion.calls else list(acts)
    undecided: list[ExpectedCall] = []
    patterns = Patterns()
    for call in criterion.calls:
        search = _Search([call], done, patterns, may_have_acted, named=())
        hits += [done[n] for n in search.hits(Fit.YES)]
        undecided += [call] if search.hits(Fit.UNKNOWN) else []
    if hits:
        unique = {id(receipt): receipt for receipt in hits}
        return _not_met(f"called: {_shown(list(unique.values()))}")
    if undecided:
        return _cut(undecided)
    return ReceiptDecision("met", "met", "the record of tool calls shows it")


Place = int | str
"""The position of an expected call, or the tool of a call that isn't expected but referred to."""


class _Search:
    def __init__(
        self,
        calls: Sequence[ExpectedCall],
        done: Sequence[Receipt],
        patterns: Patterns,
        succeeded: Set[int],
        named: Sequence[ExpectedCall] | None = None,
    ) -> None:
        """`succeeded` are the `id()`s of the calls that count. `named` are the calls that a name can mean; any other
        name is that of an earlier call's tool.
        """
        named = calls if named is None else named
        self._calls = calls
        self._done = done
        self._patterns = patterns
        self._succeeded = succeeded
        self._results: dict[int, Any] = {}
        self._trials = 0
        self._references = [references_of(call) for call in calls]
        self._order = order(calls, named)
        self._named = named
        # The places that calls name, none of them before one that it needs: given these, every rule is about one.
        names = [reference.name for references in self._references for reference in references]
        names += [name for call in calls for name in (call.after, call.before) if name]
        waiting = list(dict.fromkeys(place(name, named) for name in names))
        self._places = list[Place]()
        while waiting:
            free = [each for each in waiting if not any(b == each and a in waiting for a, b in self._order)]
            self._places += free
            waiting = [each for each in waiting if each not in free]
        self._static = [[self._fit(n, at, None) for at in range(len(done))] for n in range(len(calls))]

    def assignment(self, least: Fit) -> dict[int, int] | None:
        """A recorded call for every expected one, each with a fit of at least `least`; None if there is none."""
        return next(self._try_places(0, {}, least), None)

    def hits(self, least: Fit) -> list[int]:
        """The recorded calls that can take the place of the first expected one."""
        if not self._references[0]:
            return [at for at, fit in enumerate(self._static[0]) if fit >= least]
        return sorted({assignment[0] for assignment in self._try_places(0, {}, least)})

    def missing(self) -> str:
        """What is missing, in words."""
        owner = assign([[at for at, fit in enumerate(row) if fit is Fit.YES] for row in self._static])
        calls = [call for n, call in enumerate(self._calls) if n not in owner.values()]
        if calls:
            return f"no successful call of {_expected(calls)}"
        return f"no successful calls of {_expected(self._calls)} in this order and with the values that they share"

    def undecided(self) -> list[ExpectedCall]:
        """The expected calls that can't be decided because a result was cut."""
        unknown = [call for call, row in zip(self._calls, self._static, strict=True) if Fit.UNKNOWN in row]
        return unknown or list(self._calls)

    def _try_places(self, k: int, choice: dict[Place, int], least: Fit) -> Iterator[dict[int, int]]:
        if k == len(self._places):
            if (assignment := self._rest(choice, least)) is not None:
                yield assignment
            return
        target = self._places[k]
        for at in self._candidates(target, choice, least):
            yield from self._try_places(k + 1, {**choice, target: at}, least)

    def _candidates(self, target: Place, choice: dict[Place, int], least: Fit) -> Iterator[int]:
        taken = {at for n, at in choice.items() if isinstance(n, int)}
        for at, receipt in enumerate(self._done):
            if isinstance(target, str):
                fits = receipt.tool == target
            else:
                fits = self._static[target][at] >= least and at not in taken
            if not fits:
                continue
            self._trials += 1
            if self._trials > MAX_TRIALS:
                raise TooMany
            in_order = self._in_order({**choice, target: at}, target)
            if in_order and (isinstance(target, str) or self._fit(target, at, choice) >= least):
                yield at

    def _rest(self, choice: dict[Place, int], least: Fit) -> dict[int, int] | None:
        taken = {at for n, at in choice.items() if isinstance(n, int)}
        rest = [n for n in range(len(self._calls)) if n not in choice]
        candidates: list[list[int]] = []
        for n in rest:
            possible = [at for at, fit in enumerate(self._static[n]) if fit >= least and at not in taken]
            self._trials += len(possible) if self._places else 0
            if self._trials > MAX_TRIALS:
                raise TooMany
            candidates.append([
                at for at in possible
                if self._in_order({**choice, n: at}, n) and self._fit(n, at, choice) >= least
            ])  # fmt: skip
        owner = assign(candidates)
        if len(owner) < len(rest):
            return None
        fixed = {n: at for n, at in choice.items() if isinstance(n, int)}
        return fixed | {rest[position]: at for at, position in owner.items()}

    def _in_order(self, choice: dict[Place, int], new: Place) -> bool:
        return all(choice[a] < choice[b] for a, b in self._order if new in (a, b) and a in choice and b in choice)

    def _fit(self, n: int, at: int, choice: dict[Place, int] | None) -> Fit:
        """How well a recorded call fits an expected one. Without `chosen`, every reference fits."""
        call, receipt = self._calls[n], self._done[at]
        if choice is not None and not self._references[n]:
            return self._static[n][at]
        if call.tool != receipt.tool or (call.result is None and id(receipt) not in self._succeeded):
            return Fit.NO

        def resolve(reference: Reference, value: Any) -> Fit:
            if choice is None:
                return Fit.YES
            source = choice[place(reference.name, self._named)]
            return compare_with_result(self._result(source), reference.path, value)

        fit = compare_fields(receipt.args, call.args, self._patterns, resolve)
        if fit is Fit.NO or call.result is None:
            return fit
        return min(fit, compare(self._result(at), call.result, self._patterns, resolve))

    def _result(self, at: int) -> Any:
        if at not in self._results:
            self._results[at] = result_of(self._done[at])
        return self._results[at]


def _not_met(reason: str) -> ReceiptDecision:
    return ReceiptDecision("not_met", "not_met", reason)


def _cut(calls: Sequence[ExpectedCall]) -> ReceiptDecision:
    reason = f"the result of {_expected(calls)} isn't recorded as a whole, so it can't be compared"
    return ReceiptDecision("error", code="result_cut", reason=reason)


def _expected(calls: Sequence[ExpectedCall]) -> str:
    return ", ".join(
        f"{call.tool}({_short(call.args)}){f' → {_short(call.result)}' if call.result is not None else ''}"
        for call in calls[:SHOWN]
    )


def _shown(receipts: Sequence[Receipt]) -> str:
    more = f" and {len(receipts) - SHOWN} more" if len(receipts) > SHOWN else ""
    return ", ".join(f"{receipt.tool}({_short(receipt.args)})" for receipt in receipts[:SHOWN]) + more


def _seen(receipts: Sequence[Receipt]) -> str:
    return f"recorded: {_shown(receipts)}" if receipts else "no such call was recorded"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else text[:159] + "…"
