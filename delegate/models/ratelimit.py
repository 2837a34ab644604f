"""Keeps the calls to one model within its provider's rate limits, and repeats calls that failed by passing trouble.

This is the only place that repeats a call, as the outcome of each attempt allows. A failure of one call (a 5xx status,
a broken connection) delays only that call, with exponential backoff. Limits apply to all callers, and are learned from
responses. Until the first one, calls aren't delayed:

* a rejection (429, 503, 529) pauses all callers for as long as the server asks, or else with exponential backoff;
* it also halves the rate of calls or, if the rate isn't the cause, limits the number of concurrent calls;
* if as many calls are rejected at the lower rate as before, and even after the pauses that the server asks for, the
  rate isn't the cause: it returns to what it was, and only the rejected calls wait;
* rate-limit headers report what is left of a quota, and calls are spread out before it runs out.
"""

import asyncio
import math
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Self

from delegate._util import forking
from delegate._util.semaphore import FairSemaphore
from delegate.errors import ProviderError
from delegate.events import OnWait
from delegate.ports import Quota

RETRIES = 10
"""How often a call is repeated after a 5xx status or a broken connection: with backoff, over two and a half minutes. A
rate-limited call is repeated as long as its patience lasts."""
LONG_REPLY = 30.0
"""The seconds after which a reply that breaks off is repeated only a few times."""
SHORT_RETRIES = 2
"""How often a call is repeated after a response that broke off, after status 408 or 409, and to an address that never
answered."""
INITIAL_BACKOFF, MAX_BACKOFF = 0.5, 30.0
"""Seconds to pause, unless the server's `Retry-After` is longer. Doubles with each failure."""
FIRST_RESEND, MAX_RESEND = 0.1, 1.0
"""Seconds before a rejected call is sent again where its rejection pauses no others. Doubles with each."""
MAX_PAUSE = 3600.0
"""Seconds. A longer `Retry-After` is cut to this."""
MIN_RATE = 0.5
"""Calls per second. Backoff and quotas enforce slower limits; a slower pace would react too late to an outage's end."""
TRIAL_CALLS, OUTAGE_CALLS = 15, 5
"""How many calls show whether a slower pace has an effect, and how many rejections in a row that none is accepted."""
ENOUGH, NEARLY_ALL, SIGNIFICANT = 0.4, 0.9, 2.5
"""Shares of accepted calls, and the difference between two, in standard deviations, that isn't chance."""
PACING_SLACK = 0.05
"""Seconds of delay that later calls may catch up on."""
POLL_SECONDS = 0.05
"""Seconds between two checks of the first waiting call, since its delay may change."""
ROUNDING = 1e-6
"""Seconds. Shorter delays are rounding errors."""
MEMORY_SECONDS = 300.0
"""After this time without a rejection, the limits learned from rejections are dropped."""
REFILL_SHARE = 0.95
"""The fraction of a quota's refill rate that is used, since the headers are rounded."""


@dataclass(frozen=True, slots=True)
class _SentCall:
    """One call that was sent: when, its sequence number, and whether it filled the concurrency window."""

    at: float
    number: int
    filled: bool
    after_pause: bool = False
    """Whether it is the first one after a pause that the server asked for."""


