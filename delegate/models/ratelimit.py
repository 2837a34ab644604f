"""Keeps calls to one model within what its provider allows: they slow down, and don't fail.

What is allowed is learned, and nothing is slowed before something was:

* a refusal (429, 503, 529) stops all callers for as long as the server asks, or else for a growing time;
* it also halves the pace of calls or, where that isn't the reason, limits how many may be under way;
* rate-limit headers say what is left of a quota, which is stretched before it runs out.
"""

import asyncio
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from delegate._util.semaphore import FairSemaphore
from delegate.errors import ProviderError
from delegate.ports import Quota

OVERLOAD_RETRIES = 4
"""How often one call asks an overloaded model again; a rate-limited one is asked as often as patience allows."""
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
"""Seconds, where the server names none. It doubles with each refusal until a call is accepted."""
LONGEST_PAUSE = 3600.0
"""Seconds. However long a server asks to wait, it is asked again after this."""
SLOWEST = 1.0
"""Calls per second. Slower limits are kept by pauses and quotas; a slower pace would sleep through an outage's end."""
SLACK = 0.05
"""Seconds by which a late call may be made up for by those after it."""
LOOK_AGAIN = 0.05
"""Seconds after which the first in line looks again, since what it waits for may change."""
TICK = 1e-6
"""Seconds. A shorter wait is an error of rounding."""
MEMORY_SECONDS = 300.0
"""Without a refusal for this long, what refusals taught is forgotten."""
QUOTA_SHARE = 0.95
"""The part of a quota's refill that is used, since its headers are rounded."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """One attempt: when it was sent, its number among all, and whether it took the last place of the window."""

    at: float
    number: int
    filled: bool


class RateLimiter:
    """Shared by all who call one model at one endpoint, on however many event loops and threads.

    `clock` is that of the event loops, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # re-entrant, since the garbage collector may end an abandoned call at any time
        self._line = FairSemaphore(1)
        self._waiting = 0
        self._in_flight = 0
        self._sends = _Sends()
        self._pace = _Pace()
        self._window = _Window()
        self._quotas = (_Stock(least_cost=1), _Stock(least_cost=0))
        """Of requests, and of tokens."""
        self._refusal: ProviderError | None = None
        self._refused_at = -math.inf
        """When it last slowed down."""
        self._refusals = 0
        """How often in a row."""

    def attempts(self, *, patience: float) -> "RateLimiter.Attempts":
        """The attempts of one call, each of which comes when its turn has come.

            async for attempt in limiter.attempts(patience=300):
                with attempt:
                    reply = await send()
                    attempt.accepted(reply.quota)
                    return reply

        A refusal by the provider that is raised in the block leads to the next attempt. Where the wait for it would
        take more than what is left of `patience` seconds, it is raised at once. All other errors travel through. The
        block makes one attempt, so that nothing is held while the call waits.
        """
        return RateLimiter.Attempts(self, patience)

    class Attempts:
        """Iterates over the attempts of one call: see `RateLimiter.attempts`."""

        def __init__(self, limiter: "RateLimiter", patience: float) -> None:
            self._limiter = limiter
            self._patience = patience
            self._retries = 0
            self._sent: _Sent

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Self:
            limiter, arrived = self._limiter, self._limiter._clock()
            sent = None if limiter._waiting else limiter._start(arrived)
            if sent is None:
                sent = await limiter._in_turn(arrived + self._patience)
                self._patience -= limiter._clock() - arrived
            self._sent = sent
            return self

        def accepted(self, quota: Quota | None) -> None:
            """The provider answered, and this is what it said of its limits."""
            self._limiter._accepted(self._sent, quota)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
            try:
                if not isinstance(error, ProviderError) or error.fault not in ("rate_limited", "overloaded"):
                    return False
                self._retries += 1
                given_up = error.fault == "overloaded" and self._retries > OVERLOAD_RETRIES
                return self._limiter._refused(self._sent, error) <= self._patience and not given_up
            finally:
                self._limiter._ended()

    # -------------------------------------------------------------------------------------------- waiting

    async def _in_turn(self, deadline: float) -> _Sent:
        if self._pace.next_at > deadline:
            return self._insist()
        self._count_waiting(1)
        try:
            return await self._in_line(deadline)
        finally:
            self._count_waiting(-1)

    async def _in_line(self, deadline: float) -> _Sent:
        """Wait until everybody before has gone, and then for the moment to go."""
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await self._line.acquire()
        except TimeoutError:
            return self._insist()
        try:
            while (sent := self._start(now := self._clock())) is None:
                wait = self._wait(now)
                if now + wait > deadline:
                    return self._insist()
                await asyncio.sleep(min(wait, LOOK_AGAIN))
            return sent
        finally:
            self._line.release()

    def _insist(self) -> _Sent:
        """Patience has run out. Only a refusal is a reason to fail: what headers forecast is put to the test."""
        with self._lock:
            now, error = self._clock(), self._refusal
            if error is None:
                return self._count_sent(now)
            left = max(self._pace.next_at - now, 0.0)
        raise ProviderError(error.fault, str(error), provider=error.provider, status=error.status, retry_after=left)

    def _start(self, now: float) -> _Sent | None:
        """Count a call as sent, if it may be sent now."""
        with self._lock:
            return None if self._wait(now) > TICK else self._count_sent(now)

    def _wait(self, now: float) -> float:
        """Seconds until the next call may be sent, as far as can be seen."""
        room = 0.0 if self._in_flight < self._window.limit else LOOK_AGAIN
        requests, tokens = self._quotas
        return max(room, self._pace.next_at - now, requests.wait(now), tokens.wait(now))

    def _count_sent(self, now: float) -> _Sent:
        self._in_flight += 1
        self._pace.sent(now)
        for quota in self._quotas:
            quota.sent(now)
        return _Sent(now, self._sends.add(now), filled=self._in_flight >= self._window.limit)

    def _count_waiting(self, change: int) -> None:
        with self._lock:
            self._waiting += change

    # ------------------------------------------------------------------------------------------- learning

    def _ended(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def _accepted(self, sent: _Sent, quota: Quota | None) -> None:
        if self._refusal is None and quota is None:
            return
        with self._lock:
            if sent.at > self._refused_at:
                self._refusals = 0
                self._window.proved(filled=sent.filled)
            if self._clock() - self._refused_at > MEMORY_SECONDS:
                self._pace, self._window, self._refusal = _Pace(), _Window(), None
            if quota is not None:
                self._read(quota, sent)

    def _read(self, quota: Quota, sent: _Sent) -> None:
        requests, tokens = self._quotas
        later = self._sends.count - sent.number
        requests.report(sent, later, quota.requests_limit, quota.requests_left, quota.requests_full_in)
        tokens.report(sent, later, quota.tokens_limit, quota.tokens_left, quota.tokens_full_in)

    def _refused(self, sent: _Sent, error: ProviderError) -> float:
        """Slow down once for all calls that were under way; give back the seconds until the next may be sent."""
        with self._lock:
            now, self._refusal = self._clock(), error
            self._sends.take_back(sent.at)
            if sent.at > self._refused_at:
                self._slow_down(now, error)
            elif self._pace.halved_at == self._refused_at:
                self._pace.correct(self._sends.rate(self._refused_at, self._pace.span))
            if error.retry_after is not None:
                self._pace.stop(now + min(error.retry_after, LONGEST_PAUSE))
            return self._pace.next_at - now

    def _slow_down(self, now: float, error: ProviderError) -> None:
        """Where nothing was accepted of late, twice in a row, it's the number of calls under way that is too high."""
        self._refused_at = now
        self._refusals += 1
        accepted, others = self._sends.rate(now, self._pace.span), self._in_flight - 1
        if error.fault == "rate_limited" and self._refusals > 1 and others and not accepted:
            self._window.narrow(others)
        else:
            self._pace.halve(now, accepted)
        if error.retry_after is None:
            self._pace.stop(now + _pause(self._refusals))


class _Sends:
    """When calls were sent that weren't refused: the last thousand."""

    def __init__(self) -> None:
        self.count = 0
        self._times: deque[float] = deque(maxlen=1000)

    def add(self, at: float) -> int:
        """One more; its number."""
        self._times.append(at)
        self.count += 1
        return self.count

    def take_back(self, at: float) -> None:
        """One that was refused."""
        if at in self._times:
            self._times.remove(at)

    def rate(self, end: float, span: float) -> float:
        """Calls per second in the `span` seconds before `end`."""
        return sum(end - span < at <= end for at in self._times) / span


class _Pace:
    """How fast calls may follow one another: as they come, until a refusal shows what is too fast.

    A refusal halves it, counted from what was accepted rather than from what was sent. It comes back along a cubic
    curve as in TCP (RFC 9438): fast at first, slow near what was accepted, and fast again once more proves possible.
    """

    def __init__(self) -> None:
        self.next_at = 0.0
        """Before this no call may be sent."""
        self.halved_at = -math.inf
        self._top: float | None = None
        self._before = math.inf
        self._rising_since = 0.0

    @property
    def span(self) -> float:
        """Seconds over which accepted calls are counted: at least two fit in."""
        return 1.0 if self._top is None else max(1.0, 2 / self._rate(self.next_at))

    def sent(self, now: float) -> None:
        """Space the next call. Time in which nobody waited doesn't count for the curve: it proves nothing."""
        if self._top is None:
            return
        idle = max(now - SLACK - self.next_at, 0.0)
        self._rising_since += idle
        self.next_at += idle + 1 / self._rate(now)

    def stop(self, until: float) -> None:
        """Let nobody through before `until`."""
        self.next_at = self._rising_since = max(self.next_at, until)

    def halve(self, now: float, accepted: float) -> None:
        """Go on at half of the accepted rate."""
        self._before = math.inf if self._top is None else self._rate(now)
        self.halved_at = self._rising_since = now
        self.correct(accepted)

    def correct(self, accepted: float) -> None:
        """`accepted` is what remains of that rate, now that more of the calls turn out to be refused."""
        self._top = min(self._before, max(accepted, SLOWEST))

    def _rate(self, now: float) -> float:
        """Half of the top at first, the whole after some 35 calls (within 2 to 10 seconds), twice of it after 100."""
        assert self._top is not None
        half_way = min(max(40 / self._top, 2.0), 10.0)
        done = max(now - self._rising_since, 0.0) / half_way - 1
        return max(self._top * (1 + done**3 / 2), SLOWEST)


class _Window:
    """How many calls may be under way: any number, until a refusal shows what is too many."""

    def __init__(self) -> None:
        self.limit: float = math.inf
        self._top = math.inf
        self._proved = 0

    def narrow(self, in_flight: int) -> None:
        """As many as were under way when one more was refused."""
        self.limit = self._top = in_flight
        self._proved = 0

    def proved(self, *, filled: bool) -> None:
        """A call was accepted. After twenty that filled the window one more is tried; eight after forty, and so on."""
        if filled:
            self._proved += 1
            self.limit = self._top + self._proved**3 // 8000


class _Stock:
    """What is left of one quota, as the provider counts it: it fills up steadily, and every call takes some of it.

    How much a call takes is learned from how the reports change, so that it includes what others take meanwhile.
    """

    def __init__(self, least_cost: float) -> None:
        self._rate = 0.0
        """Units per second that come back; 0 before the first report."""
        self._least_cost = self._cost = least_cost
        self._limit = 0.0
        self._left, self._at = 0.0, 0.0
        self._reported, self._newest = 0.0, _Sent(0.0, 0, filled=False)

    def wait(self, now: float) -> float:
        """Seconds until there is enough for a call."""
        return (min(self._cost, self._limit) - self._left_at(now)) / (QUOTA_SHARE * self._rate) if self._rate else 0.0

    def sent(self, now: float) -> None:
        """A call takes its share."""
        if self._rate:
            self._left, self._at = self._left_at(now) - self._cost, now

    def report(self, sent: _Sent, later: int, limit: int | None, left: int | None, full_in: float | None) -> None:
        """What came back with a call after which `later` more were sent. Only news counts, and only if it's whole."""
        if limit is None or left is None or not full_in or left >= limit or sent.number <= self._newest.number:
            return
        if self._rate:
            self._learn_cost(sent, left)
        self._reported, self._newest = left, sent
        self._limit, self._rate = limit, (limit - left) / full_in
        self._left, self._at = left - later * self._cost, sent.at

    def _learn_cost(self, sent: _Sent, left: int) -> None:
        refilled = min(self._rate * (sent.at - self._newest.at), self._limit - self._reported)
        cost = (self._reported + refilled - left) / (sent.number - self._newest.number)
        self._cost = max(self._cost + 0.3 * (cost - self._cost), self._least_cost)

    def _left_at(self, now: float) -> float:
        return min(self._limit, self._left + QUOTA_SHARE * self._rate * (now - self._at))


def _pause(refusals: int) -> float:
    """Seconds to wait after so many refusals in a row, with jitter, so that other processes don't come back with us."""
    return min(FIRST_PAUSE * 2 ** (refusals - 1), LAST_PAUSE) * random.uniform(0.75, 1.25)
