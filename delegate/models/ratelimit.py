"""Keeps the calls to one model within its provider's rate limits, and repeats calls that failed by passing trouble.

This is the only place that repeats a call, as the outcome of each attempt allows. A failure of one call (a 5xx status,
a broken connection) delays only that call, with exponential backoff. Limits apply to all callers, and are learned from
responses. Until the first one, calls aren't delayed:

* a rejection (429, 503, 529) pauses all callers for as long as the server asks, or else with exponential backoff;
* it also halves the rate of calls or, if the rate isn't the cause, limits the number of concurrent calls;
* if as many calls are rejected at the lower rate as before, and even after the pauses that the server asks for, the
  rate isn't the cause: it returns to what it was, and only the rejected calls wait;
* rate-limit headers report what is left of a quota, and calls are spread out before it runs out.

What is learned is in `pacing`. The processes of a user share it, by `shared_limits`, as soon as there is a limit.
"""

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Self

from delegate._util import forking
from delegate._util.semaphore import FairSemaphore
from delegate.models.pacing import (
    MAX_CALLERS,
    MAX_PAUSE,
    Callers,
    ConcurrencyWindow,
    Learned,
    Rejection,
    SentCall,
    is_low,
    new_quotas,
)
from delegate.models.shared_limits import SharedLimits
from delegate.types.errors import ProviderError
from delegate.types.events import OnWait, WaitReason
from delegate.types.ports import Quota

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
POLL_SECONDS = 0.05
"""Seconds between two checks of the first waiting call, since its delay may change."""
ROUNDING = 1e-6
"""Seconds. Shorter delays are rounding errors."""
MEMORY_SECONDS = 300.0
"""After this time without a rejection, the limits learned from rejections are dropped."""
_ELSEWHERE = "the provider has rejected a call of another process"