class RateLimiter:
    """Delays the calls to one model at one endpoint. Shared by all its callers, on any event loop and thread.

    `clock` is the clock of the event loops, in seconds. `sleep` waits before a failed call is repeated.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.RLock()  # re-entrant, since the garbage collector may finalize an abandoned call
        self._queue = FairSemaphore(1)
        self._waiting = 0
        self._in_flight = 0
        self._history = _SendHistory()
        self._pacer = _Pacer()
        self._window = _ConcurrencyWindow()
        self._quotas = (_QuotaBucket(least_cost=1), _QuotaBucket(least_cost=0))
        """The quotas of requests and of tokens."""
        self._rejection: ProviderError | None = None
        self._trial = _Trial()
        self._rejected_at = -math.inf
        """When a rejection last changed the pace."""
        self._rejections = 0
        """The number of consecutive rejections."""
        self._is_known = False
        """Whether a call was ever accepted."""
        self._pause_was_asked = False
        """Whether the next call is the first one after a pause that the server asked for."""
        forking.watch(self)

    def after_fork(self) -> None:
        """Start over: the calls in flight belong to the parent process."""
        RateLimiter.__init__(self, clock=self._clock, sleep=self._sleep)

    def attempts(self, *, patience: float, on_wait: OnWait = nullcontext) -> "RateLimiter.Attempts":
        """The attempts of one call. Each is yielded when it may be sent. What `on_wait` returns is entered for each
        wait.

            async for attempt in limiter.attempts(patience=300):
                with attempt:
                    reply = await send()
                    attempt.accepted(reply.quota)
                    return reply

        If the block raises a rejection by the provider or another passing failure, another attempt follows; but if the
        wait for it would exceed the rest of `patience` seconds, the error is raised at once. All other errors
        propagate. One block makes one attempt, so that the call holds no resources while it waits.
        """
        return RateLimiter.Attempts(self, patience, on_wait)

    class Attempts:
        """Iterates over the attempts of one call. See `RateLimiter.attempts`."""

        def __init__(self, limiter: "RateLimiter", patience: float, on_wait: OnWait) -> None:
            self._limiter = limiter
            self._patience = patience
            self._on_wait = on_wait
            self._failures = self._resent = 0
            self._backoff = 0.0
            """Seconds to wait before the next attempt."""
            self._sent: _SentCall

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Self:
            limiter = self._limiter
            if self._backoff:
                with self._on_wait("rate_limit"):
                    await limiter._sleep(self._backoff)
            arrived = limiter._clock()
            sent = None if limiter._waiting else limiter._try_send(arrived)
            if sent is None:
                with self._on_wait("rate_limit"):
                    sent = await limiter._wait_to_send(arrived + self._patience)
                self._patience -= limiter._clock() - arrived
            self._sent = sent
            return self

        def accepted(self, quota: Quota | None) -> None:
            """Report that the provider accepted the call, with the quota that its headers reported."""
            self._limiter._accepted(self._sent, quota)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
            try:
                return isinstance(error, ProviderError) and self._is_repeated(error)
            finally:
                self._limiter._finished()

        def _is_repeated(self, error: ProviderError) -> bool:
            """Whether another attempt follows this error. If so, sets the wait before it."""
            self._backoff = 0.0
            pause = 0.0
            if error.fault in ("rate_limited", "overloaded"):
                pause = self._limiter._rejected(self._sent, error)
            if error.fault == "rate_limited":
                asked = min(error.retry_after or 0.0, MAX_PAUSE)
                if pause <= max(asked - ROUNDING, 0.0):  # others may go on
                    self._backoff = max(_with_jitter(min(FIRST_RESEND * 2**self._resent, MAX_RESEND)), asked)
                    self._resent += 1
                    self._patience -= self._backoff
                return pause <= self._patience
            self._failures += 1
            took = self._limiter._clock() - self._sent.at
            if self._failures > _retries(error, took, is_known=self._limiter._is_known):
                return False
            backoff, asked = _backoff_after(self._failures), error.retry_after or 0.0
            if max(backoff, asked, pause) > self._patience:
                return False
            # Without the jitter, so that the number of attempts doesn't depend on chance.
            self._patience -= max(backoff, asked)
            self._backoff = max(_with_jitter(backoff), asked)
            return True

    # -------------------------------------------------------------------------------------------- waiting

    async def _wait_to_send(self, deadline: float) -> _SentCall:
        if self._pacer.next_at > deadline:
            return self._send_or_raise()
        self._change_waiting(1)
        try:
            return await self._wait_in_queue(deadline)
        finally:
            self._change_waiting(-1)

    async def _wait_in_queue(self, deadline: float) -> _SentCall:
        """Wait for all earlier calls, then until this one may be sent."""
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await self._queue.acquire()
        except TimeoutError:
            return self._send_or_raise()
        try:
            while (sent := self._try_send(now := self._clock())) is None:
                wait = self._delay(now)
                if now + wait > deadline:
                    return self._send_or_raise()
                await asyncio.sleep(min(wait, POLL_SECONDS))
            return sent
        finally:
            self._queue.release()

    def _send_or_raise(self) -> _SentCall:
        """Out of patience: raise the last rejection. Without one, send the call despite what the quotas predict."""
        with self._lock:
            now, error = self._clock(), self._rejection
            if error is None:
                return self._record_send(now)
            left = max(self._pacer.next_at - now, 0.0)
        raise ProviderError(error.fault, str(error), provider=error.provider, status=error.status, retry_after=left)

    def _try_send(self, now: float) -> _SentCall | None:
        """Count a call as sent if it may be sent now; otherwise return None."""
        with self._lock:
            return None if self._delay(now) > ROUNDING else self._record_send(now)

    def _delay(self, now: float) -> float:
        """Seconds until the next call may be sent, by current knowledge."""
        window = 0.0 if self._in_flight < self._window.limit else POLL_SECONDS
        requests, tokens = self._quotas
        return max(window, self._pacer.next_at - now, requests.wait(now), tokens.wait(now))

    def _record_send(self, now: float) -> _SentCall:
        self._in_flight += 1
        self._pacer.record_send(now)
        for quota in self._quotas:
            quota.record_send(now)
        after_pause, self._pause_was_asked = self._pause_was_asked, False
        filled = self._in_flight >= self._window.limit
        return _SentCall(now, self._history.add(now), filled=filled, after_pause=after_pause)

    def _change_waiting(self, change: int) -> None:
        with self._lock:
            self._waiting += change

    # ------------------------------------------------------------------------------------------- learning

    def _finished(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def _accepted(self, sent: _SentCall, quota: Quota | None) -> None:
        self._is_known = True
        if self._rejection is None and quota is None:
            return
        with self._lock:
            if sent.at > self._rejected_at:
                self._rejections = 0
                self._window.record_accepted(filled=sent.filled)
            if self._clock() - self._rejected_at > MEMORY_SECONDS:
                self._pacer, self._window, self._rejection = _Pacer(), _ConcurrencyWindow(), None
            if quota is not None:
                self._update_quotas(quota, sent)

    def _update_quotas(self, quota: Quota, sent: _SentCall) -> None:
        requests, tokens = self._quotas
        later = self._history.count - sent.number
        requests.report(sent, later, quota.requests_limit, quota.requests_left, quota.requests_full_in)
        tokens.report(sent, later, quota.tokens_limit, quota.tokens_left, quota.tokens_full_in)

    def _rejected(self, sent: _SentCall, error: ProviderError) -> float:
        """Slow down once for all calls that were in flight. Returns the seconds until the next may be sent."""
        with self._lock:
            now, self._rejection = self._clock(), error
            self._history.remove(sent.at)
            self._trial.count_rejected(sent, now)
            if sent.at > self._rejected_at:
                self._change_pace(now, sent, error)
            elif self._pacer.halved_at == self._rejected_at:
                self._pacer.adjust(self._history.rate(self._rejected_at, self._pacer.span))
            if error.retry_after is not None and not self._trial.doubts_pauses:
                self._pacer.pause(now + min(error.retry_after, MAX_PAUSE))
                self._pause_was_asked = True
            return self._pacer.next_at - now

    def _change_pace(self, now: float, sent: _SentCall, error: ProviderError) -> None:
        """Slow down, or return to the pace of before if it was slowed down in vain: that takes some calls to tell."""
        trial = self._trial
        if self._pacer.is_slow:
            if sent.filled and self._window.is_limited:
                self._window.reset()
                return
            if not trial.is_over:
                if error.retry_after is None and trial.has_none_accepted and not trial.is_return:
                    self._back_off(now)
                return
            is_asked = error.retry_after is not None and not trial.pauses_are_vain
            if not (trial.is_outage or trial.shows_effect or is_asked):
                self._return_to_pace(now)
                return
        is_outage = trial.is_outage
        trial.restart(self._history.count)
        self._slow_down(now, error, is_outage=is_outage)

    def _return_to_pace(self, now: float) -> None:
        self._rejected_at, self._rejections = now, 0
        self._trial.extend(self._history.count)
        self._pacer.restore(now)
        self._window = _ConcurrencyWindow()

    def _back_off(self, now: float) -> None:
        """Pause all callers, for longer each time until a call is accepted."""
        self._rejections += 1
        self._pacer.pause(now + _with_jitter(_backoff_after(self._rejections)))

    def _slow_down(self, now: float, error: ProviderError, *, is_outage: bool) -> None:
        """Halve the rate; after two rejections without an accepted call, limit concurrency instead."""
        self._rejected_at = now
        accepted, others = self._history.rate(now, self._pacer.span), self._in_flight - 1
        if error.fault == "rate_limited" and self._rejections and others and not accepted:
            self._window.shrink(others)
        else:
            self._pacer.halve(now, accepted, is_outage=is_outage, is_paused=error.retry_after is not None)
        if error.retry_after is None:
            self._back_off(now)
        else:
            self._rejections += 1


class _SendHistory:
    """The times of the last thousand calls that weren't rejected."""

    def __init__(self) -> None:
        self.count = 0
        self._times: deque[float] = deque(maxlen=1000)

    def add(self, at: float) -> int:
        """Add a call and return its sequence number."""
        self._times.append(at)
        self.count += 1
        return self.count

    def remove(self, at: float) -> None:
        """Remove a call that was rejected."""
        if at in self._times:
            self._times.remove(at)

    def rate(self, end: float, span: float) -> float:
        """Calls per second in the `span` seconds before `end`."""
        return sum(end - span < at <= end for at in self._times) / span


