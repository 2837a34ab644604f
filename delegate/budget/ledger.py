"""Enforces spending limits. Amounts are reserved before a step and settled after it; a refused step costs nothing.

A ledger may have a parent: a child's own limits apply in addition to those of its run.

The length of a model's output is unknown in advance. A model call therefore reserves what it costs in any case and as
many output tokens as the limits still buy, and asks for no more: all open reservations together fit under the limit,
whatever the models write. While others spend from the same limit, a call takes no more than half of what is left, so
that one that hangs leaves the others room.

Model calls wait while only open reservations stand in their way, and are refused once what was spent leaves no room
for the least output. Children whose runner makes its own calls can't be stopped by a reservation: they start only while
every limit has room, and wait while the children in progress may use it up.
"""
# The classes of this module share their state and its lock.
# pyright: reportPrivateUsage=false

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from delegate._util.semaphore import resolve
from delegate.types.errors import BudgetExceeded
from delegate.types.events import OnWait

LimitName = Literal["children", "model_calls", "tokens", "cost_usd"]
Amounts = Mapping[LimitName, float]

ROUNDING = 1e-9
"""Relative tolerance for floating-point sums: a limit is exceeded only by more than this fraction of it."""
SPENDING: tuple[LimitName, ...] = ("cost_usd", "tokens", "model_calls")
"""The limits on what model calls use up."""

LEAST_OUTPUT = 500
"""Output tokens. A call for which a limit buys fewer is refused."""
EXPECTED_OUTPUT = 2_000
"""Output tokens, which most calls don't reach. While it may get them soon, a call waits rather than make do with fewer.
"""