class RateLimiter:
    """Delays the calls to one model at one endpoint. Shared by all its callers, on any event loop and thread.

    `clock` is the clock of the event loops, in seconds. `sleep` waits before a failed call is repeated. `shared` is the
    file by which processes share what they learn.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        shared: Path | None = None,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.RLock()  # re-entrant, since the garbage collector may finalize an abandoned call
        self._queue = FairSemaphore(1)
        self._waiting = 0
        self._own_in_flight = 0
        self._learned = Learned()
        self._error = ""
        """The text of the last rejection that this process got."""
        self._is_known = False
        """Whether a call was ever accepted."""
        self._path = shared
        self._shared = SharedLimits(shared, clock) if shared is not None else None
        self._id = token_hex(8)
        """Of this process, for the others."""
        self._is_inside = False
        """Whether what was learned is being changed."""
        self._is_joined = False
        """Whether what was learned is that of all processes."""
        forking.watch(self)

    def after_fork(self) -> None:
        """Start over: the calls in flight belong to the parent process."""
        RateLimiter.__init__(self, clock=self._clock, sleep=self._sleep, shared=self._path)

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
            self._reason: WaitReason = "rate_limit"
            self._sent: SentCall

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Self:
            limiter = self._limiter
            if self._backoff:
                with self._on_wait(self._reason):
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
                with self._limiter._exclusive():
                    self._limiter._own_in_flight -= 1

        def _is_repeated(self, error: ProviderError) -> bool:
            """Whether another attempt follows this error. If so, sets the wait before it."""
            self._backoff = 0.0
            self._reason = "rate_limit" if error.fault == "rate_limited" else "retry"
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

    async def _wait_to_send(self, deadline: float) -> SentCall:
        """Wait for all earlier calls, then until this one may be sent."""
        if self._learned.pacer.next_at > deadline:
            return self._send_or_raise()
        with self._lock:
            self._waiting += 1
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await self._queue.acquire()
            try:
                while (sent := self._try_send(now := self._clock())) is None:
                    wait = self._delay(now)
                    if now + wait > deadline:
                        return self._send_or_raise()
                    await asyncio.sleep(min(wait, POLL_SECONDS))
                return sent
            finally:
                self._queue.release()
        except TimeoutError:
            return self._send_or_raise()
        finally:
            with self._lock:
                self._waiting -= 1

    def _send_or_raise(self) -> SentCall:
        """Out of patience: raise the last rejection. Without one, send the call despite what the quotas predict."""
        with self._exclusive():
            now, last = self._clock(), self._learned.rejection
            if last is None:
                return self._record_send(now)
            text, seconds = self._error or _ELSEWHERE, max(self._learned.pacer.next_at - now, 0.0)
            raise ProviderError(last.fault, text, provider=last.provider, status=last.status, retry_after=seconds)

    def _try_send(self, now: float) -> SentCall | None:
        """Count a call as sent if it may be sent now; otherwise return None."""
        with self._exclusive():
            return None if self._delay(now) > ROUNDING else self._record_send(now)

    def _delay(self, now: float) -> float:
        """Seconds until the next call may be sent, by current knowledge."""
        window = 0.0 if self._in_flight < self._learned.window.limit else POLL_SECONDS
        return max(window, self._learned.delay(now))

    def _record_send(self, now: float) -> SentCall:
        self._own_in_flight += 1
        learned = self._learned
        after_pause, learned.pause_was_asked = learned.pause_was_asked, False
        filled = learned.window.is_limited and self._in_flight >= learned.window.limit
        return SentCall(now, learned.record_send(now), filled=filled, after_pause=after_pause, learned=learned.id)

    @property
    def _in_flight(self) -> int:
        """The calls in flight of all processes that share their limits."""
        callers = self._learned.callers
        return self._own_in_flight + sum(of.in_flight for id, of in callers.items() if id != self._id)

    # ------------------------------------------------------------------------------------------- learning

    def _accepted(self, sent: SentCall, quota: Quota | None) -> None:
        self._is_known = True
        if self._learned.rejection is None and quota is None:
            return
        with self._exclusive(learns=quota is not None and is_low(quota)):
            learned = self._learned
            if sent.at > learned.rejected_at:
                learned.rejections = 0
                learned.window.record_accepted(filled=sent.filled)
            if self._clock() - learned.rejected_at > MEMORY_SECONDS:
                learned.forget_rejections()
            if quota is not None:
                learned.report(quota, self._numbered(sent))

    def _rejected(self, sent: SentCall, error: ProviderError) -> float:
        """Slow down once for all calls that were in flight. Returns the seconds until the next may be sent."""
        with self._exclusive(learns=True):
            learned, now, sent = self._learned, self._clock(), self._numbered(sent)
            self._error, learned.rejection = str(error), Rejection(error.fault, error.provider, error.status)
            learned.history.remove(sent.at)
            learned.trial.count_rejected(sent, now)
            if sent.at > learned.rejected_at:
                self._change_pace(now, sent, error)
            elif learned.pacer.halved_at == learned.rejected_at:
                learned.pacer.adjust(learned.history.rate(learned.rejected_at, learned.pacer.span))
            if error.retry_after is not None and not learned.trial.doubts_pauses:
                learned.pacer.pause(now + min(error.retry_after, MAX_PAUSE))
                learned.pause_was_asked = True
            return learned.pacer.next_at - now

    def _numbered(self, sent: SentCall) -> SentCall:
        """The call, without its number if it was counted elsewhere."""
        return sent if sent.learned == self._learned.id else replace(sent, number=0)

    def _change_pace(self, now: float, sent: SentCall, error: ProviderError) -> None:
        """Slow down, or return to the pace of before if it was slowed down in vain: that takes some calls to tell."""
        learned, trial = self._learned, self._learned.trial
        if learned.pacer.is_slow:
            if sent.filled and learned.window.is_limited:
                learned.window.reset()
                return
            if not trial.is_over:
                if error.retry_after is None and trial.has_none_accepted and not trial.is_return:
                    self._back_off(now)
                return
            is_asked = error.retry_after is not None and not trial.pauses_are_vain
            if not (trial.is_outage or trial.shows_effect or is_asked):
                learned.rejected_at, learned.rejections = now, 0
                trial.extend(learned.history.count)
                learned.pacer.restore(now)
                learned.window = ConcurrencyWindow()
                return
        is_outage = trial.is_outage
        trial.restart(learned.history.count)
        self._slow_down(now, error, is_outage=is_outage)

    def _back_off(self, now: float) -> None:
        """Pause all callers, for longer each time until a call is accepted."""
        self._learned.rejections += 1
        self._learned.pacer.pause(now + _with_jitter(_backoff_after(self._learned.rejections)))

    def _slow_down(self, now: float, error: ProviderError, *, is_outage: bool) -> None:
        """Halve the rate; after two rejections without an accepted call, limit concurrency instead."""
        learned = self._learned
        learned.rejected_at = now
        accepted, others = learned.history.rate(now, learned.pacer.span), self._in_flight - 1
        if error.fault == "rate_limited" and learned.rejections and others > 0 and not accepted:
            learned.window.shrink(others)
        else:
            learned.pacer.halve(now, accepted, is_outage=is_outage, is_paused=error.retry_after is not None)
        if error.retry_after is None:
            self._back_off(now)
        else:
            learned.rejections += 1

    # -------------------------------------------------------------------------------------------- sharing

    @contextmanager
    def _exclusive(self, *, learns: bool = False) -> Generator[None]:
        """Inside, what was learned can be changed. Once a limit is known, or `learns`, it is that of all processes."""
        with self._lock:
            now, shared = self._clock(), self._shared
            if shared is None or self._is_inside or not (shared.look(now) or learns):
                yield
                return
            self._is_inside = True
            try:
                with shared.step(now, self._take_in, self._pass_on):
                    yield
            finally:
                self._is_inside = False

    def _take_in(self, theirs: Learned | None) -> None:
        """Go on from what all processes know: nothing if their file can't be used any more."""
        if theirs is not None:
            if not self._is_joined:
                theirs.merge(self._learned.history.times)
            now = self._clock()
            theirs.callers = {id: of for id, of in theirs.callers.items() if of.are_alive(now)}
            self._learned = theirs
        elif self._is_joined:
            self._learned = Learned()
        else:  # until others say what they send, all that they use seems to be one's own
            self._learned.quotas = new_quotas()
        self._is_joined = True

    def _pass_on(self) -> Learned | None:
        """What to tell the other processes, as long as there is something to tell."""
        now, learned = self._clock(), self._learned
        learned.callers.pop(self._id, None)
        if self._own_in_flight and len(learned.callers) < MAX_CALLERS:
            learned.callers[self._id] = Callers(os.getpid(), self._own_in_flight, now)
        self._is_joined = learned.is_limited(now)
        return learned if self._is_joined else None


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