class _Trial:
    """Tells whether rejections depend on the pace, by the share of calls rejected before and after it was changed.

    A call counts as accepted once one that was sent later was rejected: rejections come faster than replies.
    """

    def __init__(self) -> None:
        self._before = _Counts()
        self._since = _Counts()
        self._first = 1
        """The number of the first call that was sent since the pace was changed."""
        self._full_at = math.inf
        """When enough calls were sent."""
        self.is_over = self.is_return = False
        """Whether the calls are enough to tell, and whether they are sent at the pace of before."""
        self.pauses_are_vain = False
        """Whether a call was rejected though it came after the pause that the server had asked for."""

    def count_rejected(self, sent: _SentCall, now: float) -> None:
        """Count the rejection of a call."""
        if sent.number < self._first:
            self._before.rejected += 1
            return
        self._since.rejected += 1
        self.pauses_are_vain |= sent.after_pause
        self._since.sent = max(self._since.sent, sent.number - self._first + 1)
        # Rejections of calls that were sent together come in any order, so that one of a later call is waited for.
        self.is_over = self.is_outage or sent.at > self._full_at
        if self._since.sent >= TRIAL_CALLS:
            self._full_at = min(self._full_at, now)

    def restart(self, sent: int) -> None:
        """The pace is slowed down after `sent` calls."""
        self._before = _Counts()
        self.extend(sent)
        self.is_return = self.pauses_are_vain = False

    def extend(self, sent: int) -> None:
        """The pace is raised after `sent` calls, since lowering it had no effect: all of them are known to be alike."""
        self._before.sent += sent - self._first + 1
        self._before.rejected += self._since.rejected
        self._since, self._first, self._full_at = _Counts(), sent + 1, math.inf
        self.is_over, self.is_return = False, True

    @property
    def has_none_accepted(self) -> bool:
        return self._since.rejected == self._since.sent

    @property
    def doubts_pauses(self) -> bool:
        """Whether calls are rejected even after the pauses that the server asks for, but not all of them."""
        return self.is_return or (self.pauses_are_vain and not self.has_none_accepted)

    @property
    def is_outage(self) -> bool:
        """Whether so many were rejected in a row that it isn't chance."""
        return self.has_none_accepted and self._since.sent >= OUTAGE_CALLS

    @property
    def shows_effect(self) -> bool:
        """Whether clearly more or fewer calls are accepted than before, or nearly all: the pace is near a limit.

        If too few are, a slower pace is the safer choice whatever the cause is.
        """
        since, before = self._since, self._before
        if not ENOUGH <= since.accepted <= NEARLY_ALL or not before.sent:
            return True
        rejected = (since.rejected + before.rejected) / (since.sent + before.sent)
        deviation = math.sqrt(rejected * (1 - rejected) * (1 / since.sent + 1 / before.sent))
        return abs(since.accepted - before.accepted) > SIGNIFICANT * deviation


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    rejected: int = 0

    @property
    def accepted(self) -> float:
        """The share of the calls that were accepted."""
        return 1 - self.rejected / self.sent if self.sent else 0.0