_NONE: Amounts = {}


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a model call: at most this many tokens, and what each of them takes from the limits."""

    most: int
    each: Amounts

    @property
    def least(self) -> int:
        """The tokens below which the call is refused."""
        return min(LEAST_OUTPUT, self.most)


_NO_OUTPUT = Output(0, _NONE)


@dataclass(frozen=True, slots=True)
class _Room:
    """What one limit has for a step. `is_hopeless`: too little even without the open reservations."""

    limit: LimitName
    ledger: "Ledger"
    needed: float
    """The amount without which the step must wait."""
    output: float
    """The output tokens that it may have; negative if it must wait."""
    is_hopeless: bool


@dataclass
class Window:
    """Lets the limits of a ledger count only what was spent within the last `seconds`."""

    _seconds: float
    _clock: Callable[[], float] = time.monotonic
    _spent: deque[tuple[float, Amounts]] = field(default_factory=deque[tuple[float, Amounts]])

    def add(self, amounts: Amounts) -> None:
        self._spent.append((self._clock(), amounts))

    def take_old(self) -> Iterator[Amounts]:
        """Remove what was spent before the window, and yield it."""
        while self._spent and self._clock() - self._spent[0][0] >= self._seconds:
            yield self._spent.popleft()[1]

    def frees_in(self, name: LimitName, amount: float) -> float | None:
        """The seconds until this much of a limit is free again; None if it never is."""
        for moment, spent in self._spent:
            amount -= spent.get(name, 0)
            if amount <= 0:
                return max(0.0, moment + self._seconds - self._clock())
        return None


class Ledger:
    """Tracks spent and reserved amounts against limits. A limit that is None or absent is unlimited.

    Safe to use from several threads and event loops.
    """

    def __init__(
        self,
        limits: Mapping[LimitName, float | None] | None = None,
        parent: "Ledger | None" = None,
        *,
        window: Window | None = None,
    ) -> None:
        self.limits: dict[LimitName, float] = {
            name: limit for name, limit in (limits or {}).items() if limit is not None
        }
        self.defaults: dict[LimitName, str] = {}
        """The limits that nobody has set, and the settings that they come from."""
        self.spent: dict[LimitName, float] = {}
        self._open: dict[Reservation, None] = {}
        self.window = window
        self._tasks = 0
        self._chain: tuple[Ledger, ...] = (self, *(parent._chain if parent else ()))
        self._tree: _Tree = parent._tree if parent else _Tree()

    def limit_by_default(self, name: LimitName, limit: float, setting: str) -> None:
        """Limit what has no limit yet. `setting` is named when the limit is reached."""
        with self._tree.lock:
            if name not in self.limits:
                self.limits[name], self.defaults[name] = limit, setting

    def is_limited(self, name: LimitName) -> bool:
        """Whether someone has set a limit, here or for a parent ledger."""
        return any(name in ledger.limits and name not in ledger.defaults for ledger in self._chain)

    def within(self, name: LimitName, limit: float | None, *, spent: float = 0) -> "Ledger":
        """A ledger with a limit of its own, of which `spent` is used up, in addition to those of this one; this one if
        there is no such limit.
        """
        if limit is None:
            return self
        ledger = Ledger({name: limit}, parent=self)
        ledger.spent[name] = spent
        return ledger

    def join(self, tasks: int) -> None:
        """Count tasks that spend from this ledger and its parents, or with a negative number, that did: several of them
        leave each other room.
        """
        with self._tree.lock:
            for ledger in self._chain:
                ledger._tasks += tasks

    def reserve(self, sure: Amounts, output: Output = _NO_OUTPUT) -> "Reservation":
        """Reserve amounts here and in every parent ledger, or raise BudgetExceeded and reserve nothing."""
        with self._tree.lock:
            rooms = self._rooms(sure, output)
            if lacking := _lacking(rooms):
                raise lacking.ledger._exceeded(lacking.limit, lacking.needed)
            return self._opened(sure, output, rooms)

    async def reserve_when_free(
        self, sure: Amounts, output: Output = _NO_OUTPUT, *, on_wait: OnWait = nullcontext
    ) -> "Reservation":
        """Reserve amounts as `reserve` does, but wait while only open reservations stand in the way.

        Calls that wait for the same limit are served in the order in which they came. Raises BudgetExceeded once what
        was spent leaves no room for the sure amounts and the least output.
        """
        with self._tree.lock:
            rooms = self._rooms(sure, output)
            if not self._tree.waiting and _lacking(rooms) is None:
                return self._opened(sure, output, rooms)
            call = _WaitingCall(self, sure, output)
            self._tree.add(call)
        await call.wait(on_wait)
        assert call.reservation is not None
        return call.reservation

    async def start_child(
        self, *, may_wait: bool, while_waiting: Callable[[], AbstractAsyncContextManager[object]]
    ) -> "RunningChild":
        """Start a child with this ledger whose runner makes its own model calls. The caller calls its `leave`.

        It starts only while no limit is used up. With `may_wait`, each child in progress counts as the costliest one so
        far, and it waits, inside `while_waiting`, until there is room besides. A child that another one waits for must
        not wait. Raises BudgetExceeded if a limit is used up.
        """
        child = RunningChild(self, may_wait=may_wait)
        with self._tree.lock:
            self._tree.add(child)
        try:
            async with nullcontext() if child.decided else while_waiting():
                await child.wait(nullcontext)
        except BaseException:
            child.leave()
            raise
        return child

    def left(self, limit: LimitName) -> float | None:
        """The part of a limit that is neither spent nor reserved, here and in the parent ledgers; None if unlimited."""
        with self._tree.lock:
            rooms = (
                max(0.0, ledger.limits[limit] - ledger.spent.get(limit, 0) - ledger._reserved(limit))
                for ledger in self._current_chain()
                if limit in ledger.limits
            )
            return min(rooms, default=None)

    def used(self) -> dict[LimitName, float]:
        """What is spent or reserved of each limit."""
        self._current_chain()
        names: set[LimitName] = {*self.spent}
        for reservation in self._open:
            names |= {*reservation._sure, *reservation._each}
        return {name: self.spent.get(name, 0) + self._reserved(name) for name in names}

    def take_lock(self, outer: AbstractContextManager[None]) -> AbstractContextManager[object]:
        """Let `outer` guard this ledger and all that share its run. It has to enter the lock that this returns."""
        with self._tree.lock:
            inner, self._tree.lock = self._tree.lock, outer
            return inner

    def spend(self, amounts: Amounts) -> None:
        """Count amounts as spent. The caller holds the lock."""
        for name, amount in amounts.items():
            self.spent[name] = self.spent.get(name, 0) + amount
        if self.window and amounts:
            self.window.add(amounts)

    def _current_chain(self) -> "tuple[Ledger, ...]":
        """Return this ledger and its parents, without what was spent before their windows."""
        for ledger in self._chain:
            for old in ledger.window.take_old() if ledger.window else ():
                for name, amount in old.items():
                    ledger.spent[name] -= amount
        return self._chain

    def _opened(self, sure: Amounts, output: Output, rooms: "list[_Room]") -> "Reservation":
        reservation = Reservation(self, sure, output, int(min((room.output for room in rooms), default=output.most)))
        for ledger in self._chain:
            ledger._open[reservation] = None
        return reservation

    def _rooms(self, sure: Amounts, output: Output) -> "list[_Room]":
        """What each limit that a step draws on has for it, here and in the parent ledgers."""
        return [
            ledger._room_for(name, sure.get(name, 0), output.each.get(name, 0), output)
            for ledger in self._current_chain()
            for name in ledger.limits
            if sure.get(name) or output.each.get(name)
        ]

    def _room_for(self, name: LimitName, sure: float, each: float, output: Output) -> _Room:
        """What a limit has for a step that takes `sure` in any case, and `each` per output token."""
        unspent = self.limits[name] * (1 + ROUNDING) - self.spent.get(name, 0) - sure
        free = unspent - self._reserved(name)
        if not each:
            return _Room(name, self, sure, output.most if free >= 0 else -1, unspent < 0)
        least, share = output.least, free / each
        if self._tasks > 1 or self._open:
            # A quarter at most: a call that hangs may keep half for minutes.
            least = max(least, min(output.most, EXPECTED_OUTPUT, unspent / each / 4))
            share = max(least, share / 2)
        fits = free >= least * each
        return _Room(
            name, self, sure + least * each, min(output.most, share) if fits else -1, unspent < output.least * each
        )

    def _exceeded(self, name: LimitName, needed: float) -> BudgetExceeded:
        allowed, spent, reserved = self.limits[name], self.spent.get(name, 0), self._reserved(name)
        lacking = spent + reserved + needed - allowed
        return BudgetExceeded(
            name,
            allowed=allowed,
            spent=spent,
            reserved=reserved,
            needed=needed,
            frees_in=self.window.frees_in(name, lacking) if self.window and needed <= allowed else None,
            setting=self.defaults.get(name),
        )

    def _reserved(self, name: LimitName) -> float:
        return sum(reservation.amount(name) for reservation in tuple(self._open))


def _lacking(rooms: list[_Room]) -> _Room | None:
    """The first limit for which a step must wait."""
    return next((room for room in rooms if room.output < 0), None)


class Reservation:
    """Reserved amounts. Settle it once, with what was actually spent; settling with nothing releases it.

    As a context manager, it is released on exit if it wasn't settled before.
    """

    def __init__(self, ledger: Ledger, sure: Amounts, output: Output, tokens: int) -> None:
        self.output_tokens = tokens
        """The output that a model call may have."""
        self._sure = sure
        self._each = output.each
        self._ledger = ledger

    def amount(self, name: LimitName) -> float:
        """What is reserved of a limit."""
        return self._sure.get(name, 0) + self.output_tokens * self._each.get(name, 0)

    def settle(self, spent: Amounts = _NONE) -> None:
        """Replace the reservation by `spent`. Settling again does nothing."""
        ledger, tree = self._ledger, self._ledger._tree
        with tree.lock:
            if self not in ledger._open:
                return
            for each in ledger._chain:
                del each._open[self]
                each.spend(spent)
            if tree.waiting:
                tree.serve()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()


class _Tree:
    """What the ledgers of one run share: the lock, the waiting steps, and the children that make their own calls."""

    def __init__(self) -> None:
        # Re-entrant, since the garbage collector may finalize an abandoned call meanwhile.
        self.lock: AbstractContextManager[object] = threading.RLock()
        self.waiting: dict[_Waiting, None] = {}
        """In the order in which they came."""
        self.children: dict[Ledger, None] = {}
        """The ledgers of the children in progress that make their own calls."""
        self.largest: dict[LimitName, float] = {}
        """The most that such a child has spent."""
        self._serving = self._again = False

    def add(self, step: "_Waiting") -> None:
        """Let a step wait, or decide it at once if it needn't. The caller holds the lock."""
        self.waiting[step] = None
        self.serve()

    def serve(self) -> None:
        """Decide all waiting steps that can be decided. The caller holds the lock.

        The garbage collector may release a reservation in the middle of this, which then starts over.
        """
        self._again = True
        if self._serving:
            return
        self._serving = True
        try:
            while self._again:
                self._again = False
                short: set[tuple[object, ...]] = set()
                for step in tuple(self.waiting):
                    if step in self.waiting and not step.is_abandoned():
                        step.admit(short)
        finally:
            self._serving = False

    def outstanding(self, name: LimitName, ledger: Ledger) -> float:
        """What the children in progress below `ledger` may still spend, if none is costlier than all before."""
        largest = self.largest.get(name, 0)
        below = (child for child in self.children if ledger in child._chain)
        return sum(max(0.0, largest - child.spent.get(name, 0)) for child in below)