class _Pacer:
    """Paces calls: unlimited until a rejection shows that they are too fast.

    A rejection sets the rate to half of the accepted rate. The rate then grows along a cubic curve as in TCP CUBIC
    (RFC 9438): fast at first, slowly near the accepted rate, and fast again beyond it.
    """

    def __init__(self) -> None:
        self.next_at = 0.0
        """No call may be sent before this time."""
        self.halved_at = -math.inf
        self._plateau: float | None = None
        self._rate_before = math.inf
        self._floor = MIN_RATE
        self._curve_start = 0.0

    @property
    def span(self) -> float:
        """Seconds over which accepted calls are counted: long enough for at least two."""
        return 1.0 if self._plateau is None else max(1.0, 2 / self._rate(self.next_at))

    @property
    def is_slow(self) -> bool:
        """Whether a rejection slowed it down."""
        return self._plateau is not None

    def restore(self, now: float) -> None:
        """Continue at the rate before it was halved, or faster."""
        self._plateau = max(self._rate_before, 2 * self._rate(now))
        self._curve_start = now - self._time_to_plateau

    def record_send(self, now: float) -> None:
        """Schedule the next call. Idle time doesn't advance the curve, since it shows nothing about the limit."""
        if self._plateau is None:
            return
        idle = max(now - PACING_SLACK - self.next_at, 0.0)
        self._curve_start += idle
        self.next_at += idle + 1 / self._rate(now)

    def pause(self, until: float) -> None:
        """Send no call before `until`."""
        self.next_at = self._curve_start = max(self.next_at, until)

    def halve(self, now: float, accepted: float, *, is_outage: bool, is_paused: bool) -> None:
        """Continue at half of the accepted rate; in an outage, which doesn't show it, at half of the rate so far.

        Where the server asks for pauses, these lower the accepted rate too: it continues at a quarter or more.
        """
        is_first = self._plateau is None
        self._rate_before = math.inf if is_first else self._rate(now)
        if is_first:
            self._floor = MIN_RATE
        else:
            self._floor = self._rate_before if is_outage else self._rate_before / 2 if is_paused else MIN_RATE
        self.halved_at = self._curve_start = now
        self.adjust(accepted)

    def adjust(self, accepted: float) -> None:
        """Lower the accepted rate, because more of the calls that it counts were rejected."""
        self._plateau = min(self._rate_before, max(accepted, self._floor))

    def _rate(self, now: float) -> float:
        """Half the plateau at first, all of it after about 35 calls (within 2 to 10 seconds), twice that after 100."""
        assert self._plateau is not None
        done = max(now - self._curve_start, 0.0) / self._time_to_plateau - 1
        return max(self._plateau * (1 + done**3 / 2), MIN_RATE)

    @property
    def _time_to_plateau(self) -> float:
        assert self._plateau is not None
        return min(max(40 / self._plateau, 2.0), 10.0)


class _ConcurrencyWindow:
    """Limits concurrent calls: unlimited until a rejection shows that there are too many."""

    def __init__(self) -> None:
        self.limit: float = math.inf
        self._base = math.inf
        self._filled_calls = 0

    @property
    def is_limited(self) -> bool:
        return self.limit < math.inf

    def reset(self) -> None:
        """Return to the limit that was learned, since more were rejected."""
        self.limit, self._filled_calls = self._base, 0

    def shrink(self, in_flight: int) -> None:
        """Limit concurrency to the calls that were in flight when one more was rejected."""
        self.limit = self._base = in_flight
        self._filled_calls = 0

    def record_accepted(self, *, filled: bool) -> None:
        """Count an accepted call. The window grows by 1 after 20 calls that filled it, by 8 after 40, and so on."""
        if filled:
            self._filled_calls += 1
            self.limit = self._base + self._filled_calls**3 // 8000


class _QuotaBucket:
    """Mirrors one quota of the provider as a token bucket: it refills steadily, and every call takes some of it.

    The cost of a call is learned from how the reported level changes, so it includes the calls of other processes.
    """

    def __init__(self, least_cost: float) -> None:
        self._rate = 0.0
        """The refill rate in units per second; 0 before the first report."""
        self._least_cost = self._cost = least_cost
        self._limit = 0.0
        self._left, self._at = 0.0, 0.0
        self._reported_left, self._last_report = 0.0, _SentCall(0.0, 0, filled=False)

    def wait(self, now: float) -> float:
        """Seconds until the bucket holds enough for a call."""
        return (min(self._cost, self._limit) - self._left_at(now)) / (REFILL_SHARE * self._rate) if self._rate else 0.0

    def record_send(self, now: float) -> None:
        """Take the cost of one call."""
        if self._rate:
            self._left, self._at = self._left_at(now) - self._cost, now

    def report(self, sent: _SentCall, later: int, limit: int | None, left: int | None, full_in: float | None) -> None:
        """Update from the headers of a call after which `later` more were sent. Ignores incomplete and old reports."""
        if limit is None or left is None or not full_in or left >= limit or sent.number <= self._last_report.number:
            return
        if self._rate:
            self._learn_cost(sent, left)
        self._reported_left, self._last_report = left, sent
        self._limit, self._rate = limit, (limit - left) / full_in
        self._left, self._at = left - later * self._cost, sent.at

    def _learn_cost(self, sent: _SentCall, left: int) -> None:
        refilled = min(self._rate * (sent.at - self._last_report.at), self._limit - self._reported_left)
        cost = (self._reported_left + refilled - left) / (sent.number - self._last_report.number)
        self._cost = max(self._cost + 0.3 * (cost - self._cost), self._least_cost)

    def _left_at(self, now: float) -> float:
        return min(self._limit, self._left + REFILL_SHARE * self._rate * (now - self._at))


def _retries(error: ProviderError, took: float, *, is_known: bool) -> int:
    """How often a call is repeated after this error, which came after `took` seconds, except for a rate limit.

    `is_known` is whether the endpoint answered before: an address that never did is more likely wrong than down.
    """
    if error.final or error.outcome in ("rejected", "left_waiting", "answered"):
        return 0
    # Of what broke off, only a response has a status. One that took long costs much, and may be cut off every time.
    has_begun = error.outcome == "broken_off" and error.status is not None and took > LONG_REPLY
    is_unreachable = error.outcome == "not_sent" and not is_known
    return SHORT_RETRIES if has_begun or is_unreachable or error.status in (408, 409) else RETRIES


def _backoff_after(failures: int) -> float:
    """Seconds to wait after this many consecutive failures."""
    return min(INITIAL_BACKOFF * 2 ** (failures - 1), MAX_BACKOFF)


def _with_jitter(seconds: float) -> float:
    """About as long, so that processes don't retry in step."""
    return seconds * random.uniform(0.75, 1.25)