class _Waiting(ABC):
    """A step that waits until it fits or can't fit anymore."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.refusal: BudgetExceeded | None = None
        self.decided = False
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, on_wait: OnWait) -> None:
        """Wait for the decision. Raises BudgetExceeded if it is a refusal."""
        try:
            if not self.decided:
                with on_wait("budget"):
                    await self._future
        except BaseException:
            self.leave()
            raise
        if self.refusal:
            raise self.refusal

    @abstractmethod
    def admit(self, short: set[tuple[object, ...]]) -> None:
        """Admit or refuse the step if possible; `short` has the limits that earlier steps wait for."""

    @abstractmethod
    def undo(self) -> None:
        """Take back the admission."""

    def conclude(self, refusal: BudgetExceeded | None = None) -> None:
        """Make the decision known: an admission, or the refusal."""
        tree = self.ledger._tree
        tree.waiting.pop(self, None)
        self.decided, self.refusal = True, refusal
        try:
            self._future.get_loop().call_soon_threadsafe(resolve, self._future)
        except RuntimeError:  # its loop is closed
            if refusal is None:
                self.undo()

    def is_abandoned(self) -> bool:
        """Whether its caller is gone, because the event loop was closed without cancelling its tasks."""
        if self._future.get_loop().is_closed():
            self.ledger._tree.waiting.pop(self, None)
            return True
        return False

    def leave(self) -> None:
        """Stop waiting, or take the admission back."""
        tree = self.ledger._tree
        with tree.lock:
            tree.waiting.pop(self, None)
            if self.decided and self.refusal is None:
                self.undo()
            tree.serve()


class _WaitingCall(_Waiting):
    """A model call that waits for a reservation."""

    def __init__(self, ledger: Ledger, sure: Amounts, output: Output) -> None:
        super().__init__(ledger)
        self.reservation: Reservation | None = None
        self._sure = sure
        self._output = output

    def admit(self, short: set[tuple[object, ...]]) -> None:
        rooms = self.ledger._rooms(self._sure, self._output)
        if hopeless := next((room for room in rooms if room.is_hopeless), None):
            self.conclude(hopeless.ledger._exceeded(hopeless.limit, hopeless.needed))
        elif any((room.ledger, room.limit) in short for room in rooms):
            return
        elif lacking := _lacking(rooms):
            short.add((lacking.ledger, lacking.limit))
        else:
            self.reservation = self.ledger._opened(self._sure, self._output, rooms)
            self.conclude()

    def undo(self) -> None:
        if self.reservation:
            self.reservation.settle()


class RunningChild(_Waiting):
    """A child whose runner makes its own model calls. It may wait to start, and runs until `leave`."""

    def __init__(self, ledger: Ledger, *, may_wait: bool) -> None:
        super().__init__(ledger)
        self._may_wait = may_wait

    def admit(self, short: set[tuple[object, ...]]) -> None:
        tree = self.ledger._tree
        if refusal := self._used_up():
            self.conclude(refusal)
        elif self._may_wait and ("child",) in short:
            return
        elif not self._may_wait or all(
            ledger.spent.get(name, 0) + ledger._reserved(name) + tree.outstanding(name, ledger)
            < ledger.limits[name] * (1 - ROUNDING)
            for ledger in self.ledger._chain
            for name in SPENDING
            if name in ledger.limits
        ):
            tree.children[self.ledger] = None
            self.conclude()
        else:
            short.add(("child",))

    def undo(self) -> None:
        tree, spent = self.ledger._tree, self.ledger.spent
        if self.ledger in tree.children:
            del tree.children[self.ledger]
            for name in SPENDING:
                tree.largest[name] = max(tree.largest.get(name, 0), spent.get(name, 0))

    def _used_up(self) -> BudgetExceeded | None:
        for ledger in self.ledger._current_chain():
            for name in SPENDING:
                allowed, spent = ledger.limits.get(name), ledger.spent.get(name, 0)
                if allowed is not None and spent >= allowed * (1 - ROUNDING):
                    return ledger._exceeded(name, self.ledger._tree.largest.get(name, 0))
        return None
